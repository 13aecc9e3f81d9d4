//! Free and taken ranges of segments: best fit, and the joining of free neighbours.

mod holes;
mod places;

use std::collections::BTreeSet;

pub(super) use places::TakenAt;

use slab::Slab;

use super::{
    by_size::BySize,
    views::{Chain, Views},
};
use binpool_allocators::Region;

/// The key of a segment of a [`Space`].
pub(super) type SegmentKey = usize;

/// The key of a range of a [`Space`], from when it is taken until it is given back.
pub(super) type RangeNumber = usize;

/// A range that has been taken.
#[derive(Debug)]
pub(super) struct Taken<V, U> {
    pub(super) range: RangeNumber,
    pub(super) segment: SegmentKey,
    pub(super) region: Region,
    /// A cached view of exactly this region.
    pub(super) view: Option<V>,
    /// Cached views that overlap this region. They must be released before another view of it is made.
    pub(super) overlapping: Vec<V>,
    /// The commands that may still use it.
    pub(super) uses: U,
    /// Set if the overlapping views extend beyond the region. The range keeps that excess until it is [shrunk](Space::shrink).
    pub(super) has_excess: bool,
}

/// A range that has been taken, and that no cached view overlaps.
#[derive(Debug)]
pub(super) struct TakenReady<V> {
    pub(super) range: RangeNumber,
    pub(super) segment: SegmentKey,
    pub(super) region: Region,
    /// A cached view of exactly this region.
    pub(super) view: Option<V>,
}

impl<V, U> From<Taken<V, U>> for TakenReady<V> {
    fn from(taken: Taken<V, U>) -> Self {
        Self {
            range: taken.range,
            segment: taken.segment,
            region: taken.region,
            view: taken.view,
        }
    }
}

/// A segment that stays because blocks in it are in use, or the pages of a reservation that do.
#[derive(Debug)]
pub(super) struct Pinned {
    pub(super) segment: SegmentKey,
    /// Where it lies in the segment: all of it, unless it is pages.
    pub(super) region: Region,
    /// Its taken ranges, in order, with their places in the segment.
    pub(super) taken: Vec<(RangeNumber, Region)>,
}

/// The first bytes of a free range, which a request takes.
struct Choice {
    range: RangeNumber,
    /// Set if a cached view shows exactly these bytes.
    has_view: bool,
}

/// A segment without a taken range.
#[derive(Clone, Copy, Debug)]
pub(super) struct Idle {
    pub(super) segment: SegmentKey,
    /// Whether it is for small blocks.
    pub(super) is_small: bool,
    pub(super) bytes: usize,
    /// The number of the sweep period in which it became idle.
    pub(super) since: u64,
}

/// A range of a segment, free or taken. The ranges of a segment lie next to each other, from its start to its end.
#[derive(Debug)]
struct Range<U> {
    segment: SegmentKey,
    /// Whether the segment is for small blocks.
    is_small: bool,
    /// Set if nothing is mapped there. A hole is neither free nor taken.
    is_hole: bool,
    /// Set if it is taken, and its pages count elsewhere.
    is_stale: bool,
    region: Region,
    before: Option<usize>,
    after: Option<usize>,
    free: Option<Free<U>>,
    /// The number of ranges that had become free when it last did, or grew.
    since: u64,
}

#[derive(Debug)]
struct Free<U> {
    /// The commands that may still use it.
    uses: U,
    /// The cached views of parts of it.
    views: Chain,
}

#[derive(Debug)]
struct Segment {
    bytes: usize,
    /// Set if it consists of addresses, to which pages are mapped.
    is_reservation: bool,
    first: usize,
    /// The number of taken ranges.
    taken: usize,
    /// The number of cached views.
    cached: usize,
    /// Whether it is for small blocks.
    is_small: bool,
    /// The number of sweeps before the last range was given back.
    idle_since: u64,
}

/// The location of a free range, by which the rules of growth decide.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Location {
    /// The size of the segment, if the range is all of it.
    pub(super) whole: Option<usize>,
    /// The number of taken ranges in the segment.
    pub(super) taken: usize,
}

/// The most taken ranges and cached views of a segment together: beyond that, views are not cached. Few under `shuttle` and Miri, whose
/// programs are short.
const MOST_VIEWS: usize = if cfg!(any(shuttle, miri)) { 1 } else { 64 };

