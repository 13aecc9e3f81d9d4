//! Queues of the program, by handle.

#![expect(unsafe_code, reason = "queues of the program are pointers")]

use std::ffi::c_void;

use binpool::Backend;
use binpool_cuda::{CudaBackend, CudaQueue};
use binpool_opencl::{ClQueue, OpenClBackend};

use crate::status::Failure;

/// A backend whose queues the program has as pointers.
pub(crate) trait QueuesByHandle: Backend {
    /// Returns the queue of a handle.
    ///
    /// # Safety
    ///
    /// `handle` is null or a live `cl_command_queue`, or, for CUDA, null or a `CUstream` of the primary context of the backend's device,
    /// which lives as long as the pool and its blocks.
    unsafe fn queue_of(&self, handle: *mut c_void) -> Result<Self::Queue, Failure>;
}

impl QueuesByHandle for OpenClBackend {
    /// # Safety
    ///
    /// As the trait says.
    unsafe fn queue_of(&self, handle: *mut c_void) -> Result<ClQueue, Failure> {
        if handle.is_null() {
            return Err(Failure::argument("the argument `queue` is null"));
        }
        // SAFETY: It is alive, as the caller promises.
        Ok(unsafe { self.wrap_raw_queue(handle) }?)
    }
}

impl QueuesByHandle for CudaBackend {
    /// # Safety
    ///
    /// As the trait says.
    unsafe fn queue_of(&self, handle: *mut c_void) -> Result<CudaQueue, Failure> {
        // SAFETY: As the caller promises. Null is the legacy default stream.
        Ok(unsafe { self.wrap_raw_queue(handle) }?)
    }
}
