//! What segments hand out: ranges for blocks, and memory to release to its allocator.

use std::sync::Arc;

use super::space::RangeNumber;
use binpool_allocators::{Allocator, Backend, MemoryOf, Region, Result, contained::guarded};

/// The key of a range of a segment, from when it is taken until it is given back.
///
/// The owner of a block must store it, since the block does not say which range it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RangeKey {
    /// The number of the arena.
    pub(super) arena: u32,
    /// The number of the range in the arena.
    number: u32,
}

impl RangeKey {
    /// An arena has fewer than 2^32 ranges, since each takes some hundred bytes of host memory.
    pub(super) fn new(arena: u32, number: RangeNumber) -> Self {
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        Self { arena, number }
    }

    /// The number of the arena.
    #[must_use]
    pub fn arena(self) -> usize {
        self.arena as usize
    }

    pub(super) fn number(self) -> RangeNumber {
        self.number as RangeNumber
    }
}

/// A range that was taken for a block, with everything that is needed to make its view by [`into_view`](Self::into_view).
#[derive(Debug)]
pub struct Carved<M, U> {
    /// Names the range until it is [given](super::Segments::give) back.
    pub range: RangeKey,
    /// The position of the block in the segment.
    pub region: Region,
    /// The whole segment. Drop it before the range is given back: a segment that is still referenced when it is evicted is not in any
    /// [`Leaving`], and is dropped instead of released to its allocator.
    pub segment: Arc<M>,
    /// A cached view of exactly these bytes.
    pub view: Option<M>,
    /// Cached views that overlap this block.
    pub overlapping: Vec<M>,
    /// The former uses of the range.
    pub uses: U,
    /// Set if the overlapping views extend beyond this block. The range keeps that excess until it is shrunk to the block's region.
    pub has_excess: bool,
}

impl<M, U> Carved<M, U> {
    /// Returns the view of the block: the cached one, or a new one made by the allocator of the segments.
    ///
    /// Views that overlap it are released first, so that no two views of a segment overlap. Only then is the excess of the range [freed](super::Segments::shrink), by `shrink`,
    /// which takes the range, the region that it keeps, and its former uses. No reference to the segment is left when this
    /// returns, so that the segments own it alone once the range is free again.
    ///
    /// # Errors
    ///
    /// Those of [`create_view`](Allocator::create_view). The range is still taken.
    pub fn into_view<A>(self, allocator: &A, shrink: impl FnOnce(RangeKey, Region, U)) -> Result<M>
    where
        A: Allocator<Backend: Backend<Memory = M>>,
    {
        release_views(allocator, self.overlapping);
        if self.has_excess {
            shrink(self.range, self.region, self.uses);
        }
        match self.view {
            Some(view) => Ok(view),
            None => allocator.create_view(&self.segment, self.region),
        }
    }
}

/// A range that was taken for a block, without any view that has to be released first: what a thread [takes](super::Arenas::take) from an
/// arena.
#[derive(Debug)]
pub struct Ready<M> {
    /// Names the range until it is given back.
    pub range: RangeKey,
    /// The position of the block in the segment.
    pub region: Region,
    /// The whole segment. Drop it before the range is given back.
    pub segment: Arc<M>,
    /// A cached view of exactly these bytes.
    pub view: Option<M>,
    /// Whether the arena [watches](super::Segments::watches_carves) what is carved.
    pub is_watched: bool,
}

/// Releases views through the allocator that made them.
///
/// Call this before giving back a range that was taken but not used.
fn release_views<A: Allocator>(allocator: &A, views: Vec<MemoryOf<A>>) {
    for view in views {
        allocator.release_view(view);
    }
}

/// A segment to release to its allocator once its views have been dropped.
#[derive(Debug)]
pub struct Leaving<M, U> {
    /// The cached views, to be released first.
    pub views: Vec<M>,
    /// The segment.
    pub memory: M,
    /// Its size in bytes.
    pub bytes: usize,
    /// The uses of its ranges.
    pub uses: Vec<U>,
    /// Where it is mapped, if it consists of pages. [Unmap](Place::unmap) these first, then
    /// [forget](super::Segments::forget) the place; if unmapping fails, [keep](super::Segments::keep) the pages.
    pub place: Option<Place<M>>,
}

/// The state of a segment.
#[derive(Debug)]
pub struct SegmentState<'a, M, U> {
    /// The whole segment. Several states may have the same reservation: one for each part of it that is mapped without gaps.
    pub memory: &'a M,
    /// Its ranges, from the first byte to the last.
    pub ranges: Vec<(Region, RangeState<'a, U>)>,
}

/// The state of a range: free or taken.
#[derive(Debug)]
pub enum RangeState<'a, U> {
    /// The range is free, and has these uses.
    Free(&'a U),
    /// The range is taken.
    Taken(RangeKey),
}

/// Where pages are mapped that are about to be released. No block has these bytes.
///
#[derive(Debug)]
pub struct Place<M> {
    pub(super) range: RangeKey,
    pub(super) is_small: bool,
    pub(super) reservation: Arc<M>,
    pub(super) region: Region,
}

impl<M> Place<M> {
    /// The reservation.
    pub fn reservation(&self) -> &M {
        &self.reservation
    }

    /// Where in the reservation.
    #[must_use]
    pub fn region(&self) -> Region {
        self.region
    }

    /// Unmaps the pages.
    ///
    /// # Errors
    ///
    /// Those of [`Allocator::unmap`], and an error if it panics. [Keep](super::Segments::keep) the pages then, and do
    /// not [forget](super::Segments::forget) the place.
    pub fn unmap<A>(&self, allocator: &A) -> Result<()>
    where
        A: Allocator<Backend: Backend<Memory = M>>,
    {
        guarded("Allocator::unmap", || {
            allocator.unmap(&self.reservation, self.region)
        })
    }
}
