//! Queues of the program, by handle.

#![expect(unsafe_code, reason = "queues of the program are pointers")]

use std::ffi::c_void;

use binpool_cuda::{CudaBackend, CudaQueue};
use binpool_opencl::{ClQueue, OpenClBackend};

use crate::status::Failure;

/// Returns the queue of a handle.
///
/// # Safety
///
/// `queue` is null or a live `cl_command_queue`.
pub(crate) unsafe fn opencl_queue(
    backend: &OpenClBackend,
    queue: *mut c_void,
) -> Result<ClQueue, Failure> {
    if queue.is_null() {
        return Err(Failure::argument("the argument `queue` is null"));
    }
    // SAFETY: It is alive, as the caller promises.
    Ok(unsafe { backend.wrap_raw_queue(queue) }?)
}

/// Returns the queue of a stream.
///
/// # Safety
///
/// `stream` is null or a `CUstream` of the primary context of the backend's device, which lives as long as the pool and its blocks.
pub(crate) unsafe fn cuda_queue(
    backend: &CudaBackend,
    stream: *mut c_void,
) -> Result<CudaQueue, Failure> {
    // SAFETY: As the caller promises.
    Ok(unsafe { backend.wrap_raw_stream(stream) }?)
}
