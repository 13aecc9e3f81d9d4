//! The device memory of buffers: a pool a program, in the order of its queue.

use binpool::{ImmediateAllocator, MemoryPool, PoolOptions, PooledBuffer, Retain};
use binpool_opencl::OpenClBackend;
use opencl3::command_queue::CommandQueue;
use opencl3::context::Context;
use opencl3::error_codes::{ClError, CL_INVALID_BUFFER_SIZE};
use opencl3::memory::{retain_mem_object, Buffer};

use crate::error::{GPUError, GPUResult};

/// The pool of a program.
pub type Pool = MemoryPool<OpenClBackend>;

/// Memory of the pool, which goes back to it when this is dropped.
pub(super) type Block = PooledBuffer<OpenClBackend>;

/// Returns a pool of whole buffers, which kernels take as they are. Beyond 64 MiB it has no more memory
/// than was in use at once: other programs use the same device.
pub(super) fn new(context: &Context, queue: &CommandQueue) -> GPUResult<Pool> {
    // SAFETY: both handles are alive: `opencl3` owns them.
    let (backend, queue) = unsafe {
        let backend =
            OpenClBackend::from_raw(context.get(), context.default_device()).map_err(failed)?;
        let queue = backend.wrap_raw_queue(queue.get()).map_err(failed)?;
        (backend, queue)
    };
    let allocator = ImmediateAllocator::new(&backend).map_err(failed)?;
    PoolOptions::new()
        .segments(false)
        .retain(Retain::new().percent_of_peak(100))
        .build(allocator, &queue)
        .map_err(failed)
}

/// Allocates from the pool, and returns the buffer as one of `opencl3`, which has a reference of its
/// own. All commands of a program are enqueued on its one queue, whose order the pool follows.
pub(super) fn allocate(pool: &Pool, bytes: usize) -> GPUResult<(Buffer<u8>, Block)> {
    let block = pool.allocate(bytes).map_err(failed)?;
    let handle = block
        .memory_on(pool.home_queue())
        .and_then(|memory| memory.raw())
        .ok_or(ClError(CL_INVALID_BUFFER_SIZE))?;
    // SAFETY: the buffer is alive: the block has it.
    unsafe { retain_mem_object(handle) }.map_err(ClError)?;
    Ok((Buffer::new(handle), block))
}

fn failed(error: impl std::fmt::Display) -> GPUError {
    GPUError::Generic(error.to_string())
}
