//! Pipes.

use cl3::{error_codes::CL_INVALID_VALUE, info_type::InfoType};

use super::{ClError, ClResult, ContextHandle, MemHandle};

/// A pipe without packets. The device has pipes.
pub(crate) fn create(
    context: &ContextHandle,
    flags: u64,
    packet_bytes: u32,
    max_packets: u32,
) -> ClResult<MemHandle> {
    const CALL: &str = "clCreatePipe";
    // SAFETY: The context is kept alive by its handle, and the runtime checks the numbers.
    let raw = unsafe { cl3::memory::create_pipe(context.raw(), flags, packet_bytes, max_packets) }
        .map_err(|code| ClError::new(CALL, code))?;
    // SAFETY: The call above has just returned this reference, and nothing else takes it.
    unsafe { MemHandle::own(raw, CALL) }
}

/// Returns the answer to a question about a pipe that is answered with a number.
pub(crate) fn number(pipe: &MemHandle, what: u32) -> ClResult<u32> {
    const CALL: &str = "clGetPipeInfo";
    match cl3::memory::get_pipe_info(pipe.raw(), what) {
        Ok(InfoType::Uint(number)) => Ok(number),
        Ok(_) => Err(ClError::new(CALL, CL_INVALID_VALUE)),
        Err(code) => Err(ClError::new(CALL, code)),
    }
}