/// The free and taken ranges of segments. Everything here is numbers, and views that are only stored.
///
/// Taking and giving back cost a few calls of an index by size, and a few changes of the list of neighbours. They
/// allocate host memory only for more ranges and views than there have been before.
///
/// # Invariants
///
/// - S1: the ranges of a segment cover it without a gap, and `before` and `after` link them in order.
/// - S2: `free` has the size and the key of each free range, those of segments for small blocks apart, and nothing else.
/// - S3: two free neighbours stay apart only if `join` returns `None` for them.
/// - S4: a cached view lies in the free range whose chain it is in.
/// - S5: `holes` has the holes, each after the key of its segment, and nothing else.
#[derive(Debug)]
pub(super) struct Space<V, U> {
    segments: Slab<Segment>,
    ranges: Slab<Range<U>>,
    cached: Views<V>,
    /// The free ranges in segments for other blocks, and those in segments for small ones, so that a search for a small block skips the
    /// pieces between large ones.
    free: [BySize; 2],
    holes: BTreeSet<(SegmentKey, RangeNumber)>,
    /// Returns the combined uses of two free neighbours; `None` if they must stay apart.
    join: fn(&U, &U) -> Option<U>,
    free_bytes: u64,
    /// The bytes of all segments, and of the pages of reservations.
    segment_bytes: u64,
    /// How many ranges have become free.
    freed: u64,
    /// How often [`sweep`](Self::sweep) was called.
    sweeps: u64,
}

impl<V, U> Space<V, U> {
    pub(super) fn new(join: fn(&U, &U) -> Option<U>) -> Self {
        Self {
            segments: Slab::new(),
            ranges: Slab::new(),
            cached: Views::new(),
            free: Default::default(),
            holes: BTreeSet::new(),
            join,
            free_bytes: 0,
            segment_bytes: 0,
            freed: 0,
            sweeps: 0,
        }
    }
}

impl<V, U: Clone + Default> Space<V, U> {
    pub(super) fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    /// The bytes of the taken ranges.
    pub(super) fn taken_bytes(&self) -> u64 {
        self.segment_bytes.saturating_sub(self.free_bytes)
    }

    /// Returns whether a range lies in a segment for small blocks.
    pub(super) fn is_small(&self, key: RangeNumber) -> bool {
        self.ranges[key].is_small
    }

    /// The combined uses of two free neighbours, unless they must stay apart.
    pub(super) fn joined(&self, one: &U, two: &U) -> Option<U> {
        (self.join)(one, two)
    }

    /// The segments with a taken range, for other than small blocks.
    pub(super) fn pinned(&self) -> impl Iterator<Item = Pinned> {
        let segments = self.segments.iter();
        let pinned = segments.filter(|(_, it)| it.taken > 0 && !it.is_small && !it.is_reservation);
        pinned.map(|(segment, Segment { bytes, .. })| Pinned {
            segment,
            region: Region::first(*bytes),
            taken: self.taken_of(segment).collect(),
        })
    }

    /// The taken ranges of a segment, from its start to its end.
    pub(super) fn taken_of(
        &self,
        segment: SegmentKey,
    ) -> impl Iterator<Item = (RangeNumber, Region)> {
        let taken = self
            .states_of(segment)
            .filter(|(_, _, uses)| uses.is_none());
        taken.map(|(range, region, _)| (range, region))
    }

    /// Counts pages that are mapped to a reservation from now on.
    pub(super) fn count_pages(&mut self, bytes: usize) {
        self.segment_bytes += bytes as u64;
    }

    /// Counts pages that were taken out of a reservation.
    pub(super) fn count_pages_taken(&mut self, bytes: usize) {
        self.segment_bytes -= bytes as u64;
    }

    /// The size of the largest free range.
    pub(super) fn largest_free(&self) -> usize {
        self.free
            .iter()
            .filter_map(BySize::largest)
            .max()
            .unwrap_or(0)
    }

    /// Returns the number of [bins](super::by_size::bin_of) up to that of the largest free range.
    pub(super) fn bins(&self) -> usize {
        let [others, small] = &self.free;
        others.bins().max(small.bins())
    }

