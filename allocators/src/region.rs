//! Byte ranges inside a block.

use std::ops::{Bound, Range, RangeBounds};

use crate::error::{Error, InvalidRequest};

/// A range of bytes inside a block: where it starts, and how long it is.
///
/// ```
/// use binpool_allocators::Region;
///
/// let region = Region::new(256, 64);
/// assert_eq!(region.end(), Some(320));
/// assert!(region.check_within(512).is_ok());
/// assert!(region.check_within(300).is_err());
/// assert_eq!(Region::from(256..320), region);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Region {
    /// The first byte, counted from the start of the block.
    pub offset: usize,
    /// The length in bytes.
    pub bytes: usize,
}

impl Region {
    /// The `bytes` bytes from `offset` on.
    #[must_use]
    pub const fn new(offset: usize, bytes: usize) -> Self {
        Self { offset, bytes }
    }

    /// The first `bytes` bytes of a block.
    #[must_use]
    pub const fn first(bytes: usize) -> Self {
        Self { offset: 0, bytes }
    }

    /// Returns the offset one past the last byte, or `None` if that overflows.
    #[must_use]
    pub const fn end(self) -> Option<usize> {
        self.offset.checked_add(self.bytes)
    }

    /// Returns `range` as a region of a block of `size` bytes. An open end is the end of the
    /// block, and a range that ends before it starts becomes an empty region.
    ///
    /// ```
    /// use binpool_allocators::Region;
    ///
    /// assert_eq!(Region::within(256.., 1024)?, Region::new(256, 768));
    /// assert_eq!(Region::within(..=255, 1024)?, Region::first(256));
    /// assert!(Region::within(..1025, 1024).is_err());
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidRequest::OutOfBounds`] if the range leaves the block.
    pub fn within(range: impl IntoRegion, size: usize) -> Result<Self, Error> {
        range.into_region(size)
    }

    pub(crate) fn of_range(range: &impl RangeBounds<usize>, size: usize) -> Result<Self, Error> {
        let after = |place: &usize| place.checked_add(1);
        let start = match range.start_bound() {
            Bound::Included(start) => Some(*start),
            Bound::Excluded(before) => after(before),
            Bound::Unbounded => Some(0),
        };
        let end = match range.end_bound() {
            Bound::Included(last) => after(last),
            Bound::Excluded(end) => Some(*end),
            Bound::Unbounded => Some(size),
        };
        let region = match (start, end) {
            (Some(start), Some(end)) => Self::from(start..end),
            // The start or the end overflows, and no block has a byte there.
            (start, _) => Self::new(start.unwrap_or(usize::MAX), usize::MAX),
        };
        region.check_within(size)?;
        Ok(region)
    }

    /// Checks that this region lies inside a block of `size` bytes.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest::OutOfBounds`] if it does not, or if its end overflows.
    pub fn check_within(self, size: usize) -> Result<(), Error> {
        match self.end() {
            Some(end) if end <= size => Ok(()),
            _ => Err(InvalidRequest::OutOfBounds {
                offset: self.offset,
                bytes: self.bytes,
                size,
            }
            .into()),
        }
    }

    /// Returns whether two regions of one block share a byte.
    ///
    /// ```
    /// use binpool_allocators::Region;
    ///
    /// let views = [Region::new(0, 512), Region::new(512, 512)];
    /// assert!(!views[0].overlaps(views[1]), "neighbours share none");
    /// assert!(views.iter().all(|view| view.overlaps(Region::new(500, 20))));
    /// assert!(!views[0].overlaps(Region::new(100, 0)), "nor does anything without bytes");
    /// ```
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        let end = |region: Self| region.offset.saturating_add(region.bytes);
        self.bytes > 0 && other.bytes > 0 && self.offset < end(other) && other.offset < end(self)
    }
}

/// A part of some memory, as calls take it: a [`Region`], or a range of bytes whose ends may be left open.
///
/// ```
/// use binpool_allocators::{IntoRegion, Region};
///
/// assert_eq!((..).into_region(1024)?, Region::first(1024));
/// assert_eq!((256..).into_region(1024)?, Region::new(256, 768));
/// assert_eq!(Region::new(256, 64).into_region(1024)?, Region::new(256, 64));
/// assert!((256..2048).into_region(1024).is_err());
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a part of memory",
    label = "expected a range of bytes (`..`, `16..32`) or a `Region`"
)]
pub trait IntoRegion {
    /// Returns this as a region of memory of `size` bytes.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest::OutOfBounds`] if it leaves the memory.
    fn into_region(self, size: usize) -> Result<Region, Error>;
}

impl IntoRegion for Region {
    fn into_region(self, size: usize) -> Result<Region, Error> {
        self.check_within(size)?;
        Ok(self)
    }
}

impl<R: RangeBounds<usize>> IntoRegion for R {
    fn into_region(self, size: usize) -> Result<Region, Error> {
        Region::of_range(&self, size)
    }
}

impl From<Range<usize>> for Region {
    /// A range that ends before it starts becomes an empty region.
    fn from(range: Range<usize>) -> Self {
        Self::new(range.start, range.end.saturating_sub(range.start))
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Bound::{Excluded, Included, Unbounded};

    use super::*;

    #[test]
    fn open_ends_are_those_of_the_block() {
        let within = |range: (Bound<usize>, Bound<usize>)| Region::within(range, 10).unwrap();
        assert_eq!(within((Unbounded, Unbounded)), Region::first(10));
        assert_eq!(within((Included(4), Unbounded)), Region::new(4, 6));
        assert_eq!(within((Excluded(4), Unbounded)), Region::new(5, 5));
        assert_eq!(within((Unbounded, Excluded(4))), Region::first(4));
        assert_eq!(within((Unbounded, Included(4))), Region::first(5));
        assert_eq!(within((Included(10), Unbounded)), Region::new(10, 0));
        assert_eq!(within((Included(7), Excluded(3))), Region::new(7, 0));
    }

    #[test]
    fn ranges_that_leave_the_block_or_overflow_are_refused() {
        for range in [
            (Included(11), Unbounded),
            (Unbounded, Excluded(11)),
            (Unbounded, Included(10)),
            (Unbounded, Included(usize::MAX)),
            (Excluded(usize::MAX), Unbounded),
            (Included(usize::MAX), Excluded(usize::MAX)),
        ] {
            let refused = Region::within(range, 10).unwrap_err();
            let bounds = matches!(
                refused,
                Error::InvalidRequest(InvalidRequest::OutOfBounds { size: 10, .. })
            );
            assert!(bounds, "{range:?}: {refused}");
        }
    }
}
