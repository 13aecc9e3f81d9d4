//! The size classes of a pool, and the slot of each in a thread cache.

use std::sync::Arc;

use binpool_allocators::Align;

use crate::{LeadingBits, SizeClasses};

/// The most slots of one queue in a thread cache. One more is shared by bins that are out of range.
const MAX_SLOTS: usize = 1024;

/// The size classes of a pool.
#[derive(Debug)]
pub(crate) struct Classes {
    scheme: Scheme,
    /// Bins whose numbers differ only in this many low bits share a slot of a thread cache.
    shared_bits: u32,
}

/// An enum, because it is called for every allocation, and the usual scheme then needs no virtual call.
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
        while classes.bin_count() >> classes.shared_bits > MAX_SLOTS {
            classes.shared_bits += 1;
        }
        classes
    }

    /// Returns whether no function here calls the program's code.
    #[inline]
    pub(crate) fn are_known(&self) -> bool {
        matches!(self.scheme, Scheme::LeadingBits(_))
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

    /// The largest request, rounded up to `alignment`, that a bin below this one serves.
    pub(crate) fn below(&self, bin: usize, alignment: Align) -> usize {
        let below = match &self.scheme {
            Scheme::LeadingBits(classes) => classes.below(bin),
            Scheme::Given(classes) => bin.checked_sub(1).map_or(0, |bin| classes.alloc_size(bin)),
        };
        // A power of two, since a division takes longer than everything else here.
        below & !(alignment.bytes() - 1)
    }

    /// The size of the last class that shares a slot with this bin.
    pub(crate) fn slot_size(&self, bin: usize) -> usize {
        let last = bin | ((1 << self.shared_bits) - 1);
        self.alloc_size(last.min(self.bin_count().saturating_sub(1)).max(bin))
    }

    /// The slot of this bin in a thread cache. Bins from [`SizeClasses::bin_count`] on, which a wrong scheme may return, may share
    /// the last slot.
    #[inline]
    pub(crate) fn slot(&self, bin: usize) -> usize {
        (bin >> self.shared_bits).min(MAX_SLOTS)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A scheme with this many bins.
    #[derive(Debug)]
    pub(crate) struct Many(pub(crate) usize);

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
    fn bins_have_their_own_slots_or_share_one_with_their_neighbours() {
        for (bins, bins_per_slot) in [
            (1, 1),
            (MAX_SLOTS, 1),
            (MAX_SLOTS + 1, 2),
            (2 * MAX_SLOTS, 2),
            (5 * MAX_SLOTS, 8),
        ] {
            let given: Arc<dyn SizeClasses> = Arc::new(Many(bins));
            let classes = Classes::from(given);
            for bin in 0..bins {
                assert_eq!(classes.slot(bin), bin / bins_per_slot, "{bin} of {bins}");
            }
        }
    }

    #[test]
    fn bins_out_of_range_share_the_last_slot() {
        let given: Arc<dyn SizeClasses> = Arc::new(Many(10));
        let classes = Classes::from(given);
        for bin in [MAX_SLOTS, MAX_SLOTS + 1, usize::MAX] {
            assert_eq!(classes.slot(bin), MAX_SLOTS);
        }
    }
}
