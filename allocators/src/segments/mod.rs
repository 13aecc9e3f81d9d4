//! Large pieces of device memory, and the ranges that blocks are carved from: the bookkeeping of
//! [`SegmentAllocator`](crate::SegmentAllocator) and of the pool.
//!
//! Nothing here calls the device. What has to be called, and in which order, is said where something is handed out:
//! [`Carved`] and [`Leaving`].

mod by_size;
mod growth;
mod space;
mod views;

use std::{fmt, sync::Arc};

use growth::Growth;
pub use space::RangeKey;
use space::{Idle, SegmentKey, Space, Taken};

use crate::{Allocator, Backend, MemoryOf, Region, Result};

/// A range that was taken for a block, and its segment, to make a view of: see [`into_view`](Self::into_view).
#[derive(Debug)]
pub struct Carved<M, U> {
    /// Names the range until it is [given](Segments::give) back.
    pub range: RangeKey,
    /// Where in the segment the block lies.
    pub region: Region,
    /// The whole segment.
    pub segment: Arc<M>,
    /// A view of just these bytes, kept from their last user.
    pub view: Option<M>,
    /// Kept views of which this block is a part.
    pub overlapping: Vec<M>,
    /// The former uses of the range.
    pub uses: U,
    /// Whether those views have more behind this block, which the range has until it is shrunk.
    pub has_excess: bool,
}

impl<M, U> Carved<M, U> {
    /// Whether [`into_view`](Self::into_view) has nothing to do: there is a view, and none that has to go.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.view.is_some() && self.overlapping.is_empty() && !self.has_excess
    }

    /// The view of the block, made by the allocator of the segments or kept from its last user.
    ///
    /// Views that overlap it are released first: no two views of a segment may overlap, since NVIDIA's driver crashes in
    /// kernels on a buffer that has such. What the range has too much is only then [shrunk](Segments::shrink), by `shrink`,
    /// which is given the range, the bytes that it keeps, and its former uses. Nothing of the segment is kept when this
    /// returns, so that the segments own it alone once the range is free again.
    ///
    /// # Errors
    ///
    /// Those of [`create_view`](Allocator::create_view). The range is still taken.
    pub fn into_view<A>(self, allocator: &A, shrink: impl FnOnce(RangeKey, usize, U)) -> Result<M>
    where
        A: Allocator<Backend: Backend<Memory = M>>,
    {
        release_views(allocator, self.overlapping);
        if self.has_excess {
            shrink(self.range, self.region.bytes, self.uses);
        }
        match self.view {
            Some(view) => Ok(view),
            None => allocator.create_view(&self.segment, self.region),
        }
    }
}

/// Gives views back to the allocator that made them.
pub fn release_views<A: Allocator>(allocator: &A, views: Vec<MemoryOf<A>>) {
    for view in views {
        allocator.release_view(view);
    }
}

/// A segment that is to go back to where it came from, once its views have been dropped.
#[derive(Debug)]
pub struct Leaving<M, U> {
    /// The views that were kept. They go first.
    pub views: Vec<M>,
    /// The segment.
    pub memory: M,
    /// Its size in bytes.
    pub bytes: usize,
    /// The uses of its ranges.
    pub uses: Vec<U>,
}

/// A segment, for those who look at it.
#[derive(Debug)]
pub struct SegmentState<'a, M, U> {
    /// All of it.
    pub memory: &'a M,
    /// Its ranges, from the first byte to the last.
    pub ranges: Vec<(Region, RangeState<'a, U>)>,
}

/// Whether a range is free.
#[derive(Debug)]
pub enum RangeState<'a, U> {
    /// It is, and has these uses.
    Free(&'a U),
    /// It was taken, and not given back yet.
    Taken(RangeKey),
}

/// Segments of memory `M`, and the ranges of them, free and taken.
///
/// A free range remembers its uses `U`, whatever the owner of the segments means by that, and whether somebody may have
/// the range is the owner's to say by them.
///
/// Best fit with these rules, found by simulation on recorded programs:
///
/// - a segment is one part in 20 of the most that the program has had in use, or, for a block of more than half of that,
///   of the block's own size;
/// - before the segments grow past 1.05 times the most that the program has had in use (and that and 2 MiB, if that is
///   more), those that are free as a whole go back, the least one that is enough first; where that happens often, all that
///   are free become one;
/// - a large segment that is free as a whole is not broken up for a small block, and small blocks have segments of their
///   own;
/// - the view of a block that comes back is kept in the free range, and serves the next block of just its size, unless a
///   much smaller range would do. A view that overlaps a block which is handed out goes first.
///
/// ```
/// use binpool_allocators::segments::Segments;
///
/// // Strings stand for memory here, and free ranges remember nothing.
/// let mut segments: Segments<&str, ()> = Segments::new(|(), ()| Some(()));
/// assert!(segments.take(4096, |()| true).is_none());
/// let (size, leaving) = segments.grow(4096, 0, 512, 0, 1 << 30);
/// assert!(leaving.is_empty());
/// let carved = segments.add("segment", size, 4096).unwrap();
/// assert_eq!(carved.region.bytes, 4096);
/// segments.give(carved.range, (), Some("view"));
/// let again = segments.take(4096, |()| true).unwrap();
/// assert_eq!((again.region, again.view), (carved.region, Some("view")));
/// ```
#[derive(Debug)]
pub struct Segments<M, U> {
    space: Space<M, U>,
    /// By their keys in the space.
    roots: Vec<Option<Arc<M>>>,
    growth: Growth,
}

