//! Which caller has which block.

use std::sync::Arc;

use binpool_allocators::segments::RangeKey;

use crate::{
    sync::{AtomicU64, Ordering},
    track::caller::Caller,
};

/// What is known of a block while a user has it.
///
/// Written where the block is handed out or freed, behind the thread's own [gate](crate::lock::biased) or under the
/// pool's lock. Read under that lock with all gates closed. So a read and a write never run at the same time, and
/// relaxed atomics suffice.
///
/// On a cache line of its own, as the next record may be another thread's.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct AllocationRecord {
    /// The requested bytes; 0 while no user has the block.
    asked: AtomicU64,
    /// The time of the request, in ticks of the [clock](crate::track::ticks).
    since: AtomicU64,
    caller: AtomicU64,
    queue: AtomicU64,
    /// Its number in the recording; 0 for none.
    id: AtomicU64,
    /// The bytes that the block takes of the device.
    #[cfg(feature = "snapshot")]
    pub(crate) bytes: usize,
    /// Its range, for a block of a segment.
    #[cfg(feature = "snapshot")]
    pub(crate) range: Option<RangeKey>,
}

/// An active block, and its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ownership {
    /// The requested bytes.
    pub(crate) asked: u64,
    /// The time of the request, in ticks.
    pub(crate) since: u64,
    pub(crate) caller: Caller,
    /// The number of the queue that it was requested for.
    pub(crate) queue: u64,
    /// Its number in the recording; 0 for none.
    pub(crate) id: u64,
}

impl AllocationRecord {
    #[cfg_attr(
        not(feature = "snapshot"),
        expect(unused_variables, reason = "for snapshots")
    )]
    fn new(bytes: usize, range: Option<RangeKey>) -> Self {
        Self {
            asked: AtomicU64::new(0),
            since: AtomicU64::new(0),
            caller: AtomicU64::new(0),
            queue: AtomicU64::new(0),
            id: AtomicU64::new(0),
            #[cfg(feature = "snapshot")]
            bytes,
            #[cfg(feature = "snapshot")]
            range,
        }
    }

    #[inline]
    pub(crate) fn begin(&self, ownership: Ownership) {
        let Ownership {
            asked,
            since,
            caller,
            queue,
            id,
        } = ownership;
        self.asked.store(asked, Ordering::Relaxed);
        self.since.store(since, Ordering::Relaxed);
        self.caller.store(caller.packed(), Ordering::Relaxed);
        self.queue.store(queue, Ordering::Relaxed);
        self.id.store(id, Ordering::Relaxed);
    }

    /// Returns the ownership of the block; `None` while it is free.
    #[inline]
    pub(crate) fn now(&self) -> Option<Ownership> {
        let asked = self.asked.load(Ordering::Relaxed);
        (asked > 0).then(|| Ownership {
            asked,
            since: self.since.load(Ordering::Relaxed),
            caller: Caller::unpacked(self.caller.load(Ordering::Relaxed)),
            queue: self.queue.load(Ordering::Relaxed),
            id: self.id.load(Ordering::Relaxed),
        })
    }

    /// Notes that the block is freed. Returns its number in the recording and the time of its request; `None` if it was
    /// free.
    #[inline]
    pub(crate) fn end(&self) -> Option<(u64, u64)> {
        if self.asked.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.asked.store(0, Ordering::Relaxed);
        Some((
            self.id.load(Ordering::Relaxed),
            self.since.load(Ordering::Relaxed),
        ))
    }
}

/// The records of all blocks that were handed out since the pool began to track.
#[derive(Debug, Default)]
pub(crate) struct AllocationTable {
    records: Vec<Arc<AllocationRecord>>,
    /// At so many records, those of released blocks are removed.
    most: usize,
}

impl AllocationTable {
    /// Adds the record of a block of `bytes` bytes that has none yet.
    pub(crate) fn add(&mut self, bytes: usize, range: Option<RangeKey>) -> Arc<AllocationRecord> {
        if self.records.len() >= self.most {
            self.records.retain(|record| Arc::strong_count(record) > 1);
            // The table may double before the next removal, so the cost per record is constant on average.
            self.most = (2 * self.records.len()).max(64);
        }
        let record = Arc::new(AllocationRecord::new(bytes, range));
        self.records.push(Arc::clone(&record));
        record
    }

    /// Marks all blocks as free.
    pub(crate) fn forget_all(&self) {
        for record in &self.records {
            record.end();
        }
    }

    /// Returns the active blocks.
    pub(crate) fn active(&self) -> impl Iterator<Item = (&AllocationRecord, Ownership)> {
        // The record of a detached block ended with the detach.
        let records = self.records.iter().map(Arc::as_ref);
        records.filter_map(|record| Some((record, record.now()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_released_blocks_are_removed() {
        let mut allocations = AllocationTable::default();
        let kept = allocations.add(1024, None);
        for _ in 0..1000 {
            let gone = allocations.add(1024, None);
            assert!(allocations.records.len() <= 64);
            drop(gone);
        }
        assert!(allocations.records.iter().any(|it| Arc::ptr_eq(it, &kept)));
    }

    #[test]
    fn a_block_is_active_from_its_beginning_to_its_end() {
        let mut allocations = AllocationTable::default();
        let record = allocations.add(1024, None);
        assert_eq!(allocations.active().count(), 0);
        let ownership = Ownership {
            asked: 900,
            since: 5,
            caller: Caller::default(),
            queue: 3,
            id: 8,
        };
        record.begin(ownership);
        let active: Vec<_> = allocations
            .active()
            .map(|(_, ownership)| ownership)
            .collect();
        assert_eq!(active, [ownership]);
        assert_eq!(record.end(), Some((8, 5)));
        assert_eq!((record.end(), allocations.active().count()), (None, 0));
    }
}
