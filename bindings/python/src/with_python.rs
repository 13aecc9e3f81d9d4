//! Values that Python's lock guards.

#![expect(unsafe_code, reason = "the compiler does not know of Python's lock")]

use std::cell::RefCell;

use pyo3::prelude::*;

/// A value that is read and changed by threads that have Python's lock, and needs no lock of its own: for what each request does, where a
/// lock costs more than the work.
pub(crate) struct WithPython<T>(RefCell<T>);

// SAFETY: `with` alone reaches the value, with a token that says that this thread has Python's lock. The module is not imported where Python
// runs without that lock ([`lib`](crate)). A thread that releases the lock during the work leaves the cell borrowed, so that others get nothing.
unsafe impl<T: Send> Sync for WithPython<T> {}

impl<T> WithPython<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(RefCell::new(value))
    }

    /// Calls `work` with the value; `None` within another such call. `work` calls no code of Python's, and drops none of its objects.
    pub(crate) fn with<R>(&self, _py: Python<'_>, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.0
            .try_borrow_mut()
            .ok()
            .map(|mut value| work(&mut value))
    }
}
