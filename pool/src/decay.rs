//! Decay: free memory that no request needs is released by itself.

use std::time::{Duration, Instant};

/// When free memory is released by itself. A sweep releases the memory that has been free since the sweep before. Sweeps come
/// after a number of allocations or after a time, whichever is first.
///
/// The pool reads the clock when blocks are allocated and dropped, and needs no thread of its own for that. A program that does
/// neither for a while calls [`sweep`](crate::MemoryPool::sweep), or has a thread do so with
/// [`sweep_in_background`](crate::MemoryPool::sweep_in_background).
///
/// ```
/// use binpool::{Backend, Decay, ImmediateAllocator, PoolOptions, QueueOrder};
/// use binpool_mock::MockDevice;
///
/// let backend = MockDevice::new().backend();
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let pool = PoolOptions::new()
///     .decay(Decay::after_allocations(100))
///     .build(ImmediateAllocator::new(&backend)?, &queue)?;
/// drop(pool.allocate(64 << 20)?);
/// assert_eq!(pool.managed_bytes(), 64 << 20);
/// for _ in 0..200 {
///     drop(pool.allocate(4096)?);
/// }
/// assert!(pool.managed_bytes() < 64 << 20);
/// # Ok::<(), binpool::PoolError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decay {
    allocations: Option<u64>,
    time: Option<Duration>,
}

impl Decay {
    /// Sweeps each time after this many allocations; 0 means 1.
    #[must_use]
    pub const fn after_allocations(allocations: u64) -> Self {
        Self {
            allocations: Some(allocations),
            time: None,
        }
    }

    /// Sweeps each time after this much time.
    #[must_use]
    pub const fn after(time: Duration) -> Self {
        Self {
            allocations: None,
            time: Some(time),
        }
    }

    /// Sweeps also after this many allocations.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, PoolOptions, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// use std::time::Duration;
    ///
    /// use binpool::Decay;
    ///
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// // Every minute, and sooner while the program is busy and may need that memory for other sizes.
    /// let decay = Decay::after(Duration::from_secs(60)).or_after_allocations(100);
    /// let pool = PoolOptions::new()
    ///     .decay(decay)
    ///     .build(ImmediateAllocator::new(&backend)?, &queue)?;
    /// drop(pool.allocate(64 << 20)?);
    /// for _ in 0..200 {
    ///     drop(pool.allocate(4096)?);
    /// }
    /// assert_eq!(pool.statistics().released_blocks, 1);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    #[must_use]
    pub const fn or_after_allocations(mut self, allocations: u64) -> Self {
        self.allocations = Some(allocations);
        self
    }
}

/// The number of allocations and frees for each reading of the clock, which takes longer than they do.
const CALLS_PER_CLOCK_READING: u32 = 32;

/// Decides when a sweep is due.
#[derive(Debug)]
pub(crate) struct DecayClock {
    decay: Decay,
    allocations: u64,
    since: Instant,
    /// The number of calls until the clock is read again.
    until_reading: u32,
}

impl DecayClock {
    pub(crate) fn new(decay: Decay) -> Self {
        Self {
            decay,
            allocations: 0,
            since: Instant::now(),
            until_reading: 0,
        }
    }

    /// Counts an allocation. Returns whether a sweep is due with it.
    pub(crate) fn allocation(&mut self) -> bool {
        self.allocations += 1;
        let is_due = self
            .decay
            .allocations
            .is_some_and(|every| self.allocations >= every);
        (is_due || self.time_is_up()) && self.restart()
    }

    /// Counts a freed block. Returns whether a sweep is due with it.
    pub(crate) fn free(&mut self) -> bool {
        self.time_is_up() && self.restart()
    }

    fn time_is_up(&mut self) -> bool {
        let Some(time) = self.decay.time else {
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
        if self.decay.time.is_some() {
            self.since = Instant::now();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns with which of the first hundred calls a sweep is due.
    fn due(decay: Decay, mut call: impl FnMut(&mut DecayClock) -> bool) -> Vec<u32> {
        let mut clock = DecayClock::new(decay);
        (1..=100).filter(|_| call(&mut clock)).collect()
    }

    #[test]
    fn a_sweep_is_due_after_the_given_number_of_allocations() {
        let decay = Decay::after_allocations(40);
        assert_eq!(due(decay, DecayClock::allocation), [40, 80]);
        assert!(due(decay, DecayClock::free).is_empty());
        let each = due(Decay::after_allocations(0), DecayClock::allocation);
        assert_eq!(each.len(), 100, "0 means 1");
    }

    #[test]
    fn the_clock_is_read_once_in_32_calls() {
        // A time that has always passed.
        let decay = Decay::after(Duration::ZERO);
        assert_eq!(due(decay, DecayClock::free), [1, 33, 65, 97]);
        assert_eq!(due(decay, DecayClock::allocation), [1, 33, 65, 97]);
        // A time that never passes.
        let decay = Decay::after(Duration::MAX);
        assert!(due(decay, DecayClock::free).is_empty());
        let decay = decay.or_after_allocations(50);
        assert_eq!(due(decay, DecayClock::allocation), [50, 100]);
    }
}
