//! Where threads leave surplus blocks for each other, many at a time.

use std::collections::HashMap;

use binpool_allocators::{Allocator, QueueId};

use crate::free::thread_cache::{Cached, Wanted, bytes_of};

/// Blocks of one queue and slot that are passed on together.
type Magazine<A, O> = Vec<Cached<A, O>>;

/// Blocks that a thread cache had too many of, for the next thread whose cache has none.
///
/// They move in magazines, because if one thread allocates and another one drops, single blocks would keep both waiting for the
/// pool's lock. From "Magazines and Vmem" (Bonwick and Adams, 2001).
#[derive(Debug)]
pub(crate) struct Depot<A: Allocator, O> {
    /// By queue and [slot](crate::classes::Classes::slot), oldest first.
    magazines: HashMap<(QueueId, usize), Vec<Magazine<A, O>>>,
    blocks: usize,
    bytes: usize,
}

impl<A: Allocator, O> Default for Depot<A, O> {
    fn default() -> Self {
        Self {
            magazines: HashMap::new(),
            blocks: 0,
            bytes: 0,
        }
    }
}

impl<A: Allocator, O> Depot<A, O> {
    pub(crate) fn blocks(&self) -> usize {
        self.blocks
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds blocks of one queue and slot.
    pub(crate) fn leave(&mut self, queue: QueueId, slot: usize, magazine: Vec<Cached<A, O>>) {
        self.blocks += magazine.len();
        self.bytes += bytes_of(&magazine);
        self.magazines
            .entry((queue, slot))
            .or_default()
            .push(magazine);
    }

    /// Takes the magazine that was added last for this queue and slot.
    pub(crate) fn take(&mut self, queue: QueueId, slot: usize) -> Option<Vec<Cached<A, O>>> {
        if self.blocks == 0 {
            return None;
        }
        let left = self.magazines.get_mut(&(queue, slot))?;
        let magazine = left.pop()?;
        if left.is_empty() {
            self.magazines.remove(&(queue, slot));
        }
        self.blocks -= magazine.len();
        self.bytes -= bytes_of(&magazine);
        Some(magazine)
    }

    /// Takes the magazines that have `wanted` blocks. Within each queue and slot the oldest come first.
    pub(crate) fn take_all(&mut self, wanted: Wanted) -> Vec<Cached<A, O>> {
        let is_wanted = |cached: &Cached<A, O>| wanted.has(&cached.cached_block.block);
        let has_any = |left: &mut Vec<Magazine<A, O>>| left.iter().flatten().any(is_wanted);
        let taken = self.magazines.extract_if(|_, left| has_any(left));
        let taken: Vec<_> = taken.flat_map(|(_, left)| left).flatten().collect();
        self.blocks -= taken.len();
        self.bytes -= bytes_of(&taken);
        taken
    }
}

#[cfg(test)]
mod tests {
    use binpool_allocators::{Memory, MemoryId, Queue};

    use super::{Depot, Wanted};
    use crate::{
        mock_pool::{Immediate, MockPool},
        shared::Cached,
    };

    type Magazine = Vec<Cached<Immediate>>;

    fn ids(magazine: &[Cached<Immediate>]) -> Vec<MemoryId> {
        let blocks = magazine.iter().map(|it| &it.cached_block.block);
        blocks.map(|block| block.memory.id()).collect()
    }

    fn magazine(mock: &MockPool, blocks: usize) -> Magazine {
        (0..blocks).map(|_| mock.cached(1024)).collect()
    }

    #[test]
    fn the_magazine_that_was_added_last_is_taken_first() {
        let mock = MockPool::of_blocks();
        let (one, other) = (mock.queue.id(), mock.another_queue().id());
        let mut depot = Depot::default();
        assert!(depot.take(one, 1).is_none());
        let magazines = [3, 2, 4].map(|blocks| magazine(&mock, blocks));
        let [first, second, elsewhere] = magazines.each_ref().map(|it| ids(it));
        let [of_first, of_second, of_elsewhere] = magazines;
        depot.leave(one, 1, of_first);
        depot.leave(one, 1, of_second);
        depot.leave(other, 2, of_elsewhere);
        assert_eq!((depot.blocks(), depot.bytes()), (9, 9 << 10));
        assert!(depot.take(one, 2).is_none() && depot.take(other, 1).is_none());
        assert_eq!(depot.take(one, 1).map(|it| ids(&it)), Some(second));
        assert_eq!((depot.blocks(), depot.bytes()), (7, 7 << 10));
        assert_eq!(depot.take(one, 1).map(|it| ids(&it)), Some(first));
        assert!(depot.take(one, 1).is_none());
        assert_eq!(depot.take(other, 2).map(|it| ids(&it)), Some(elsewhere));
        assert_eq!((depot.blocks(), depot.bytes()), (0, 0));
    }

    #[test]
    fn all_blocks_can_be_taken_or_those_of_one_slot() {
        let mock = MockPool::of_blocks();
        let queue = mock.queue.id();
        let mut depot = Depot::default();
        let [one, two] = [1, 2].map(|slot| {
            let mut magazine = magazine(&mock, 2);
            for cached in &mut magazine {
                cached.cached_block.block.slot = slot;
            }
            let ids = ids(&magazine);
            depot.leave(queue, slot, magazine);
            ids
        });
        assert_eq!(ids(&depot.take_all(Wanted::Slot(2))), two);
        assert_eq!((depot.blocks(), depot.bytes()), (2, 2 << 10));
        assert_eq!(ids(&depot.take_all(Wanted::All)), one);
        assert_eq!((depot.blocks(), depot.bytes()), (0, 0));
    }
}
