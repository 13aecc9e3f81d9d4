//! A mutex whose waiting threads spin before they sleep.
//!
//! For pools and their arenas, which hold a lock for a few hundred nanoseconds.

use std::hint::spin_loop;

use parking_lot::{Mutex, MutexGuard};

/// How many times a thread tests the lock before it sleeps: a few microseconds. Sleeping and waking up takes longer than that, and longer
/// still with many threads.
///
/// Once is enough under `shuttle` and Miri, where no time passes.
const LOOKS_BEFORE_SLEEP: u32 = if cfg!(any(shuttle, miri)) { 1 } else { 256 };

/// The guard of a [`Lock`].
pub type LockGuard<'a, T> = MutexGuard<'a, T>;

/// A mutex whose waiting threads spin for a few microseconds before they sleep.
#[derive(Debug)]
pub struct Lock<T>(Mutex<T>);

impl<T> Lock<T> {
    /// Creates a lock that guards `value`.
    pub fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Waits until no other thread has the lock, and takes it.
    #[inline]
    pub fn lock(&self) -> LockGuard<'_, T> {
        self.0.try_lock().unwrap_or_else(|| self.lock_slowly())
    }

    #[cold]
    fn lock_slowly(&self) -> LockGuard<'_, T> {
        for _ in 0..LOOKS_BEFORE_SLEEP {
            if !self.0.is_locked()
                && let Some(guard) = self.0.try_lock()
            {
                return guard;
            }
            spin_loop();
        }
        self.0.lock()
    }
}
