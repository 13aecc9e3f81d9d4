//! Atomics, threads and channels: those of the standard library; in tests of schedules those of `loom`, which tries all schedules
//! of the [biased lock](crate::biased) and the clock of the pool, or of `shuttle`, which tries many schedules of
//! whole pools.

#[cfg(loom)]
use loom as library;
#[cfg(loom)]
pub use loom::cell::UnsafeCell;
#[cfg(shuttle)]
use shuttle as library;
#[cfg(not(any(loom, shuttle)))]
use std as library;

pub use library::{
    hint::spin_loop,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering, fence},
    },
    thread::yield_now,
};
#[cfg(shuttle)]
pub use shuttle::{
    sync::mpsc::{Receiver, Sender, channel},
    thread::{Builder, JoinHandle, ThreadId, current},
    thread_local,
};
#[cfg(not(shuttle))]
pub use std::{
    sync::mpsc::{Receiver, Sender, channel},
    thread::{Builder, JoinHandle, ThreadId, current},
    thread_local,
};

/// Waits for a thread of the process with this number, and returns its result; `None` if it is this thread, which would wait for itself, or in a
/// child of a fork, which lacks its parent's threads.
pub fn join<T>(thread: JoinHandle<T>, process: u32) -> Option<std::thread::Result<T>> {
    if process != std::process::id() {
        // A drop would detach what is not there.
        std::mem::forget(thread);
        return None;
    }
    (thread.thread().id() != current().id()).then(|| thread.join())
}

/// Waits for the other end of a channel to close, at most for `time`. Returns whether it is still open then.
#[cfg(not(shuttle))]
pub fn is_open_after(channel: &Receiver<()>, time: std::time::Duration) -> bool {
    channel.recv_timeout(time) == Err(std::sync::mpsc::RecvTimeoutError::Timeout)
}

/// Returns at once whether the channel is open: `shuttle` has no time, so any time may have passed.
#[cfg(shuttle)]
pub fn is_open_after(channel: &Receiver<()>, _: std::time::Duration) -> bool {
    yield_now();
    channel.try_recv() == Err(shuttle::sync::mpsc::TryRecvError::Empty)
}

/// The standard library's cell with the interface of `loom`'s. It panics on two visits at the same time, as `loom`'s does.
#[cfg(shuttle)]
#[derive(Debug)]
pub struct UnsafeCell<T> {
    value: std::cell::UnsafeCell<T>,
    is_visited: library::sync::atomic::AtomicBool,
}

#[cfg(shuttle)]
impl<T> UnsafeCell<T> {
    /// Wraps a value.
    pub fn new(value: T) -> Self {
        Self {
            value: std::cell::UnsafeCell::new(value),
            is_visited: library::sync::atomic::AtomicBool::new(false),
        }
    }

    /// Calls `visit` with the address of the value.
    ///
    /// # Panics
    ///
    /// During another visit.
    pub fn with_mut<R>(&self, visit: impl FnOnce(*mut T) -> R) -> R {
        let is_visited = self.is_visited.swap(true, Ordering::SeqCst);
        assert!(!is_visited, "two visits at the same time");
        let result = visit(self.value.get());
        self.is_visited.store(false, Ordering::SeqCst);
        result
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

/// The standard library's cell with the interface of `loom`'s.
#[cfg(not(any(loom, shuttle)))]
#[derive(Debug)]
pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(any(loom, shuttle)))]
impl<T> UnsafeCell<T> {
    /// Wraps a value.
    pub fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// Calls `visit` with the address of the value.
    #[inline]
    pub fn with_mut<R>(&self, visit: impl FnOnce(*mut T) -> R) -> R {
        visit(self.0.get())
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}
