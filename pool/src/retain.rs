//! How much free memory a pool keeps, and for how long.

use std::time::{Duration, Instant};

/// Up to this many bytes in use, what threads cache costs little, and speeds up programs whose caches would otherwise have room for few blocks.
const LITTLE: u64 = 64 << 20;

/// How much free memory a pool keeps, and for how long.
///
/// By default a pool keeps what its [growth policy](crate::GrowthPolicy) says, or in bins [a percentage](Self::percent_of_peak), until the program
/// [trims](crate::MemoryPool::trim_to) it or memory runs short. Each method sets when free memory that no command uses is released
/// before that.
///
/// ```
/// use std::time::Duration;
///
/// use binpool::{Backend, ImmediateAllocator, PoolOptions, QueueOrder, Retain};
/// use binpool_mock::MockDevice;
///
/// let backend = MockDevice::new().backend();
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// // While the pool has more than 32 MiB, what is freed goes back, and what no request has needed for a minute does, too.
/// let pool = PoolOptions::new()
///     .retain(Retain::new().at_most(32 << 20).unused_for(Duration::from_secs(60)))
///     .build(ImmediateAllocator::new(&backend)?, &queue)?;
/// drop(pool.allocate(16 << 20)?);
/// assert_eq!(pool.managed_bytes(), 16 << 20);
/// drop(pool.allocate(64 << 20)?);
/// assert!(pool.managed_bytes() <= 32 << 20);
/// # Ok::<(), binpool::PoolError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retain {
    most_bytes: u64,
    percent: u32,
    least_bytes: u64,
    bytes_per_thread: Option<u64>,
    age: Age,
}

/// How long free memory is kept. It is kept forever without either.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Age {
    allocations: Option<u64>,
    time: Option<Duration>,
}

