//! What an arena has done since it grew, to be looked at without its lock: whether a plan would take less memory.

use std::collections::HashMap;

use super::{
    layout::{Block, Taken, lay_out},
    log::Log,
    period::Period,
    period_plan::{Address, NEW_SEGMENT, PeriodPlan, Planned, PlannedBlock},
    space::Pinned,
};
use binpool_allocators::Region;

/// A period counts if it comes as near to the peak as this many percent of it: others are a part of what the program repeats.
const PEAK_PERCENT: i64 = 75;

/// How many places are looked at, which takes up to a tenth of a second.
const MOST_STEPS: usize = 32_000_000;

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
    /// The bytes that a plan has to save at least.
    pub(super) least_gain: u64,
    /// How often a period has to have been repeated.
    pub(super) repetitions: usize,
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
    Nothing,
    /// A period that cannot be placed in enough less.
    NoGain,
    /// A period. At its lowest point, which comes within this number of blocks, no more than these bytes are taken.
    Wait {
        lowest: u64,
        within: usize,
    },
    /// A plan, for which one segment of this many bytes takes the place of idle ones. In a box, since some threads have small stacks.
    Plan(usize, Box<PeriodPlan>),
}

impl Review {
    /// Looks for a period, and for the places of its blocks. Takes up to a tenth of a second.
    #[must_use]
    pub fn carry_out(self) -> Reviewed {
        Reviewed {
            arena: self.arena,
            changes: self.changes,
            found: self.found(),
        }
    }

    fn found(&self) -> Found {
        let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        let (taken, peak) = (signed(self.taken), signed(self.peak));
        let period = Period::of(&self.log, self.repetitions);
        let near_peak = peak / 100 * PEAK_PERCENT;
        let Some(period) = period.filter(|it| taken + it.most >= near_peak) else {
            return Found::Nothing;
        };
        let lowest = taken + period.least + peak / LOWEST_PARTS;
        if taken > lowest {
            return Found::Wait {
                lowest: lowest.unsigned_abs(),
                within: period.lives.len(),
            };
        }
        let plan = self.plan(&period);
        plan.map_or(Found::NoGain, |(bytes, plan)| {
            Found::Plan(bytes, Box::new(plan))
        })
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
        let high = self.taken.saturating_add_signed(period.most);
        let pinned: usize = self.pinned.iter().map(|pinned| pinned.region.bytes).sum();
        let missing = high.saturating_sub(pinned as u64) + high / GOOD_PARTS;
        let good = base.saturating_add(usize::try_from(missing).unwrap_or(usize::MAX));
        let worth = usize::try_from(self.idle.checked_sub(self.least_gain)?).unwrap_or(usize::MAX);
        let most = base.saturating_add(worth.min(self.largest));
        let layout = lay_out(&blocks, lives.len(), &taken, good, most, MOST_STEPS)?;
        let bytes = layout.end.saturating_sub(base);
        if bytes == 0 {
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
            last_in: None,
        });
        let stays = self.pinned.iter().flat_map(|pinned| &pinned.taken);
        let stays: usize = stays.map(|(_, region)| region.bytes).sum();
        let planned = Planned {
            blocks: lives.len() as u64,
            bytes: (pinned + bytes) as u64,
            most_taken: (stays as u64).saturating_add_signed(period.most),
        };
        let plan = PeriodPlan::new(blocks.collect(), planned, self.held);
        Some((bytes, plan))
    }
}
