//! The pool's lock.

use std::hint::spin_loop;

use parking_lot::{Mutex, MutexGuard};

/// How often a thread looks whether the lock is free before it sleeps: a few microseconds, while the lock is held for a
/// few hundred nanoseconds. Waking a thread takes longer than what it waited for, and the more so the more of them wait.
///
/// Under `shuttle` no time passes, and once is as good as often.
const LOOKS: u32 = if cfg!(shuttle) { 1 } else { 256 };

/// A mutex that is waited for awake at first.
#[derive(Debug)]
pub(crate) struct Lock<T>(Mutex<T>);

impl<T> Lock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.try_lock().unwrap_or_else(|| self.lock_slowly())
    }

    #[cold]
    fn lock_slowly(&self) -> MutexGuard<'_, T> {
        for _ in 0..LOOKS {
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
