//! What is allocated.

use std::{backtrace::Backtrace, num::NonZeroU64};

use ash::vk;
use parking_lot::Mutex;
use slab::Slab;

use super::{memory::MemoryBlock, pools::Pooled};

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

/// All live allocations, by number.
#[derive(Default)]
pub(super) struct AllLive(Mutex<Numbered>);

#[derive(Default)]
struct Numbered {
    live: Slab<Live>,
    /// How many there were in all.
    count: u64,
}

impl AllLive {
    /// Notes an allocation, and returns its number, and how many there were in all.
    pub(super) fn insert(&self, live: Live) -> (Option<NonZeroU64>, u64) {
        let mut all = self.0.lock();
        let key = all.live.insert(live);
        all.count += 1;
        (NonZeroU64::MIN.checked_add(key as u64), all.count)
    }

    pub(super) fn remove(&self, number: NonZeroU64) -> Option<Live> {
        self.0.lock().live.try_remove(key(number)?)
    }

    pub(super) fn rename(&self, number: NonZeroU64, name: &str) -> Option<()> {
        self.0.lock().live.get_mut(key(number)?)?.name = name.into();
        Some(())
    }

    pub(super) fn for_each(&self, mut look: impl FnMut(&Live)) {
        for (_, live) in &self.0.lock().live {
            look(live);
        }
    }
}

fn key(number: NonZeroU64) -> Option<usize> {
    usize::try_from(number.get() - 1).ok()
}
