//! Calls that the driver refuses while a stream is captured.

use std::ops::Deref;

use binpool_allocators::contained::contained;

use super::{current::Current, driver::Driver, status::CudaResult};

/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: u32 = 2;

/// The driver, for calls that allocate, free, or ask or wait for commands that are not captured. While a stream is captured, the driver
/// refuses them, and spoils the capture, for fear that a launch of the graph would come before or after them. It allows them to a thread of
/// the relaxed mode, which the calling thread is in as long as this value lives. The program may have begun a capture that this crate does
/// not know of, so the mode is changed at each call.
pub(super) struct Relaxed<'a> {
    current: Current<'a>,
    /// The mode of the thread before.
    before: u32,
}

impl<'a> Relaxed<'a> {
    pub(super) fn set(current: Current<'a>) -> CudaResult<Self> {
        let before = exchange(&current, RELAXED)?;
        Ok(Self { current, before })
    }
}

/// Sets the mode of the calling thread, and returns that before.
fn exchange(driver: &Driver, mut mode: u32) -> CudaResult<u32> {
    // SAFETY: `mode` is a place that the driver reads and writes.
    unsafe { driver.exchange_capture_mode(&raw mut mode) }?;
    Ok(mode)
}

impl Deref for Relaxed<'_> {
    type Target = Driver;

    fn deref(&self) -> &Driver {
        &self.current
    }
}

impl Drop for Relaxed<'_> {
    fn drop(&mut self) {
        if let Err(error) = exchange(&self.current, self.before) {
            // A subscriber that panics here would unwind through a call that has been made.
            contained("a subscriber", || {
                tracing::error!(%error, "the calling thread may make calls that spoil a capture");
            });
        }
    }
}
