//! Which ranges of which segments are free: best fit, and neighbours that become one again.

use slab::Slab;

use super::{
    RangeState,
    by_size::BySize,
    views::{Chain, Views},
};
use crate::Region;

/// Names a segment of a [`Space`] while it is there.
pub(super) type SegmentKey = usize;

/// Names a range of a segment from its taking until it is given back.
///
/// Whoever has a block remembers it, since the block does not say where it came from:
///
/// ```
/// use std::collections::HashMap;
///
/// use binpool_allocators::{
///     Allocator, ImmediateAllocator, Memory, MemoryId,
///     segments::{RangeKey, Segments},
/// };
/// # use binpool_mock::MockDevice;
///
/// # let allocator = ImmediateAllocator::new(&MockDevice::new().backend())?;
/// let mut lent: HashMap<MemoryId, RangeKey> = HashMap::new();
/// let mut segments = Segments::new(|(), ()| Some(()));
/// let carved = segments.add(allocator.allocate(4096)?, 4096, 1024).unwrap();
/// let range = carved.range;
/// let block = carved.into_view(&allocator, |range, bytes, ()| segments.shrink(range, bytes, ()))?;
/// lent.insert(block.id(), range);
///
/// if let Some(range) = lent.remove(&block.id()) {
///     segments.give(range, (), Some(block));
/// }
/// assert_eq!(segments.free_bytes(), 4096);
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RangeKey(usize);

/// A range in its user's hands.
#[derive(Debug)]
pub(super) struct Taken<V, U> {
    pub(super) range: RangeKey,
    pub(super) segment: SegmentKey,
    pub(super) region: Region,
    /// The view of just this region that was kept from its last user.
    pub(super) view: Option<V>,
    /// Kept views of which this region is a part. They have to go before another view of it is made.
    pub(super) overlapping: Vec<V>,
    /// The commands that may still use it.
    pub(super) uses: U,
    /// Whether these views have more behind the region, which the range has until it is [shrunk](Space::shrink).
    pub(super) has_excess: bool,
}

/// A segment without a range in anybody's hands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Idle {
    pub(super) segment: SegmentKey,
    pub(super) bytes: usize,
    /// Whether it is for small blocks.
    pub(super) is_small: bool,
    /// The number of the period in which it became so.
    pub(super) since: u64,
}

/// A range of a segment, free or taken. The ranges of a segment lie next to each other, from its start to its end.
#[derive(Debug)]
struct Range<U> {
    segment: SegmentKey,
    /// Whether the segment is for small blocks.
    is_small: bool,
    region: Region,
    before: Option<usize>,
    after: Option<usize>,
    free: Option<Free<U>>,
}

#[derive(Debug)]
struct Free<U> {
    /// The commands that may still use it.
    uses: U,
    /// Views that were kept.
    views: Chain,
}

#[derive(Debug)]
struct Segment {
    bytes: usize,
    first: usize,
    /// Ranges in the user's hands.
    taken: usize,
    /// Views of free ranges.
    kept: usize,
    /// Whether it is for small blocks.
    is_small: bool,
    /// How many sweeps there had been when the last range came back.
    idle_since: u64,
}

/// Where a free range lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// The size of the segment, where the range is all of it.
    pub(super) whole: Option<usize>,
    /// How many ranges of the segment are in the user's hands.
    pub(super) taken: usize,
}

/// How many views a segment has at most where some of them are kept for later. Few under `shuttle`, whose programs are short.
const MOST_VIEWS: usize = if cfg!(shuttle) { 1 } else { 64 };

/// How many kept views of the right size are looked at.
const LOOK_AT: usize = 32;

/// A kept view is used if its free range has at most so many times the bytes of the smallest that fits.
const LOOSEST_FIT: usize = 2;

