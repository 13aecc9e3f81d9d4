//! A plan for a program that repeats its work: where each block of a period lies.
//!
//! Others plan before the program runs: from a profile ("`STAlloc`: Enhancing memory efficiency in large-scale model training with spatio-temporal
//! planning", 2025), in a dry run (cubecl), or as it is compiled (XLA). Here an arena plans from what the program has just done twice.

use super::space::SegmentKey;

/// How many blocks of the plan a program may skip. One that has taken as many that are not in the plan may begin the period anew.
const MOST_SKIPPED: usize = 16;

/// A plan goes once so many periods in a row have had no block of it.
const MOST_LOST_PERIODS: usize = 2;

/// A plan goes once one part in this of the blocks of a period lies elsewhere, and more than may be skipped.
const MISSED_PARTS: usize = 8;

/// The first periods of a plan, after each of which pages may leave that were in use before.
const MOST_LOOKS: u32 = 3;

/// Stands for the segment that a plan adds.
pub(super) const NEW_SEGMENT: SegmentKey = SegmentKey::MAX;

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
    /// The number of periods after which pages may leave that commands used before the plan.
    looks: u32,
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
            looks: MOST_LOOKS,
        }
    }

    /// Puts a place in the new segment where that is.
    pub(super) fn place_new(&mut self, (segment, start): Address) {
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
    pub(super) fn place(&self, bytes: usize) -> Option<Address> {
        self.blocks[self.find(bytes)?].place
    }

    /// Records that a block was taken, and where it lies. Returns whether the program still follows the plan.
    pub(super) fn took(&mut self, bytes: usize, at: Address) -> bool {
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

    /// Returns whether a period has ended after which pages may leave that the plan does not need: their commands end one after the other.
    pub(super) fn has_unneeded_pages(&mut self) -> bool {
        let is_over = self.next >= self.blocks.len() && self.looks > 0;
        self.looks -= u32::from(is_over);
        is_over
    }

    /// Returns whether a segment has planned places.
    pub(super) fn uses(&self, segment: SegmentKey) -> bool {
        self.segments.contains(&segment)
    }

    /// Returns whether the arena may have this many bytes: no more than before the plan.
    pub(super) fn allows(&self, bytes: u64) -> bool {
        bytes <= self.held_before
    }
}
