//! Size classes: which requests share a bin, and how large its blocks are.

use std::fmt;

use crate::PoolError;

/// A way of sorting sizes into bins.
///
/// A pool calls it with sizes that are multiples of the allocator's alignment. Laws, for every size `s`:
///
/// - `bin_number(s)` is below [`bin_count`](Self::bin_count);
/// - `alloc_size(bin_number(s))` is at least `s`;
/// - both functions are monotone.
///
/// A scheme that breaks them wastes memory, or makes requests fail ([`PoolError::SizeClassTooSmall`]). It never makes the
/// pool return a block that is too small.
///
/// ```
/// use binpool::{Backend, ImmediateAllocator, PoolOptions, QueueOrder, SizeClasses};
/// # use binpool_mock::MockDevice;
/// # let backend = MockDevice::new().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
///
/// /// Whole pages of 64 KiB, for a program that has few sizes.
/// #[derive(Debug)]
/// struct Pages;
///
/// const PAGE: usize = 64 << 10;
///
/// impl SizeClasses for Pages {
///     fn bin_count(&self) -> usize {
///         usize::MAX.div_ceil(PAGE) + 1
///     }
///     fn bin_number(&self, bytes: usize) -> usize {
///         bytes.div_ceil(PAGE)
///     }
///     fn alloc_size(&self, bin: usize) -> usize {
///         bin.saturating_mul(PAGE)
///     }
/// }
///
/// // Two checks of the laws, as its own tests would make them.
/// assert!(Pages.bin_number(usize::MAX) < Pages.bin_count());
/// assert_eq!(Pages.alloc_size(Pages.bin_number(100_000)), 2 * PAGE);
///
/// let pool = PoolOptions::new()
///     .size_classes(Pages)
///     .build(ImmediateAllocator::new(&backend)?, &queue)?;
/// assert_eq!(pool.allocate(100_000)?.class_size(), 2 * PAGE);
/// # Ok::<(), binpool::PoolError>(())
/// ```
pub trait SizeClasses: fmt::Debug + Send + Sync {
    /// The number of bins.
    fn bin_count(&self) -> usize;

    /// The bin of requests of `bytes` bytes.
    fn bin_number(&self, bytes: usize) -> usize;

    /// The size in bytes of the blocks of bin `bin`.
    fn alloc_size(&self, bin: usize) -> usize;
}

/// Classes by the exponent and the leading bits of a size: with `n` bits, a block is at most `1 / 2^n` larger than requested.
///
/// `PyOpenCL`'s scheme (`leading_bits_in_bin_id`), except that classes *end* on round sizes where the
/// original's begin on them: a request of 4096 bytes takes 4096, not 4351.
///
/// ```
/// use binpool::{LeadingBits, SizeClasses};
///
/// let classes = LeadingBits::default();
/// assert_eq!(classes.alloc_size(classes.bin_number(4096)), 4096);
/// assert_eq!(classes.alloc_size(classes.bin_number(4097)), 4096 + 256);
/// assert_eq!(classes.bits(), 4); // Sixteen classes from one power of two to the next.
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeadingBits {
    bits: u32,
}

impl LeadingBits {
    /// The most leading bits that are permitted. With them, a block is at most 1/1024 larger than requested.
    pub const LARGEST: u32 = 10;

    /// Makes classes by `bits` leading bits.
    ///
    /// # Errors
    ///
    /// [`PoolError::LeadingBits`] if `bits` is above [`LARGEST`](Self::LARGEST).
    ///
    /// ```
    /// use binpool::{LeadingBits, PoolError, SizeClasses};
    ///
    /// // Only powers of two: few bins, and up to half of a block is unused.
    /// let coarse = LeadingBits::new(0)?;
    /// assert_eq!(coarse.alloc_size(coarse.bin_number(4097)), 8192);
    /// let error = LeadingBits::new(11).unwrap_err();
    /// assert!(matches!(error, PoolError::LeadingBits { largest: 10, .. }));
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    pub fn new(bits: u32) -> Result<Self, PoolError> {
        if bits > Self::LARGEST {
            return Err(PoolError::LeadingBits {
                requested: bits,
                largest: Self::LARGEST,
            });
        }
        Ok(Self { bits })
    }

    /// The number of bits after the highest one that distinguish classes.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.bits
    }

    /// The size of the class before that of this bin, or 0.
    pub(crate) fn below(self, bin: usize) -> usize {
        let exponent = bin >> self.bits;
        if exponent <= 1 {
            return bin;
        }
        let leading = (bin & ((1 << self.bits) - 1)) | (1 << self.bits);
        let shift = u32::try_from(exponent - 1).unwrap_or(u32::MAX);
        leading.checked_shl(shift).unwrap_or(usize::MAX)
    }
}

impl Default for LeadingBits {
    /// Four bits: a block is at most 1/16 larger than requested.
    fn default() -> Self {
        Self { bits: 4 }
    }
}

impl SizeClasses for LeadingBits {
    fn bin_count(&self) -> usize {
        ((usize::BITS - self.bits + 1) as usize) << self.bits
    }