impl Retain {
    /// The default.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            most_bytes: u64::MAX,
            percent: 125,
            least_bytes: 64 << 20,
            bytes_per_thread: None,
            age: Age {
                allocations: None,
                time: None,
            },
        }
    }

    /// Releases free memory while the pool manages more than `bytes` bytes, in use or free.
    ///
    /// The pool checks when a block is freed. While it manages more, it has no thread caches, so a hit takes a short lock. It grows as with
    /// [`GrowthPolicy::Dense`](crate::GrowthPolicy::Dense), so that whole segments can go. Like
    /// `cudaMemPoolAttrReleaseThreshold`.
    #[must_use]
    pub const fn at_most(mut self, bytes: u64) -> Self {
        self.most_bytes = bytes;
        self
    }

    /// Releases memory that has been free for this time, or for up to twice as long.
    ///
    /// The pool reads the clock when blocks are allocated and freed, and needs no thread of its own. To see each block, it has no thread caches,
    /// and a hit takes a short lock. A program that calls [`sweep`](crate::MemoryPool::sweep), or has a thread [do
    /// so](crate::MemoryPool::sweep_in_background), avoids that, and its memory also goes back while it is idle.
    #[must_use]
    pub const fn unused_for(mut self, time: Duration) -> Self {
        self.age.time = Some(time);
        self
    }

    /// Releases memory that has been free for this number of allocations, or for up to twice as many; 0 means 1. As with
    /// [`unused_for`](Self::unused_for), the pool has no thread caches.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, PoolOptions, QueueOrder, Retain};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let pool = PoolOptions::new()
    ///     .retain(Retain::new().unused_for_allocations(10))
    ///     .build(ImmediateAllocator::new(&backend)?, &queue)?;
    /// // The program's beginning takes eight blocks at once, its main loop one at a time.
    /// drop([(); 8].map(|()| pool.allocate(16 << 20).unwrap()));
    /// assert_eq!(pool.managed_bytes(), 8 * (16 << 20));
    /// for _ in 0..30 {
    ///     drop(pool.allocate(16 << 20)?);
    /// }
    /// assert_eq!(pool.managed_bytes(), 16 << 20); // What the loop uses stays.
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    #[must_use]
    pub const fn unused_for_allocations(mut self, allocations: u64) -> Self {
        self.age.allocations = Some(allocations);
        self
    }

    /// Sets how much a pool without [segments](crate::PoolOptions::segments) manages: at most this percentage of the peak bytes in
    /// use; less than 100 means 100. The default is 125.
    ///
    /// A free block of a bin serves requests of its own size class only. So a pool of bins that keeps every block ends up with the peak *of
    /// each class*, which is many times the overall peak if sizes vary. This rule is for a request that finds no block of its class, while
    /// a new one would take the pool above the percentage, in whole blocks. Such a request gets a free block up to half as large again. If
    /// there is no such block, free blocks that no command uses are released first: the smallest that is enough, or the largest ones. Once
    /// the program has then requested as much again as was in use at the peak, a request gets a free block up to three times as large
    /// instead.
    ///
    /// Pools with segments need no such rule, and ignore it: there free memory serves requests of any size.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, PoolOptions, QueueOrder, Retain};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let pool = PoolOptions::new()
    ///     .segments(false)
    ///     .retain(Retain::new().percent_of_peak(150))
    ///     .build(ImmediateAllocator::new(&backend)?, &queue)?;
    /// drop(pool.allocate(100 << 20)?);
    /// drop(pool.allocate(200 << 20)?); // Both: they are 150 % of the larger.
    /// assert_eq!(pool.managed_bytes(), 300 << 20);
    /// drop(pool.allocate(120 << 20)?);
    /// assert_eq!(pool.managed_bytes(), 220 << 20);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    #[must_use]
    pub const fn percent_of_peak(mut self, percent: u32) -> Self {
        self.percent = percent;
        self
    }

    /// Lets a pool without segments keep everything while it manages at most `bytes` bytes, whatever [the
    /// percentage](Self::percent_of_peak) says. The default is 64 MiB, and with `u64::MAX` the rule releases nothing.
    ///
    /// ```
    /// use binpool::{Backend, ImmediateAllocator, PoolOptions, QueueOrder, Retain};
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
    /// assert!(after_all_sizes(options.retain(Retain::new().at_least(u64::MAX)))? > 2000);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    #[must_use]
    pub const fn at_least(mut self, bytes: u64) -> Self {
        self.least_bytes = bytes;
        self
    }

    /// Sets how many bytes the cache of each thread may always keep, and the pool's bins for each thread. By default that is 8 MiB in a
    /// pool that has had little in use, and 1 MiB once it has had 64 MiB. A program with a high peak may keep more in its caches. Pools without
    /// segments ignore this.
    ///
    /// A hit in a cache takes no lock. What one thread has cached serves others only when memory would run short, so with many threads and little
    /// in use, the caches are much of the pool.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, PoolOptions, QueueOrder, Retain};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let cached = |retain: Retain| {
    ///     let options = PoolOptions::new().retain(retain);
    ///     let pool = options.build(ImmediateAllocator::new(&backend)?, &queue)?;
    ///     for _ in 0..10 {
    ///         drop([(); 32].map(|()| pool.allocate(100_000).unwrap()));
    ///     }
    ///     let statistics = pool.statistics();
    ///     Ok::<u64, binpool::PoolError>(statistics.hits - statistics.carved_hits)
    /// };
    /// assert!(cached(Retain::new())? > 280); // All but the first round.
    /// assert!(cached(Retain::new().per_thread(1 << 20))? < 120); // Ten blocks a round.
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    #[must_use]
    pub const fn per_thread(mut self, bytes: u64) -> Self {
        self.bytes_per_thread = Some(bytes);
        self
    }

    /// The bytes that each thread cache may keep at least, after this many were in use. The bins may keep at least as much for each thread.
    pub(crate) fn bytes_per_thread(self, high_water: u64) -> u64 {
        let by_default = LITTLE.saturating_sub(high_water).clamp(1 << 20, 8 << 20);
        self.bytes_per_thread.unwrap_or(by_default)
    }

    /// Returns whether thread caches may keep less than [that](Self::bytes_per_thread): if much was in use, and the program has not asked for more.
    pub(crate) fn may_cache_less(self, high_water: u64) -> bool {
        self.bytes_per_thread.is_none() && high_water >= LITTLE
    }

    /// The bytes above which free memory is released as soon as no command uses it; `u64::MAX` without such a bound.
    pub(crate) fn release_threshold(self) -> u64 {
        self.most_bytes
    }

    /// The most bytes that a pool of bins is to manage if this many were in use at the peak.
    pub(crate) fn most_in_bins(self, peak_bytes: u64) -> u64 {
        let percent = u64::from(self.percent.max(100));
        let hundredth = peak_bytes / 100;
        let rest = peak_bytes % 100 * percent / 100;
        let part = hundredth.saturating_mul(percent).saturating_add(rest);
        part.max(self.least_bytes)
    }

    /// Returns whether the pool has to see each request.
    pub(crate) fn counts_requests(self) -> bool {
        self.age != Age::default()
    }

    /// Returns what decides when sweeps are due; `None` if free memory is kept for any time.
    pub(crate) fn sweep_clock(self) -> Option<SweepClock> {
        self.counts_requests().then(|| SweepClock {
            age: self.age,
            allocations: 0,
            since: Instant::now(),
            until_reading: 0,
        })
    }
}

