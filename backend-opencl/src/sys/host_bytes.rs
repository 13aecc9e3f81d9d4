//! Bytes of the host that the device writes to while the program goes on.

use std::{
    alloc::{Layout, alloc_zeroed},
    ptr::NonNull,
};

use binpool_allocators::{OutOfMemory, Scope};
use parking_lot::Mutex;

/// Bytes that a command writes to. The command's event, which only keeps them, and the pending read, which takes them after
/// the command has completed, share them.
#[derive(Debug)]
pub(crate) struct HostBytes {
    /// The start of the vector's bytes, which do not move while the vector is held.
    start: NonNull<u8>,
    length: usize,
    bytes: Mutex<Vec<u8>>,
}

// SAFETY: Only the runtime uses `start`, and only until the command ends. The vector, which `Mutex` guards, is taken after
// that.
unsafe impl Send for HostBytes {}
// SAFETY: As for `Send`.
unsafe impl Sync for HostBytes {}

impl HostBytes {
    /// Returns zeroed bytes, so a command that fails cannot make uninitialised memory visible.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] of the host.
    pub(crate) fn new(length: usize) -> Result<Self, OutOfMemory> {
        let mut bytes = zeroed(length).ok_or_else(|| OutOfMemory::new(length, Scope::Host))?;
        // A vector's pointer is never null.
        let start = NonNull::new(bytes.as_mut_ptr()).unwrap_or(NonNull::dangling());
        Ok(Self {
            start,
            length,
            bytes: Mutex::new(bytes),
        })
    }

    /// Takes the bytes. The caller has waited for the command.
    pub(crate) fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.bytes.lock())
    }

    pub(super) const fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(super) const fn length(&self) -> usize {
        self.length
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_zeroed_and_stay_where_the_device_was_told() {
        let bytes = HostBytes::new(3).unwrap();
        assert_eq!(
            (bytes.start().cast_const(), bytes.length()),
            (bytes.bytes.lock().as_ptr(), 3)
        );
        assert_eq!(bytes.take(), [0; 3]);
        assert_eq!(HostBytes::new(0).unwrap().take(), [0; 0]);
    }

    #[test]
    fn more_than_the_host_has_is_an_error_of_the_host() {
        for length in [usize::MAX, isize::MAX.unsigned_abs()] {
            let error = HostBytes::new(length).unwrap_err();
            assert_eq!((error.requested, error.scope), (length, Scope::Host));
        }
    }
}
