//! Ranges of segments, under the pool's lock.

use binpool_allocators::{Allocator, MemoryOf, segments::RangeKey};

use crate::{
    bins::Released,
    carve::Carved,
    lane::{LaneKey, Use, Uses},
    lanes::Lanes,
    request::Request,
    state::{State, unsigned},
    sync::current,
};

/// Which ranges of segments may be taken for a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// Those that the queue may have.
    Free,
    /// Those that the queue may have, whether the rules of growth like it or not.
    FreeAnywhere,
    /// Any, whatever still uses them.
    Any,
}

impl<A: Allocator> State<A> {
    /// A range of a segment.
    pub(crate) fn take_range(
        &mut self,
        lane: LaneKey,
        request: Request,
        which: Which,
    ) -> Option<Carved<A>> {
        let lanes = &self.lanes;
        let segments = self.segments.as_mut()?;
        let is_free = |uses: &Uses| uses.iter().all(|use_| lanes.is_before(*use_, lane));
        let carved = match which {
            Which::Free => segments.take(request.bytes, is_free),
            Which::FreeAnywhere => segments.take_anywhere(request.bytes, is_free),
            Which::Any => segments.take(request.bytes, |_| true),
        }?;
        // What is too much comes back in a moment, and somebody who runs out of memory may wait for it.
        self.in_transit += usize::from(carved.has_excess);
        Some(carved)
    }

    /// Keeps a range that could not be handed out after all. Whether it was the last thing in transit.
    pub(crate) fn put_range_back(&mut self, carved: Carved<A>) -> bool {
        if let Some(segments) = &mut self.segments {
            segments.give(carved.range, carved.uses, carved.view);
        }
        if carved.has_excess {
            return self.arrive();
        }
        self.changes += 1;
        false
    }

    /// Gives the range of a block that was taken out back to its segment, with its view, if that is kept; otherwise it has
    /// gone. Whether it was the last one in transit.
    pub(crate) fn return_range(
        &mut self,
        range: RangeKey,
        uses: Uses,
        view: Option<MemoryOf<A>>,
    ) -> bool {
        if let Some(segments) = &mut self.segments {
            segments.give(range, uses, view);
        }
        self.arrive()
    }

    /// Gives back what a range has more than the `bytes` bytes of its block. Whether it was the last one in transit.
    pub(crate) fn shrink_range(&mut self, range: RangeKey, bytes: usize, uses: Uses) -> bool {
        if let Some(segments) = &mut self.segments {
            segments.shrink(range, bytes, uses);
        }
        self.arrive()
    }

    /// The size of the segment to ask the allocator for, and what has to go there first.
    pub(crate) fn grow(
        &mut self,
        request: Request,
        alignment: usize,
        capacity: u64,
    ) -> (usize, Vec<Released<A>>) {
        let allocations = self.counters.hits + self.counters.misses;
        let in_use = unsigned(self.in_use);
        let Some(segments) = &mut self.segments else {
            return (request.bytes, Vec::new());
        };
        let (size, leaving) =
            segments.grow(request.bytes, in_use, alignment, allocations, capacity);
        let leaving: Vec<_> = leaving.into_iter().map(Released::from).collect();
        self.count_released(&leaving);
        (size, leaving)
    }

    /// This thread may get a segment from the allocator, with more than it needs.
    pub(crate) fn begin_growth(&mut self) {
        self.growing.push(current().id());
    }

    /// Ends what [`begin_growth`](Self::begin_growth) began on this thread.
    pub(crate) fn end_growth(&mut self) {
        let own = current().id();
        let place = self.growing.iter().position(|thread| *thread == own);
        place.map(|place| self.growing.swap_remove(place));
    }

    /// Whether something is about to be free that is worth waiting for: not the segment that this thread itself asks for, as
    /// the allocator may call back from there.
    pub(crate) fn is_anything_on_the_way(&self) -> bool {
        self.in_transit > 0 || {
            let own = current().id();
            self.growing.iter().any(|thread| *thread != own)
        }
    }

    /// Adds a segment of `size` bytes, and carves the first block from it.
    pub(crate) fn add_segment(
        &mut self,
        memory: MemoryOf<A>,
        size: usize,
        request: Request,
    ) -> Option<Carved<A>> {
        self.manage(size);
        self.changes += 1;
        let segments = self.segments.as_mut()?;
        segments.add(memory, size, request.bytes)
    }

    /// Sends segments back to the allocator that are idle and whose uses are `wanted`, largest first, until they have `enough`
    /// bytes together.
    pub(crate) fn release_segments(
        &mut self,
        enough: u64,
        wanted: impl Fn(&Lanes<A>, &[Use]) -> bool,
    ) -> Vec<Released<A>> {
        let lanes = &self.lanes;
        let segments = self.segments.as_mut();
        let leaving = segments.map(|segments| segments.release(enough, |uses| wanted(lanes, uses)));
        let leaving: Vec<_> = leaving.into_iter().flatten().map(Released::from).collect();
        self.count_released(&leaving);
        leaving
    }
}