/// Which ranges of which segments are free. Everything here is numbers, and views that are only kept.
///
/// Taking and giving back cost a few calls of an index of sizes, and what they touch in the list of neighbours. What they
/// need of memory is there once there have been as many ranges and views before.
///
/// # Invariants
///
/// - S1: the ranges of a segment cover it without a gap, and `before` and `after` link them in order.
/// - S2: `free` has the size and the key of each free range, those of segments for small blocks apart, and nothing else.
/// - S3: two free neighbours stay apart only if `join` says that they have to.
/// - S4: a kept view lies in the free range that it names, and is in the chain of that range.
#[derive(Debug)]
pub(super) struct Space<V, U> {
    segments: Slab<Segment>,
    ranges: Slab<Range<U>>,
    kept: Views<V>,
    /// Those in segments for all but small blocks, and those in segments for small ones: a small block does not look at
    /// every piece between large ones.
    free: [BySize; 2],
    /// What is known of two free neighbours together; `None` where they are to stay apart.
    join: fn(&U, &U) -> Option<U>,
    free_bytes: u64,
    bytes: u64,
    /// How often [`sweep`](Self::sweep) was called.
    sweeps: u64,
}

impl<V, U: Clone + Default> Space<V, U> {
    pub(super) fn new(join: fn(&U, &U) -> Option<U>) -> Self {
        Self {
            segments: Slab::new(),
            ranges: Slab::new(),
            kept: Views::new(),
            free: Default::default(),
            join,
            free_bytes: 0,
            bytes: 0,
            sweeps: 0,
        }
    }

    /// The bytes of all segments.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    /// The size of the largest free range.
    pub(super) fn largest_free(&self) -> usize {
        self.free
            .iter()
            .filter_map(BySize::largest)
            .max()
            .unwrap_or(0)
    }

    /// The commands that may still use free ranges, and the sizes of these.
    pub(super) fn uses(&self) -> impl Iterator<Item = (&U, usize)> {
        let free = self.free.iter().flat_map(BySize::iter);
        free.filter_map(|(bytes, key)| Some((&self.ranges[key].free.as_ref()?.uses, bytes)))
    }

    /// Adds a segment for small blocks, or for others, all of it free.
    pub(super) fn add(&mut self, bytes: usize, is_small: bool) -> SegmentKey {
        let segment = self.segments.vacant_key();
        let first = self.ranges.insert(Range {
            segment,
            is_small,
            region: Region::first(bytes),
            before: None,
            after: None,
            free: None,
        });
        self.bytes += bytes as u64;
        self.segments.insert(Segment {
            bytes,
            first,
            taken: 0,
            kept: 0,
            is_small,
            idle_since: self.sweeps,
        });
        self.set_free(first, U::default(), Chain::default());
        segment
    }

    /// The segments without a range in anybody's hands.
    pub(super) fn idle(&self) -> impl Iterator<Item = Idle> {
        let idle = self
            .segments
            .iter()
            .filter(|(_, segment)| segment.taken == 0);
        idle.map(|(key, segment)| Idle {
            segment: key,
            bytes: segment.bytes,
            is_small: segment.is_small,
            since: segment.idle_since,
        })
    }

    /// Begins another period of idleness. The number of the one that ends.
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

    /// The same, for those who only look.
    pub(super) fn states_of(
        &self,
        segment: SegmentKey,
    ) -> impl Iterator<Item = (Region, RangeState<'_, U>)> {
        self.ranges_of(segment).map(|(key, range)| {
            let state = match &range.free {
                Some(free) => RangeState::Free(&free.uses),
                None => RangeState::Taken(RangeKey(key)),
            };
            (range.region, state)
        })
    }

    /// The uses of the free ranges of a segment.
    pub(super) fn uses_of(&self, segment: SegmentKey) -> impl Iterator<Item = &U> {
        let free = self
            .ranges_of(segment)
            .filter_map(|(_, range)| range.free.as_ref());
        free.map(|free| &free.uses)
    }

