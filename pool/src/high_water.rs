//! The high-water rule: how much free memory a pool without segments keeps.

/// How far what a pool of bins manages may pass the most that was in use.
///
/// A free block of a bin serves requests of its own size class only. So a pool of bins that keeps them all comes to manage the
/// most that was in use *of each class*, which is many times the most that was in use at once where sizes vary. This rule is for
/// a request that finds no block of its class, where a new one would take the pool above a part of the most bytes that were ever
/// in use, in whole blocks. Such a request gets a free block up to half as large again. Where there is none, free blocks that no
/// command uses are released first: the smallest that is enough, or the largest ones. Once the program has asked again for as much as
/// was in use at the peak, after it was released so, a request gets a free block up to three times as large instead.
///
/// Pools with [segments](crate::PoolOptions::segments) need no such rule: there free blocks of any size serve one another.
///
/// ```
/// use binpool::{Backend, HighWater, ImmediateAllocator, PoolOptions, QueueOrder};
/// use binpool_mock::MockDevice;
///
/// let backend = MockDevice::builder().capacity_bytes(1 << 36).build().backend();
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let options = PoolOptions::new().segments(false);
/// let after_all_sizes = |options: PoolOptions| {
///     let pool = options.build(ImmediateAllocator::new(&backend)?, &queue)?;
///     // One block at a time, each larger than the one before.
///     for mib in 100..200 {
///         drop(pool.allocate(mib << 20)?);
///     }
///     Ok::<u64, binpool::PoolError>(pool.managed_bytes() >> 20)
/// };
/// assert!(after_all_sizes(options.clone())? <= 250);
/// assert!(after_all_sizes(options.high_water(HighWater::KEEP_ALL))? > 2000);
/// # Ok::<(), binpool::PoolError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HighWater {
    percent: u32,
    least_bytes: u64,
}

impl HighWater {
    /// The pool manages what it has come to manage: nothing is released by this rule.
    pub const KEEP_ALL: Self = Self {
        percent: 100,
        least_bytes: u64::MAX,
    };

    /// The pool manages at most this percentage of the most bytes that were in use; less than 100 means 100.
    #[must_use]
    pub const fn percent(percent: u32) -> Self {
        Self {
            percent,
            least_bytes: Self::DEFAULT.least_bytes,
        }
    }

    /// Nothing is released while the pool would manage at most so many bytes. The default is 64 MiB.
    ///
    /// ```
    /// use binpool::HighWater;
    ///
    /// // Whatever the program needs, a gigabyte may lie free.
    /// let high_water = HighWater::percent(125).above(1 << 30);
    /// assert_ne!(high_water, HighWater::default());
    /// ```
    #[must_use]
    pub const fn above(mut self, bytes: u64) -> Self {
        self.least_bytes = bytes;
        self
    }

    const DEFAULT: Self = Self {
        percent: 125,
        least_bytes: 64 << 20,
    };

    /// The most bytes that the pool is to manage if this many were in use at the peak.
    pub(crate) fn most_bytes(self, peak_bytes: u64) -> u64 {
        let percent = u64::from(self.percent.max(100));
        let hundredth = peak_bytes / 100;
        let rest = peak_bytes % 100 * percent / 100;
        let part = hundredth.saturating_mul(percent).saturating_add(rest);
        part.max(self.least_bytes)
    }
}

impl Default for HighWater {
    /// 125 %, above 64 MiB.
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_is_a_part_of_the_peak_and_never_less_than_the_peak() {
        let exact = HighWater::percent(125).above(0);
        assert_eq!(exact.most_bytes(0), 0);
        assert_eq!(exact.most_bytes(1000), 1250);
        assert_eq!(exact.most_bytes(7), 8);
        assert_eq!(exact.above(2000).most_bytes(1000), 2000);
        assert_eq!(HighWater::percent(0).above(0).most_bytes(1099), 1099);
        for percent in [0, 125, u32::MAX] {
            let high_water = HighWater::percent(percent);
            assert!(high_water.most_bytes(1 << 60) >= 1 << 60);
        }
        assert_eq!(HighWater::KEEP_ALL.most_bytes(1), u64::MAX);
    }
}
