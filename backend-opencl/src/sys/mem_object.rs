//! What buffers, images and pipes have in common: they are memory objects.

use std::ffi::c_void;

use cl3::{error_codes::CL_INVALID_VALUE, info_type::InfoType};

use super::MemHandle;
use crate::cl_error::{ClError, ClResult};

/// A reference to somebody else's memory object: one of our own, or, unless `retain`, the one that is handed over.
///
/// # Safety
///
/// `raw` is null, or a live memory object, one reference to which is the caller's to give unless `retain`.
pub(crate) unsafe fn adopt(raw: *mut c_void, retain: bool) -> ClResult<MemHandle> {
    const CALL: &str = "clRetainMemObject";
    if retain && !raw.is_null() {
        // SAFETY: The object lives, as the caller promises.
        unsafe { cl3::memory::retain_mem_object(raw) }.map_err(|code| ClError::new(CALL, code))?;
    }
    // SAFETY: There is a reference to take: the one of just now, or the caller's.
    unsafe { MemHandle::own(raw, CALL) }
}

/// Another reference to the same object.
pub(crate) fn another(memory: &MemHandle) -> ClResult<MemHandle> {
    // SAFETY: `memory` owns a reference, so the object lives.
    unsafe { adopt(memory.raw(), true) }
}

const CALL: &str = "clGetMemObjectInfo";

/// What the runtime says about a memory object, of the questions that are answered with a number or a handle.
pub(crate) fn number(memory: &MemHandle, what: u32) -> ClResult<u64> {
    match cl3::memory::get_mem_object_info(memory.raw(), what) {
        Ok(InfoType::Uint(number)) => Ok(number.into()),
        Ok(InfoType::Ulong(number)) => Ok(number),
        Ok(InfoType::Size(number)) => Ok(number as u64),
        Ok(_) => Err(ClError::new(CALL, CL_INVALID_VALUE)),
        Err(code) => Err(ClError::new(CALL, code)),
    }
}

/// The handle of another object that this one belongs to: its context, or the memory object that it is made over.
/// To compare.
pub(crate) fn related(memory: &MemHandle, what: u32) -> ClResult<usize> {
    match cl3::memory::get_mem_object_info(memory.raw(), what) {
        Ok(InfoType::Ptr(raw)) => Ok(usize::from_ne_bytes(raw.to_ne_bytes())),
        Ok(_) => Err(ClError::new(CALL, CL_INVALID_VALUE)),
        Err(code) => Err(ClError::new(CALL, code)),
    }
}
