//! Programs as the runtime has built them.

use std::ffi::CString;

use super::KernelError;
use crate::sys::{ClError, DeviceId, program::ProgramHandle};

/// A program as the runtime has built it. It holds no reference to the context, which the runtime keeps for it: with one, a
/// program in the context's cache would be a cycle.
pub(super) struct Built {
    pub(super) handle: ProgramHandle,
    /// The address of the context, to compare. While the program lives, no other context can have it.
    pub(super) context: usize,
    pub(super) device: DeviceId,
    pub(super) options: String,
    pub(super) names: Vec<String>,
}

/// Returns `text` as a string of C.
pub(super) fn c_text(text: &str) -> Result<CString, KernelError> {
    CString::new(text).map_err(|_| KernelError::NullByte {
        text: text.to_owned(),
    })
}

/// Returns a failure of a call that is not about memory.
pub(super) fn failed(error: ClError) -> KernelError {
    error.control_error().into()
}