    /// The commands that may still use free ranges, with the sizes of these ranges.
    pub(super) fn uses(&self) -> impl Iterator<Item = (&U, usize)> {
        let free = self.free.iter().flat_map(BySize::iter);
        free.filter_map(|(bytes, key)| Some((&self.ranges[key].free.as_ref()?.uses, bytes)))
    }

    /// Adds a segment for small blocks or for other blocks, all of it free.
    pub(super) fn add(&mut self, bytes: usize, is_small: bool) -> SegmentKey {
        let segment = self.add_one_range(bytes, is_small, false);
        self.segment_bytes += bytes as u64;
        let first = self.segments[segment].first;
        self.set_free(first, U::default(), Chain::default());
        segment
    }

    /// Adds a segment of one range that is not free: of a reservation it is a hole.
    fn add_one_range(&mut self, bytes: usize, is_small: bool, is_reservation: bool) -> SegmentKey {
        let segment = self.segments.vacant_key();
        let first = self.ranges.insert(Range {
            segment,
            is_small,
            is_hole: is_reservation,
            is_stale: false,
            region: Region::first(bytes),
            before: None,
            after: None,
            free: None,
            since: self.freed,
        });
        if is_reservation {
            self.holes.insert((segment, first));
        }
        self.segments.insert(Segment {
            bytes,
            is_reservation,
            first,
            taken: 0,
            cached: 0,
            is_small,
            idle_since: self.sweeps,
        })
    }

    /// The segments without a taken range.
    pub(super) fn idle(&self) -> impl Iterator<Item = Idle> {
        let idle = self
            .segments
            .iter()
            .filter(|(_, segment)| segment.taken == 0 && !segment.is_reservation);
        idle.map(|(key, segment)| Idle {
            segment: key,
            is_small: segment.is_small,
            bytes: segment.bytes,
            since: segment.idle_since,
        })
    }

    /// Begins another sweep period. Returns the number of the one that ends.
    pub(super) fn sweep(&mut self) -> u64 {
        self.sweeps += 1;
        self.sweeps - 1
    }

    /// The ranges of a segment, from its start to its end.
    fn ranges_of(&self, segment: SegmentKey) -> impl Iterator<Item = (usize, &Range<U>)> {
        let first = self.segments.get(segment).map(|segment| segment.first);
        let keys = std::iter::successors(first, |key| self.ranges[*key].after);
        keys.map(|key| (key, &self.ranges[key]))
    }

    /// The ranges of a segment, from its start to its end, with the uses of those that are free.
    pub(super) fn states_of(
        &self,
        segment: SegmentKey,
    ) -> impl Iterator<Item = (RangeNumber, Region, Option<&U>)> {
        let ranges = self.ranges_of(segment);
        let mapped = ranges.filter(|(_, range)| !range.is_hole && !range.is_stale);
        mapped.map(|(key, range)| {
            let uses = range.free.as_ref().map(|free| &free.uses);
            (key, range.region, uses)
        })
    }

    /// The uses of the free ranges of a segment.
    pub(super) fn uses_of(&self, segment: SegmentKey) -> impl Iterator<Item = &U> {
        let free = self
            .ranges_of(segment)
            .filter_map(|(_, range)| range.free.as_ref());
        free.map(|free| &free.uses)
    }

    /// Removes an idle segment. Returns the commands that may still use it, and its cached views.
    pub(super) fn remove(&mut self, key: SegmentKey) -> Option<(Vec<U>, Vec<V>)> {
        let segment = self.segments.get(key)?;
        if segment.taken > 0 {
            return None;
        }
        let mut next = Some(segment.first);
        let (mut all_uses, mut all_views) = (Vec::new(), Vec::new());
        while let Some(range) = next {
            if let Some(Free { uses, views }) = self.set_taken(range) {
                all_uses.push(uses);
                all_views.extend(self.cached.discard(views));
            }
            next = self.ranges.remove(range).after;
        }
        self.segment_bytes -= self.segments.remove(key).bytes as u64;
        Some((all_uses, all_views))
    }

