//! What this interface has allocated and not yet freed.

use std::{
    backtrace::Backtrace,
    num::NonZeroU64,
    sync::atomic::{AtomicUsize, Ordering},
};

use ash::vk;
use parking_lot::Mutex;
use slab::Slab;

use super::{allocation::Allocation, memory::MemoryBlock, pools::Pooled};

/// What is behind a live allocation.
pub(super) enum Held {
    Part(Pooled),
    Own(MemoryBlock),
}

/// A live allocation.
pub(super) struct Live {
    pub(super) name: Box<str>,
    pub(super) memory: vk::DeviceMemory,
    pub(super) offset: u64,
    pub(super) size: u64,
    pub(super) held: Held,
    pub(super) backtrace: Backtrace,
}

/// Each thread uses one of these tables, so that threads seldom wait for each other.
const TABLES: usize = 16;

/// All live allocations, by number: one, the number of their table, and [`TABLES`] times their place in it.
pub(super) struct AllLive {
    /// No other allocator of the process has it. Two allocators use the same numbers.
    pub(super) id: usize,
    tables: [Table; TABLES],
}

/// A table, on cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Table(Mutex<Numbered>);

#[derive(Default)]
struct Numbered {
    live: Slab<Live>,
    /// How many there were in all.
    count: u64,
}

impl AllLive {
    pub(super) fn new() -> Self {
        static ALLOCATORS: AtomicUsize = AtomicUsize::new(0);
        Self {
            id: ALLOCATORS.fetch_add(1, Ordering::Relaxed),
            tables: Default::default(),
        }
    }

    /// Notes an allocation, and returns its number, and how many this thread's table has had.
    pub(super) fn insert(&self, live: Live) -> (Option<NonZeroU64>, u64) {
        let table = table_of_this_thread();
        let mut all = self.tables[table].0.lock();
        let place = all.live.insert(live);
        all.count += 1;
        let number = NonZeroU64::MIN.checked_add((place * TABLES + table) as u64);
        (number, all.count)
    }

    pub(super) fn remove(&self, allocation: &Allocation) -> Option<Live> {
        let (table, place) = self.find(allocation)?;
        table.0.lock().live.try_remove(place)
    }

    pub(super) fn rename(&self, allocation: &Allocation, name: &str) -> Option<()> {
        let (table, place) = self.find(allocation)?;
        table.0.lock().live.get_mut(place)?.name = name.into();
        Some(())
    }

    pub(super) fn for_each(&self, mut look: impl FnMut(&Live)) {
        for table in &self.tables {
            for (_, live) in &table.0.lock().live {
                look(live);
            }
        }
    }

    /// Returns where an allocation is noted; `None` for one of another allocator.
    fn find(&self, allocation: &Allocation) -> Option<(&Table, usize)> {
        let number = allocation.chunk_id?;
        let is_own = allocation.allocator == self.id;
        let index = usize::try_from(number.get() - 1).ok()?;
        is_own.then(|| (&self.tables[index % TABLES], index / TABLES))
    }
}

fn table_of_this_thread() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static TABLE: usize = THREADS.fetch_add(1, Ordering::Relaxed) % TABLES;
    }
    TABLE.with(|table| *table)
}
