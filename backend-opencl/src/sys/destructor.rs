//! What is called when the runtime has destroyed a memory object.

use std::{
    ffi::c_void,
    panic::{AssertUnwindSafe, catch_unwind},
};

use super::MemHandle;
use crate::cl_error::{ClError, ClResult};

/// Calls `call` once, when the runtime has destroyed the object: no command uses it any more. Of several, the last one
/// set comes first.
///
/// # Errors
///
/// Where the runtime does not take it: `call` is dropped without having been called.
pub(crate) fn when_destroyed<F: FnOnce() + Send + 'static>(
    memory: &MemHandle,
    call: F,
) -> ClResult<()> {
    let data = Box::into_raw(Box::new(call)).cast::<c_void>();
    // SAFETY: (1) `memory` lives; (2) `data` is a box of the type that the function takes, and is its own.
    let set = unsafe {
        cl3::memory::set_mem_object_destructor_callback(memory.raw(), trampoline::<F>, data)
    };
    set.map_err(|code| {
        // SAFETY: (1) the pointer came from `Box::into_raw` above; (2) the runtime did not take it.
        drop(unsafe { Box::from_raw(data.cast::<F>()) });
        ClError::new("clSetMemObjectDestructorCallback", code)
    })
}

extern "C" fn trampoline<F: FnOnce()>(_memory: *mut c_void, data: *mut c_void) {
    // SAFETY: (1) `data` is the box that was registered with this very function, so its type is right;
    // (2) the runtime calls a callback once.
    let call = unsafe { Box::from_raw(data.cast::<F>()) };
    contained(call);
}

/// Calls `call`, and lets no panic out of it: the caller may be the runtime, or on its way out.
pub(crate) fn contained(call: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(call)).is_err() {
        tracing::error!("what was to be called when memory was destroyed has panicked");
    }
}
