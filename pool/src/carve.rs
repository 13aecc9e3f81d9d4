//! Carving blocks from segments.

use binpool_allocators::{Allocator, Backend, Error, EventOf};

use crate::{
    bins::{Block, HeldBlock},
    fences::wait_for_event,
    lane::{LaneKey, Uses},
    request::Request,
    segments::Carved,
    shared::Shared,
    state::Origin,
};

impl<A: Allocator> Shared<A> {
    /// A block from a segment: from what is free there; once free blocks have gone back to their segments; once
    /// commands that have ended are known to; or from a segment that the allocator is asked for.
    pub(crate) fn carve(
        &self,
        lane: LaneKey,
        request: Request,
    ) -> Result<(Block<A>, Origin), Error> {
        let carved = self.state.lock().take_range(lane, request);
        let carved = carved
            .or_else(|| self.carve_after_a_flush(lane, request))
            .or_else(|| self.carve_after_a_look(lane, request));
        match carved {
            Some(carved) => Ok((self.view(lane, request, carved)?, Origin::Carved)),
            None => Ok((self.carve_from_a_new_segment(lane, request)?, Origin::Fresh)),
        }
    }

    fn carve_after_a_flush(&self, lane: LaneKey, request: Request) -> Option<Carved<A>> {
        self.flush();
        self.state.lock().take_range(lane, request)
    }

    fn carve_after_a_look(&self, lane: LaneKey, request: Request) -> Option<Carved<A>> {
        let holding_back = self.state.lock().holding_back();
        if holding_back.is_empty() {
            return None;
        }
        self.look_at(&holding_back);
        let mut state = self.state.lock();
        state.settle();
        state.take_range(lane, request)
    }

    fn carve_from_a_new_segment(&self, lane: LaneKey, request: Request) -> Result<Block<A>, Error> {
        let alignment = self.alignment().bytes();
        let (size, leaving) = self.state.lock().grow(request, alignment);
        self.release_each(leaving);
        let largest = self.allocator.largest_block();
        let size = size.min(largest).max(request.bytes);
        let (memory, size) = match self.allocator.allocate(size) {
            Err(error) if error.is_out_of_memory() && size > request.bytes => {
                (self.allocator.allocate(request.bytes)?, request.bytes)
            }
            result => (result?, size),
        };
        tracing::debug!(asked = request.asked, bytes = size, "new segment");
        let carved = self.state.lock().add_segment(memory, size, request);
        match carved {
            Some(carved) => self.view(lane, request, carved),
            None => Err(Error::unsupported("segments in a pool without them")),
        }
    }

    /// The block of a range that was taken.
    fn view(&self, lane: LaneKey, request: Request, carved: Carved<A>) -> Result<Block<A>, Error> {
        let Carved {
            chunk,
            region,
            segment,
        } = carved;
        let backend = self.allocator.backend();
        let view = backend.create_sub_region(&segment, region);
        // Before its range can be free, so that the segments own it alone then.
        drop(segment);
        match view {
            Ok(memory) => Ok(Block {
                memory,
                bin: request.bin,
                bytes: region.bytes,
                chunk: Some(chunk),
            }),
            Err(error) => {
                let mut state = self.state.lock();
                // Its former uses come before what this queue is yet to be given.
                let uses = std::iter::once(state.lanes.stamp(lane)).collect();
                if let Some(segments) = &mut state.segments {
                    segments.space.give(chunk, uses);
                }
                Err(error)
            }
        }
    }

    /// Gives the range of a block back, and with it every segment that is free now.
    ///
    /// # Errors
    ///
    /// Where an event of `after` cannot be waited for: then the range is lost, and its segment with it.
    pub(crate) fn let_go_of_range(
        &self,
        block: Block<A>,
        uses: Uses,
        after: &[EventOf<A>],
    ) -> Result<(), Error> {
        // Ranges know queues, not events.
        after.iter().try_for_each(wait_for_event)?;
        self.state.lock().in_transit += 1;
        self.return_range(HeldBlock { block, uses });
        self.release_all();
        Ok(())
    }

    /// Gives every free block back to its segment, where free neighbours become one.
    pub(crate) fn flush(&self) {
        let cached = self.state.lock().take_cached();
        for held in cached {
            self.return_range(held);
        }
    }

    /// Gives a block that is in transit back to its segment: first its view, then its range.
    pub(crate) fn return_range(&self, held: HeldBlock<A>) {
        let HeldBlock { block, uses } = held;
        let Block { memory, chunk, .. } = block;
        drop(memory);
        if let Some(chunk) = chunk
            && self.state.lock().return_range(chunk, uses)
        {
            self.arrived.notify_all();
        }
    }
}
