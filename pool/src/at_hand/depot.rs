//! Where threads leave blocks for each other, many at a time.

use std::collections::HashMap;

use binpool_allocators::{Allocator, QueueId};

use crate::at_hand::thread_cache::{Cached, bytes_of};

/// Blocks that were at the hand of a thread, which had too many, and that the next thread takes over as they are.
///
/// Moved one at a time, blocks that one thread allocates and another one drops would keep both waiting for the pool's lock.
/// After "Magazines and Vmem" (Bonwick and Adams, 2001).
#[derive(Debug)]
pub(crate) struct Depot<A: Allocator> {
    /// By queue and [place](crate::classes::Classes::place).
    magazines: HashMap<(QueueId, usize), Vec<Vec<Cached<A>>>>,
    blocks: usize,
    bytes: usize,
}

impl<A: Allocator> Default for Depot<A> {
    fn default() -> Self {
        Self {
            magazines: HashMap::new(),
            blocks: 0,
            bytes: 0,
        }
    }
}

impl<A: Allocator> Depot<A> {
    pub(crate) fn blocks(&self) -> usize {
        self.blocks
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Leaves blocks of one queue and place.
    pub(crate) fn leave(&mut self, queue: QueueId, place: usize, magazine: Vec<Cached<A>>) {
        self.blocks += magazine.len();
        self.bytes += bytes_of(&magazine);
        self.magazines
            .entry((queue, place))
            .or_default()
            .push(magazine);
    }

    /// Takes what was left last for this queue and place.
    pub(crate) fn take(&mut self, queue: QueueId, place: usize) -> Option<Vec<Cached<A>>> {
        if self.blocks == 0 {
            return None;
        }
        let left = self.magazines.get_mut(&(queue, place))?;
        let magazine = left.pop()?;
        if left.is_empty() {
            self.magazines.remove(&(queue, place));
        }
        self.blocks -= magazine.len();
        self.bytes -= bytes_of(&magazine);
        Some(magazine)
    }

    /// Takes what was left for one place, or everything, what was left first of each queue and place before what came later.
    pub(crate) fn take_all(&mut self, place: Option<usize>) -> Vec<Cached<A>> {
        let is_wanted = |of: usize| place.is_none_or(|place| place == of);
        let taken = self.magazines.extract_if(|(_, of), _| is_wanted(*of));
        let taken: Vec<_> = taken.flat_map(|(_, left)| left).flatten().collect();
        self.blocks -= taken.len();
        self.bytes -= bytes_of(&taken);
        taken
    }
}

#[cfg(test)]
mod tests {
    use binpool_allocators::{Memory, MemoryId, Queue};

    use super::*;
    use crate::mock_pool::{Immediate, MockPool};

    type Magazine = Vec<Cached<Immediate>>;

    fn ids(magazine: &[Cached<Immediate>]) -> Vec<MemoryId> {
        let blocks = magazine.iter().map(|it| &it.grant.block);
        blocks.map(|block| block.memory.id()).collect()
    }

    fn magazine(mock: &MockPool, blocks: usize) -> Magazine {
        (0..blocks).map(|_| mock.cached(1024)).collect()
    }

    #[test]
    fn what_was_left_last_for_a_queue_and_place_is_taken_first() {
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
    fn everything_is_taken_or_what_was_left_for_one_place() {
        let mock = MockPool::of_blocks();
        let queue = mock.queue.id();
        let mut depot = Depot::default();
        let [one, two] = [1, 2].map(|place| {
            let magazine = magazine(&mock, 2);
            let ids = ids(&magazine);
            depot.leave(queue, place, magazine);
            ids
        });
        assert_eq!(ids(&depot.take_all(Some(2))), two);
        assert_eq!((depot.blocks(), depot.bytes()), (2, 2 << 10));
        assert_eq!(ids(&depot.take_all(None)), one);
        assert_eq!((depot.blocks(), depot.bytes()), (0, 0));
    }
}
