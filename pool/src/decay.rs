//! Free memory that nobody asks for goes back by itself.

use std::time::{Duration, Instant};

/// When free memory goes back to the allocator by itself: what has been free since the sweep before goes back with the
/// next one, and sweeps come after so many allocations, or so much time, whichever is first.
///
/// The pool looks at the clock in allocations and releases of blocks, and needs no thread of its own for that; a program
/// that does neither for a while calls [`sweep`](crate::MemoryPool::sweep), or has a thread do so with
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
    /// A sweep after every so many allocations; 0 is taken for 1.
    #[must_use]
    pub const fn after_allocations(allocations: u64) -> Self {
        Self {
            allocations: Some(allocations),
            time: None,
        }
    }

    /// A sweep after every so much time.
    #[must_use]
    pub const fn after(time: Duration) -> Self {
        Self {
            allocations: None,
            time: Some(time),
        }
    }

    /// The same, and a sweep after every so many allocations, too.
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
    /// // Every minute; and sooner where the program is busy, and may want that memory for other sizes.
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

/// How many allocations and releases pass between two looks at the clock, which cost more than they do.
const LOOK_EVERY: u32 = 32;

/// Tells when a sweep is due.
#[derive(Debug)]
pub(crate) struct DecayClock {
    decay: Decay,
    allocations: u64,
    since: Instant,
    until_look: u32,
}

impl DecayClock {
    pub(crate) fn new(decay: Decay) -> Self {
        Self {
            decay,
            allocations: 0,
            since: Instant::now(),
            until_look: 0,
        }
    }

    /// Whether a sweep is due with this allocation.
    pub(crate) fn allocation(&mut self) -> bool {
        self.allocations += 1;
        let is_due = self
            .decay
            .allocations
            .is_some_and(|every| self.allocations >= every);
        (is_due || self.time_is_up()) && self.restart()
    }

    /// Whether a sweep is due with this release.
    pub(crate) fn release(&mut self) -> bool {
        self.time_is_up() && self.restart()
    }

    fn time_is_up(&mut self) -> bool {
        let Some(time) = self.decay.time else {
            return false;
        };
        if self.until_look > 0 {
            self.until_look -= 1;
            return false;
        }
        self.until_look = LOOK_EVERY - 1;
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

    /// Which of the first hundred calls a sweep is due with.
    fn due(decay: Decay, mut call: impl FnMut(&mut DecayClock) -> bool) -> Vec<u32> {
        let mut clock = DecayClock::new(decay);
        (1..=100).filter(|_| call(&mut clock)).collect()
    }

    #[test]
    fn a_sweep_is_due_after_so_many_allocations() {
        let decay = Decay::after_allocations(40);
        assert_eq!(due(decay, DecayClock::allocation), [40, 80]);
        assert!(due(decay, DecayClock::release).is_empty());
        let each = due(Decay::after_allocations(0), DecayClock::allocation);
        assert_eq!(each.len(), 100, "0 is taken for 1");
    }

    #[test]
    fn the_clock_is_looked_at_now_and_then() {
        // Time that is always up.
        let decay = Decay::after(Duration::ZERO);
        assert_eq!(due(decay, DecayClock::release), [1, 33, 65, 97]);
        assert_eq!(due(decay, DecayClock::allocation), [1, 33, 65, 97]);
        // Time that is never up.
        let decay = Decay::after(Duration::MAX);
        assert!(due(decay, DecayClock::release).is_empty());
        let decay = decay.or_after_allocations(50);
        assert_eq!(due(decay, DecayClock::allocation), [50, 100]);
    }
}
