//! A closure that the runtime calls once an event has ended.
//!
//! A callback runs on a thread of the runtime, or at once on the caller where the command has ended already. It takes no
//! lock of this crate and makes no call that waits.

use std::ffi::c_void;

use cl3::event::CL_COMPLETE;

use super::{ClError, ClResult, EventHandle};

/// Calls `call` once, when `event` has completed, with 0, or has failed, with a negative code. It must not panic, wait, or take a lock of
/// this crate.
///
/// The caller's reference keeps the event alive until this returns, also where the callback runs inside it:
/// `PoCL` before version 7 calls it without a reference of its own.
///
/// # Errors
///
/// If the runtime refuses the callback. `call` is dropped then.
pub(crate) fn when_ended<F: FnOnce(i32) + Send + 'static>(
    event: &EventHandle,
    call: F,
) -> ClResult<()> {
    let data = Box::into_raw(Box::new(call)).cast::<c_void>();
    let set = cl3::event::set_event_callback(event.raw(), CL_COMPLETE, trampoline::<F>, data);
    set.map_err(|code| {
        // SAFETY: (1) the pointer came from `Box::into_raw` above; (2) the runtime has refused the callback, so nothing else
        // takes the box.
        drop(unsafe { Box::from_raw(data.cast::<F>()) });
        ClError::new("clSetEventCallback", code)
    })
}

extern "C" fn trampoline<F: FnOnce(i32)>(_event: *mut c_void, status: i32, data: *mut c_void) {
    // SAFETY: (1) `when_ended` registers this function together with a box of an `F`, so `data` is such a box; (2) the
    // runtime calls a callback once, so nothing else takes the box.
    let call = unsafe { Box::from_raw(data.cast::<F>()) };
    call(status);
}
