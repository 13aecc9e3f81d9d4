//! The streams that live, which are asked whether one of them is captured into a graph.

use parking_lot::RwLock;

use super::{
    current::Current,
    driver::{Driver, Handle},
    status::CudaResult,
};

/// `CU_STREAM_CAPTURE_STATUS_NONE`.
const NOT_CAPTURED: i32 = 0;

/// The streams of a driver that this crate has.
///
/// # Invariants
///
/// I1: Each entry is a context that is retained, and a stream of it that lives, until it is removed.
#[derive(Default)]
pub(super) struct Streams {
    living: RwLock<Vec<(Handle, Handle)>>,
}

impl Streams {
    /// Adds a stream that lives until it is removed.
    pub(super) fn add(&self, context: Handle, stream: Handle) {
        self.living.write().push((context, stream));
    }

    pub(super) fn remove(&self, context: Handle, stream: Handle) {
        let mut living = self.living.write();
        if let Some(at) = living.iter().position(|entry| *entry == (context, stream)) {
            living.swap_remove(at);
        }
    }

    /// Returns whether one of them may be captured. Those of lost contexts are not.
    pub(super) fn has_capture(&self, driver: &Driver) -> bool {
        let living = self.living.read();
        living.iter().any(|(context, stream)| {
            let current = Current::set(driver, *context);
            let is_captured = current.and_then(|driver| is_captured(&driver, *stream));
            is_captured.unwrap_or_else(|error| !error.is_sticky())
        })
    }
}

/// Returns whether a stream is captured, also if the capture has been invalidated. It lives, and its context is current.
pub(super) fn is_captured(driver: &Driver, stream: Handle) -> CudaResult<bool> {
    let mut status = NOT_CAPTURED;
    // SAFETY: `status` is a place for the result; the stream lives.
    unsafe { driver.stream_is_capturing(stream, &raw mut status) }?;
    Ok(status != NOT_CAPTURED)
}
