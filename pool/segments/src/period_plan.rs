//! A plan for a program that repeats its work: where each block of a period lies.
//!
//! Others plan before the program runs: from a profile ("`STAlloc`: Enhancing memory efficiency in large-scale model training with spatio-temporal
//! planning", 2025), in a dry run (cubecl), or as it is compiled (XLA). Here an arena plans from what the program has just done twice.

use super::{
    arena::Arena,
    review::NEW_SEGMENT,
    space::{SegmentKey, TakenAt},
};
use binpool_allocators::Region;

/// How many blocks of the plan a program may skip. One that has taken as many that are not in the plan may begin the period anew.
const MOST_SKIPPED: usize = 16;

/// A plan goes once so many periods in a row have had no block of it.
const MOST_LOST_PERIODS: usize = 2;

/// A plan goes once one part in this of the blocks of a period lies elsewhere, and more than may be skipped.
const MISSED_PARTS: usize = 8;

/// Where a block lies: the segment, and the offset there.
pub(super) type Address = (SegmentKey, usize);

/// A block of a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlannedBlock {
    pub(super) bytes: usize,
    /// `None` if any place does.
    pub(super) place: Option<Address>,
}

/// The blocks of a period, in order, and the one that comes next.
#[derive(Debug)]
pub(super) struct PeriodPlan {
    blocks: Vec<PlannedBlock>,
    next: usize,
    /// The segments with planned places.
    segments: Vec<SegmentKey>,
    /// How many blocks in a row were not found.
    lost: usize,
    /// How many blocks of this period lie elsewhere.
    missed: usize,
    /// The bytes of the arena before the plan.
    held_before: u64,
    /// Set in the first period, after which pages can leave that were in use before.
    has_unneeded: bool,
}

impl PeriodPlan {
    pub(super) fn new(blocks: Vec<PlannedBlock>, held_before: u64) -> Self {
        Self {
            blocks,
            next: 0,
            segments: Vec::new(),
            lost: 0,
            missed: 0,
            held_before,
            has_unneeded: true,
        }
    }

    /// Puts a place in the new segment where that is.
    fn place_new(&mut self, (segment, start): Address) {
        let places = self
            .blocks
            .iter_mut()
            .filter_map(|block| block.place.as_mut());
        for place in places.filter(|(other, _)| *other == NEW_SEGMENT) {
            *place = (segment, start + place.1);
        }
        let places = self.blocks.iter().filter_map(|block| block.place);
        self.segments = places.map(|(segment, _)| segment).collect();
        self.segments.sort_unstable();
        self.segments.dedup();
    }

    /// Returns the number of the next block of this size: one of the next few or, if the program has left the plan, of the first few.
    fn find(&self, bytes: usize) -> Option<usize> {
        let all = self.blocks.len();
        let from = |first: usize| {
            let few = (first..first + MOST_SKIPPED.min(all)).map(|number| number % all);
            few.into_iter()
                .find(|number| self.blocks[*number].bytes == bytes)
        };
        from(self.next).or_else(|| from(0).filter(|_| self.lost >= MOST_SKIPPED))
    }

    /// Where the next block of this size lies.
    fn place(&self, bytes: usize) -> Option<Address> {
        self.blocks[self.find(bytes)?].place
    }

    /// Records that a block was taken, and where it lies. Returns whether the program still follows the plan.
    fn took(&mut self, bytes: usize, at: Address) -> bool {
        let all = self.blocks.len();
        let Some(number) = self.find(bytes) else {
            self.lost += 1;
            return self.lost <= (all * MOST_LOST_PERIODS).max(MOST_SKIPPED);
        };
        if number < self.next {
            self.missed = 0;
        }
        let place = self.blocks[number].place;
        self.missed += usize::from(place.is_some_and(|place| place != at));
        (self.next, self.lost) = (number + 1, 0);
        self.missed <= (all / MISSED_PARTS).max(MOST_SKIPPED)
    }

    /// Returns whether a period has ended, if pages were in use in the first one that the plan does not need.
    fn has_unneeded_pages(&mut self) -> bool {
        let is_over = self.next >= self.blocks.len() && self.has_unneeded;
        self.has_unneeded &= !is_over;
        is_over
    }
}

impl<M, U: Clone + Default> Arena<M, U> {
    /// Follows a plan whose new segment begins here.
    pub(super) fn follow(&mut self, mut plan: PeriodPlan, start: Address) {
        plan.place_new(start);
        self.space.set_has_places(true);
        self.plan = Some(plan);
    }

    /// Ends the plan, since the program no longer follows it, or a segment of it has left.
    pub(super) fn end_plan(&mut self) {
        if self.plan.take().is_some() {
            self.space.set_has_places(false);
        }
    }

    /// Returns whether a segment stays for a plan.
    pub(super) fn is_planned(&self, segment: SegmentKey) -> bool {
        let plan = self.plan.as_ref();
        plan.is_some_and(|plan| plan.segments.contains(&segment))
    }

    /// Takes the planned place of a block, if it is free and its uses are `usable`.
    pub(super) fn take_planned(
        &mut self,
        bytes: usize,
        may_overlap: bool,
        usable: impl Fn(&U) -> bool,
    ) -> Option<TakenAt<M, U>> {
        let plan = self
            .plan
            .as_ref()
            .filter(|_| !self.placement.is_small(bytes))?;
        let (segment, offset) = plan.place(bytes)?;
        let region = Region::new(offset, bytes);
        self.space.take_at(segment, region, may_overlap, usable)
    }

    /// Records that a block was taken at this place.
    pub(super) fn advance_plan(&mut self, (segment, region): (SegmentKey, Region)) {
        let Some(plan) = &mut self.plan else { return };
        if !plan.took(region.bytes, (segment, region.offset)) {
            self.end_plan();
            self.low_points.plan_failed();
            self.low_points.watch();
        } else if plan.has_unneeded_pages() {
            self.low_points.look_again();
        }
    }

    /// Records that the arena has grown to `bytes` bytes. A plan with which it has more than before goes.
    pub(super) fn grew(&mut self, bytes: u64) {
        if let Some(plan) = &self.plan {
            if bytes <= plan.held_before {
                return;
            }
            self.end_plan();
            self.low_points.plan_failed();
        }
        self.low_points.grew(bytes);
    }
}
