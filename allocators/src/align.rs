//! Alignments: powers of two by construction.

use std::fmt;

/// An alignment in bytes, always a power of two.
///
/// ```
/// use binpool_allocators::Align;
///
/// let align = Align::new(512).expect("a power of two");
/// assert_eq!(align.bytes(), 512);
/// assert!(align.divides(1024) && !align.divides(1000));
/// assert_eq!(align.round_up(513), Some(1024));
/// assert_eq!(align.round_up(usize::MAX), None);
/// assert!(Align::new(48).is_none());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Align {
    bytes: usize,
}

impl Align {
    /// Alignment of one byte, which every offset has.
    pub const ONE: Self = Self { bytes: 1 };

    /// Returns the alignment of `bytes` bytes, or `None` if that is not a power of two.
    #[must_use]
    pub const fn new(bytes: usize) -> Option<Self> {
        if bytes.is_power_of_two() {
            Some(Self { bytes })
        } else {
            None
        }
    }

    /// The alignment in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self.bytes
    }

    /// Returns whether `offset` is a multiple of this alignment.
    #[must_use]
    pub const fn divides(self, offset: usize) -> bool {
        offset & (self.bytes - 1) == 0
    }

    /// Rounds `bytes` up to a multiple of this alignment; `None` if that overflows.
    #[must_use]
    pub const fn round_up(self, bytes: usize) -> Option<usize> {
        match bytes.checked_add(self.bytes - 1) {
            Some(sum) => Some(sum & !(self.bytes - 1)),
            None => None,
        }
    }
}

impl fmt::Debug for Align {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Align({})", self.bytes)
    }
}

impl fmt::Display for Align {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.bytes)
    }
}
