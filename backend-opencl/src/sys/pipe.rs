//! Calls of OpenCL that make pipes and describe them.

use super::{ClResult, ContextHandle, MemHandle, answer::Answer};

/// A pipe without packets. The device has pipes.
pub(crate) fn create_pipe(
    context: &ContextHandle,
    flags: u64,
    packet_bytes: u32,
    max_packets: u32,
) -> ClResult<MemHandle> {
    // SAFETY: The context is kept alive by its handle, and the runtime checks the numbers.
    let created =
        unsafe { cl3::memory::create_pipe(context.raw(), flags, packet_bytes, max_packets) };
    // SAFETY: The call above has just returned this reference, and nothing else takes it.
    unsafe { MemHandle::own(created, "clCreatePipe") }
}

/// Returns a number about a pipe.
pub(crate) fn pipe_number(pipe: &MemHandle, what: u32) -> ClResult<u32> {
    Answer::new(
        cl3::memory::get_pipe_data(pipe.raw(), what),
        "clGetPipeInfo",
    )?
    .value()
}
