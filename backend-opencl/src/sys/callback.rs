//! Callbacks of events.
//!
//! A callback runs on a thread of the runtime, or at once on the caller where the command has ended already. It takes no
//! lock of this crate and makes no call that waits.

use std::ffi::c_void;

use cl3::event::CL_COMPLETE;

use super::EventHandle;
use super::{ClError, ClResult};

/// Calls `value.ended` once, when `event` has completed or failed.
///
/// The caller's reference keeps the event alive until this returns, also where the callback runs inside it:
/// `PoCL` before version 7 calls it without a reference of its own.
///
/// # Errors
///
/// If the runtime refuses the callback, `value` comes back with the error.
pub(crate) fn when_ended<T: Ended + Send + 'static>(
    event: &EventHandle,
    value: T,
) -> Result<(), (ClError, T)> {
    let data = Box::into_raw(Box::new(value)).cast::<c_void>();
    match set_callback(event, trampoline::<T>, data) {
        Ok(()) => Ok(()),
        Err(error) => {
            // SAFETY: (1) the pointer came from `Box::into_raw` above; (2) the runtime has refused the callback, so nothing
            // else takes the box.
            let value = unsafe { Box::from_raw(data.cast::<T>()) };
            Err((error, *value))
        }
    }
}

/// A value that is told when its command has ended. `ended` must not panic, wait, or take a lock of this crate.
pub(crate) trait Ended {
    /// `event` is live during the call, and borrowed from the runtime; `status` is 0, or negative for a
    /// command that failed.
    fn ended(self, event: *mut c_void, status: i32);
}

fn set_callback(
    event: &EventHandle,
    function: extern "C" fn(*mut c_void, i32, *mut c_void),
    data: *mut c_void,
) -> ClResult<()> {
    cl3::event::set_event_callback(event.raw(), CL_COMPLETE, function, data)
        .map_err(|code| ClError::new("clSetEventCallback", code))
}

extern "C" fn trampoline<T: Ended>(event: *mut c_void, status: i32, data: *mut c_void) {
    // SAFETY: (1) `when_ended` registers this function together with a box of a `T`, so `data` is such a box; (2) the
    // runtime calls a callback once, so nothing else takes the box.
    let value = unsafe { Box::from_raw(data.cast::<T>()) };
    value.ended(event, status);
}
