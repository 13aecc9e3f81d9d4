//! Calls of functions whose panics must not unwind into the caller.
//!
//! For backends, which are called back by C libraries, and for pools, which call hooks and allocators in `drop`. A panic that unwound
//! from there would abort the process, or lose memory that nothing else keeps a record of.

use std::{
    any::Any,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
};

use crate::{Error, Result};

/// Returns the result of `call`, or `None` if it panics. The panic is logged with the name `what`.
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
    // The subscriber is code of the program, too, and may be what panicked.
    let logged = catch_unwind(AssertUnwindSafe(|| {
        tracing::error!("{what} panicked; the call counts as failed");
    }));
    if let Err(panic) = logged {
        discard(panic);
    }
    None
}

/// Returns the result of `call`, or a failure of `operation` if it panics, so that the caller handles a panic like any other failure.
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
/// That of `call`, or [`Backend`](crate::Error::Backend) if it panics.
pub fn guarded<R>(operation: &'static str, call: impl FnOnce() -> Result<R>) -> Result<R> {
    contained(operation, call)
        .unwrap_or_else(|| Err(Error::backend(operation, None, "the call panicked")))
}

/// Drops the payload of a panic. Its `drop` is code of the program and may panic, too; the payload of that second panic is leaked.
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
