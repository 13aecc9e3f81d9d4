//! Carving blocks from segments.

use binpool_allocators::{
    Allocator, Error, EventOf, MemoryOf,
    segments::{self, release_views},
};

use crate::{
    at_hand::gathering::Whose,
    request::Request,
    shared::Shared,
    state::{
        Origin,
        bins::{Block, HeldBlock, Obtained},
        fences::wait_for_event,
        lane::{LaneKey, Uses},
        ranges::Which,
        tenure::Tenure,
    },
};

/// A range that was taken for a block.
pub(crate) type Carved<A> = segments::Carved<MemoryOf<A>, Uses>;

impl<A: Allocator> Shared<A> {
    /// A block from a segment in which nothing was free before: once free blocks have gone back to their segments; once
    /// commands that have ended are known to; behind a wait, where the policy is to wait; or from a segment that the
    /// allocator is asked for.
    pub(crate) fn carve(
        &self,
        lane: LaneKey,
        request: Request,
        whose: Whose,
    ) -> Result<Obtained<A>, Error> {
        let carved = self
            .carve_after_a_flush(lane, request, whose)
            .or_else(|| self.carve_after_a_look(lane, request))
            .map(|carved| (carved, Origin::Carved))
            .or_else(|| self.carve_after_a_wait(lane, request));
        match carved {
            Some((carved, origin)) => Ok((self.view(lane, request, carved)?, origin)),
            None => Ok((self.carve_from_a_new_segment(lane, request)?, Origin::Fresh)),
        }
    }

    fn carve_after_a_flush(
        &self,
        lane: LaneKey,
        request: Request,
        whose: Whose,
    ) -> Option<Carved<A>> {
        if !self.flush_from(whose) {
            return None;
        }
        let mut state = self.state.lock();
        if whose == Whose::All {
            state.takings += 1;
        }
        state.take_range(lane, request, Which::Free)
    }

    fn carve_after_a_look(&self, lane: LaneKey, request: Request) -> Option<Carved<A>> {
        let holding_back = self.state.lock().holding_back();
        self.look_at(&holding_back);
        let mut state = self.state.lock();
        state.settle();
        state.take_range(lane, request, Which::Free)
    }

    fn carve_after_a_wait(&self, lane: LaneKey, request: Request) -> Option<(Carved<A>, Origin)> {
        let origin = self.policy.waits()?;
        let mut carved = self.state.lock().take_range(lane, request, Which::Any)?;
        match self.wait_behind(lane, &carved.uses, origin) {
            Ok(()) => Some((carved, origin)),
            Err(error) => {
                tracing::warn!(%error, "a free range could not be waited for; it stays in the pool");
                release_views(&self.allocator, std::mem::take(&mut carved.overlapping));
                if self.state.lock().put_range_back(carved) {
                    self.arrived.notify_all();
                }
                None
            }
        }
    }

    fn carve_from_a_new_segment(
        &self,
        lane: LaneKey,
        request: Request,
    ) -> Result<Box<Block<A>>, Error> {
        let alignment = self.alignment.bytes();
        let capacity = self.allocator.capacity_bytes();
        let (size, leaving) = self.state.lock().grow(request, alignment, capacity);
        self.release_each(leaving);
        let growth = Growth::begin(self);
        let largest = self.allocator.largest_block();
        let size = size.min(largest).max(request.bytes);
        let (memory, size) = match self.allocate_segment(size) {
            Err(error) if error.is_out_of_memory() && size > request.bytes => {
                (self.allocate_segment(request.bytes)?, request.bytes)
            }
            result => (result?, size),
        };
        tracing::debug!(asked = request.asked, bytes = size, "new segment");
        let carved = self.state.lock().add_segment(memory, size, request);
        drop(growth);
        match carved {
            Some(carved) => self.view(lane, request, carved),
            None => Err(Error::unsupported("segments in a pool without them")),
        }
    }

    fn allocate_segment(&self, size: usize) -> Result<MemoryOf<A>, Error> {
        let memory = self.allocate_clean(size);
        if let Err(error) = &memory
            && error.is_out_of_memory()
            && let Some(segments) = &mut self.state.lock().segments
        {
            segments.refuse(size);
        }
        memory
    }

