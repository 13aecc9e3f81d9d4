//! Bytes that several allocators share.

use std::{collections::VecDeque, fmt, sync::Arc};

use parking_lot::{Mutex, MutexGuard};

use crate::{Error, OutOfMemory, Scope, contained::contained, words};

/// A limit in bytes for one [`Limit`](crate::adaptors::Limit) adaptor, or for several together.
///
/// A budget is a cheap handle: clones are the same budget, and all methods may be called from any thread.
///
/// ```
/// use binpool_allocators::adaptors::{Budget, Limit};
/// use binpool_allocators::{Allocator, DeferredAllocator};
/// use binpool_mock::MockDevice;
///
/// let budget = Budget::new(10_000);
/// budget.on_soft_limit(5_000, |budget| println!("{} bytes are left", budget.available_bytes));
/// let [one, two] = [(); 2].map(|()| {
///     let backend = MockDevice::new().backend();
///     Limit::shared(DeferredAllocator::new(&backend), &budget)
/// });
/// let block = one.allocate(6_000)?; // Says how many are left.
/// assert!(two.allocate(6_000).unwrap_err().is_out_of_memory());
/// one.release(block, &[])?;
/// assert!(two.allocate(6_000).is_ok());
/// assert_eq!(budget.peak_bytes(), 6_000);
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone)]
pub struct Budget {
    state: Arc<Mutex<State>>,
}

/// How a [`Budget`] is used at one moment. All sizes in bytes.
///
/// ```
/// use std::sync::mpsc;
///
/// use binpool_allocators::adaptors::{Budget, Limit};
/// use binpool_allocators::{Allocator, ImmediateAllocator};
/// # use binpool_mock::MockDevice;
///
/// # let backend = MockDevice::new().backend();
/// let budget = Budget::new(10_000);
/// let (tell, told) = mpsc::channel();
/// budget.on_soft_limit(7_500, move |usage| tell.send(*usage).unwrap_or_default());
/// let allocator = Limit::shared(ImmediateAllocator::new(&backend)?, &budget);
/// let block = allocator.allocate(8_000)?;
/// let usage = told.recv()?;
/// assert_eq!(usage.used_bytes * 100 / usage.max_bytes, 80); // Percent, for a gauge.
/// assert_eq!((usage.available_bytes, usage.peak_bytes), (2_000, 8_000));
/// # allocator.release(block, &[])?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BudgetUse {
    /// The limit.
    pub max_bytes: u64,
    /// The bytes of the blocks that are allocated.
    pub used_bytes: u64,
    /// The bytes that can still be taken.
    pub available_bytes: u64,
    /// The most bytes that were used at once.
    pub peak_bytes: u64,
}

/// The counters of a budget. `used + promised` never overflows: a promise is made only where the sum stays within `max`.
#[derive(Default)]
struct State {
    max: u64,
    /// The bytes of the blocks that are allocated, or are leaving.
    used: u64,
    leaving: VecDeque<Arc<Leaving>>,
    /// The bytes requested by calls that have not returned.
    promised: u64,
    peak: u64,
    soft_limits: Vec<Arc<SoftLimit>>,
}

/// The bytes of a released block that commands may still use, so that the device has no room for another, and whether they have ended.
type Leaving = (u64, Box<dyn Fn() -> bool + Send + Sync>);

struct SoftLimit {
    bytes: u64,
    callback: Box<dyn Fn(&BudgetUse) + Send + Sync>,
}

impl State {
    const fn available(&self) -> u64 {
        let free = self.max.saturating_sub(self.used);
        free.saturating_sub(self.promised)
    }

    const fn usage(&self) -> BudgetUse {
        BudgetUse {
            max_bytes: self.max,
            used_bytes: self.used,
            available_bytes: self.available(),
            peak_bytes: self.peak,
        }
    }
}

impl Budget {
    /// A budget of at most `max_bytes` at once. With `u64::MAX` it only counts.
    #[must_use]
    pub fn new(max_bytes: u64) -> Self {
        Self {
            state: Arc::new(Mutex::new(State {
                max: max_bytes,
                ..State::default()
            })),
        }
    }