    /// Takes a segment away that is idle. The commands that may still use it, and the views that were kept.
    pub(super) fn remove(&mut self, key: SegmentKey) -> Option<(Vec<U>, Vec<V>)> {
        let segment = self.segments.get(key)?;
        if segment.taken > 0 {
            return None;
        }
        let bytes = segment.bytes as u64;
        let ranges: Vec<usize> = self.ranges_of(key).map(|(range, _)| range).collect();
        let (mut all_uses, mut all_views) = (Vec::new(), Vec::new());
        for range in ranges {
            if let Some(Free { uses, views }) = self.set_taken(range) {
                all_uses.push(uses);
                all_views.extend(self.kept.discard(views));
            }
            self.ranges.remove(range);
        }
        self.segments.remove(key);
        self.bytes -= bytes;
        Some((all_uses, all_views))
    }

    /// Takes `bytes` bytes of the smallest free range that has them and that `usable` picks by its uses and its place.
    ///
    /// They are the first bytes of that range, unless a view of just so many bytes was kept in a range that is hardly
    /// larger. The range is in a segment for small blocks, or in one for others, or in any where `is_small` does not say.
    pub(super) fn take(
        &mut self,
        bytes: usize,
        is_small: Option<bool>,
        usable: impl Fn(&U, Place) -> bool,
    ) -> Option<Taken<V, U>> {
        let suits = |key: usize| {
            let range = &self.ranges[key];
            if is_small.is_some_and(|is_small| is_small != range.is_small) {
                return false;
            }
            let segment = &self.segments[range.segment];
            let size = range.region.bytes;
            let place = Place {
                whole: (segment.bytes == size).then_some(size),
                taken: segment.taken,
            };
            let free = range.free.as_ref();
            free.is_some_and(|free| usable(&free.uses, place))
        };
        let first = |is_small: bool| self.free[usize::from(is_small)].first_from(bytes, suits);
        let fit = match is_small {
            Some(is_small) => first(is_small),
            None => match (first(false), first(true)) {
                (Some(one), Some(two)) => Some(one.min(two)),
                (one, two) => one.or(two),
            },
        };
        let (size, best) = fit?;
        let mut most = size.saturating_mul(LOOSEST_FIT);
        let mut tightest = None;
        for view in self.kept.of_size(bytes).take(LOOK_AT) {
            let (kept, range) = self.kept.place_of(view);
            let region = self.ranges[range].region;
            if region.bytes > most {
                continue;
            }
            // One at an end leaves one free range, not two.
            let is_inside =
                kept.offset != region.offset && kept.offset + bytes != region.offset + region.bytes;
            let rank = (region.bytes, is_inside, view);
            if tightest.is_none_or(|tightest| rank < tightest) && suits(range) {
                tightest = Some(rank);
                most = region.bytes;
                if most == size && !is_inside {
                    // Nothing that suits is smaller.
                    break;
                }
            }
        }
        match tightest {
            Some((.., view)) => self.seize_view(view),
            None => self.seize(best, bytes),
        }
    }

    /// Takes the first `bytes` bytes of a segment that has just been added.
    pub(super) fn take_first(&mut self, segment: SegmentKey, bytes: usize) -> Option<Taken<V, U>> {
        self.seize(self.segments[segment].first, bytes)
    }

    /// Takes the part of a free range that a kept view is of.
    fn seize_view(&mut self, view: usize) -> Option<Taken<V, U>> {
        let (kept, range) = self.kept.place_of(view);
        let Free { uses, views } = self.set_taken(range)?;
        let (before, views) = self.kept.split(views, kept.offset);
        let (view, after) = self.kept.pop(views);
        let region = self.ranges[range].region;
        let lead = kept.offset - region.offset;
        let taken = if lead > 0 {
            let taken = self.split(range, lead);
            self.set_free(range, uses.clone(), before);
            taken
        } else {
            range
        };
        if region.bytes > lead + kept.bytes {
            let rest = self.split(taken, kept.bytes);
            self.kept.move_to(after, rest);
            self.set_free(rest, uses.clone(), after);
        }
        Some(self.hand_out(taken, kept.bytes, uses, view, Vec::new()))
    }

