//! The size classes of a pool, and where a thread keeps the blocks of each.

use std::sync::Arc;

use binpool_allocators::Align;

use crate::{LeadingBits, SizeClasses};

/// How many places a thread has for its blocks of one queue.
const MOST_PLACES: usize = 1024;

/// The size classes of a pool.
#[derive(Debug)]
pub(crate) struct Classes {
    scheme: Scheme,
    /// Bins that differ in their last so many bits share a place in a thread's cache.
    shared_bits: u32,
}

/// Called for every allocation, so that the usual one is no virtual call.
#[derive(Debug)]
enum Scheme {
    LeadingBits(LeadingBits),
    Given(Arc<dyn SizeClasses>),
}

impl From<LeadingBits> for Classes {
    fn from(scheme: LeadingBits) -> Self {
        Self::new(Scheme::LeadingBits(scheme))
    }
}

impl From<Arc<dyn SizeClasses>> for Classes {
    fn from(scheme: Arc<dyn SizeClasses>) -> Self {
        Self::new(Scheme::Given(scheme))
    }
}

impl Classes {
    fn new(scheme: Scheme) -> Self {
        let mut classes = Self {
            scheme,
            shared_bits: 0,
        };
        while classes.bin_count() >> classes.shared_bits > MOST_PLACES {
            classes.shared_bits += 1;
        }
        classes
    }

    pub(crate) fn bin_count(&self) -> usize {
        match &self.scheme {
            Scheme::LeadingBits(classes) => classes.bin_count(),
            Scheme::Given(classes) => classes.bin_count(),
        }
    }

    #[inline]
    pub(crate) fn bin_number(&self, bytes: usize) -> usize {
        match &self.scheme {
            Scheme::LeadingBits(classes) => classes.bin_number(bytes),
            Scheme::Given(classes) => classes.bin_number(bytes),
        }
    }

    pub(crate) fn alloc_size(&self, bin: usize) -> usize {
        match &self.scheme {
            Scheme::LeadingBits(classes) => classes.alloc_size(bin),
            Scheme::Given(classes) => classes.alloc_size(bin),
        }
    }

    /// The most that somebody can ask for who gets a block of a bin below this one, where requests are rounded up to
    /// `alignment`.
    pub(crate) fn below(&self, bin: usize, alignment: Align) -> usize {
        let below = bin.checked_sub(1).map_or(0, |bin| self.alloc_size(bin));
        below - below % alignment.bytes()
    }

    /// Where a thread keeps the blocks of this bin. A scheme that names more bins than it has shares the last place.
    #[inline]
    pub(crate) fn place(&self, bin: usize) -> usize {
        (bin >> self.shared_bits).min(MOST_PLACES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bins as many as wanted.
    #[derive(Debug)]
    struct Many(usize);

    impl SizeClasses for Many {
        fn bin_count(&self) -> usize {
            self.0
        }

        fn bin_number(&self, bytes: usize) -> usize {
            bytes
        }

        fn alloc_size(&self, bin: usize) -> usize {
            bin
        }
    }

    #[test]
    fn bins_have_places_of_their_own_or_share_one_with_their_neighbours() {
        for (bins, in_a_place) in [
            (1, 1),
            (MOST_PLACES, 1),
            (MOST_PLACES + 1, 2),
            (2 * MOST_PLACES, 2),
            (5 * MOST_PLACES, 8),
        ] {
            let given: Arc<dyn SizeClasses> = Arc::new(Many(bins));
            let classes = Classes::from(given);
            for bin in 0..bins {
                assert_eq!(classes.place(bin), bin / in_a_place, "{bin} of {bins}");
            }
        }
    }

    #[test]
    fn bins_that_a_scheme_does_not_have_share_the_last_place() {
        let given: Arc<dyn SizeClasses> = Arc::new(Many(10));
        let classes = Classes::from(given);
        for bin in [MOST_PLACES, MOST_PLACES + 1, usize::MAX] {
            assert_eq!(classes.place(bin), MOST_PLACES);
        }
    }
}
