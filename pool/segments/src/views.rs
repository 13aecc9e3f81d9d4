//! The cached views of free ranges, for later blocks of exactly their bytes.

use std::iter;

use slab::Slab;

use binpool_allocators::Region;

/// A cached view of a part of a free range.
#[derive(Debug)]
struct CachedView<V> {
    view: V,
    region: Region,
    /// The next view of the same range.
    next: Option<usize>,
}

/// The cached views of one free range, from its start to its end: the keys of the first and of the last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Chain(Option<(usize, usize)>);

impl Chain {
    pub(super) fn is_empty(self) -> bool {
        self.0.is_none()
    }
}

/// The cached views of all free ranges.
///
/// # Invariants
///
/// - V1: a view is in one chain.
/// - V2: the views of a chain do not overlap, and lie in order.
#[derive(Debug)]
pub(super) struct Views<V> {
    cached: Slab<CachedView<V>>,
}

impl<V> Views<V> {
    pub(super) fn new() -> Self {
        Self {
            cached: Slab::new(),
        }
    }

    /// Caches the view of a range that has no other.
    pub(super) fn cache(&mut self, view: V, region: Region) -> Chain {
        let key = self.cached.insert(CachedView {
            view,
            region,
            next: None,
        });
        Chain(Some((key, key)))
    }

    /// The region that the first view of a chain shows.
    pub(super) fn first(&self, Chain(ends): Chain) -> Option<Region> {
        ends.map(|(first, _)| self.cached[first].region)
    }

    /// The offset one past the last byte that the views of a chain show.
    pub(super) fn end(&self, Chain(ends): Chain) -> Option<usize> {
        ends.and_then(|(_, last)| self.cached[last].region.end())
    }

    /// The region from the first to the last byte of those views of a chain that overlap `region`, and how many these are.
    pub(super) fn overlapping(
        &self,
        Chain(ends): Chain,
        region: Region,
    ) -> Option<(Region, usize)> {
        let end_of = |region: Region| region.offset + region.bytes;
        let first = ends.map(|(first, _)| first);
        let views = iter::successors(first, |key| self.cached[*key].next);
        let views = views.map(|key| self.cached[key].region);
        let before = |view: &Region| view.offset < end_of(region);
        let over = views
            .take_while(before)
            .filter(|view| end_of(*view) > region.offset);
        over.fold(None, |all, view| {
            let (offset, count) = all.map_or((view.offset, 0), |(all, count): (Region, usize)| {
                (all.offset, count)
            });
            Some((Region::new(offset, end_of(view) - offset), count + 1))
        })
    }

    /// Joins two chains; the second lies after the first.
    pub(super) fn join(&mut self, Chain(one): Chain, Chain(two): Chain) -> Chain {
        match (one, two) {
            (Some((first, end)), Some((start, last))) => {
                self.cached[end].next = Some(start);
                Chain(Some((first, last)))
            }
            (one, two) => Chain(one.or(two)),
        }
    }

    /// Splits a chain into the views that start before an offset, and the rest.
    pub(super) fn split(&mut self, Chain(ends): Chain, offset: usize) -> (Chain, Chain) {
        let Some((first, last)) = ends else {
            return (Chain(None), Chain(None));
        };
        let mut end = None;
        let mut next = Some(first);
        while let Some(key) = next
            && self.cached[key].region.offset < offset
        {
            end = Some(key);
            next = self.cached[key].next;
        }
        if let Some(end) = end {
            self.cached[end].next = None;
        }
        let before = end.map(|end| (first, end));
        (Chain(before), Chain(next.map(|start| (start, last))))
    }

    /// Removes the first view of a chain. Returns it, and the rest of the chain.
    fn pop(&mut self, Chain(ends): Chain) -> (Option<V>, Chain) {
        let Some((first, last)) = ends else {
            return (None, Chain(None));
        };
        let CachedView { view, next, .. } = self.cached.remove(first);
        (Some(view), Chain(next.map(|next| (next, last))))
    }

    /// Removes the views of a chain and returns them in order.
    pub(super) fn discard(&mut self, mut chain: Chain) -> Vec<V> {
        let mut views = Vec::new();
        while let (Some(view), rest) = self.pop(chain) {
            views.push(view);
            chain = rest;
        }
        views
    }
}
