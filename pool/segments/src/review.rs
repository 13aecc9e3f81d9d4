//! What an arena has done since it grew, to be looked at without its lock: whether one segment, or a plan, would take less memory.

use std::collections::HashMap;

use super::{
    layout::{Block, Taken, lay_out},
    log::Log,
    period::Period,
    period_plan::{Address, NEW_SEGMENT, PeriodPlan, PlannedBlock},
    space::{Pinned, Space},
};
use binpool_allocators::Region;

/// A period counts if it comes as near to the peak as this many percent of it: others are a part of what the program repeats.
const PEAK_PERCENT: i64 = 75;

/// A layout is good enough that has one part in this more than what is taken at once.
const GOOD_PARTS: u64 = 128;

/// A plan begins where no more is taken than at the lowest point of its period and one part in this of the peak.
const LOWEST_PARTS: i64 = 256;

/// What an arena has done since it grew. [Carry it out](Self::carry_out), then [join](super::Segments::join_idle) what it has found.
#[derive(Debug)]
pub struct Review {
    pub(super) arena: usize,
    /// How often the arena has been told of a range, by which it tells whether it has changed since.
    pub(super) changes: u64,
    pub(super) log: Log,
    pub(super) pinned: Vec<Pinned>,
    /// The bytes of idle segments, or of pages that are free as a whole.
    pub(super) idle: u64,
    pub(super) taken: u64,
    pub(super) peak: u64,
    /// The bytes that one segment has to save at least, and a plan.
    pub(super) least_gain: u64,
    pub(super) least_planned_gain: u64,
    /// How often a period has to have been repeated.
    pub(super) repetitions: usize,
    /// Set at a low point that is as low as any.
    pub(super) is_lowest: bool,
    /// The bytes of the arena.
    pub(super) held: u64,
    /// The largest segment that the allocator gives.
    pub(super) largest: usize,
}

/// The result of a [`Review`].
#[derive(Debug)]
pub struct Reviewed {
    pub(super) arena: usize,
    pub(super) changes: u64,
    pub(super) found: Found,
}

#[derive(Debug)]
pub(super) enum Found {
    /// Nothing, or a period that cannot be placed in enough less.
    Nothing { has_period: bool },
    /// A period. At its lowest point, which comes within this number of blocks, no more than these bytes are taken.
    Wait { lowest: u64, within: usize },
    /// One segment of this many bytes.
    Segment(usize),
    /// The same, with a plan for it.
    Plan(usize, PeriodPlan),
}

impl Review {
    /// Looks for a period, and for the places of its blocks; without one, for what best fit needs in one segment. Takes up to a tenth of a second.
    #[must_use]
    pub fn carry_out(self) -> Reviewed {
        let found = self.found();
        Reviewed {
            arena: self.arena,
            changes: self.changes,
            found,
        }
    }

    fn found(&self) -> Found {
        let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        let (taken, peak) = (signed(self.taken), signed(self.peak));
        let period = Period::of(&self.log, self.repetitions);
        let period = period.filter(|it| taken + it.most >= peak / 100 * PEAK_PERCENT);
        let has_period = period.is_some();
        if let Some(period) = &period {
            let lowest = taken + period.least + peak / LOWEST_PARTS;
            if taken > lowest {
                return Found::Wait {
                    lowest: lowest.unsigned_abs(),
                    within: period.lives.len(),
                };
            }
            if let Some((bytes, plan)) = self.plan(period) {
                return Found::Plan(bytes, plan);
            }
        }
        if !self.is_lowest || self.idle < self.least_gain {
            return Found::Nothing { has_period };
        }
        let bytes = self.needed();
        let saves = bytes > 0 && self.least_gain.saturating_add(bytes as u64) <= self.idle;
        if saves {
            Found::Segment(bytes)
        } else {
            Found::Nothing { has_period }
        }
    }

