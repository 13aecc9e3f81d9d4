//! A program's own vector that the device works on.

use std::{fmt, ptr::NonNull};

use parking_lot::Mutex;

/// A vector for commands to read or write. The host reaches its elements only by taking them, after the commands have
/// ended.
pub(crate) struct HostVec<T> {
    start: NonNull<u8>,
    bytes: usize,
    elements: Mutex<Option<Vec<T>>>,
}

// SAFETY: Only the runtime uses `start`, and only until the command ends. The vector, which `Mutex` guards, is taken after
// that.
unsafe impl<T: Send> Send for HostVec<T> {}
// SAFETY: As for `Send`.
unsafe impl<T: Send> Sync for HostVec<T> {}

impl<T> HostVec<T> {
    pub(crate) fn new(mut elements: Vec<T>) -> Self {
        // A vector's pointer is never null.
        let start = NonNull::new(elements.as_mut_ptr()).unwrap_or(NonNull::dangling());
        Self {
            start: start.cast(),
            bytes: size_of_val(elements.as_slice()),
            elements: Mutex::new(Some(elements)),
        }
    }

    /// Takes the vector. The caller has waited for the command. A second call returns an empty vector.
    pub(crate) fn take(&self) -> Vec<T> {
        self.elements.lock().take().unwrap_or_default()
    }

    pub(super) const fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }
}

impl<T> fmt::Debug for HostVec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostVec({:p}, {} bytes)", self.start, self.bytes)
    }
}