impl Default for Retain {
    fn default() -> Self {
        Self::new()
    }
}

/// The number of allocations and frees for each reading of the clock, which takes longer than they do.
const CALLS_PER_CLOCK_READING: u32 = 32;

/// Decides when a sweep is due, which releases what has been free since the sweep before.
#[derive(Debug)]
pub(crate) struct SweepClock {
    age: Age,
    allocations: u64,
    since: Instant,
    /// The number of calls until the clock is read again.
    until_reading: u32,
}

impl SweepClock {
    /// Counts an allocation. Returns whether a sweep is due with it.
    pub(crate) fn allocation(&mut self) -> bool {
        self.allocations += 1;
        let is_due = self
            .age
            .allocations
            .is_some_and(|every| self.allocations >= every);
        (is_due || self.time_is_up()) && self.restart()
    }

    /// Counts a freed block. Returns whether a sweep is due with it.
    pub(crate) fn free(&mut self) -> bool {
        self.time_is_up() && self.restart()
    }

    fn time_is_up(&mut self) -> bool {
        let Some(time) = self.age.time else {
            return false;
        };
        if self.until_reading > 0 {
            self.until_reading -= 1;
            return false;
        }
        self.until_reading = CALLS_PER_CLOCK_READING - 1;
        self.since.elapsed() >= time
    }

    fn restart(&mut self) -> bool {
        self.allocations = 0;
        if self.age.time.is_some() {
            self.since = Instant::now();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns with which of the first hundred calls a sweep is due.
    fn due(retain: Retain, mut call: impl FnMut(&mut SweepClock) -> bool) -> Vec<u32> {
        let mut clock = retain.sweep_clock().unwrap();
        (1..=100).filter(|_| call(&mut clock)).collect()
    }

    #[test]
    fn a_sweep_is_due_after_the_given_number_of_allocations() {
        let every_40 = Retain::new().unused_for_allocations(40);
        assert_eq!(due(every_40, SweepClock::allocation), [40, 80]);
        assert!(due(every_40, SweepClock::free).is_empty());
        let each = due(
            Retain::new().unused_for_allocations(0),
            SweepClock::allocation,
        );
        assert_eq!(each.len(), 100, "0 means 1");
    }

    #[test]
    fn the_clock_is_read_once_in_32_calls() {
        // A time that has always passed.
        let retain = Retain::new().unused_for(Duration::ZERO);
        assert_eq!(due(retain, SweepClock::free), [1, 33, 65, 97]);
        assert_eq!(due(retain, SweepClock::allocation), [1, 33, 65, 97]);
        // A time that never passes.
        let retain = Retain::new().unused_for(Duration::MAX);
        assert!(due(retain, SweepClock::free).is_empty());
        let retain = retain.unused_for_allocations(50);
        assert_eq!(due(retain, SweepClock::allocation), [50, 100]);
    }

    #[test]
    fn a_pool_of_bins_manages_a_part_of_the_peak_and_never_less_than_the_peak() {
        let exact = Retain::new().at_least(0);
        assert_eq!(exact.most_in_bins(0), 0);
        assert_eq!(exact.most_in_bins(1000), 1250);
        assert_eq!(exact.most_in_bins(7), 8);
        assert_eq!(exact.at_least(2000).most_in_bins(1000), 2000);
        assert_eq!(exact.percent_of_peak(0).most_in_bins(1099), 1099);
        for percent in [0, 125, u32::MAX] {
            let retain = Retain::new().percent_of_peak(percent);
            assert!(retain.most_in_bins(1 << 60) >= 1 << 60);
        }
        assert_eq!(Retain::new().at_least(u64::MAX).most_in_bins(1), u64::MAX);
    }
}