    /// Takes `bytes` bytes of the smallest free range that is large enough and that `usable` accepts by its uses and location.
    ///
    /// They are the first bytes of that range. `is_small` restricts the search to segments for small blocks, or to the other segments. Returns
    /// `None` also if cached views of other regions overlap these bytes, unless they `may_overlap`.
    pub(super) fn take(
        &mut self,
        bytes: usize,
        is_small: Option<bool>,
        may_overlap: bool,
        usable: impl Fn(&U, Location) -> bool,
    ) -> Option<Taken<V, U>> {
        let Choice { range, .. } = self.choose(bytes, is_small, may_overlap, usable)?;
        self.seize(range, bytes)
    }

    /// Takes `bytes` bytes as [`take`](Self::take) does, from a segment for small blocks or from another one, unless cached views overlap
    /// them.
    pub(super) fn take_ready(
        &mut self,
        bytes: usize,
        is_small: bool,
        usable: impl Fn(&U, Location) -> bool,
    ) -> Option<TakenReady<V>> {
        let Choice { range, has_view } = self.choose(bytes, Some(is_small), false, usable)?;
        if has_view {
            return self.seize(range, bytes).map(TakenReady::from);
        }
        let range = self.cut(range, bytes);
        let Range {
            segment, region, ..
        } = self.ranges[range];
        self.segments[segment].taken += 1;
        Some(TakenReady {
            range,
            segment,
            region,
            view: None,
        })
    }

    /// Chooses the bytes that [`take`](Self::take) takes.
    #[inline]
    fn choose(
        &self,
        bytes: usize,
        is_small: Option<bool>,
        may_overlap: bool,
        usable: impl Fn(&U, Location) -> bool,
    ) -> Option<Choice> {
        let suits = |key: usize| {
            let range = &self.ranges[key];
            let segment = &self.segments[range.segment];
            let size = range.region.bytes;
            let location = if segment.is_reservation {
                // Its blocks are addresses, and pages can be moved out of it, so no rule reserves ranges for other blocks.
                Location::default()
            } else {
                Location {
                    whole: (segment.bytes == size).then_some(size),
                    taken: segment.taken,
                }
            };
            let free = range.free.as_ref();
            free.is_some_and(|free| usable(&free.uses, location))
        };
        let first = |is_small: bool| self.free[usize::from(is_small)].first_from(bytes, suits);
        let fit = match is_small {
            Some(is_small) => first(is_small),
            None => match (first(false), first(true)) {
                (Some(one), Some(two)) => Some(one.min(two)),
                (one, two) => one.or(two),
            },
        };
        let (_, range) = fit?;
        let first = self.ranges[range].free.as_ref();
        let first = first.and_then(|free| self.cached.first(free.views));
        let taken = Region::new(self.ranges[range].region.offset, bytes);
        let has_view = first == Some(taken);
        let is_clear = has_view || first.is_none_or(|view| view.offset >= taken.offset + bytes);
        (is_clear || may_overlap).then_some(Choice { range, has_view })
    }

    /// Takes the first `bytes` bytes of neighbouring free ranges of a reservation that are all `usable`, from the smallest such run. The
    /// rest of the last range keeps its uses. Reservations have no cached views.
    pub(super) fn take_run(
        &mut self,
        bytes: usize,
        is_small: bool,
        usable: impl Fn(&U) -> bool,
    ) -> Option<Taken<V, U>> {
        let usable_bytes = |key: usize| {
            let range = &self.ranges[key];
            let free = range.free.as_ref()?;
            usable(&free.uses).then_some(range.region.bytes)
        };
        let mut best: Option<(usize, usize)> = None;
        for (_, segment) in &self.segments {
            if segment.is_small != is_small || !segment.is_reservation {
                continue;
            }
            let mut run: Option<(usize, usize)> = None;
            let mut next = Some(segment.first);
            while next.is_some() || run.is_some() {
                match next.and_then(|key| Some((key, usable_bytes(key)?))) {
                    Some((key, more)) => {
                        run = Some(run.map_or((key, more), |(first, sum)| (first, sum + more)));
                    }
                    None => {
                        if let Some((first, sum)) = run.take()
                            && sum >= bytes
                            && best.is_none_or(|(_, least)| sum < least)
                        {
                            best = Some((first, sum));
                        }
                    }
                }
                next = next.and_then(|key| self.ranges[key].after);
            }
        }
        let (first, _) = best?;
        let mut has = 0;
        loop {
            let key = if has == 0 {
                first
            } else {
                self.ranges[first].after?
            };
            let Free { uses, views } = self.set_taken(key)?;
            let more = self.ranges[key].region.bytes;
            if has + more > bytes {
                let rest = self.split(key, bytes - has);
                self.set_free(rest, uses.clone(), views);
            }
            if key != first {
                self.absorb(first, key);
            }
            has += more;
            if has >= bytes {
                return Some(self.hand_out(first, bytes, uses, None, Vec::new()));
            }
        }
    }

