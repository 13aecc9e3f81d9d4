//! The views that free ranges keep for the next users of just their bytes.

use slab::Slab;

use super::by_size::BySize;
use crate::Region;

/// A view of a part of a free range.
#[derive(Debug)]
struct Kept<V> {
    view: V,
    region: Region,
    /// The key of the free range.
    range: usize,
    /// The next view of the same range.
    next: Option<usize>,
}

/// The kept views of one free range, from its start to its end: the keys of the first and of the last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Chain(Option<(usize, usize)>);

/// The kept views of all free ranges.
///
/// # Invariants
///
/// - V1: a view is in one chain, that of the range which it names.
/// - V2: the views of a chain overlap nowhere, and lie in order.
/// - V3: `by_size` has the size and the key of each view, and nothing else.
#[derive(Debug)]
pub(super) struct Views<V> {
    kept: Slab<Kept<V>>,
    by_size: BySize,
}

impl<V> Views<V> {
    pub(super) fn new() -> Self {
        Self {
            kept: Slab::new(),
            by_size: BySize::default(),
        }
    }

    /// Keeps the view of a range that has no other.
    pub(super) fn keep(&mut self, view: V, region: Region, range: usize) -> Chain {
        let key = self.kept.insert(Kept {
            view,
            region,
            range,
            next: None,
        });
        self.by_size.insert(region.bytes, key);
        Chain(Some((key, key)))
    }

    /// The keys of the views of just `bytes` bytes, in order.
    pub(super) fn of_size(&self, bytes: usize) -> impl Iterator<Item = usize> {
        self.by_size.of_size(bytes)
    }

    /// What a view shows, and the free range that it is a part of.
    pub(super) fn place_of(&self, key: usize) -> (Region, usize) {
        let kept = &self.kept[key];
        (kept.region, kept.range)
    }

    /// One past the last byte that the views of a chain show.
    pub(super) fn end(&self, Chain(ends): Chain) -> Option<usize> {
        ends.and_then(|(_, last)| self.kept[last].region.end())
    }

    /// Says which range has the views of a chain now.
    pub(super) fn move_to(&mut self, Chain(ends): Chain, range: usize) {
        let mut next = ends.map(|(first, _)| first);
        while let Some(key) = next {
            let kept = &mut self.kept[key];
            kept.range = range;
            next = kept.next;
        }
    }

    /// One chain of two, of which the second lies behind the first.
    pub(super) fn join(&mut self, Chain(one): Chain, Chain(two): Chain) -> Chain {
        match (one, two) {
            (Some((first, end)), Some((start, last))) => {
                self.kept[end].next = Some(start);
                Chain(Some((first, last)))
            }
            (one, two) => Chain(one.or(two)),
        }
    }

    /// The views that start before an offset, and the others.
    pub(super) fn split(&mut self, Chain(ends): Chain, offset: usize) -> (Chain, Chain) {
        let Some((first, last)) = ends else {
            return (Chain(None), Chain(None));
        };
        let mut end = None;
        let mut next = Some(first);
        while let Some(key) = next
            && self.kept[key].region.offset < offset
        {
            end = Some(key);
            next = self.kept[key].next;
        }
        if let Some(end) = end {
            self.kept[end].next = None;
        }
        let before = end.map(|end| (first, end));
        (Chain(before), Chain(next.map(|start| (start, last))))
    }

    /// Lets go of the first view of a chain. What is left of the chain.
    pub(super) fn pop(&mut self, Chain(ends): Chain) -> (Option<V>, Chain) {
        let Some((first, last)) = ends else {
            return (None, Chain(None));
        };
        let Kept {
            view, region, next, ..
        } = self.kept.remove(first);
        self.by_size.remove(region.bytes, first);
        (Some(view), Chain(next.map(|next| (next, last))))
    }

    /// Lets go of the views of a chain, in order.
    pub(super) fn discard(&mut self, mut chain: Chain) -> Vec<V> {
        let mut views = Vec::new();
        while let (Some(view), rest) = self.pop(chain) {
            views.push(view);
            chain = rest;
        }
        views
    }
}
