//! Byte ranges inside a block.

use std::ops::Range;

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

    /// One past the last byte, or `None` where no `usize` holds it.
    #[must_use]
    pub const fn end(self) -> Option<usize> {
        self.offset.checked_add(self.bytes)
    }

    /// Checks that this region lies inside a block of `size` bytes.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest::OutOfBounds`] where it does not, also where its end overflows.
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

    /// Whether the two regions of one block share a byte.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        let end = |region: Self| region.offset.saturating_add(region.bytes);
        self.bytes > 0 && other.bytes > 0 && self.offset < end(other) && other.offset < end(self)
    }
}

impl From<Range<usize>> for Region {
    /// A range that ends before it starts becomes an empty region.
    fn from(range: Range<usize>) -> Self {
        Self::new(range.start, range.end.saturating_sub(range.start))
    }
}