    /// Returns the most bytes that may be taken at once.
    #[must_use]
    pub fn max_bytes(&self) -> u64 {
        self.state.lock().max
    }

    /// Sets the limit to `max_bytes`. Allocated blocks stay: while they exceed the new limit, every allocation is refused.
    ///
    /// ```
    /// use binpool_allocators::adaptors::Limit;
    /// use binpool_allocators::{Allocator, ImmediateAllocator};
    /// # use binpool_mock::MockDevice;
    ///
    /// # let backend = MockDevice::new().backend();
    /// let allocator = Limit::new(ImmediateAllocator::new(&backend)?, 10_000);
    /// let block = allocator.allocate(8_000)?;
    /// let budget = allocator.budget();
    /// budget.set_max_bytes(5_000); // Another program needs the device.
    /// assert_eq!((budget.max_bytes(), budget.used_bytes(), budget.available_bytes()), (5_000, 8_000, 0));
    /// allocator.release(block, &[])?;
    /// let usage = budget.usage(); // All figures at one moment.
    /// assert_eq!((usage.available_bytes, usage.peak_bytes), (5_000, 8_000));
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    pub fn set_max_bytes(&self, max_bytes: u64) {
        self.state.lock().max = max_bytes;
    }

    /// Returns the bytes of the blocks that are allocated, or released and still used by commands.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.settled().used
    }

    /// Returns the bytes that can still be taken. Bytes that a call on another thread is requesting do not count as available.
    #[must_use]
    pub fn available_bytes(&self) -> u64 {
        self.settled().available()
    }

    /// Returns the most bytes that were used at once.
    #[must_use]
    pub fn peak_bytes(&self) -> u64 {
        self.state.lock().peak
    }

    /// Returns all of these figures at one moment.
    #[must_use]
    pub fn usage(&self) -> BudgetUse {
        self.settled().usage()
    }

    /// Calls `callback` each time the bytes in use rise from at most `soft_bytes` to more than that, so that a program can drop
    /// its caches before an allocation fails. A budget takes any number of callbacks and keeps them until its last clone is
    /// dropped. A callback that holds a clone of the budget, or a pool over it, keeps the budget alive forever.
    ///
    /// The callback runs on the thread whose allocation crossed the limit, before that call returns and without any lock:
    /// it may allocate and release, and several threads may run it at once. A panic in it is caught and logged.
    pub fn on_soft_limit(
        &self,
        soft_bytes: u64,
        callback: impl Fn(&BudgetUse) + Send + Sync + 'static,
    ) {
        let soft_limit = SoftLimit {
            bytes: soft_bytes,
            callback: Box::new(callback),
        };
        self.state.lock().soft_limits.push(Arc::new(soft_limit));
    }

    /// Reserves `bytes` bytes for a block that is about to be requested.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`](Error::OutOfMemory) of [`Scope::Limit`].
    pub(crate) fn promise(&self, bytes: usize) -> Result<Promise<'_>, Error> {
        let mut state = self.state.lock();
        if bytes as u64 > state.available() {
            drop(state);
            state = self.settled();
        }
        let available = state.available();
        if bytes as u64 > available {
            return Err(refusal(bytes, available));
        }
        state.promised += bytes as u64;
        let (budget, bytes) = (self, bytes as u64);
        Ok(Promise { budget, bytes })
    }

    /// Counts all blocks that have left by now, and returns the state.
    fn settled(&self) -> MutexGuard<'_, State> {
        self.settle(usize::MAX);
        self.state.lock()
    }

    /// Counts the blocks that have left by now, of this many that were not looked at for the longest time. The device is asked without a lock.
    fn settle(&self, most: usize) {
        let mut looked_at = {
            let leaving = &mut self.state.lock().leaving;
            let count = leaving.len().min(most);
            leaving.rotate_left(count);
            let last = leaving.iter().rev().take(count);
            last.cloned().collect::<Vec<_>>()
        };
        looked_at.retain(|it| contained("Event::status", || it.1()) == Some(true));
        for it in looked_at {
            let mut state = self.state.lock();
            // Another thread may have counted it.
            let place = state
                .leaving
                .iter()
                .rposition(|other| Arc::ptr_eq(&it, other));
            // Its events are dropped after the lock, by the other clone of it.
            if place
                .and_then(|place| state.leaving.remove(place))
                .is_some()
            {
                state.used = state.used.saturating_sub(it.0);
            }
        }
    }

    /// Returns a guard for a block of `bytes` bytes that is being released. Dropping the guard makes the bytes available.
    pub(crate) fn give_back_after(&self, bytes: usize) -> Return<'_> {
        let (budget, bytes) = (self, bytes as u64);
        Return { budget, bytes }
    }
}

