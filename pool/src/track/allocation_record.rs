//! Which caller has which block.

use std::sync::Arc;

use crate::track::caller::Caller;
use binpool_lock::sync::{AtomicU64, Ordering};
use binpool_segments::RangeKey;

/// What is known of a block while a user has it.
///
/// Written where the block is handed out or freed, inside the thread's own [gate](binpool_lock::biased) or under the pool's lock. Read under
/// that lock with all gates closed. So a read and a write never run at the same time, and relaxed atomics suffice.
///
/// On a cache line of its own, since the next record may be another thread's. The fields that each hit writes share one line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct AllocationRecord {
    /// The requested bytes; 0 while no user has the block.
    asked: AtomicU64,
    /// The time of the request, in ticks of the [clock](crate::track::ticks).
    since: AtomicU64,
    caller: AtomicU64,
    queue: AtomicU64,
    /// The block's number in recordings, and how often it was handed out. See [`USE_BITS`].
    id: AtomicU64,
    /// Where the block lies.
    pub(crate) place: RecordedPlace,
    /// Its range, for a block of a segment.
    #[cfg(feature = "snapshot")]
    pub(crate) range: Option<RangeKey>,
}

/// The place of a block, which does not change as long as the block has its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordedPlace {
    /// The number of the segment, or of the block's own memory.
    pub(crate) memory: u64,
    pub(crate) offset: u64,
    /// The bytes that the block takes of the device.
    pub(crate) bytes: u64,
}

/// The number of an ID's bits that count the uses of its block. Two uses of one block may overlap in a recording, if one thread frees it
/// and another gets it in the same tick, so they need different IDs.
pub(crate) const USE_BITS: u32 = 8;

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
}

impl AllocationRecord {
    #[cfg_attr(
        not(feature = "snapshot"),
        expect(unused_variables, reason = "for snapshots")
    )]
    fn new(number: u64, place: RecordedPlace, range: Option<RangeKey>) -> Self {
        Self {
            asked: AtomicU64::new(0),
            since: AtomicU64::new(0),
            caller: AtomicU64::new(0),
            queue: AtomicU64::new(0),
            id: AtomicU64::new(number << USE_BITS),
            place,
            #[cfg(feature = "snapshot")]
            range,
        }
    }

    /// The number of the block in recordings.
    pub(crate) fn number(&self) -> u64 {
        self.id() >> USE_BITS
    }

    /// The ID of the block's present use in a recording.
    #[inline]
    pub(crate) fn id(&self) -> u64 {
        self.id.load(Ordering::Relaxed)
    }

    /// Gives the block's next use an ID, and returns it.
    #[inline]
    pub(crate) fn next_use(&self) -> u64 {
        let id = self.id();
        let mask = (1 << USE_BITS) - 1;
        let id = id & !mask | id.wrapping_add(1) & mask;
        self.id.store(id, Ordering::Relaxed);
        id
    }

    /// Records that the block is handed out.
    #[inline]
    pub(crate) fn begin(&self, ownership: Ownership) {
        let Ownership {
            asked,
            since,
            caller,
            queue,
        } = ownership;
        self.asked.store(asked, Ordering::Relaxed);
        self.since.store(since, Ordering::Relaxed);
        self.caller.store(caller.packed(), Ordering::Relaxed);
        self.queue.store(queue, Ordering::Relaxed);
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
        })
    }

    /// Records that the block is freed. Returns its ID in a recording and the time of its request; `None` if it was free.
    #[inline]
    pub(crate) fn end(&self) -> Option<(u64, u64)> {
        if self.asked.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.asked.store(0, Ordering::Relaxed);
        Some((self.id(), self.since.load(Ordering::Relaxed)))
    }
}

/// The records of all blocks that were handed out since the pool began to track.
#[derive(Debug, Default)]
pub(crate) struct AllocationTable {
    records: Vec<Arc<AllocationRecord>>,
    /// At this many records, those of released blocks are removed.
    most: usize,
    /// The number of the last record.
    last: u64,
}

