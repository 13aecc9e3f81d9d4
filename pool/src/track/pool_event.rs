//! The pool's own events in its recording.

use binpool_allocators::{MemoryId, Region};
pub(crate) use binpool_trace::{PoolEvent, What};

use crate::track::allocation_record::AllocationRecord;

/// Returns the event that a block got its place.
pub(crate) fn placed(record: &AllocationRecord) -> PoolEvent {
    let place = record.place;
    PoolEvent::Placed {
        block: record.number(),
        memory: place.memory,
        offset: place.offset,
        bytes: place.bytes,
    }
}

/// Returns the event that pages were mapped to a part of a reservation.
pub(crate) fn mapped(reservation: MemoryId, region: Region) -> PoolEvent {
    PoolEvent::Mapped {
        reservation: reservation.get(),
        offset: region.offset as u64,
        bytes: region.bytes as u64,
    }
}

/// Returns the event that the pages of a part of a reservation were unmapped.
pub(crate) fn unmapped(reservation: MemoryId, region: Region) -> PoolEvent {
    PoolEvent::Unmapped {
        reservation: reservation.get(),
        offset: region.offset as u64,
        bytes: region.bytes as u64,
    }
}
