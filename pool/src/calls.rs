//! Calls of the allocator and the backend while the pool is moving memory.

use binpool_allocators::{Error, contained::contained};

/// Returns the result of `call`. If it panics, returns a failure of `operation`, so the memory goes where any failure sends it.
pub(crate) fn guarded<R>(
    operation: &'static str,
    call: impl FnOnce() -> Result<R, Error>,
) -> Result<R, Error> {
    contained(operation, call)
        .unwrap_or_else(|| Err(Error::backend(operation, None, "the call panicked")))
}
