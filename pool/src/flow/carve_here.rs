//! Blocks of ranges that a thread took from its own arena.

use std::sync::Arc;

use binpool_allocators::{Allocator, Error, Queue, QueueOf};

use crate::{
    PooledBuffer,
    block::{Lease, Shell},
    flow::{allocate::Entered, carve::TakenRange},
    free::spare_leases::SpareLease,
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
        let entered = Entered::new(self, queue_key);
        let taken = TakenRange::new(self, queue_key, ready.range, false);
        // Declared after `taken`, so that on failure both are dropped before the range is returned.
        let (segment, view) = (ready.segment, ready.view);
        // These may call the program's own size classes, which may panic.
        let above = self.classes.below(request.bin, self.alignment);
        let slot = self.classes.slot(request.bin);
        let memory = match view {
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
            lease: Lease::on(queue.id(), Some(entered.keep()), true),
            range: Some(taken.keep()),
            record: None,
            memory,
        });
        let shared = share;
        let cached = CachedBlock { shared, block };
        Ok(PooledBuffer::from_cached(cached, request.asked))
    }
}
