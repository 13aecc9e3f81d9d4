//! Pools of whole blocks: each is an allocation of the driver, of the size that the program asked for, so that the driver answers for it.

use binpool::{PoolOptions, Retain, SizeClasses};

/// Sizes that are classes of their own, in units of this many bytes.
#[derive(Debug)]
struct ExactSizes(usize);

impl SizeClasses for ExactSizes {
    fn bin_count(&self) -> usize {
        (usize::MAX / self.0).saturating_add(1)
    }

    fn bin_number(&self, bytes: usize) -> usize {
        bytes.div_ceil(self.0)
    }

    fn alloc_size(&self, bin: usize) -> usize {
        bin.saturating_mul(self.0)
    }
}

/// Returns the settings of such a pool, whose sizes are rounded up to `unit` bytes. How much it keeps is for [`Bound`].
pub(crate) fn whole_blocks(options: PoolOptions, unit: usize) -> PoolOptions {
    options
        .segments(false)
        .size_classes(ExactSizes(unit))
        // To keep its own percentage, the pool would hand out larger blocks than were asked for.
        .retain(Retain::new().at_least(u64::MAX))
}

/// How much such a pool keeps.
#[derive(Debug)]
pub(crate) struct Bound {
    /// Up to this size, it keeps whatever is freed.
    anyway: u64,
    /// Beyond that, it keeps up to this percentage of the most bytes that were in use at once.
    percent: u64,
    peak: u64,
}

impl Bound {
    pub(crate) fn new(anyway: u64, percent: u64) -> Self {
        Self {
            anyway,
            percent,
            peak: 0,
        }
    }

    /// Returns the most bytes that the pool may manage, now that `active` bytes are in use.
    pub(crate) fn most(&mut self, active: u64) -> u64 {
        self.peak = self.peak.max(active);
        (self.peak / 100 * self.percent).max(self.anyway)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_keeps_a_percentage_of_the_most_that_was_in_use_or_what_it_keeps_anyway() {
        let mut bound = Bound::new(1000, 125);
        assert_eq!(bound.most(700), 1000);
        assert_eq!(bound.most(2000), 2500);
        assert_eq!(bound.most(900), 2500);
    }
}
