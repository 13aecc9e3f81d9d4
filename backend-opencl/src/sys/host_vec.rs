//! A vector of the host that the device works on.

use std::{
    alloc::{Layout, alloc_zeroed},
    fmt,
    ptr::NonNull,
};

use binpool_allocators::{OutOfMemory, Scope};
use parking_lot::Mutex;

/// A vector for commands to read or write. The host reaches its elements only by taking them, after the commands have
/// ended.
pub(crate) struct HostVec<T> {
    /// The start of the vector's bytes, which do not move while the vector is held.
    start: NonNull<u8>,
    bytes: usize,
    elements: Mutex<Vec<T>>,
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
            elements: Mutex::new(elements),
        }
    }

    /// Takes the vector. The caller has waited for the command. A second call returns an empty vector.
    pub(crate) fn take(&self) -> Vec<T> {
        std::mem::take(&mut *self.elements.lock())
    }

    pub(super) const fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }
}

impl HostVec<u8> {
    /// Returns zeroed bytes, so a command that fails cannot make uninitialised memory visible.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] of the host.
    pub(crate) fn zeroed(length: usize) -> Result<Self, OutOfMemory> {
        let bytes = zeroed(length).ok_or_else(|| OutOfMemory::new(length, Scope::Host))?;
        Ok(Self::new(bytes))
    }
}

/// Returns `length` zeroed bytes, or `None` if there is no memory. The operating system gives large allocations their
/// memory only when they are touched.
fn zeroed(length: usize) -> Option<Vec<u8>> {
    if length == 0 {
        return Some(Vec::new());
    }
    let layout = Layout::array::<u8>(length).ok()?;
    // SAFETY: The size of the layout is not 0.
    let start = unsafe { alloc_zeroed(layout) };
    if start.is_null() {
        return None;
    }
    let capacity = length;
    // SAFETY: (1) `start` comes from the global allocator with the layout of `length` bytes of alignment 1;
    // (2) all of them are initialised, to 0.
    Some(unsafe { Vec::from_raw_parts(start, length, capacity) })
}

impl<T> fmt::Debug for HostVec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostVec({:p}, {} bytes)", self.start, self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_zeroed_and_stay_where_the_device_was_told() {
        let bytes = HostVec::zeroed(3).unwrap();
        assert_eq!(
            (bytes.start().cast_const(), bytes.bytes()),
            (bytes.elements.lock().as_ptr(), 3)
        );
        assert_eq!(bytes.take(), [0; 3]);
        assert_eq!(HostVec::zeroed(0).unwrap().take(), [0; 0]);
    }

    #[test]
    fn more_than_the_host_has_is_an_error_of_the_host() {
        for length in [usize::MAX, isize::MAX.unsigned_abs()] {
            let error = HostVec::zeroed(length).unwrap_err();
            assert_eq!((error.requested, error.scope), (length, Scope::Host));
        }
    }
}
