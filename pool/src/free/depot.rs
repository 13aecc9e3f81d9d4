//! Where threads leave surplus blocks for each other, many at a time.

use std::collections::HashMap;

use binpool_allocators::{Backend, QueueId};
use crossbeam_utils::CachePadded;
use parking_lot::Mutex;

use crate::{
    block::{Cached, Wanted, bytes_of},
    rare::{Rare, reached},
};
use binpool_lock::sync::{AtomicU64, Ordering};

/// The number of shelves. Fewer under `shuttle` and Miri, whose programs have few threads.
const SHELVES: usize = if cfg!(any(shuttle, miri)) { 2 } else { 8 };

/// A shelf that has had magazines of more queues and slots than this forgets the empty ones.
const REMEMBERED: usize = 256;

/// The number of counters of magazines.
const COUNTERS: usize = 64;

/// Blocks of one queue and slot that are passed on together.
type Magazine<B, O> = Vec<Cached<B, O>>;

type Magazines<B, O> = Vec<Magazine<B, O>>;

/// Surplus blocks of thread caches, for the next thread whose cache is empty.
///
/// They move in magazines: if one thread allocates and another one drops, single blocks would keep both waiting for a lock. From "Magazines
/// and Vmem" (Bonwick and Adams, 2001).
///
/// A thread leaves and takes magazines without the pool's lock, while it is inside the gate of its cache. So nothing moves while all gates
/// are closed. There are several shelves, each with its own lock, and each thread begins at a different one, so that threads rarely wait
/// for each other.
#[derive(Debug)]
pub(crate) struct Depot<B: Backend, O> {
    shelves: [CachePadded<Shelf<B, O>>; SHELVES],
    /// The bytes on all shelves.
    bytes: CachePadded<AtomicU64>,
    /// How many magazines there are, by the last bits of the slot. A thread looks at no shelf if the count of its slot is 0. Changed only
    /// under the lock of the magazine's shelf.
    magazines: CachePadded<[AtomicU64; COUNTERS]>,
}

/// A part of the depot.
#[derive(Debug)]
struct Shelf<B: Backend, O> {
    /// The number of blocks, so that a thread need not lock an empty shelf. Changed only under the lock.
    blocks: AtomicU64,
    /// By queue and [slot](crate::classes::Classes::slot), oldest first.
    magazines: Mutex<HashMap<(QueueId, usize), Magazines<B, O>>>,
}

impl<B: Backend, O> Default for Shelf<B, O> {
    fn default() -> Self {
        Self {
            blocks: AtomicU64::new(0),
            magazines: Mutex::default(),
        }
    }
}

impl<B: Backend, O> Default for Depot<B, O> {
    fn default() -> Self {
        Self {
            shelves: std::array::from_fn(|_| CachePadded::default()),
            bytes: CachePadded::new(AtomicU64::new(0)),
            magazines: CachePadded::new(std::array::from_fn(|_| AtomicU64::new(0))),
        }
    }
}