    /// Places the blocks of a period in the segments that stay and in a new one. Returns the bytes of the new one, and the plan, if that saves enough.
    fn plan(&self, period: &Period) -> Option<(usize, PeriodPlan)> {
        let lives = &period.lives;
        let numbers = lives.iter().enumerate();
        let numbers: HashMap<_, _> = numbers
            .filter_map(|(number, it)| Some((it.range?, number)))
            .collect();
        let block = |number: usize| {
            let life = lives[number];
            Some(Block {
                bytes: life.bytes,
                start: life.start,
                end: life.end?,
                kind: life.kind,
            })
        };
        let mut places: Vec<Option<Address>> = vec![None; lives.len()];
        let (mut taken, mut bases, mut base) = (Vec::new(), Vec::new(), 0);
        // Which queue may have a free range of these is not known.
        let is_one_kind = lives.windows(2).all(|two| two[0].kind == two[1].kind);
        for pinned in self.pinned.iter().filter(|_| is_one_kind) {
            let Region { offset, bytes } = pinned.region;
            bases.push((base, pinned.segment, offset));
            for (range, region) in &pinned.taken {
                // A block of the period that lives now keeps its place.
                let number = numbers
                    .get(range)
                    .filter(|it| lives[**it].bytes == region.bytes);
                let by = number.and_then(|number| block(*number));
                if let Some(number) = number.filter(|_| by.is_some()) {
                    places[*number] = Some((pinned.segment, region.offset));
                }
                let low = base + region.offset - offset;
                let high = low + region.bytes;
                taken.push(Taken { low, high, by });
            }
            // No block reaches into the next segment.
            let (low, high) = (base + bytes, base + bytes + 1);
            taken.push(Taken {
                low,
                high,
                by: None,
            });
            base = high;
        }
        bases.push((base, NEW_SEGMENT, 0));
        let open = (0..lives.len()).filter(|number| places[*number].is_none());
        let (numbers, blocks): (Vec<_>, Vec<_>) = open
            .filter_map(|number| Some((number, block(number)?)))
            .unzip();
        // No layout has less than what is taken at once, beyond what the segments have that stay.
        let most = self.taken.saturating_add_signed(period.most);
        let pinned: usize = self.pinned.iter().map(|pinned| pinned.region.bytes).sum();
        let missing = most.saturating_sub(pinned as u64) + most / GOOD_PARTS;
        let good = base.saturating_add(usize::try_from(missing).unwrap_or(usize::MAX));
        let layout = lay_out(&blocks, lives.len(), &taken, good)?;
        let bytes = layout.end.saturating_sub(base);
        let needed = self.least_planned_gain.saturating_add(bytes as u64);
        if bytes == 0 || bytes > self.largest || needed > self.idle {
            return None;
        }
        for (number, place) in numbers.into_iter().zip(layout.places) {
            let after = bases.partition_point(|(base, ..)| *base <= place);
            let (base, segment, offset) = bases[after - 1];
            places[number] = Some((segment, place - base + offset));
        }
        let blocks = lives.iter().zip(places).map(|(life, place)| PlannedBlock {
            bytes: life.bytes,
            place,
        });
        Some((bytes, PeriodPlan::new(blocks.collect(), self.held)))
    }

    /// The sizes of the free ranges of the segments that stay.
    fn free_between_taken(&self) -> impl Iterator<Item = usize> {
        self.pinned.iter().flat_map(|pinned| {
            let ends = pinned
                .taken
                .iter()
                .map(|(_, taken)| taken.offset + taken.bytes);
            let starts = pinned.taken.iter().map(|(_, taken)| taken.offset);
            let (ends, starts) = (
                [0].into_iter().chain(ends),
                starts.chain([pinned.region.bytes]),
            );
            starts
                .zip(ends)
                .map(|(start, end)| start - end)
                .filter(|free| *free > 0)
        })
    }

    /// Returns what the blocks of the log would have needed in one range, placed by best fit there and in the free ranges of segments that stay.
    /// Blocks that are taken now stay where they are.
    fn needed(&self) -> usize {
        let blocks = self.log.blocks();
        let mut given: Vec<_> = (0..blocks.len())
            .filter(|number| blocks[*number].end().is_some())
            .collect();
        given.sort_by_key(|number| blocks[*number].end());
        let mut given = given.into_iter().peekable();
        // The same bookkeeping, without memory.
        let mut space = Space::<(), ()>::new(|(), ()| Some(()));
        for bytes in self.free_between_taken() {
            space.add(bytes, false);
        }
        let region = space.add(usize::MAX / 2, false);
        let mut places = vec![None; blocks.len()];
        let mut top = 0;
        for (number, block) in blocks.iter().enumerate() {
            while let Some(ended) = given.next_if(|other| blocks[*other].end() <= Some(number)) {
                if let Some(place) = places[ended].take() {
                    space.give(place, (), None);
                }
            }
            if block.end().is_some()
                && let Some(taken) = space.take(block.bytes, None, true, |(), _| true)
            {
                if taken.segment == region {
                    top = top.max(taken.region.offset + block.bytes);
                }
                places[number] = Some(taken.range);
            }
        }
        top
    }
}
