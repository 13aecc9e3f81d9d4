//! What the [biased lock](crate::biased) is made of: the standard library's, or `loom`'s, which tries every schedule.

#[cfg(loom)]
use loom as library;
#[cfg(loom)]
pub(crate) use loom::cell::UnsafeCell;
#[cfg(not(loom))]
use std as library;

pub(crate) use library::{
    hint::spin_loop,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering, fence},
    },
    thread::yield_now,
};

/// The standard library's, in the shape of `loom`'s.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    #[inline]
    pub(crate) fn with_mut<R>(&self, visit: impl FnOnce(*mut T) -> R) -> R {
        visit(self.0.get())
    }

    pub(crate) fn into_inner(self) -> T {
        self.0.into_inner()
    }
}
