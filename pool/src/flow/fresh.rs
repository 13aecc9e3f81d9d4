//! A block from the allocator.

use binpool_allocators::{Backend, Error};

use crate::{
    block::Lease,
    central::caches::DrainFrom,
    flow::hit_block::HitBlock,
    order::{hit_kind::HitKind, timestamps::QueueKey},
    request::Request,
    shared::{Block, Shared},
};

impl<B: Backend> Shared<B> {
    /// Returns a new block: from a segment, after these caches have been drained, or from the allocator.
    pub(crate) fn allocate_fresh(
        &self,
        queue_key: QueueKey,
        request: Request,
        drain_from: DrainFrom,
    ) -> Result<HitBlock<'_, B>, Error> {
        if self.carves {
            return self.carve(queue_key, request, drain_from);
        }
        if let Some(found) = self.keep_to_high_water(queue_key, request) {
            return Ok(found);
        }
        // The classes may be the program's own and may panic, so they are called before there is memory to lose.
        let above = self.classes.below(request.bin, self.alignment);
        let block = Box::new(Block {
            memory: self.allocate_clean(request.bytes)?,
            bin: request.bin,
            bytes: request.bytes,
            above,
            slot: self.classes.slot(request.bin),
            range: None,
            record: None,
            share: None,
            lease: Lease::default(),
        });
        let hit = HitBlock::new(self, queue_key, block, HitKind::Fresh);
        tracing::debug!(asked = request.asked, bytes = request.bytes, "miss");
        Ok(hit)
    }
}