fn refusal(bytes: usize, available: u64) -> Error {
    OutOfMemory::new(bytes, Scope::Limit)
        .with_available(available)
        .into()
}

/// Bytes reserved for a block. Dropping it frees the reservation, so that a call that fails takes nothing.
#[derive(Debug)]
pub(crate) struct Promise<'b> {
    budget: &'b Budget,
    bytes: u64,
}

impl Promise<'_> {
    /// Turns the reservation into a block of `given` bytes, which may be more than were reserved.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`](Error::OutOfMemory) of [`Scope::Limit`] where too few bytes are available. The reservation stays.
    pub(crate) fn keep(&mut self, given: usize) -> Result<(), Error> {
        let (usage, crossed) = {
            let mut state = self.budget.state.lock();
            let extra = (given as u64).saturating_sub(self.bytes);
            let available = state.available();
            // The reserved bytes stay reserved, even if the limit has been lowered since.
            if extra > available {
                return Err(refusal(given, available.saturating_add(self.bytes)));
            }
            state.promised = state.promised.saturating_sub(self.bytes);
            self.bytes = 0;
            let before = state.used;
            state.used += given as u64;
            state.peak = state.peak.max(state.used);
            let used = state.used;
            let crossed = state.soft_limits.iter().filter(|soft_limit| {
                let bytes = soft_limit.bytes;
                before <= bytes && bytes < used
            });
            (state.usage(), crossed.cloned().collect::<Vec<_>>())
        };
        for soft_limit in crossed {
            let bytes = soft_limit.bytes;
            let what = format!("the callback of the soft limit of {bytes} bytes");
            contained(what, || (soft_limit.callback)(&usage));
        }
        Ok(())
    }
}

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            let mut state = self.budget.state.lock();
            state.promised = state.promised.saturating_sub(self.bytes);
        }
    }
}

/// A block that is being released to the allocator. Its bytes count as used until this is dropped.
#[derive(Debug)]
pub(crate) struct Return<'b> {
    budget: &'b Budget,
    bytes: u64,
}

impl Return<'_> {
    /// Has the bytes count until `has_left` returns true, if the budget has a limit.
    pub(crate) fn wait_until(mut self, has_left: impl Fn() -> bool + Send + Sync + 'static) {
        // Two for each that comes: those that have left do not gather, nor do their events.
        self.budget.settle(2);
        let mut state = self.budget.state.lock();
        if state.max < u64::MAX {
            let leaving: Leaving = (std::mem::take(&mut self.bytes), Box::new(has_left));
            state.leaving.push_back(Arc::new(leaving));
        }
    }
}

impl Drop for Return<'_> {
    fn drop(&mut self) {
        let mut state = self.budget.state.lock();
        // A block that was not counted must not make the counter wrap.
        state.used = state.used.saturating_sub(self.bytes);
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (usage, soft_limits) = {
            let state = self.state.lock();
            (state.usage(), state.soft_limits.len())
        };
        let bytes = words::bytes;
        f.debug_struct("Budget")
            .field("used", &format_args!("{}", bytes(usage.used_bytes)))
            .field("max", &format_args!("{}", bytes(usage.max_bytes)))
            .field("soft_limits", &soft_limits)
            .finish()
    }
}
