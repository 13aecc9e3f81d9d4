//! Ranges of segments, under the pool's lock.

use binpool_allocators::{Allocator, MemoryOf, segments::RangeKey};

use crate::{
    request::Request,
    state::{
        State,
        bins::Released,
        carve::Carved,
        lane::{LaneKey, Use, Uses},
        lanes::Lanes,
        unsigned,
    },
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock_pool::MockPool;

    #[test]
    fn a_range_that_is_put_back_is_a_change_and_can_be_had_again() {
        let mock = MockPool::of_segments();
        let lane = mock.home();
        let bytes = 32 << 20;
        drop(mock.pool.allocate(bytes).unwrap());
        mock.shared.flush();
        let bin = mock.shared.classes.bin_number(bytes);
        let request = Request {
            asked: bytes,
            bin,
            bytes,
        };
        let mut state = mock.shared.state.lock();
        let (free, changes) = (state.held_bytes(), state.changes);
        for round in 1..3 {
            let carved = state.take_range(lane, request, Which::Any).unwrap();
            assert_eq!(state.held_bytes(), 0);
            assert!(!state.put_range_back(carved), "nothing was on its way");
            assert_eq!((state.held_bytes(), state.changes), (free, changes + round));
        }
        // So is a new segment, whose rest others may have.
        let memory = mock.shared.allocator.allocate(bytes).unwrap();
        let before = state.changes;
        assert!(state.add_segment(memory, bytes, request).is_some());
        assert_eq!(state.changes, before + 1);
    }

    #[test]
    fn segments_are_made_one_where_many_of_all_allocations_had_one_make_room() {
        const SEGMENT: usize = 2 << 20;
        // Of which one part in 32 may.
        for (hits, misses, is_often) in [(0, 0, true), (3200, 0, false), (0, 3200, false)] {
            let mock = MockPool::of_segments();
            let mut state = mock.shared.state.lock();
            (state.counters.hits, state.counters.misses) = (hits, misses);
            let add = |state: &mut State<_>| {
                let memory = mock.shared.allocator.allocate(SEGMENT).unwrap();
                state.manage(SEGMENT);
                let segments = state.segments.as_mut().unwrap();
                let carved = segments.add(memory, SEGMENT, SEGMENT).unwrap();
                segments.give(carved.range, Uses::new(), None);
            };
            (0..20).for_each(|_| add(&mut state));
            let bytes = 3 << 19;
            let bin = mock.shared.classes.bin_number(bytes);
            let request = Request {
                asked: bytes,
                bin,
                bytes,
            };
            // With what is asked for, as much as the first twenty have. There is room for one more.
            state.in_use = i64::try_from(20 * SEGMENT - bytes).unwrap();
            let mut gone = Vec::new();
            for _ in 0..13 {
                add(&mut state);
                let (_, leaving) = state.grow(request, 256, u64::MAX);
                gone.push(leaving.len());
            }
            assert_eq!(gone[..12], [1; 12]);
            assert_eq!(gone[12], if is_often { 21 } else { 1 }, "{hits} {misses}");
        }
    }

    #[test]
    fn a_segment_that_another_thread_asks_for_is_on_the_way_and_ones_own_is_not() {
        let mock = MockPool::of_segments();
        let is_any = || mock.shared.state.lock().is_anything_on_the_way();
        assert!(!is_any());
        mock.shared.state.lock().begin_growth();
        assert!(!is_any());
        std::thread::scope(|scope| {
            let sees_it = scope.spawn(is_any).join();
            assert!(sees_it.unwrap());
        });
        mock.shared.state.lock().end_growth();
        std::thread::scope(|scope| {
            let sees_it = scope.spawn(is_any).join();
            assert!(!sees_it.unwrap());
        });
    }
}