    /// A block from whatever range of a segment has room for it, whether the rules of growth like it or not.
    pub(crate) fn carve_anywhere(
        &self,
        lane: LaneKey,
        request: Request,
    ) -> Result<Option<Box<Block<A>>>, Error> {
        self.flush();
        let carved = self
            .state
            .lock()
            .take_range(lane, request, Which::FreeAnywhere);
        carved
            .map(|carved| self.view(lane, request, carved))
            .transpose()
    }

    /// The block of a range that was taken.
    pub(crate) fn view(
        &self,
        lane: LaneKey,
        request: Request,
        carved: Carved<A>,
    ) -> Result<Box<Block<A>>, Error> {
        let (range, region) = (carved.range, carved.region);
        let view = carved.into_view(&self.allocator, |range, bytes, uses| {
            if self.state.lock().shrink_range(range, bytes, uses) {
                self.arrived.notify_all();
            }
        });
        match view {
            Ok(memory) => Ok(Box::new(Block {
                memory,
                bin: request.bin,
                bytes: region.bytes,
                above: self.classes.below(request.bin, self.alignment),
                range: Some(range),
                life: None,
                share: None,
                tenure: Tenure::default(),
            })),
            Err(error) => {
                let mut state = self.state.lock();
                // Its former uses come before what this queue is yet to be given.
                let uses = std::iter::once(state.lanes.stamp(lane)).collect();
                if let Some(segments) = &mut state.segments {
                    segments.give(range, uses, None);
                }
                // Nobody else comes back to a pool that does not hold, and frees the segment.
                let leaving = if state.holding {
                    Vec::new()
                } else {
                    state.release_all()
                };
                drop(state);
                self.release_each(leaving);
                Err(error)
            }
        }
    }

    /// Gives the range of a block back, and with it every segment that is free now.
    ///
    /// # Errors
    ///
    /// Where an event of `after` cannot be waited for: then the range goes back [later](crate::stranded).
    pub(crate) fn let_go_of_range(
        &self,
        block: Box<Block<A>>,
        uses: Uses,
        after: &[EventOf<A>],
    ) -> Result<(), Error> {
        let held = HeldBlock::new(block, uses);
        // Ranges know queues, not events.
        if let Err(error) = after.iter().try_for_each(wait_for_event) {
            self.state.lock().strand.keep_range(held, after);
            return Err(error);
        }
        self.state.lock().in_transit += 1;
        self.return_to_segment(held);
        let leaving = self.state.lock().release_all();
        self.release_each(leaving);
        Ok(())
    }

    /// Gives every free block back to its segment, where free neighbours become one.
    pub(crate) fn flush(&self) {
        self.flush_from(Whose::All);
    }

    /// The same, but for those at the hand of others where so asked. Whether there were any in bins or at hand.
    fn flush_from(&self, whose: Whose) -> bool {
        self.release_stranded();
        self.scrub_again();
        let cached = {
            let mut state = self.state.lock();
            self.gather_from(&mut state, whose, None);
            state.take_cached()
        };
        let is_any = !cached.is_empty();
        for held in cached {
            self.return_to_segment(held);
        }
        is_any
    }

    /// Gives a block that is in transit back to its segment. Its view is kept for the next block of these bytes, or else
    /// goes first.
    pub(crate) fn return_to_segment(&self, held: HeldBlock<A>) {
        let HeldBlock { block, uses, .. } = held;
        let Block { memory, range, .. } = *block;
        let Some(range) = range else { return };
        let mut state = self.state.lock();
        let may_keep = state
            .segments
            .as_ref()
            .is_some_and(|segments| segments.may_keep_view(range));
        let view = if may_keep {
            Some(memory)
        } else {
            drop(state);
            self.allocator.release_view(memory);
            state = self.state.lock();
            None
        };
        if state.return_range(range, uses, view) {
            self.arrived.notify_all();
        }
    }
}

/// While there is one, this thread asks the allocator for a segment, and who finds that full because of it waits for the rest.
#[derive(Debug)]
struct Growth<'a, A: Allocator> {
    shared: &'a Shared<A>,
}

impl<'a, A: Allocator> Growth<'a, A> {
    fn begin(shared: &'a Shared<A>) -> Self {
        shared.state.lock().begin_growth();
        Self { shared }
    }
}

impl<A: Allocator> Drop for Growth<'_, A> {
    fn drop(&mut self) {
        self.shared.state.lock().end_growth();
        self.shared.arrived.notify_all();
    }
}