    /// Sets which free neighbours are joined from now on: fewer than before.
    pub(super) fn set_join(&mut self, join: fn(&U, &U) -> Option<U>) {
        self.join = join;
    }

    /// Takes the first `bytes` bytes of a segment that was just added.
    pub(super) fn take_first(&mut self, segment: SegmentKey, bytes: usize) -> Option<Taken<V, U>> {
        self.seize(self.segments[segment].first, bytes)
    }

    /// Takes the first `bytes` bytes of a free range, which is large enough, with the cached view of exactly these, or with all that overlap
    /// them.
    fn seize(&mut self, range: usize, bytes: usize) -> Option<Taken<V, U>> {
        let free = self.ranges[range].free.as_ref()?;
        if free.views.is_empty() {
            let uses = free.uses.clone();
            let taken = self.cut(range, bytes);
            return Some(self.hand_out(taken, bytes, uses, None, Vec::new()));
        }
        let Free { uses, views } = self.set_taken(range)?;
        let region = self.ranges[range].region;
        let (inside, after) = self.cached.split(views, region.offset + bytes);
        let end = self.cached.end(inside);
        let needed = end.map_or(bytes, |end| bytes.max(end - region.offset));
        let shows_all = self.cached.first(inside) == Some(Region::new(region.offset, bytes));
        let mut overlapping = self.cached.discard(inside);
        let view = if shows_all { overlapping.pop() } else { None };
        if region.bytes > needed {
            let rest = self.split(range, needed);
            self.set_free(rest, uses.clone(), after);
        }
        Some(self.hand_out(range, bytes, uses, view, overlapping))
    }

    /// Splits the first `bytes` bytes, which no cached view overlaps, off a free range, as a taken range, and returns that. The rest keeps
    /// its key, so that its entry in the index mostly stays in place.
    #[expect(clippy::inline_always, reason = "a call would spill many registers")]
    #[inline(always)]
    fn cut(&mut self, key: usize, bytes: usize) -> usize {
        let Range {
            is_small, region, ..
        } = self.ranges[key];
        let rest = region.bytes - bytes;
        if rest == 0 {
            self.set_taken(key);
            return key;
        }
        let taken = self.split_front(key, bytes);
        self.free[usize::from(is_small)].resize(key, rest);
        self.free_bytes -= bytes as u64;
        taken
    }

    /// Splits the first `bytes` bytes off a range, as a taken one, and returns that. The rest keeps its key.
    #[inline]
    fn split_front(&mut self, key: usize, bytes: usize) -> usize {
        let Range {
            segment,
            is_small,
            region,
            before,
            ..
        } = self.ranges[key];
        let front = self.ranges.insert(Range {
            segment,
            is_small,
            is_hole: false,
            is_stale: false,
            region: Region::new(region.offset, bytes),
            before,
            after: Some(key),
            free: None,
            since: 0,
        });
        let range = &mut self.ranges[key];
        range.region = Region::new(region.offset + bytes, region.bytes - bytes);
        range.before = Some(front);
        match before {
            Some(before) => self.ranges[before].after = Some(front),
            None => self.segments[segment].first = front,
        }
        front
    }

    fn hand_out(
        &mut self,
        range: usize,
        bytes: usize,
        uses: U,
        view: Option<V>,
        overlapping: Vec<V>,
    ) -> Taken<V, U> {
        let Range {
            segment, region, ..
        } = self.ranges[range];
        let home = &mut self.segments[segment];
        home.taken += 1;
        home.cached -= overlapping.len() + usize::from(view.is_some());
        Taken {
            range,
            segment,
            region: Region::new(region.offset, bytes),
            uses,
            view,
            overlapping,
            has_excess: region.bytes > bytes,
        }
    }

