//! Which free ranges may serve which blocks.

use super::space::Location;

/// The most ranges of a segment that are taken at once: each is a view, and drivers keep the views of a block in a
/// list that they walk (1.8 us with up to 30, 149 us with 10 000 on an H200).
pub(super) const MOST_TAKEN: usize = 256;

/// Where memory is tight, a large segment that is entirely free serves blocks of at least this part of it: split for others, it could not go
/// back for a large block.
const LEAST_PIECE: (usize, usize) = (9, 10);

/// Which free ranges may serve which blocks. The rules of growth decide it, and each arena has a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Placement {
    /// The most bytes of a small block. Small blocks lie in segments of their own.
    pub(super) small_bytes: usize,
    /// A segment of more bytes than this that is entirely free is not split for a much smaller block.
    pub(super) large: usize,
}

impl Placement {
    /// Returns whether a block of this size goes to a segment for small blocks.
    pub(super) fn is_small(&self, bytes: usize) -> bool {
        bytes <= self.small_bytes
    }

    /// Returns a filter for the free ranges that may serve a block of `bytes` bytes, in a segment for blocks of its kind.
    pub(super) fn range_filter(&self, bytes: usize) -> impl Fn(Location) -> bool + use<> {
        let large = self.large;
        let (piece, of) = LEAST_PIECE;
        let may_break_up = move |whole: usize| whole <= large || bytes / piece >= whole / of;
        move |location: Location| {
            location.taken < MOST_TAKEN && location.whole.is_none_or(may_break_up)
        }
    }
}
