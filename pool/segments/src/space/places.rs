//! Free ranges where blocks have a planned place.

use super::{Free, RangeNumber, SegmentKey, Space, Taken};
use crate::views::Chain;
use binpool_allocators::Region;

/// How many ranges are looked at for a place.
const MOST_LOOKED_AT: usize = 4096;

/// A place that is free.
#[derive(Debug)]
pub(crate) enum TakenAt<V, U> {
    Taken(Taken<V, U>),
    /// Cached views overlap it, and have to be released first.
    HasViews,
}

impl<V, U: Clone + Default> Space<V, U> {
    /// Returns the free range that has all of this region. Begins to look at the range that had it the last time, if that is given: it is mostly the
    /// same or near.
    pub(crate) fn free_at(
        &self,
        last: Option<RangeNumber>,
        segment: SegmentKey,
        region: Region,
    ) -> Option<RangeNumber> {
        let is_there = |key: &RangeNumber| {
            let range = self.ranges.get(*key);
            range.is_some_and(|range| range.segment == segment)
        };
        let first = || self.segments.get(segment).map(|segment| segment.first);
        let mut key = last.filter(is_there).or_else(first)?;
        for _ in 0..MOST_LOOKED_AT {
            let range = &self.ranges[key];
            let all = range.region;
            let next = if region.offset < all.offset {
                range.before
            } else if region.offset < all.offset + all.bytes {
                let has_all = all.offset + all.bytes >= region.offset + region.bytes;
                return (has_all && range.free.is_some()).then_some(key);
            } else {
                range.after
            };
            key = next?;
        }
        None
    }

    /// Takes this region of a [free range](Self::free_at) for other than small blocks, if its uses are `usable`: with the cached view of exactly this
    /// region, or with all that overlap it if these `may_overlap`.
    pub(crate) fn take_at(
        &mut self,
        key: RangeNumber,
        region: Region,
        may_overlap: bool,
        usable: impl Fn(&U) -> bool,
    ) -> Option<TakenAt<V, U>> {
        let range = &self.ranges[key];
        let free = range.free.as_ref()?;
        let end = region.offset + region.bytes;
        if range.is_small || !usable(&free.uses) {
            return None;
        }
        let overlapping = self.cached.overlapping(free.views, region);
        let is_exact = overlapping == Some((region, 1));
        if overlapping.is_some() && !is_exact && !may_overlap {
            return Some(TakenAt::HasViews);
        }
        // All that these views show stays taken until they are released.
        let (low, high) = overlapping.map_or((region.offset, end), |(views, _)| {
            let views_end = views.offset + views.bytes;
            (region.offset.min(views.offset), end.max(views_end))
        });
        let (taken, uses, views) = self.take_part(key, Region::new(low, high - low))?;
        let mut overlapping = self.cached.discard(views);
        let view = if is_exact { overlapping.pop() } else { None };
        let taken = self.hand_out(taken, region.bytes, uses, view, overlapping);
        Some(TakenAt::Taken(Taken { region, ..taken }))
    }

    /// Takes a part of a free range, at whose ends no cached view begins before and ends after. Returns the taken range, its uses, and its views.
    pub(super) fn take_part(
        &mut self,
        key: RangeNumber,
        part: Region,
    ) -> Option<(RangeNumber, U, Chain)> {
        let all = self.ranges[key].region;
        let Free { uses, views } = self.set_taken(key)?;
        let (before, rest) = self.cached.split(views, part.offset);
        let (inside, after) = self.cached.split(rest, part.offset + part.bytes);
        let mut taken = key;
        if part.offset > all.offset {
            taken = self.split(key, part.offset - all.offset);
            self.set_free(key, uses.clone(), before);
        }
        if self.ranges[taken].region.bytes > part.bytes {
            let rest = self.split(taken, part.bytes);
            self.set_free(rest, uses.clone(), after);
        }
        Some((taken, uses, inside))
    }
}
