//! One arena: some of the segments, and the ranges of them.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    handed_out::{Carved, RangeKey, RangeState, Ready, SegmentState},
    low_points::LowPoints,
    period_plan::{Address, PeriodPlan},
    placement::Placement,
    review::{Found, Review, Reviewed},
    space::{Idle, RangeNumber, SegmentKey, Space, Taken, TakenAt, TakenReady},
};
use binpool_allocators::Region;

/// A reservation of an arena, and the pages that are mapped to it.
#[derive(Debug)]
pub(super) struct Reservation<M> {
    pub(super) segment: SegmentKey,
    /// By the offset at which they are mapped.
    pub(super) pages: BTreeMap<usize, Pages<M>>,
}

/// Pages, which are mapped and moved as a whole.
#[derive(Debug)]
pub(super) struct Pages<M> {
    pub(super) bytes: usize,
    pub(super) memory: M,
}

/// The queues that are told apart in plans.
const MOST_KINDS: usize = 8;

/// Some of the segments, and the ranges of them.
#[derive(Debug)]
pub(super) struct Arena<M, U> {
    pub(super) number: u32,
    pub(super) space: Space<M, U>,
    /// The segments by their keys in the space.
    roots: Vec<Option<Arc<M>>>,
    /// For other blocks and for small ones, if pages are mapped to them.
    pub(super) reservations: [Option<Reservation<M>>; 2],
    pub(super) placement: Placement,
    pub(super) low_points: LowPoints,
    pub(super) plan: Option<Box<PeriodPlan>>,
    /// Uses of which ranges were given back while [watching](LowPoints): one for each queue.
    kinds: Vec<U>,
}

impl<M, U> Arena<M, U> {
    pub(super) fn new(number: u32, join: fn(&U, &U) -> Option<U>) -> Self {
        Self {
            number,
            space: Space::new(join),
            roots: Vec::new(),
            reservations: [None, None],
            placement: Placement::default(),
            low_points: LowPoints::default(),
            plan: None,
            kinds: Vec::new(),
        }
    }
}

impl<M, U: Clone + Default> Arena<M, U> {
    pub(super) fn free_bytes(&self) -> u64 {
        self.space.free_bytes()
    }

    pub(super) fn largest_free(&self) -> usize {
        self.space.largest_free()
    }

    /// Returns the number of [bins](super::by_size::bin_of) up to that of the largest free range.
    pub(super) fn bins(&self) -> usize {
        self.space.bins()
    }

    /// The uses of the free ranges, with their sizes in bytes.
    pub(super) fn uses(&self) -> impl Iterator<Item = (&U, usize)> {
        self.space.uses()
    }

    /// The uses of the free ranges of a segment.
    pub(super) fn uses_of(&self, segment: SegmentKey) -> impl Iterator<Item = &U> {
        self.space.uses_of(segment)
    }

    /// The segments without a taken range.
    pub(super) fn idle(&self) -> impl Iterator<Item = Idle> {
        self.space.idle()
    }

    /// Begins another sweep period. Returns the number of the one that ends.
    pub(super) fn sweep(&mut self) -> u64 {
        self.space.sweep()
    }

    /// Forgets the uses that `are_over`, and joins free neighbours that these kept apart.
    pub(super) fn settle(&mut self, are_over: impl Fn(&U) -> bool) {
        self.space.settle(are_over);
    }

