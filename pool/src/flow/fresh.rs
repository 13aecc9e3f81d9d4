//! A block from the allocator. A pool of bins keeps to its [high water](crate::Retain::percent_of_peak) when it takes one.

use binpool_allocators::{Backend, Error};

use crate::{
    block::Lease,
    central::caches::DrainFrom,
    flow::hit_block::HitBlock,
    order::timestamps::QueueKey,
    rare::{Rare, reached},
    request::{HitKind, Request},
    shared::{Block, BlockBox, Shared},
};

/// If a new block would exceed the high water, a request gets a free block that is up to this percentage larger. In recorded programs that
/// saves a tenth to a half of the calls to the device, and larger blocks than these save few more.
const MOST_LARGER_PERCENT: usize = 50;

/// The same limit after the program has requested again as many released bytes as it had in use at its peak. Without a limit, small
/// requests would take the large blocks, and pools of the recorded programs would reserve twice what is live.
const MOST_LARGER_PERCENT_REPEATED: usize = 200;

impl<B: Backend> Shared<B> {
    /// Returns a new block: from a segment, after these caches were drained, or from the allocator.
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
        let block = BlockBox::new(Block {
            memory: self.allocate_clean(request.bytes)?,
            bin: request.bin,
            bytes: request.bytes,
            above,
            slot: self.classes.slot(request.bin),
            range: None,
            record: None,
            lease: Lease::default(),
        });
        let hit = HitBlock::new(self, queue_key, block, HitKind::Fresh);
        tracing::debug!(asked = request.asked, bytes = request.bytes, "miss");
        Ok(hit)
    }

    /// Keeps the pool at its high water before a new block is made for this request: returns a larger free block if the queue may have one,
    /// or else releases free blocks.
    fn keep_to_high_water(&self, queue_key: QueueKey, request: Request) -> Option<HitBlock<'_, B>> {
        let repeats = {
            let mut state = self.state.lock();
            if state.excess_above(self.retain, request) == 0 {
                return None;
            }
            state.regrets(request)
        };
        // Blocks that threads have cached go to the bins, and what they have counted to the state.
        self.flush();
        let percent = if repeats {
            MOST_LARGER_PERCENT_REPEATED
        } else {
            MOST_LARGER_PERCENT
        };
        let larger = (request.bytes / 100).saturating_mul(percent);
        let last = self
            .classes
            .bin_number(request.bytes.saturating_add(larger));
        let across = self.policy.crosses();
        let found = self
            .state
            .lock()
            .pop_up_to(last, queue_key, request, across);
        if let Some((block, kind)) = found {
            reached(Rare::LargerBlock);
            return Some(HitBlock::new(self, queue_key, block, kind));
        }
        if !self.is_ruled_out(request.bytes) {
            self.release_above_high_water(request);
        }
        None
    }

    /// Releases free blocks that no command uses until a new block for this request fits under the high water, or no such block is left.
    fn release_above_high_water(&self, request: Request) {
        self.catch_up();
        let released = {
            let mut state = self.state.lock();
            let excess = state.excess_above(self.retain, request);
            let released = state.release_tightly(excess);
            state.regret_what_went(&released);
            released
        };
        let bytes = self.release_each(released);
        if bytes > 0 {
            tracing::debug!(bytes, "released memory above the high water mark");
        }
    }
}
