//! Tracking of blocks that are allocated or freed under the pool's lock.

use binpool_allocators::{Backend, Memory, MemoryId, Region};

use crate::{
    block::Block,
    central::{State, counters::unsigned},
    free::bins::Bins,
    track::{
        allocation_record::RecordedPlace,
        caller::Caller,
        pool_event::{PoolEvent, What, mapped, placed},
        watch::Watch,
    },
};

impl<B: Backend, O> State<B, O> {
    /// Records that a block is allocated, if the pool is tracked. Returns whether the recorder has too many events, and should be [waited
    /// for](crate::track::recorder::Recorder::wait) after this lock.
    #[must_use]
    pub(crate) fn record_allocation(
        &mut self,
        block: &mut Block<B>,
        asked: usize,
        caller: Caller,
    ) -> bool {
        if self.watch.event_buffer.is_none() {
            return false;
        }
        let place = match &block.record {
            None => self.bytes_of(block),
            Some(_) => None,
        };
        let Watch {
            allocations,
            event_buffer: Some(event_buffer),
            ..
        } = &mut self.watch
        else {
            return false;
        };
        let queue = block.lease.queue;
        let record = match &mut block.record {
            Some(record) => record,
            none @ None => {
                let (memory, offset) = place.map_or((0, 0), |(memory, region)| {
                    (memory.get(), region.offset as u64)
                });
                let place = RecordedPlace {
                    memory,
                    offset,
                    bytes: block.bytes as u64,
                };
                let record = allocations.add(place, block.range);
                event_buffer.note(|| placed(&record));
                none.insert(record)
            }
        };
        event_buffer.begin(record, asked, queue, caller)
    }

    /// Writes the pool's memory, the places of blocks with a record, and the blocks in use into a recording that begins. Must be called
    /// while the thread caches are empty and closed.
    pub(crate) fn begin_recording(&mut self) {
        let Some(mut event_buffer) = self.watch.event_buffer.take() else {
            return;
        };
        let mut taken = |memory: MemoryId, bytes: usize| {
            event_buffer.note(|| PoolEvent::Taken {
                memory: memory.get(),
                bytes: bytes as u64,
            });
        };
        if self.segments.has_pages() {
            self.segments.each_pages(|reservation, region| {
                event_buffer.note(|| mapped(reservation.id(), region));
            });
            for ((memory, offset), bytes) in &self.grown {
                event_buffer.note(|| mapped(*memory, Region::new(*offset, *bytes)));
            }
            let spare = self.segments.spare_bytes();
            self.watch.spare_bytes = spare;
            if spare > 0 {
                event_buffer.note(|| PoolEvent::did(What::Spare, spare, ""));
            }
        } else if self.carves {
            self.segments
                .each(|segment| taken(segment.memory.id(), segment.memory.bytes()));
        } else {
            for held in self.all_bins().flat_map(Bins::iter) {
                taken(held.block.memory.id(), held.block.bytes);
            }
            // Each block is an allocation of its own.
            for (record, _) in self.watch.allocations.active() {
                event_buffer.note(|| PoolEvent::Taken {
                    memory: record.place.memory,
                    bytes: record.place.bytes,
                });
            }
        }
        for record in self.watch.allocations.present() {
            event_buffer.note(|| placed(record));
        }
        let (mut blocks, mut bytes) = (0, 0);
        for (record, ownership) in self.watch.allocations.active() {
            event_buffer.adopt(record, ownership);
            blocks += 1;
            bytes += ownership.asked;
        }
        let untracked = unsigned(self.active_blocks).saturating_sub(blocks);
        if untracked > 0 {
            let bytes = unsigned(self.active_bytes).saturating_sub(bytes);
            event_buffer.note(|| {
                PoolEvent::did(What::Untracked, bytes, format_args!("{untracked} blocks"))
            });
        }
        self.watch.event_buffer = Some(event_buffer);
    }

    /// Returns whether a recording is running.
    pub(crate) fn is_recorded(&self) -> bool {
        self.watch.recorder.is_some()
    }

    /// Writes an event into the recording, if there is one.
    pub(crate) fn note(&mut self, event: impl FnOnce() -> PoolEvent) {
        if let Some(event_buffer) = &mut self.watch.event_buffer {
            event_buffer.note(event);
        }
    }

    /// Records that a block is freed, if the pool is tracked.
    pub(crate) fn record_free(&mut self, block: &Block<B>) {
        if let (Some(event_buffer), Some(record)) = (&mut self.watch.event_buffer, &block.record) {
            event_buffer.end(record);
        }
    }
}
