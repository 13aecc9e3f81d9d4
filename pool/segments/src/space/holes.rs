//! Ranges of a reservation that nothing is mapped to: holes.

use std::iter;

use super::{Range, RangeNumber, SegmentKey, Space};
use binpool_allocators::Region;

use crate::views::Chain;

/// A range that was taken for a block, a part of which has to be mapped first.
#[derive(Debug)]
pub(crate) struct Incomplete<U> {
    pub(crate) range: RangeNumber,
    /// The whole range, which has at least the bytes of the block.
    pub(crate) region: Region,
    /// The regions of it that have to be mapped.
    pub(crate) missing: Region,
    /// The former uses of the mapped parts.
    pub(crate) uses: U,
}

/// The hole that a block gets, with the free neighbours that become part of it.
#[derive(Clone, Copy)]
struct Choice {
    hole: usize,
    /// The bytes to be mapped.
    missing: usize,
    /// The bytes around it that no block has.
    room: usize,
    offset: usize,
    takes_before: bool,
    takes_after: bool,
}

impl<V, U: Clone + Default> Space<V, U> {
    /// Adds a reservation of `bytes` bytes, for small blocks or for other blocks. All of it is one hole.
    pub(crate) fn add_reservation(&mut self, bytes: usize, is_small: bool) -> SegmentKey {
        self.add_one_range(bytes, is_small, true)
    }

    /// Takes a range of at least `bytes` bytes of a reservation: of a hole, with the free neighbours of the hole whose uses are
    /// `usable`. It is the range of which the least has to be mapped: a multiple of `page`.
    pub(crate) fn take_incomplete(
        &mut self,
        reservation: SegmentKey,
        bytes: usize,
        page: usize,
        usable: impl Fn(&U) -> bool,
    ) -> Option<Incomplete<U>> {
        let free_bytes = |key: Option<usize>| {
            let range = &self.ranges[key?];
            let free = range.free.as_ref()?;
            usable(&free.uses).then_some(range.region.bytes)
        };
        let mut best: Option<Choice> = None;
        let holes = self
            .holes
            .range((reservation, 0)..=(reservation, usize::MAX));
        for (_, hole) in holes.copied() {
            let range = &self.ranges[hole];
            let Region {
                offset,
                bytes: room,
            } = range.region;
            let (before, after) = (free_bytes(range.before), free_bytes(range.after));
            let all = self.room_around(hole);
            for (before, after) in [(before, None), (None, after), (None, None), (before, after)] {
                let missing = if let (Some(before), Some(after)) = (before, after) {
                    // The two can become one range only together with the whole hole between them.
                    let is_enough = before + room + after >= bytes && self.may_join_around(range);
                    is_enough.then_some(room)
                } else {
                    let mapped = before.or(after).unwrap_or(0);
                    let needed = bytes.saturating_sub(mapped).max(1);
                    let rounded = needed.checked_next_multiple_of(page);
                    rounded.filter(|missing| *missing <= room)
                };
                // Best fit among equal ones, so that blocks do not wander through the addresses.
                if let Some(missing) = missing
                    && best.is_none_or(|best| {
                        (missing, all, offset) < (best.missing, best.room, best.offset)
                    })
                {
                    best = Some(Choice {
                        hole,
                        missing,
                        room: all,
                        offset,
                        takes_before: before.is_some(),
                        takes_after: after.is_some(),
                    });
                }
            }
        }
        Some(self.take_choice(best?, bytes))
    }

    /// The bytes of a hole with the free ranges and holes next to it, up to the next taken range on either side.
    fn room_around(&self, hole: RangeNumber) -> usize {
        let is_open = |key: &RangeNumber| {
            let range = &self.ranges[*key];
            range.is_hole || range.free.is_some()
        };
        let before = iter::successors(self.ranges[hole].before, |key| self.ranges[*key].before);
        let after = iter::successors(Some(hole), |key| self.ranges[*key].after);
        let both = before.take_while(is_open).chain(after.take_while(is_open));
        both.map(|key| self.ranges[key].region.bytes).sum()
    }

    /// Returns whether the uses of the free ranges around a hole can be joined.
    fn may_join_around(&self, hole: &Range<U>) -> bool {
        let uses = |key: Option<usize>| Some(&self.ranges[key?].free.as_ref()?.uses);
        match (uses(hole.before), uses(hole.after)) {
            (Some(one), Some(two)) => (self.join)(one, two).is_some(),
            _ => false,
        }
    }

