//! A plan for a program that repeats its work: where each block of a period lies.
//!
//! Others plan before the program runs: from a profile ("`STAlloc`: Enhancing memory efficiency in large-scale model training with spatio-temporal
//! planning", 2025), in a dry run (cubecl), or as it is compiled (XLA). Here an arena plans from what the program has just done twice.

use std::cmp::Reverse;

use super::space::{RangeNumber, SegmentKey};

/// How many blocks of the plan a program may skip. One that has taken as many that are not in the plan may begin the period anew.
const MOST_SKIPPED: usize = 16;

/// By so many of the last sizes the place of a program in its plan is found again.
const RECENT: usize = 8;

/// A plan goes once so many periods in a row have had no block of it.
const MOST_LOST_PERIODS: usize = 2;

/// A plan goes once one part in this of the blocks of a period lies elsewhere, and more than may be skipped.
const MISSED_PARTS: usize = 8;

/// The first periods of a plan, after each of which memory may leave that was in use before, and one more.
const MOST_LOOKS: u32 = 4;

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
    /// The free range that had its place the last time.
    pub(super) last_in: Option<RangeNumber>,
}

/// What an arena, or all of them, has planned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planned {
    /// The blocks of a period.
    pub blocks: u64,
    /// The bytes of the segments that have them.
    pub bytes: u64,
    /// The most bytes of these that are taken at once.
    pub most_taken: u64,
}

/// A plan that begins once there is memory for it.
#[derive(Debug)]
pub struct NewPlan {
    pub(super) arena: usize,
    /// The bytes of its segment, or of the pages to be mapped side by side.
    pub bytes: usize,
    pub(super) plan: Box<PeriodPlan>,
}

/// The blocks of a period, in order, and the one that comes next.
#[derive(Debug)]
pub(super) struct PeriodPlan {
    pub(super) blocks: Vec<PlannedBlock>,
    pub(super) planned: Planned,
    next: usize,
    /// The segments with planned places.
    segments: Vec<SegmentKey>,
    /// The sizes of the last blocks, the last one first.
    recent: [usize; RECENT],
    /// How many blocks in a row were not found.
    lost: usize,
    /// How many blocks of this period lie elsewhere.
    missed: usize,
    /// The bytes of the arena before the plan.
    held_before: u64,
    /// Set while the last block was the first of another period.
    is_first: bool,
    /// The number of periods to come after which memory may leave that was needed before the plan.
    looks: u32,
}

impl PeriodPlan {
    pub(super) fn new(blocks: Vec<PlannedBlock>, planned: Planned, held_before: u64) -> Self {
        Self {
            blocks,
            planned,
            next: 0,
            segments: Vec::new(),
            recent: [0; RECENT],
            lost: 0,
            missed: 0,
            held_before,
            is_first: false,
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

    /// Returns the number of the block of this size that the program is at: the next one, or else the one near it, or near the first one if the program
    /// has left the plan, before which most of the last sizes are planned, too.
    pub(super) fn find(&self, bytes: usize) -> Option<usize> {
        let all = self.blocks.len();
        let next = self.next % all.max(1);
        if self.blocks.get(next)?.bytes == bytes {
            return Some(next);
        }
        let near = |first: usize| (first + all - MOST_SKIPPED.min(all)..).take(2 * MOST_SKIPPED);
        let first = (self.lost >= MOST_SKIPPED).then_some(0);
        let near = near(next).chain(first.into_iter().flat_map(near));
        let near = near.map(|number| number % all);
        let same = near.filter(|number| self.blocks[*number].bytes == bytes);
        let known = |number: usize| {
            let before =
                (1..=RECENT.min(all)).map(|back| self.blocks[(number + all - back) % all].bytes);
            let alike = before
                .zip(self.recent)
                .take_while(|(planned, recent)| planned == recent);
            alike.count()
        };
        // Of those that are equally well known, the first one that comes next.
        let distance = |number: usize| (number + all - next) % all;
        same.max_by_key(|number| (known(*number), Reverse(distance(*number))))
    }

    /// Records that a block was taken, and where it lies. Returns whether the program still follows the plan.
    pub(super) fn took(&mut self, bytes: usize, at: Address) -> bool {
        let all = self.blocks.len();
        let found = self.find(bytes);
        self.recent.rotate_right(1);
        self.recent[0] = bytes;
        let Some(number) = found else {
            self.lost += 1;
            self.is_first = false;
            return self.lost <= (all * MOST_LOST_PERIODS).max(MOST_SKIPPED);
        };
        self.is_first = number + all / 2 < self.next;
        if self.is_first {
            self.missed = 0;
            self.looks = self.looks.saturating_sub(1);
        }
        let place = self.blocks[number].place;
        self.missed += usize::from(place.is_some_and(|place| place != at));
        (self.next, self.lost) = (number + 1, 0);
        self.missed <= (all / MISSED_PARTS).max(MOST_SKIPPED)
    }

    /// Returns whether a period has just ended after which memory may leave that the plan does not need.
    pub(super) const fn has_unneeded_memory(&self) -> bool {
        self.is_first && self.looks > 0
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A plan for blocks of these sizes, each of which has a place of its own.
    fn plan(sizes: &[usize]) -> PeriodPlan {
        let blocks = sizes.iter().enumerate();
        let blocks = blocks.map(|(number, bytes)| PlannedBlock {
            bytes: *bytes,
            place: Some((0, number)),
            last_in: None,
        });
        PeriodPlan::new(blocks.collect(), Planned::default(), 0)
    }

    /// Takes blocks of these sizes where they are planned. Returns which block of the plan each was taken for.
    fn taken(plan: &mut PeriodPlan, sizes: &[usize]) -> Vec<Option<usize>> {
        let sizes = sizes.iter();
        let taken = sizes.map(|bytes| {
            let number = plan.find(*bytes);
            plan.took(*bytes, number.map_or((1, 0), |number| (0, number)));
            number
        });
        taken.collect()
    }

    #[test]
    fn one_more_block_of_a_frequent_size_does_not_lead_astray() {
        // 3 comes again and again, so that the next 3 tells little.
        let sizes = [3, 3, 5, 3, 6, 7, 3, 8, 3, 3, 9];
        let mut plan = plan(&sizes);
        let all: Vec<_> = (0..sizes.len()).map(Some).collect();
        assert_eq!(taken(&mut plan, &sizes), all);
        // A third 3 after the first two.
        let more = [&[3][..], &sizes].concat();
        assert_eq!(taken(&mut plan, &more)[3..], all[2..]);
        // One less.
        assert_eq!(taken(&mut plan, &sizes[1..])[1..], all[2..]);
        assert_eq!(taken(&mut plan, &sizes), all);
    }

    #[test]
    fn memory_may_leave_after_each_of_the_first_periods() {
        let mut plan = plan(&[5, 6, 7]);
        let ends = (0..6).map(|_| {
            let first = [5, 6, 7].map(|bytes| {
                taken(&mut plan, &[bytes]);
                plan.has_unneeded_memory()
            });
            assert!(!first[1] && !first[2]);
            first[0]
        });
        assert_eq!(
            ends.collect::<Vec<_>>(),
            [false, true, true, true, false, false]
        );
    }
}