    /// The states of all segments, and of all parts of reservations that are mapped without a gap.
    pub(super) fn segments(&self) -> impl Iterator<Item = SegmentState<'_, M, U>> {
        let roots = self.roots.iter().enumerate();
        let roots = roots.filter_map(|(key, memory)| Some((key, memory.as_deref()?)));
        roots.flat_map(|(key, memory)| {
            let mut parts: Vec<SegmentState<'_, M, U>> = Vec::new();
            let (mut start, mut end) = (0, None);
            for (number, region, uses) in self.space.states_of(key) {
                if end != Some(region.offset) {
                    start = region.offset;
                    parts.push(SegmentState {
                        memory,
                        ranges: Vec::new(),
                    });
                }
                end = Some(region.offset + region.bytes);
                let taken = || RangeState::Taken(self.key_of(number));
                let state = uses.map_or_else(taken, RangeState::Free);
                let region = Region::new(region.offset - start, region.bytes);
                if let Some(part) = parts.last_mut() {
                    part.ranges.push((region, state));
                }
            }
            parts
        })
    }

    /// Takes a range of `bytes` bytes whose uses are `usable`, by the rules of growth.
    pub(super) fn take(
        &mut self,
        bytes: usize,
        usable: impl Fn(&U) -> bool,
    ) -> Option<Carved<M, U>> {
        if let Some(TakenAt::Taken(taken)) = self.take_planned(bytes, true, &usable) {
            self.note_taken(taken.range, (taken.segment, taken.region));
            return self.carved(taken);
        }
        let is_small = Some(self.placement.is_small(bytes));
        let may_lie = self.placement.range_filter(bytes);
        let suits = |uses: &U, location| may_lie(location) && usable(uses);
        let taken = self.space.take(bytes, is_small, true, suits)?;
        self.note_taken(taken.range, (taken.segment, taken.region));
        self.carved(taken)
    }

    /// Takes neighbouring free ranges of a reservation whose uses are `usable`.
    pub(super) fn take_run(
        &mut self,
        bytes: usize,
        usable: impl Fn(&U) -> bool,
    ) -> Option<Carved<M, U>> {
        let is_small = self.placement.is_small(bytes);
        let taken = self.space.take_run(bytes, is_small, usable)?;
        self.note_taken(taken.range, (taken.segment, taken.region));
        self.carved(taken)
    }

    /// Takes a range as [`take`](Self::take) does, unless cached views overlap the block.
    pub(super) fn take_ready(
        &mut self,
        bytes: usize,
        usable: impl Fn(&U) -> bool,
    ) -> Option<Ready<M>> {
        let taken = match self.take_planned(bytes, false, &usable) {
            Some(TakenAt::Taken(taken)) => TakenReady::from(taken),
            Some(TakenAt::HasViews) => return None,
            None => {
                let is_small = self.placement.is_small(bytes);
                let may_lie = self.placement.range_filter(bytes);
                let suits = |uses: &U, location| may_lie(location) && usable(uses);
                self.space.take_ready(bytes, is_small, suits)?
            }
        };
        self.note_taken(taken.range, (taken.segment, taken.region));
        let root = self.roots.get(taken.segment)?.as_ref()?;
        Some(Ready {
            range: self.key_of(taken.range),
            region: taken.region,
            segment: Arc::clone(root),
            view: taken.view,
            is_watched: self.watches_carves(),
        })
    }

    /// Takes a range of `bytes` bytes whose uses are `usable`, even against the rules of growth.
    pub(super) fn take_anywhere(
        &mut self,
        bytes: usize,
        usable: impl Fn(&U) -> bool,
    ) -> Option<Carved<M, U>> {
        let suits = |uses: &U, _| usable(uses);
        let taken = self.space.take(bytes, None, true, suits)?;
        self.note_taken(taken.range, (taken.segment, taken.region));
        self.carved(taken)
    }

    /// Adds a segment of `size` bytes, all of it free.
    pub(super) fn add(&mut self, memory: M, size: usize, is_small: bool) -> SegmentKey {
        let key = self.space.add(size, is_small);
        self.set_root(key, memory);
        key
    }

    /// Takes the first `bytes` bytes of a segment that was just added.
    pub(super) fn take_first(&mut self, key: SegmentKey, bytes: usize) -> Option<Carved<M, U>> {
        let taken = self.space.take_first(key, bytes)?;
        self.note_taken(taken.range, (taken.segment, taken.region));
        self.carved(taken)
    }

    pub(super) fn set_root(&mut self, key: SegmentKey, memory: M) {
        if self.roots.len() <= key {
            self.roots.resize_with(key + 1, || None);
        }
        self.roots[key] = Some(Arc::new(memory));
    }

    /// The memory of a segment.
    pub(super) fn root(&self, key: SegmentKey) -> Option<Arc<M>> {
        self.roots.get(key)?.clone()
    }

    pub(super) fn key_of(&self, range: RangeNumber) -> RangeKey {
        RangeKey::new(self.number, range)
    }

    fn carved(&self, taken: Taken<M, U>) -> Option<Carved<M, U>> {
        let root = self.roots.get(taken.segment)?.as_ref()?;
        Some(Carved {
            range: RangeKey::new(self.number, taken.range),
            region: taken.region,
            segment: Arc::clone(root),
            view: taken.view,
            overlapping: taken.overlapping,
            uses: taken.uses,
            has_excess: taken.has_excess,
        })
    }

    pub(super) fn segment_of(&self, range: RangeKey) -> Option<SegmentKey> {
        self.space
            .place_of(range.number())
            .map(|(segment, _)| segment)
    }

    /// The segment of a taken range, and the position of the range in it.
    pub(super) fn place_of(&self, range: RangeKey) -> Option<(Arc<M>, Region)> {
        let (segment, region) = self.space.place_of(range.number())?;
        Some((Arc::clone(self.roots.get(segment)?.as_ref()?), region))
    }

    /// Frees the bytes of a range before and after `region`, which commands of `uses` may still use.
    pub(super) fn shrink(&mut self, range: RangeKey, region: Region, uses: U) {
        self.space.shrink(range.number(), region, uses);
    }

    /// Returns whether the view of a range may be cached when the range is given back.
    pub(super) fn may_keep_view(&self, range: RangeKey) -> bool {
        self.space.may_cache(range.number())
    }

    /// Gives a range back, which commands of `uses` may still use, with a view to be cached.
    pub(super) fn give(&mut self, range: RangeKey, uses: U, view: Option<M>) {
        let number = range.number();
        if self.low_points.is_watching() && !self.space.is_small(number) {
            let kind = self.kind_of(&uses);
            self.space.give(number, uses, view);
            self.low_points.gave(number, kind, self.space.taken_bytes());
        } else {
            self.space.give(number, uses, view);
        }
    }

    /// Tells the low points and the plan of a range that was taken for the block at this place.
    pub(super) fn note_taken(
        &mut self,
        range: RangeNumber,
        (segment, region): (SegmentKey, Region),
    ) {
        let is_noted = self.low_points.is_watching() || self.plan.is_some();
        if !is_noted || self.space.is_small(range) {
            return;
        }
        if self.low_points.is_watching() {
            // Without what the range keeps until views are released.
            let all = self.space.place_of(range).map_or(0, |(_, all)| all.bytes);
            let excess = all.saturating_sub(region.bytes) as u64;
            let taken = self.space.taken_bytes() - excess;
            self.low_points.took(range, region.bytes, taken);
        }
        self.advance_plan((segment, region));
    }

    /// Returns whether the arena looks for a period, or has a plan. All blocks that are not small should then come from here.
    pub(super) fn watches_carves(&self) -> bool {
        self.low_points.may_repeat() || self.plan.is_some()
    }

    /// Returns a number for the queue of these uses. The last one stands for all others.
    fn kind_of(&mut self, uses: &U) -> u32 {
        let joined = |kind: &U| self.space.joined(kind, uses);
        let mut kinds = self.kinds.iter().enumerate();
        let known = kinds.find_map(|(number, kind)| Some((number, joined(kind)?)));
        let number = known
            .as_ref()
            .map_or(self.kinds.len(), |(number, _)| *number);
        if let Some((_, joined)) = known {
            self.kinds[number] = joined;
        } else if number < MOST_KINDS {
            self.kinds.push(uses.clone());
        }
        u32::try_from(number).unwrap_or(u32::MAX)
    }

    /// Returns whether a request for `bytes` bytes should first check whether [a plan](Self::review) would save memory.
    pub(super) fn is_at_low_point(&self, bytes: usize) -> bool {
        self.low_points.is_due() && !self.placement.is_small(bytes)
    }

    /// At a low point, returns what the arena, which has `held` bytes, has done since it grew. No segment may have more than `largest` bytes.
    pub(super) fn review(&mut self, held: u64, largest: usize) -> Option<Review> {
        if !self.low_points.is_due() {
            return None;
        }
        self.low_points.look();
        let taken = self.space.taken_bytes();
        let (mut pinned, mut idle) = self.pinned_pages();
        pinned.extend(self.space.pinned());
        idle += self
            .idle_to_join()
            .map(|idle| idle.bytes as u64)
            .sum::<u64>();
        Some(Review {
            arena: self.number as usize,
            changes: self.low_points.changes,
            log: self.low_points.log.clone(),
            pinned,
            idle,
            taken,
            peak: self.low_points.peak,
            least_gain: self.low_points.least_gain(),
            repetitions: self.low_points.repetitions(),
            held,
            largest,
        })
    }

    /// Returns the bytes of a segment in the place of idle ones, these, and the plan for it, if a review has found one, and the arena has not changed
    /// since.
    pub(super) fn join_idle(
        &mut self,
        reviewed: Reviewed,
    ) -> Option<(usize, Vec<Idle>, Box<PeriodPlan>)> {
        if reviewed.changes != self.low_points.changes {
            return None;
        }
        self.low_points.found(&reviewed.found);
        let Found::Plan(bytes, plan) = reviewed.found else {
            return None;
        };
        Some((bytes, self.idle_to_join().collect(), plan))
    }

    fn idle_to_join(&self) -> impl Iterator<Item = Idle> {
        self.idle().filter(|idle| !idle.is_small)
    }

    /// Removes an idle segment. Returns the commands that may still use it, its cached views, and its memory.
    pub(super) fn remove(&mut self, key: SegmentKey) -> Option<(Vec<U>, Vec<M>, M)> {
        let (uses, views) = self.space.remove(key)?;
        if self.is_planned(key) {
            self.end_plan();
        }
        // A caller that makes a view of the segment has taken a range of it, so an idle segment has no other reference.
        let memory = self.roots.get_mut(key)?.take().and_then(Arc::into_inner)?;
        Some((uses, views, memory))
    }

    /// Follows a plan whose new segment begins here.
    pub(super) fn follow(&mut self, mut plan: Box<PeriodPlan>, start: Address) {
        plan.place_new(start);
        self.plan = Some(plan);
    }

    /// Ends the plan, since the program no longer follows it, or a segment of it has left.
    fn end_plan(&mut self) {
        self.plan = None;
    }

    /// Returns whether a segment stays for a plan.
    pub(super) fn is_planned(&self, segment: SegmentKey) -> bool {
        let plan = self.plan.as_ref();
        plan.is_some_and(|plan| plan.uses(segment))
    }

    /// Returns whether there is a plan, and an idle segment is not needed for it.
    pub(super) fn is_outside_plan(&self, idle: Idle) -> bool {
        self.plan.is_some() && !idle.is_small && !self.is_planned(idle.segment)
    }

    /// Takes the planned place of a block, if it is free and its uses are `usable`.
    fn take_planned(
        &mut self,
        bytes: usize,
        may_overlap: bool,
        usable: impl Fn(&U) -> bool,
    ) -> Option<TakenAt<M, U>> {
        let plan = self.plan.as_mut();
        let plan = plan.filter(|_| !self.placement.is_small(bytes))?;
        let number = plan.find(bytes)?;
        let block = &mut plan.blocks[number];
        let (segment, offset) = block.place?;
        let region = Region::new(offset, bytes);
        let range = self.space.free_at(block.last_in, segment, region)?;
        block.last_in = Some(range);
        self.space.take_at(range, region, may_overlap, usable)
    }

    /// Records that a block was taken at this place.
    fn advance_plan(&mut self, (segment, region): (SegmentKey, Region)) {
        let Some(plan) = &mut self.plan else { return };
        if !plan.took(region.bytes, (segment, region.offset)) {
            self.end_plan();
            self.low_points.plan_failed();
            self.low_points.watch();
        } else if plan.has_unneeded_memory() {
            self.low_points.look_again();
        }
    }

    /// Records that the arena has grown to `bytes` bytes. A plan with which it has more than before goes.
    pub(super) fn grew(&mut self, bytes: u64) {
        if let Some(plan) = &self.plan {
            if plan.allows(bytes) {
                return;
            }
            self.end_plan();
            self.low_points.plan_failed();
        }
        self.low_points.grew(bytes);
    }
}
