//! Tracking of blocks that are allocated or freed under the pool's lock.

use binpool_allocators::Allocator;

use crate::{
    block::Block,
    central::State,
    track::{caller::Caller, watch::Watch},
};

impl<A: Allocator, O> State<A, O> {
    /// Records that a block is allocated, if the pool is tracked.
    pub(crate) fn record_allocation(
        &mut self,
        block: &mut Block<A, O>,
        asked: usize,
        caller: Caller,
    ) {
        let Watch {
            allocations,
            event_buffer,
            ..
        } = &mut self.watch;
        let Some(event_buffer) = event_buffer else {
            return;
        };
        let queue = block.lease.queue;
        let record = match &block.record {
            Some(record) => record,
            None => block
                .record
                .insert(allocations.add(block.bytes, block.range)),
        };
        // Returns the recorder if it is behind. Under this lock the thread must not wait for it.
        let _recorder = event_buffer.begin(record, asked, queue, caller);
    }

    /// Records that a block is freed, if the pool is tracked.
    pub(crate) fn record_free(&mut self, block: &Block<A, O>) {
        if let (Some(event_buffer), Some(record)) = (&mut self.watch.event_buffer, &block.record) {
            // As above, the thread must not wait for the recorder.
            let _recorder = event_buffer.end(record);
        }
    }
}
