//! The streams that live, which are asked whether one of them is captured into a graph.

use super::{
    current::Current,
    driver::{Driver, Handle},
    status::CudaResult,
};

/// `CU_STREAM_CAPTURE_STATUS_NONE`.
const NOT_CAPTURED: i32 = 0;

/// Notes a stream of a context. Both live until it is forgotten.
pub(super) fn note(driver: &Driver, context: Handle, stream: Handle) {
    driver.streams.write().push((context, stream));
}

pub(super) fn forget(driver: &Driver, context: Handle, stream: Handle) {
    let mut streams = driver.streams.write();
    if let Some(at) = streams.iter().position(|entry| *entry == (context, stream)) {
        streams.swap_remove(at);
    }
}

/// Returns the context of a stream, and its device (`CUdevice`).
///
/// # Safety
///
/// The stream lives. If it is a default stream, it is that of the context which is current.
pub(crate) unsafe fn context_of(driver: &Driver, stream: Handle) -> CudaResult<(Handle, i32)> {
    let (mut context, mut device) = (0, 0);
    // SAFETY: `context` is a place for the result; the stream lives, as the caller promises.
    unsafe { driver.stream_context(stream, &raw mut context) }?;
    let current = Current::set(driver, context)?;
    // SAFETY: `device` is a place for the result.
    unsafe { current.context_device(&raw mut device) }?;
    Ok((context, device))
}

/// Returns whether a stream that was noted may be captured. Those of lost contexts are not.
pub(super) fn has_capture(driver: &Driver) -> bool {
    let streams = driver.streams.read();
    streams.iter().any(|(context, stream)| {
        let current = Current::set(driver, *context);
        let is_captured = current.and_then(|driver| is_captured(&driver, *stream));
        is_captured.unwrap_or_else(|error| !error.is_sticky())
    })
}

/// Returns whether a stream is captured, also if the capture has been invalidated. It lives, and its context is current.
pub(super) fn is_captured(driver: &Driver, stream: Handle) -> CudaResult<bool> {
    let mut status = NOT_CAPTURED;
    // SAFETY: `status` is a place for the result; the stream lives.
    unsafe { driver.stream_is_capturing(stream, &raw mut status) }?;
    Ok(status != NOT_CAPTURED)
}