    /// The segment of a taken range, and the position of the range in it.
    pub(super) fn place_of(&self, key: RangeNumber) -> Option<(SegmentKey, Region)> {
        let range = self.ranges.get(key)?;
        Some((range.segment, range.region))
    }

    /// Frees the bytes of a taken range before and after `region`, which these commands may still use.
    pub(super) fn shrink(&mut self, key: RangeNumber, region: Region, uses: U) {
        let all = self.ranges[key].region;
        if region.offset > all.offset {
            let before = self.split_front(key, region.offset - all.offset);
            self.release(before, uses.clone(), Chain::default());
        }
        if self.ranges[key].region.bytes > region.bytes {
            let rest = self.split(key, region.bytes);
            self.release(rest, uses, Chain::default());
        }
    }

    /// Returns whether the view of a range may be cached when the range is given back.
    pub(super) fn may_cache(&self, key: RangeNumber) -> bool {
        let segment = &self.segments[self.ranges[key].segment];
        segment.taken + segment.cached <= MOST_VIEWS
    }

    /// Gives a range back, which these commands may still use, with a view to be cached.
    #[expect(clippy::inline_always, reason = "a call would spill many registers")]
    #[inline(always)]
    pub(super) fn give(&mut self, key: RangeNumber, uses: U, view: Option<V>) {
        let Range {
            segment, region, ..
        } = self.ranges[key];
        let home = &mut self.segments[segment];
        home.taken -= 1;
        home.idle_since = self.sweeps;
        home.cached += usize::from(view.is_some());
        let views = view.map(|view| self.cached.cache(view, region));
        self.release(key, uses, views.unwrap_or_default());
    }

    /// Forgets the commands that have ended according to `are_over`, and joins the ranges that they kept apart.
    pub(super) fn settle(&mut self, are_over: impl Fn(&U) -> bool) {
        for (_, key) in self.free.iter().flat_map(BySize::iter) {
            if let Some(free) = &mut self.ranges[key].free
                && are_over(&free.uses)
            {
                free.uses = U::default();
            }
        }
        let is_free = |key: usize| self.ranges[key].free.is_some();
        let free = self.free.iter().flat_map(BySize::iter);
        let apart = free.filter(|(_, key)| {
            let Range { before, after, .. } = self.ranges[*key];
            before.is_some_and(is_free) || after.is_some_and(is_free)
        });
        let mut apart: Vec<_> = apart.collect();
        apart.sort_unstable();
        for (_, key) in apart {
            // It may have been joined to another one in the meantime.
            if self.ranges.contains(key)
                && let Some(Free { uses, views }) = self.set_taken(key)
            {
                self.release(key, uses, views);
            }
        }
    }

    /// Makes a taken range free.
    fn set_free(&mut self, key: usize, uses: U, views: Chain) {
        let range = &mut self.ranges[key];
        range.free = Some(Free { uses, views });
        self.free[usize::from(range.is_small)].insert(range.region.bytes, key);
        self.free_bytes += range.region.bytes as u64;
    }

    /// Makes a free range taken.
    fn set_taken(&mut self, key: usize) -> Option<Free<U>> {
        let range = &mut self.ranges[key];
        let free = range.free.take()?;
        let region = range.region;
        self.free[usize::from(range.is_small)].remove(key);
        self.free_bytes -= region.bytes as u64;
        Some(free)
    }

    /// Cuts a taken range in two, both taken. Returns the second one.
    fn split(&mut self, key: usize, bytes: usize) -> usize {
        let range = &mut self.ranges[key];
        let Range {
            segment,
            is_small,
            region,
            after,
            since,
            ..
        } = *range;
        range.region.bytes = bytes;
        let rest = self.ranges.insert(Range {
            segment,
            is_small,
            is_hole: false,
            is_stale: false,
            region: Region::new(region.offset + bytes, region.bytes - bytes),
            before: Some(key),
            after,
            free: None,
            since,
        });
        self.ranges[key].after = Some(rest);
        if let Some(after) = after {
            self.ranges[after].before = Some(rest);
        }
        rest
    }