    /// Sizes up to `2^bits` have a bin each. Above, bins are numbered by the exponent of `bytes - 1`, then by the bits after its
    /// highest one. Because 1 is subtracted, a class ends on a round size.
    fn bin_number(&self, bytes: usize) -> usize {
        let last = bytes.saturating_sub(1);
        if last >> self.bits == 0 {
            return last;
        }
        let shift = last.ilog2() - self.bits;
        // The highest bit of `last >> shift` is bit number `bits`, so the sum is at least `1 << bits` and grows
        // without gaps from one shift to the next.
        ((shift as usize) << self.bits) + (last >> shift)
    }

    fn alloc_size(&self, bin: usize) -> usize {
        let exponent = bin >> self.bits;
        if exponent <= 1 {
            return bin.saturating_add(1);
        }
        let leading = (bin & ((1 << self.bits) - 1)) | (1 << self.bits);
        let shift = u32::try_from(exponent - 1).unwrap_or(u32::MAX);
        // The subtracted 1 is in `leading + 1`. The last class would end one past `usize::MAX`.
        (leading + 1)
            .checked_shl(shift)
            .filter(|size| size >> shift == leading + 1)
            .unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_scheme() -> impl Strategy<Value = LeadingBits> {
        (0..=LeadingBits::LARGEST).prop_map(|bits| LeadingBits::new(bits).unwrap())
    }

    /// Sizes of every magnitude, and sizes next to powers of two.
    fn any_size() -> impl Strategy<Value = usize> {
        (0..usize::BITS, any::<usize>(), -2_isize..=2).prop_map(|(exponent, low, nudge)| {
            let base = 1_usize << exponent;
            match nudge {
                -2 => base + (low & (base - 1)),
                _ => base.wrapping_add_signed(nudge),
            }
        })
    }

    proptest! {
        #[test]
        fn the_class_is_the_smallest_that_fits_the_size(classes in any_scheme(), bytes in any_size()) {
            let bin = classes.bin_number(bytes);
            prop_assert!(bin < classes.bin_count());
            prop_assert!(classes.alloc_size(bin) >= bytes);
            if bin > 0 {
                prop_assert!(classes.alloc_size(bin - 1) < bytes);
            }
        }

        #[test]
        fn both_functions_are_monotone(classes in any_scheme(), a in any_size(), b in any_size()) {
            let (small, large) = (a.min(b), a.max(b));
            prop_assert!(classes.bin_number(small) <= classes.bin_number(large));
            let (low, high) = (classes.bin_number(small), classes.bin_number(large));
            prop_assert!(classes.alloc_size(low) <= classes.alloc_size(high));
        }

        #[test]
        fn the_size_of_a_class_is_in_that_class(classes in any_scheme(), bytes in any_size()) {
            let size = classes.alloc_size(classes.bin_number(bytes));
            prop_assert_eq!(classes.alloc_size(classes.bin_number(size)), size);
        }

        #[test]
        fn at_most_one_part_in_two_to_the_bits_is_wasted(classes in any_scheme(), bytes in any_size()) {
            prop_assume!(bytes > 0);
            let waste = classes.alloc_size(classes.bin_number(bytes)) - bytes;
            prop_assert!(waste <= bytes >> classes.bits());
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes, for numbers alone")]
    fn every_bin_is_the_bin_of_its_own_size() {
        for bits in 0..=LeadingBits::LARGEST {
            let classes = LeadingBits::new(bits).unwrap();
            for bin in 0..classes.bin_count() {
                let size = classes.alloc_size(bin);
                assert_eq!(classes.bin_number(size), bin, "{bits} bits, size {size}");
                let below = bin
                    .checked_sub(1)
                    .map_or(0, |last| classes.alloc_size(last));
                assert_eq!(classes.below(bin), below, "{bits} bits, bin {bin}");
            }
        }
    }

    #[test]
    fn powers_of_two_waste_nothing() {
        for bits in 0..=LeadingBits::LARGEST {
            let classes = LeadingBits::new(bits).unwrap();
            for exponent in 0..usize::BITS {
                let size = 1 << exponent;
                assert_eq!(classes.alloc_size(classes.bin_number(size)), size);
            }
        }
    }

    #[test]
    fn zero_and_the_largest_size_have_bins() {
        for bits in 0..=LeadingBits::LARGEST {
            let classes = LeadingBits::new(bits).unwrap();
            assert_eq!(classes.bin_number(0), 0);
            assert_eq!(classes.bin_number(usize::MAX), classes.bin_count() - 1);
            assert_eq!(classes.alloc_size(classes.bin_count() - 1), usize::MAX);
            assert_eq!(classes.alloc_size(usize::MAX), usize::MAX);
        }
    }

    #[test]
    fn more_bits_than_permitted_are_refused() {
        let error = LeadingBits::new(LeadingBits::LARGEST + 1).unwrap_err();
        assert!(error.to_string().contains("at most 10"), "{error}");
    }
}
