//! Free ranges by where they lie, for blocks that have a planned place.

use std::collections::BTreeMap;

use super::{BySize, Free, Range, RangeNumber, SegmentKey, Space, Taken};
use crate::views::Chain;
use binpool_allocators::Region;

/// A place that is free.
#[derive(Debug)]
pub(crate) enum TakenAt<V, U> {
    Taken(Taken<V, U>),
    /// Cached views overlap it, and have to be released first.
    HasViews,
}

impl<V, U: Clone + Default> Space<V, U> {
    /// Sets whether [`take_at`](Self::take_at) finds anything. If so, each change of a free range takes a little longer.
    pub(crate) fn set_has_places(&mut self, has_places: bool) {
        self.by_place = has_places.then(|| {
            let free = self.free.iter().flat_map(BySize::iter);
            let places = free.map(|(_, key)| (self.address(key), key));
            places.collect::<BTreeMap<_, _>>()
        });
    }

    fn address(&self, key: RangeNumber) -> (SegmentKey, usize) {
        let Range {
            segment, region, ..
        } = self.ranges[key];
        (segment, region.offset)
    }

    /// Records that a range is free.
    #[cold]
    pub(super) fn add_place(&mut self, key: RangeNumber) {
        let address = self.address(key);
        if let Some(by_place) = &mut self.by_place {
            by_place.insert(address, key);
        }
    }

    /// Records that a range which began at this offset is no longer free, or begins elsewhere.
    #[cold]
    pub(super) fn remove_place(&mut self, key: RangeNumber, offset: usize) {
        let (segment, _) = self.address(key);
        if let Some(by_place) = &mut self.by_place {
            by_place.remove(&(segment, offset));
        }
    }

    /// Takes this region of a segment for other than small blocks, if all of it is free and its uses are `usable`: with the cached
    /// view of exactly this region, or with all that overlap it if these `may_overlap`.
    pub(crate) fn take_at(
        &mut self,
        segment: SegmentKey,
        region: Region,
        may_overlap: bool,
        usable: impl Fn(&U) -> bool,
    ) -> Option<TakenAt<V, U>> {
        let up_to = self.by_place.as_ref()?.range(..=(segment, region.offset));
        let (_, &key) = up_to.last()?;
        let range = &self.ranges[key];
        let (all, free) = (range.region, range.free.as_ref()?);
        let end = region.offset + region.bytes;
        let is_inside = range.segment == segment && all.offset + all.bytes >= end;
        if !is_inside || range.is_small || !usable(&free.uses) {
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