    /// Takes the first `bytes` bytes of a free range that has them, and all of the views that were kept of these.
    fn seize(&mut self, range: usize, bytes: usize) -> Option<Taken<V, U>> {
        let Free { uses, views } = self.set_taken(range)?;
        let region = self.ranges[range].region;
        let (inside, after) = self.kept.split(views, region.offset + bytes);
        let end = self.kept.end(inside);
        let needed = end.map_or(bytes, |end| bytes.max(end - region.offset));
        let overlapping = self.kept.discard(inside);
        if region.bytes > needed {
            let rest = self.split(range, needed);
            self.kept.move_to(after, rest);
            self.set_free(rest, uses.clone(), after);
        }
        Some(self.hand_out(range, bytes, uses, None, overlapping))
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
        home.kept -= overlapping.len() + usize::from(view.is_some());
        Taken {
            range: RangeKey(range),
            segment,
            region: Region::new(region.offset, bytes),
            uses,
            view,
            overlapping,
            has_excess: region.bytes > bytes,
        }
    }

    /// The segment of a taken range, and where the range lies in it.
    pub(super) fn place_of(&self, RangeKey(key): RangeKey) -> Option<(SegmentKey, Region)> {
        let range = self.ranges.get(key)?;
        Some((range.segment, range.region))
    }

    /// Gives back what a range that was taken has behind its first `bytes` bytes, which these commands may still use.
    pub(super) fn shrink(&mut self, RangeKey(key): RangeKey, bytes: usize, uses: U) {
        if self.ranges[key].region.bytes > bytes {
            let rest = self.split(key, bytes);
            self.release(rest, uses, Chain::default());
        }
    }

    /// Whether the view of a range may be kept when the range is given back.
    pub(super) fn may_keep(&self, RangeKey(key): RangeKey) -> bool {
        let segment = &self.segments[self.ranges[key].segment];
        segment.taken + segment.kept <= MOST_VIEWS
    }

    /// Gives a range back, which these commands may still use, with a view to be kept.
    pub(super) fn give(&mut self, RangeKey(key): RangeKey, uses: U, view: Option<V>) {
        let Range {
            segment, region, ..
        } = self.ranges[key];
        let home = &mut self.segments[segment];
        home.taken -= 1;
        home.idle_since = self.sweeps;
        home.kept += usize::from(view.is_some());
        let views = view.map(|view| self.kept.keep(view, region, key));
        self.release(key, uses, views.unwrap_or_default());
    }

    /// Forgets the commands that `are_over` says have ended, and joins what they kept apart.
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
            // It may have become a part of another one meanwhile.
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
        self.free[usize::from(range.is_small)].remove(range.region.bytes, key);
        self.free_bytes -= range.region.bytes as u64;
        Some(free)
    }

    /// Cuts a taken range in two, both taken. The second one.
    fn split(&mut self, key: usize, bytes: usize) -> usize {
        let range = &mut self.ranges[key];
        let Range {
            segment,
            is_small,
            region,
            after,
            ..
        } = *range;
        range.region.bytes = bytes;
        let rest = self.ranges.insert(Range {
            segment,
            is_small,
            region: Region::new(region.offset + bytes, region.bytes - bytes),
            before: Some(key),
            after,
            free: None,
        });
        self.ranges[key].after = Some(rest);
        if let Some(after) = after {
            self.ranges[after].before = Some(rest);
        }
        rest
    }

    /// Makes a taken range free, and one with its free neighbours, where S3 lets it.
    fn release(&mut self, mut key: usize, mut uses: U, mut views: Chain) {
        let join = self.join;
        let Range { before, after, .. } = self.ranges[key];
        if let Some(before) = before
            && let Some(free) = self.take_to_join(before, |one| join(one, &uses))
        {
            self.kept.move_to(views, before);
            views = self.kept.join(free.views, views);
            uses = free.uses;
            self.absorb(before, key);
            key = before;
        }
        if let Some(after) = after
            && let Some(free) = self.take_to_join(after, |two| join(&uses, two))
        {
            self.kept.move_to(free.views, key);
            views = self.kept.join(views, free.views);
            uses = free.uses;
            self.absorb(key, after);
        }
        self.set_free(key, uses, views);
    }

    /// Makes a range taken if it is free and `join` lets it be one with its neighbour. The uses of both, and its views.
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
