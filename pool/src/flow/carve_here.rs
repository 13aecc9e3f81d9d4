//! Blocks of ranges that a thread took from its own arena.

use std::sync::Arc;

use binpool_allocators::{Allocator, Error, Queue, QueueOf, segments::RangeKey};

use crate::{
    PooledBuffer,
    block::{Lease, Shell},
    free::spare_leases::SpareLease,
    order::timestamps::QueueKey,
    request::Request,
    shared::{Block, CachedBlock, CarvedHere, Shared},
};

impl<A: Allocator> Shared<A> {
    /// Makes a block of a range that this thread took from its own arena, and counts it.
    pub(crate) fn hand_out_carved(
        self: &Arc<Self>,
        queue: &QueueOf<A>,
        request: Request,
        carved: CarvedHere<A>,
    ) -> Result<PooledBuffer<A>, Error> {
        let CarvedHere {
            ready,
            queue_key,
            lease,
        } = carved;
        let unfinished = Unfinished {
            shared: self,
            queue_key,
            range: ready.range,
        };
        // These may call the program's own size classes, which may panic.
        let above = self.classes.below(request.bin, self.alignment);
        let slot = self.classes.slot(request.bin);
        // Declared after `unfinished`, so that on failure it is dropped before the range is returned.
        let segment = ready.segment;
        let memory = match ready.view {
            Some(view) => view,
            None => self.allocator.create_view(&segment, ready.region)?,
        };
        self.count_carved(request.asked, ready.region.bytes);
        let SpareLease { share, shell } = lease;
        let block = shell.unwrap_or_else(Shell::new).fill(Block {
            bytes: ready.region.bytes,
            above,
            bin: request.bin,
            slot,
            share: None,
            lease: Lease::on(queue.id(), Some(queue_key), true),
            range: Some(unfinished.finish()),
            record: None,
            memory,
        });
        let shared = share;
        let cached = CachedBlock { shared, block };
        Ok(PooledBuffer::from_cached(cached, request.asked))
    }
}

/// A block whose view is not made yet. If the allocator fails or panics, the range is free again.
struct Unfinished<'a, A: Allocator> {
    shared: &'a Shared<A>,
    queue_key: QueueKey,
    range: RangeKey,
}

impl<A: Allocator> Unfinished<'_, A> {
    /// Leaves the range to the block that was made.
    fn finish(self) -> RangeKey {
        let range = self.range;
        std::mem::forget(self);
        range
    }
}

impl<A: Allocator> Drop for Unfinished<'_, A> {
    fn drop(&mut self) {
        let shared = self.shared;
        let mut state = shared.state.lock();
        // Its former uses come before all later commands of this queue, so one timestamp of the queue stands for them.
        let uses = std::iter::once(state.queues.stamp(self.queue_key)).collect();
        if let Some(segments) = &mut state.segments {
            segments.give(self.range, uses, None);
        }
        state.leave(Some(self.queue_key));
        drop(state);
        shared.release_unless_holding();
    }
}
