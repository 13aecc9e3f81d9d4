//! Calls of the program's own functions, whose panics must not propagate.
//!
//! Hooks, callbacks and the `release` of an allocator are called in `drop`, by a C library, or while no list holds the
//! memory. A panic that propagated from there would end the process, or lose the memory.

use std::{
    any::Any,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
};

use crate::{Error, Result};

/// Returns what `call` returns, or `None` where it panics. The panic is logged as one of `what`.
///
/// ```
/// use binpool_allocators::contained::contained;
///
/// assert_eq!(contained("a hook", || 5), Some(5));
/// assert_eq!(contained("a hook", || -> u8 { panic!("on purpose") }), None);
/// ```
pub fn contained<R>(what: impl fmt::Display, call: impl FnOnce() -> R) -> Option<R> {
    let panic = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => return Some(result),
        Err(panic) => panic,
    };
    discard(panic);
    // The log subscriber also belongs to the program, and may itself be what panicked.
    let logged = catch_unwind(AssertUnwindSafe(|| {
        tracing::error!("{what} panicked; the call is taken for one that failed");
    }));
    if let Err(panic) = logged {
        discard(panic);
    }
    None
}

/// Returns the result of `call`. If it panics, returns a failure of `operation`, so the memory goes where any failure sends it.
///
/// ```
/// use binpool_allocators::contained::guarded;
///
/// assert_eq!(guarded("Allocator::map", || Ok(5)).unwrap(), 5);
/// let error = guarded("Allocator::map", || -> Result<u8, _> { panic!("on purpose") }).unwrap_err();
/// assert!(error.to_string().contains("Allocator::map"));
/// ```
///
/// # Errors
///
/// That of `call`, or [`Backend`](crate::Error::Backend) where it panics.
pub fn guarded<R>(operation: &'static str, call: impl FnOnce() -> Result<R>) -> Result<R> {
    contained(operation, call)
        .unwrap_or_else(|| Err(Error::backend(operation, None, "the call panicked")))
}

/// Drops the payload of a panic. The payload is a value of the program's, so its `drop` may panic as well; the payload of
/// that second panic is leaked.
///
/// ```
/// use std::panic::{catch_unwind, panic_any};
///
/// use binpool_allocators::contained::discard;
///
/// struct Fuse;
///
/// impl Drop for Fuse {
///     fn drop(&mut self) {
///         panic!("dropped");
///     }
/// }
///
/// if let Err(panic) = catch_unwind(|| panic_any(Fuse)) {
///     discard(panic); // `drop(panic)` would panic.
/// }
/// ```
pub fn discard(panic: Box<dyn Any + Send>) {
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(second);
    }
}