impl<M: fmt::Debug, U: Clone + Default> Segments<M, U> {
    /// No segments yet. `join` says what is known of two free neighbours together, or that they are to stay apart.
    #[must_use]
    pub fn new(join: fn(&U, &U) -> Option<U>) -> Self {
        Self {
            space: Space::new(join),
            roots: Vec::new(),
            growth: Growth::default(),
        }
    }

    /// The bytes of all segments.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.space.bytes()
    }

    /// The bytes of all free ranges.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        self.space.free_bytes()
    }

    /// The bytes of the segments that are idle: without a range in anybody's hands.
    #[must_use]
    pub fn idle_bytes(&self) -> u64 {
        self.space.idle().map(|idle| idle.bytes as u64).sum()
    }

    /// The size of the largest free range, in bytes.
    #[must_use]
    pub fn largest_free(&self) -> usize {
        self.space.largest_free()
    }

    /// The uses of the free ranges, with their sizes in bytes.
    pub fn uses(&self) -> impl Iterator<Item = (&U, usize)> {
        self.space.uses()
    }

    /// The most bytes of free blocks that may be held back from their segments without harm.
    #[must_use]
    pub fn cached_bytes(&self) -> u64 {
        self.growth.cached_bytes()
    }

    /// Takes a range of `bytes` bytes that `usable` picks by its uses.
    pub fn take(&mut self, bytes: usize, usable: impl Fn(&U) -> bool) -> Option<Carved<M, U>> {
        let is_small = Some(self.growth.is_small(bytes));
        let may_lie = self.growth.places_for(bytes);
        let taken = self.space.take(bytes, is_small, |uses, place| {
            may_lie(place) && usable(uses)
        })?;
        self.carved(taken)
    }

    /// Takes a range as [`take`](Self::take) does, wherever there is one: for when there is no other way.
    pub fn take_anywhere(
        &mut self,
        bytes: usize,
        usable: impl Fn(&U) -> bool,
    ) -> Option<Carved<M, U>> {
        let taken = self.space.take(bytes, None, |uses, _| usable(uses))?;
        self.carved(taken)
    }

    /// Adds a segment of `size` bytes, and takes the first `bytes` of it.
    pub fn add(&mut self, memory: M, size: usize, bytes: usize) -> Option<Carved<M, U>> {
        let key = self.space.add(size, self.growth.is_small(bytes));
        self.growth.accept(self.space.bytes());
        if self.roots.len() <= key {
            self.roots.resize_with(key + 1, || None);
        }
        self.roots[key] = Some(Arc::new(memory));
        let taken = self.space.take_first(key, bytes)?;
        self.carved(taken)
    }

    fn carved(&self, taken: Taken<M, U>) -> Option<Carved<M, U>> {
        let root = self.roots.get(taken.segment)?.as_ref()?;
        Some(Carved {
            range: taken.range,
            region: taken.region,
            segment: Arc::clone(root),
            view: taken.view,
            overlapping: taken.overlapping,
            uses: taken.uses,
            has_excess: taken.has_excess,
        })
    }

    /// The segment that a taken range is a part of, and where the range lies in it.
    #[must_use]
    pub fn place_of(&self, range: RangeKey) -> Option<(&M, Region)> {
        let (segment, region) = self.space.place_of(range)?;
        let root = self.roots.get(segment)?.as_deref()?;
        Some((root, region))
    }

    /// The segments, for those who look at them.
    pub fn iter(&self) -> impl Iterator<Item = SegmentState<'_, M, U>> {
        let roots = self.roots.iter().enumerate();
        roots.filter_map(|(key, memory)| {
            Some(SegmentState {
                memory: memory.as_deref()?,
                ranges: self.space.states_of(key).collect(),
            })
        })
    }

    /// Gives back what a range has behind its first `bytes` bytes, which these commands may still use.
    pub fn shrink(&mut self, range: RangeKey, bytes: usize, uses: U) {
        self.space.shrink(range, bytes, uses);
    }

    /// Whether the view of a range may be kept when the range is given back. Otherwise it has to be dropped before.
    #[must_use]
    pub fn may_keep_view(&self, range: RangeKey) -> bool {
        self.space.may_keep(range)
    }

    /// Gives a range back, which these commands may still use, with its view, if that is to be kept.
    pub fn give(&mut self, range: RangeKey, uses: U, view: Option<M>) {
        self.space.give(range, uses, view);
    }

    /// Forgets the uses that `are_over`, and joins free neighbours that they kept apart.
    pub fn settle(&mut self, are_over: impl Fn(&U) -> bool) {
        self.space.settle(are_over);
    }

    /// The size of the segment to ask for, to serve a request of `bytes` bytes while the user has `in_use` bytes in hand
    /// after so many `allocations`, where memory can come to `capacity` bytes, and the segments that have to go first.
    pub fn grow(
        &mut self,
        bytes: usize,
        in_use: u64,
        alignment: usize,
        allocations: u64,
        capacity: u64,
    ) -> (usize, Vec<Leaving<M, U>>) {
        let in_use = in_use.saturating_add(bytes as u64);
        self.growth.reach(in_use, capacity);
        let (size, most) = (self.growth.segment_for(bytes), self.growth.most());
        let before = self.bytes();
        let mut leaving = self.make_room(size as u64, most);
        if !leaving.is_empty()
            && self.growth.replaces_often(allocations)
            && !self.growth.is_small(bytes)
        {
            leaving.extend(self.take_idle(u64::MAX, |_, idle| !idle.is_small));
            let room = most.saturating_sub(self.bytes());
            let released = before - self.bytes();
            let merged = released.min(room).min(self.growth.most_merged());
            let merged = usize::try_from(merged).unwrap_or(usize::MAX);
            return (size.max(merged - merged % alignment), leaving);
        }
        let size = if self.bytes() + size as u64 > most {
            self.growth.least_segment_for(bytes, alignment)
        } else {
            size
        };
        // More than there is would be refused.
        let room = usize::try_from(capacity.saturating_sub(self.bytes())).unwrap_or(usize::MAX);
        (size.min(room - room % alignment).max(bytes), leaving)
    }

    /// Takes note that there was no memory for a segment of `size` bytes.
    pub fn refuse(&mut self, size: usize) {
        self.growth.refuse(self.bytes() + size as u64);
    }

    /// Takes segments away that are free as a whole until there is room for `size` bytes below `most`: the least one
    /// that is enough, or else the largest.
    fn make_room(&mut self, size: u64, most: u64) -> Vec<Leaving<M, U>> {
        let mut leaving = Vec::new();
        loop {
            let excess = (self.bytes() + size).saturating_sub(most);
            if excess == 0 {
                return leaving;
            }
            let idle = self.space.idle().map(|idle| (idle.bytes, idle.segment));
            let (enough, less): (Vec<_>, Vec<_>) =
                idle.partition(|(bytes, _)| *bytes as u64 >= excess);
            let next = enough.into_iter().min().or_else(|| less.into_iter().max());
            let gone = next.and_then(|(bytes, key)| self.remove(key, bytes));
            match gone {
                Some(gone) => leaving.push(gone),
                None => return leaving,
            }
        }
    }

    /// Takes segments away that are idle and all of whose uses are `wanted`, largest first, until they have `enough` bytes
    /// together.
    pub fn release(&mut self, enough: u64, wanted: impl Fn(&U) -> bool) -> Vec<Leaving<M, U>> {
        self.take_idle(enough, |space, idle| {
            space.uses_of(idle.segment).all(&wanted)
        })
    }

    /// Takes segments away that have been idle since this was called the last time, and all of whose uses are `wanted`.
    pub fn sweep(&mut self, wanted: impl Fn(&U) -> bool) -> Vec<Leaving<M, U>> {
        let now = self.space.sweep();
        self.take_idle(u64::MAX, |space, idle| {
            idle.since < now && space.uses_of(idle.segment).all(&wanted)
        })
    }

    fn take_idle(
        &mut self,
        enough: u64,
        wanted: impl Fn(&Space<M, U>, Idle) -> bool,
    ) -> Vec<Leaving<M, U>> {
        let idle = self.space.idle().filter(|idle| wanted(&self.space, *idle));
        let mut idle: Vec<_> = idle.map(|idle| (idle.bytes, idle.segment)).collect();
        idle.sort_unstable_by(|one, two| two.cmp(one));
        let mut released = 0;
        let mut leaving = Vec::new();
        for (bytes, key) in idle {
            if released >= enough {
                break;
            }
            released += bytes as u64;
            leaving.extend(self.remove(key, bytes));
        }
        leaving
    }

    fn remove(&mut self, key: SegmentKey, bytes: usize) -> Option<Leaving<M, U>> {
        let (uses, views) = self.space.remove(key)?;
        // Whoever makes a view of it has a range of it, so that nobody does.
        let memory = self.roots.get_mut(key)?.take().and_then(Arc::into_inner)?;
        Some(Leaving {
            views,
            memory,
            bytes,
            uses,
        })
    }
}

#[cfg(test)]
mod tests;
