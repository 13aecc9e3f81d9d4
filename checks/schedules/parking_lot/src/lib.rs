//! What binpool uses of `parking_lot`, made of `shuttle`: each call is a place where another thread may go on.
//!
//! Like the real one, and unlike `shuttle-parking_lot`, a mutex that is unlocked goes to the thread that runs first, not to the one
//! that has waited the longest. And there is a condition variable.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex as Plain, PoisonError},
    time::Duration,
};

use lock_api::GuardNoSend;
use shuttle::future::batch_semaphore::{BatchSemaphore, Fairness};

/// A mutual exclusion lock.
pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;

/// The right to what a [`Mutex`] guards.
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;

/// One permit, which the owner of the lock has.
#[derive(Debug)]
pub struct RawMutex(BatchSemaphore);

// SAFETY: there is one permit, and `unlock` is called by who has it.
unsafe impl lock_api::RawMutex for RawMutex {
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "`lock_api` wants it so"
    )]
    const INIT: Self = Self(BatchSemaphore::const_new(1, Fairness::Unfair));

    type GuardMarker = GuardNoSend;

    fn lock(&self) {
        let acquired = self.0.acquire_blocking(1);
        assert!(
            acquired.is_ok() || std::thread::panicking(),
            "a schedule that has failed closes all locks"
        );
    }

    fn try_lock(&self) -> bool {
        self.0.try_acquire(1).is_ok()
    }

    unsafe fn unlock(&self) {
        self.0.release(1);
    }

    fn is_locked(&self) -> bool {
        self.0.available_permits() == 0
    }
}

/// Lets threads wait for each other. None wakes without reason, as with the real one.
#[derive(Debug, Default)]
pub struct Condvar {
    /// Each with a permit to come.
    waiting: Plain<VecDeque<Arc<BatchSemaphore>>>,
}

impl Condvar {
    /// No thread waits.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Releases the lock and waits until a thread notifies this, in one step.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let turn = Arc::new(BatchSemaphore::new(0, Fairness::Unfair));
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push_back(Arc::clone(&turn));
        drop(waiting);
        MutexGuard::unlocked(guard, || {
            let came = turn.acquire_blocking(1);
            assert!(came.is_ok() || std::thread::panicking());
        });
    }

    /// The same, for no longer than some time. `shuttle` knows no time, so that it may be over at once.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _: Duration) {
        MutexGuard::unlocked(guard, shuttle::thread::yield_now);
    }

    /// Wakes who has waited the longest.
    pub fn notify_one(&self) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let first = waiting.pop_front();
        drop(waiting);
        if let Some(turn) = first {
            turn.release(1);
        }
    }

    /// Wakes all who wait now.
    pub fn notify_all(&self) {
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        for turn in waiting {
            turn.release(1);
        }
    }
}