    /// Makes a taken range free, and joins it with its free neighbours where S3 requires it.
    fn release(&mut self, mut key: usize, mut uses: U, mut views: Chain) {
        let join = self.join;
        self.freed += 1;
        let Range { before, after, .. } = self.ranges[key];
        if views.is_empty() {
            if let Some(before) = before
                && self.grow_into_next(before, &uses)
            {
                return;
            }
            if let Some(after) = after
                && self.grow_into_last(after, &uses)
            {
                return;
            }
            self.ranges[key].since = self.freed;
            return self.set_free(key, uses, views);
        }
        if let Some(before) = before
            && let Some(free) = self.take_to_join(before, |one| join(one, &uses))
        {
            views = self.cached.join(free.views, views);
            uses = free.uses;
            self.absorb(before, key);
            key = before;
        }
        if let Some(after) = after
            && let Some(free) = self.take_to_join(after, |two| join(&uses, two))
        {
            views = self.cached.join(views, free.views);
            uses = free.uses;
            self.absorb(key, after);
        }
        self.ranges[key].since = self.freed;
        self.set_free(key, uses, views);
    }

    /// Joins a free range with the taken one after it, which becomes free with these `uses`, and with the free one after that, where S3
    /// requires it. Returns whether it did.
    fn grow_into_next(&mut self, key: usize, uses: &U) -> bool {
        let join = self.join;
        let range = &mut self.ranges[key];
        let (old_bytes, Some(next)) = (range.region.bytes, range.after) else {
            return false;
        };
        let Some(free) = &mut range.free else {
            return false;
        };
        let Some(joined) = join(&free.uses, uses) else {
            return false;
        };
        free.uses = joined;
        range.since = self.freed;
        self.absorb(key, next);
        let range = &self.ranges[key];
        let is_small = range.is_small;
        self.free_bytes += (range.region.bytes - old_bytes) as u64;
        if let (Some(after), Some(free)) = (range.after, &range.free)
            && let Some(other) = &self.ranges[after].free
            && let Some(joined) = join(&free.uses, &other.uses)
        {
            let bytes = self.ranges[after].region.bytes as u64;
            let views = self
                .set_taken(after)
                .map_or_else(Chain::default, |free| free.views);
            self.free_bytes += bytes;
            if let Some(free) = &mut self.ranges[key].free {
                free.uses = joined;
                free.views = self.cached.join(free.views, views);
            }
            self.absorb(key, after);
        }
        let bytes = self.ranges[key].region.bytes;
        self.free[usize::from(is_small)].resize(key, bytes);
        true
    }

    /// Joins a free range with the taken one before it, which becomes free with these `uses`, where S3 requires it. Returns whether it did.
    fn grow_into_last(&mut self, key: usize, uses: &U) -> bool {
        let join = self.join;
        let range = &mut self.ranges[key];
        let (Some(last), Some(free)) = (range.before, &mut range.free) else {
            return false;
        };
        let Some(joined) = join(uses, &free.uses) else {
            return false;
        };
        free.uses = joined;
        let Range {
            segment,
            is_small,
            region: last_region,
            before,
            ..
        } = self.ranges.remove(last);
        let range = &mut self.ranges[key];
        range.before = before;
        range.region = Region::new(last_region.offset, last_region.bytes + range.region.bytes);
        range.since = self.freed;
        let bytes = range.region.bytes;
        match before {
            Some(before) => self.ranges[before].after = Some(key),
            None => self.segments[segment].first = key,
        }
        self.free_bytes += last_region.bytes as u64;
        self.free[usize::from(is_small)].resize(key, bytes);
        true
    }

    /// Makes a range taken if it is free and `join` accepts its uses. Returns the combined uses, and its views.
    fn take_to_join(&mut self, key: usize, join: impl FnOnce(&U) -> Option<U>) -> Option<Free<U>> {
        let free = self.ranges[key].free.as_ref()?;
        let uses = join(&free.uses)?;
        let Free { views, .. } = self.set_taken(key)?;
        Some(Free { uses, views })
    }

    /// Makes `after` a part of its neighbour `before`, both taken.
    fn absorb(&mut self, before: usize, after: usize) {
        let gone = self.ranges.remove(after);
        let range = &mut self.ranges[before];
        range.region.bytes += gone.region.bytes;
        range.after = gone.after;
        if let Some(next) = gone.after {
            self.ranges[next].before = Some(before);
        }
    }
}

#[cfg(test)]
mod tests;