impl AllocationTable {
    /// Adds the record of a block without a record.
    pub(crate) fn add(
        &mut self,
        place: RecordedPlace,
        range: Option<RangeKey>,
    ) -> Arc<AllocationRecord> {
        if self.records.len() >= self.most {
            self.records.retain(|record| Arc::strong_count(record) > 1);
            // The table may double before the next removal, so the cost per record is constant on average.
            self.most = (2 * self.records.len()).max(64);
        }
        self.last += 1;
        let record = Arc::new(AllocationRecord::new(self.last, place, range));
        self.records.push(Arc::clone(&record));
        record
    }

    /// Marks all blocks as free.
    pub(crate) fn forget_all(&self) {
        for record in &self.records {
            record.end();
        }
    }

    /// Returns the records of the blocks that the pool still has, active or not.
    pub(crate) fn present(&self) -> impl Iterator<Item = &AllocationRecord> {
        let present = self.records.iter();
        present
            .filter(|record| Arc::strong_count(record) > 1)
            .map(Arc::as_ref)
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

    const PLACE: RecordedPlace = RecordedPlace {
        memory: 1,
        offset: 0,
        bytes: 1024,
    };

    #[test]
    fn records_of_released_blocks_are_removed() {
        let mut allocations = AllocationTable::default();
        let kept = allocations.add(PLACE, None);
        for _ in 0..1000 {
            let gone = allocations.add(PLACE, None);
            assert!(allocations.records.len() <= 64);
            drop(gone);
        }
        assert!(allocations.records.iter().any(|it| Arc::ptr_eq(it, &kept)));
    }

    #[test]
    fn a_block_is_active_from_its_beginning_to_its_end() {
        let mut allocations = AllocationTable::default();
        let record = allocations.add(PLACE, None);
        assert_eq!(allocations.active().count(), 0);
        let ownership = Ownership {
            asked: 900,
            since: 5,
            caller: Caller::default(),
            queue: 3,
        };
        record.begin(ownership);
        let active: Vec<_> = allocations
            .active()
            .map(|(_, ownership)| ownership)
            .collect();
        assert_eq!(active, [ownership]);
        assert_eq!(record.end(), Some((record.id(), 5)));
        assert_eq!((record.end(), allocations.active().count()), (None, 0));
    }

    #[test]
    fn each_use_of_a_block_has_an_id_of_its_own_and_all_name_the_block() {
        let mut allocations = AllocationTable::default();
        let [record, other] = [(); 2].map(|()| allocations.add(PLACE, None));
        let ids: Vec<_> = (0..1000).map(|_| record.next_use()).collect();
        assert!(ids.windows(2).all(|pair| pair[0] != pair[1]));
        assert!(ids.iter().all(|id| id >> USE_BITS == record.number()));
        assert_ne!(other.number(), record.number());
    }

    #[test]
    fn the_ids_of_a_block_go_round_and_still_name_it() {
        let mut allocations = AllocationTable::default();
        let record = allocations.add(PLACE, None);
        let first = record.id();
        assert_eq!(record.next_use(), first + 1);
        let last = first + (1 << USE_BITS) - 1;
        record.id.store(last, Ordering::Relaxed);
        assert_eq!(record.next_use(), first);
        assert_eq!(record.number(), 1);
    }

    #[test]
    fn the_table_is_looked_through_again_only_once_it_has_doubled() {
        let mut allocations = AllocationTable::default();
        let kept: Vec<_> = (0..200).map(|_| allocations.add(PLACE, None)).collect();
        assert_eq!(allocations.present().count(), 200);
        assert_eq!(allocations.most, 256, "twice 128");
        drop(kept);
        assert_eq!(allocations.present().count(), 0);
        assert_eq!(allocations.records.len(), 200);
    }
}