impl<B: Backend, O> Depot<B, O> {
    pub(crate) fn blocks(&self) -> u64 {
        let shelves = self.shelves.iter();
        shelves.map(|it| it.blocks.load(Ordering::Relaxed)).sum()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns whether there may be a magazine of this slot.
    #[inline]
    pub(crate) fn may_have(&self, slot: usize) -> bool {
        self.count_for(slot).load(Ordering::Relaxed) > 0
    }

    /// The number of magazines of this slot and of all slots with the same last bits.
    #[inline]
    fn count_for(&self, slot: usize) -> &AtomicU64 {
        &self.magazines[slot % COUNTERS]
    }

    /// The shelves, in the order in which the thread with this number looks at them.
    fn shelves_for(&self, thread: usize) -> impl Iterator<Item = &Shelf<B, O>> {
        (0..SHELVES).map(move |step| &*self.shelves[(thread + step) % SHELVES])
    }

    /// Adds blocks of one queue and slot, for the thread of this number.
    pub(crate) fn leave(&self, thread: usize, queue: QueueId, slot: usize, left: Magazine<B, O>) {
        let Some(shelf) = self.shelves_for(thread).next() else {
            return;
        };
        reached(Rare::MagazineLeft);
        let (blocks, bytes) = (left.len() as u64, bytes_of(&left) as u64);
        let mut magazines = shelf.magazines.lock();
        if magazines.len() > REMEMBERED {
            magazines.retain(|_, left| !left.is_empty());
        }
        magazines.entry((queue, slot)).or_default().push(left);
        shelf.blocks.fetch_add(blocks, Ordering::Relaxed);
        self.count_for(slot).fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Takes the youngest magazine of this queue and slot from the first shelf that has one. Callers ask [`may_have`](Self::may_have)
    /// first.
    pub(crate) fn take(
        &self,
        thread: usize,
        queue: QueueId,
        slot: usize,
    ) -> Option<Magazine<B, O>> {
        self.shelves_for(thread).find_map(|shelf| {
            if shelf.blocks.load(Ordering::Relaxed) == 0 {
                return None;
            }
            let mut magazines = shelf.magazines.lock();
            let taken = magazines.get_mut(&(queue, slot))?.pop()?;
            self.count_for(slot).fetch_sub(1, Ordering::Relaxed);
            shelf
                .blocks
                .fetch_sub(taken.len() as u64, Ordering::Relaxed);
            drop(magazines);
            self.bytes
                .fetch_sub(bytes_of(&taken) as u64, Ordering::Relaxed);
            reached(Rare::MagazineTaken);
            Some(taken)
        })
    }

    /// Takes the magazines of `wanted` blocks. Within each shelf, queue and slot the oldest come first.
    pub(crate) fn take_all(&self, wanted: Wanted) -> Vec<Cached<B, O>> {
        let is_wanted = |cached: &Cached<B, O>| wanted.has(&cached.block);
        let mut all = Vec::new();
        for shelf in self.shelves_for(0) {
            if shelf.blocks.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut magazines = shelf.magazines.lock();
            let before = all.len();
            for ((_, slot), left) in magazines.iter_mut() {
                if left.iter().flatten().any(is_wanted) {
                    self.count_for(*slot)
                        .fetch_sub(left.len() as u64, Ordering::Relaxed);
                    all.extend(left.drain(..).flatten());
                }
            }
            let taken = (all.len() - before) as u64;
            shelf.blocks.fetch_sub(taken, Ordering::Relaxed);
        }
        self.bytes
            .fetch_sub(bytes_of(&all) as u64, Ordering::Relaxed);
        all
    }
}

#[cfg(test)]
mod tests {
    use binpool_allocators::{Memory, MemoryId, Queue};

    use super::{Depot, REMEMBERED, SHELVES, Wanted};
    use binpool_mock::MockBackend;

    use crate::{mock_pool::MockPool, shared::Cached};

    type Magazine = Vec<Cached<MockBackend>>;

    fn ids(magazine: &[Cached<MockBackend>]) -> Vec<MemoryId> {
        let blocks = magazine.iter().map(|it| &it.block);
        blocks.map(|block| block.memory.id()).collect()
    }

    fn magazine(mock: &MockPool, blocks: usize) -> Magazine {
        (0..blocks).map(|_| mock.cached(1024)).collect()
    }

    #[test]
    fn the_magazine_that_was_added_last_is_taken_first() {
        let mock = MockPool::of_blocks();
        let (one, other) = (mock.queue.id(), mock.another_queue().id());
        let depot = Depot::default();
        assert!(depot.take(0, one, 1).is_none());
        let magazines = [3, 2, 4].map(|blocks| magazine(&mock, blocks));
        let [first, second, elsewhere] = magazines.each_ref().map(|it| ids(it));
        let [of_first, of_second, of_elsewhere] = magazines;
        depot.leave(0, one, 1, of_first);
        depot.leave(0, one, 1, of_second);
        depot.leave(0, other, 2, of_elsewhere);
        assert_eq!((depot.blocks(), depot.bytes()), (9, 9 << 10));
        assert!(depot.take(0, one, 2).is_none() && depot.take(0, other, 1).is_none());
        assert_eq!(depot.take(0, one, 1).map(|it| ids(&it)), Some(second));
        assert_eq!((depot.blocks(), depot.bytes()), (7, 7 << 10));
        assert_eq!(depot.take(0, one, 1).map(|it| ids(&it)), Some(first));
        assert!(depot.take(0, one, 1).is_none());
        assert_eq!(depot.take(0, other, 2).map(|it| ids(&it)), Some(elsewhere));
        assert_eq!((depot.blocks(), depot.bytes()), (0, 0));
        assert!(![1, 2].into_iter().any(|slot| depot.may_have(slot)));
    }

    #[test]
    fn each_thread_leaves_magazines_on_a_shelf_of_its_own_and_takes_them_from_any() {
        let mock = MockPool::of_blocks();
        let queue = mock.queue.id();
        let depot = Depot::default();
        for thread in 0..SHELVES {
            for other in 0..SHELVES {
                depot.leave(other, queue, 1, magazine(&mock, 1));
                assert_eq!(depot.shelves[other].magazines.lock()[&(queue, 1)].len(), 1);
                assert!(depot.take(thread, queue, 1).is_some(), "{thread}, {other}");
            }
        }
    }

    #[test]
    fn all_blocks_can_be_taken_or_those_of_one_slot() {
        let mock = MockPool::of_blocks();
        let queue = mock.queue.id();
        let depot = Depot::default();
        let [one, two] = [1, 2].map(|slot| {
            let mut magazine = magazine(&mock, 2);
            for cached in &mut magazine {
                cached.block.slot = slot;
            }
            let ids = ids(&magazine);
            depot.leave(0, queue, slot, magazine);
            ids
        });
        let may_have = || [1, 2].map(|slot| depot.may_have(slot));
        assert_eq!(may_have(), [true, true]);
        assert_eq!(ids(&depot.take_all(Wanted::Slot(2))), two);
        assert_eq!((depot.blocks(), depot.bytes()), (2, 2 << 10));
        assert_eq!(may_have(), [true, false]);
        assert_eq!(ids(&depot.take_all(Wanted::All)), one);
        assert_eq!((depot.blocks(), depot.bytes()), (0, 0));
        assert_eq!(may_have(), [false, false]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes, for hundreds of magazines")]
    fn a_shelf_forgets_only_the_slots_of_which_it_has_no_magazine() {
        let mock = MockPool::of_blocks();
        let queue = mock.queue.id();
        let depot = Depot::default();
        let slots = 0..2 * REMEMBERED;
        for slot in slots.clone() {
            depot.leave(0, queue, slot, magazine(&mock, 1));
        }
        let remembered = || depot.shelves[0].magazines.lock().len();
        assert_eq!(remembered(), slots.len(), "none of them is empty");
        for slot in slots.clone().step_by(2) {
            assert!(depot.take(0, queue, slot).is_some());
        }
        assert_eq!(remembered(), slots.len(), "they are looked through later");
        let last = slots.len();
        depot.leave(0, queue, last, magazine(&mock, 1));
        assert_eq!(remembered(), slots.len() / 2 + 1);
        let left = slots.skip(1).step_by(2).chain([last]);
        for slot in left {
            assert!(depot.take(0, queue, slot).is_some(), "slot {slot}");
        }
        assert_eq!((depot.blocks(), depot.bytes()), (0, 0));
    }

    #[test]
    fn blocks_larger_than_a_size_can_be_taken_and_those_of_the_size_stay() {
        let mock = MockPool::of_blocks();
        let queue = mock.queue.id();
        let depot = Depot::default();
        depot.leave(0, queue, 1, magazine(&mock, 2));
        assert!(depot.take_all(Wanted::LargerThan(1024)).is_empty());
        assert_eq!(depot.take_all(Wanted::LargerThan(1023)).len(), 2);
    }
}