    fn take_choice(&mut self, choice: Choice, bytes: usize) -> Incomplete<U> {
        let Choice {
            hole,
            missing,
            takes_before,
            takes_after,
            ..
        } = choice;
        let room = self.ranges[hole].region.bytes;
        let mut key = hole;
        if missing < room {
            if takes_after {
                // The end of the hole.
                key = self.split(hole, room - missing);
            } else {
                let rest = self.split(hole, missing);
                self.set_is_hole(rest, true);
            }
        }
        self.set_is_hole(key, false);
        let missing = self.ranges[key].region;
        let mut uses = None;
        let Range { before, after, .. } = self.ranges[key];
        if takes_after && let Some(after) = after {
            let first = before.filter(|_| takes_before);
            let mapped = first.map_or(0, |before| self.ranges[before].region.bytes);
            let needed = bytes.saturating_sub(mapped + missing.bytes);
            let all = self.ranges[after].region.bytes;
            uses = self.set_taken(after).map(|free| free.uses);
            if (1..all).contains(&needed) {
                let rest = self.split(after, needed);
                self.set_free(rest, uses.clone().unwrap_or_default(), Chain::default());
            }
            self.absorb(key, after);
        }
        if takes_before && let Some(before) = before {
            let others = self.set_taken(before).map(|free| free.uses);
            uses = match (others, uses) {
                (Some(one), Some(two)) => (self.join)(&one, &two),
                (one, two) => one.or(two),
            };
            self.absorb(before, key);
            key = before;
        }
        let Range {
            segment, region, ..
        } = self.ranges[key];
        self.segments[segment].taken += 1;
        Incomplete {
            range: key,
            region,
            missing,
            uses: uses.unwrap_or_default(),
        }
    }

    /// Makes regions of a taken range holes again, which are in order, and frees the rest, which commands of `uses` may still use.
    pub(crate) fn give_incomplete(&mut self, key: RangeNumber, holes: &[Region], uses: &U) {
        let segment = self.ranges[key].segment;
        self.segments[segment].taken -= 1;
        let mut rest = Some(key);
        for hole in holes {
            let Some(mut key) = rest else { return };
            let Range { region, .. } = self.ranges[key];
            if hole.offset > region.offset {
                let free = key;
                key = self.split(free, hole.offset - region.offset);
                self.release(free, uses.clone(), Chain::default());
            }
            let has_more = self.ranges[key].region.bytes > hole.bytes;
            rest = has_more.then(|| self.split(key, hole.bytes));
            self.set_hole(key);
        }
        if let Some(rest) = rest {
            self.release(rest, uses.clone(), Chain::default());
        }
    }

    /// Takes a region of a free range of a reservation: of `first`, or of what it has been split into since. Returns the taken range and
    /// its uses, or `None` if the region is no longer in a free range whose uses are `over`.
    pub(crate) fn take_region(
        &mut self,
        reservation: SegmentKey,
        first: RangeNumber,
        region: Region,
        over: impl Fn(&U) -> bool,
    ) -> Option<(RangeNumber, U)> {
        let known = self.ranges.get(first)?;
        if known.segment != reservation {
            return None;
        }
        // The parts lie after the first one, which has kept the key.
        let mut parts = iter::successors(Some(first), |key| self.ranges[*key].after);
        let key = parts.find(|key| {
            let Region { offset, bytes } = self.ranges[*key].region;
            offset + bytes > region.offset
        })?;
        let range = &self.ranges[key];
        let is_over = range.free.as_ref().is_some_and(|free| over(&free.uses));
        if !is_over || !contains(range.region, region) {
            return None;
        }
        let (taken, uses, _) = self.take_part(key, region)?;
        self.segments[reservation].taken += 1;
        Some((taken, uses))
    }

    /// Makes a taken range one that no block has, until it becomes a hole.
    pub(crate) fn set_stale(&mut self, key: RangeNumber) {
        self.ranges[key].is_stale = true;
    }

    /// Makes a taken range a hole, since its pages were unmapped.
    pub(crate) fn make_hole(&mut self, key: RangeNumber) {
        let segment = self.ranges[key].segment;
        self.ranges[key].is_stale = false;
        self.segments[segment].taken -= 1;
        self.set_hole(key);
    }

    /// The free ranges of a reservation that have at least `least` bytes, and whose uses are `over`; with when each last became free or
    /// grew.
    pub(crate) fn free_ranges_of(
        &self,
        reservation: SegmentKey,
        least: usize,
        over: impl Fn(&U) -> bool,
    ) -> impl Iterator<Item = (RangeNumber, Region, u64)> {
        let is_small = self.segments[reservation].is_small;
        let free = self.free[usize::from(is_small)].at_least(least);
        free.filter_map(move |(_, key)| {
            let range = &self.ranges[key];
            let free = range.free.as_ref()?;
            let is_one = range.segment == reservation && over(&free.uses);
            is_one.then_some((key, range.region, range.since))
        })
    }

    /// Makes a taken range a hole, and joins it with the holes next to it.
    fn set_hole(&mut self, mut key: usize) {
        let Range { before, after, .. } = self.ranges[key];
        if let Some(before) = before
            && self.ranges[before].is_hole
        {
            self.absorb(before, key);
            key = before;
        }
        if let Some(after) = after
            && self.ranges[after].is_hole
        {
            self.set_is_hole(after, false);
            self.absorb(key, after);
        }
        self.set_is_hole(key, true);
    }

    fn set_is_hole(&mut self, key: RangeNumber, is_hole: bool) {
        let range = &mut self.ranges[key];
        range.is_hole = is_hole;
        let entry = (range.segment, key);
        if is_hole {
            self.holes.insert(entry);
        } else {
            self.holes.remove(&entry);
        }
    }
}

fn contains(all: Region, part: Region) -> bool {
    all.offset <= part.offset && part.offset + part.bytes <= all.offset + all.bytes
}
