//! Callbacks for the destruction of memory objects.

use std::ffi::c_void;

use binpool_allocators::contained;

use super::MemHandle;
use super::{ClError, ClResult};

/// Calls `call` once, when the runtime has destroyed the object, which no command uses then. Of several, the last one
/// set is called first.
///
/// # Errors
///
/// If the runtime refuses, `call` is dropped without having been called.
pub(crate) fn when_destroyed<F: FnOnce() + Send + 'static>(
    memory: &MemHandle,
    call: F,
) -> ClResult<()> {
    let data = Box::into_raw(Box::new(call)).cast::<c_void>();
    // SAFETY: (1) `memory` is kept alive by its handle; (2) `data` is a box of the type that the function takes, and
    // belongs to it alone.
    let set = unsafe {
        cl3::memory::set_mem_object_destructor_callback(memory.raw(), trampoline::<F>, data)
    };
    set.map_err(|code| {
        // SAFETY: (1) the pointer came from `Box::into_raw` above; (2) the runtime has refused the callback, so nothing
        // else takes the box.
        drop(unsafe { Box::from_raw(data.cast::<F>()) });
        ClError::new("clSetMemObjectDestructorCallback", code)
    })
}

extern "C" fn trampoline<F: FnOnce()>(_memory: *mut c_void, data: *mut c_void) {
    // SAFETY: (1) `when_destroyed` registers this function together with a box of an `F`, so `data` is such a box; (2) the
    // runtime calls a callback once, so nothing else takes the box.
    let call = unsafe { Box::from_raw(data.cast::<F>()) };
    contained(call);
}

/// Calls `call` and catches its panics: the caller may be the runtime, or a thread that panics already.
pub(crate) fn contained(call: impl FnOnce()) {
    contained::contained("a callback for the end of memory", call);
}
