//! The functions of C for a block, which is a handle there.

#![expect(unsafe_code, reason = "handles and queues of the program are pointers")]

use std::{ffi::c_void, ptr};

use binpool::{Backend, Memory, PooledBuffer, Queue};
use binpool_allocators::MemoryKind;
use binpool_cuda::CudaBackend;
use binpool_opencl::{ClMemory, OpenClBackend};

use crate::{
    border::{Out, asked, borrowed, guarded, taken},
    of_backend,
    of_backend::OfBackend,
    queues::QueuesByHandle,
    status::{Failure, Status},
};

/// A block of device memory, which returns to its pool when it is freed. Any thread may use it, and several at once.
#[derive(Debug)]
pub struct Block(pub(crate) OfBackend<Owned<OpenClBackend>, Owned<CudaBackend>>);

/// A block with the queue that it was allocated for.
#[derive(Debug)]
pub(crate) struct Owned<B: Backend> {
    pub(crate) buffer: PooledBuffer<B>,
    pub(crate) queue: B::Queue,
    /// Set if its memory is pages that the pool maps.
    pub(crate) has_pages: bool,
}

impl<B: Backend> Owned<B> {
    fn memory(&self) -> Result<&B::Memory, Failure> {
        let memory = self.buffer.memory_on(&self.queue);
        memory.ok_or_else(|| Failure::argument("a block of 0 bytes has no memory"))
    }
}

// Threads share handles.
const fn is_shared<T: Send + Sync>() {}
const _: () = is_shared::<Block>();

impl Block {
    /// Returns the memory that a `cl_mem` is of.
    fn cl_memory(&self) -> Result<&ClMemory, Failure> {
        let OfBackend::OpenCl(owned) = &self.0 else {
            return Err(unsupported(
                "a `cl_mem` of a CUDA block: use `binpool_block_device_ptr`",
            ));
        };
        let memory = owned.memory()?;
        if is_svm(memory) {
            return Err(unsupported(
                "a `cl_mem` of shared memory: use `binpool_block_host_ptr`, and `clSetKernelArgSVMPointer` for kernels",
            ));
        }
        Ok(memory)
    }
}

fn unsupported(message: &str) -> Failure {
    Failure::new(Status::Unsupported, message)
}

fn is_svm(memory: &ClMemory) -> bool {
    matches!(memory.kind(), MemoryKind::Svm(_))
}

/// Frees a block: its memory returns to the pool, after the commands enqueued on the block's queues so far. Enqueue first,
/// then free: the pool does not know of commands enqueued later. The handle is gone, whatever the call returns. The pool may be
/// gone, too.
///
/// Called once for each block, by any thread, when no other thread uses the handle.
///
/// # Safety
///
/// `block` is null, or a block that was not freed yet and that no thread uses during or after the call. Its `cl_mem` and its address are not used
/// by commands that are enqueued later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn binpool_block_free(block: *mut Block) -> Status {
    guarded(|| {
        // SAFETY: As the caller promises.
        let block = unsafe { taken(block, "block") }?;
        of_backend!(block.0, owned => owned.buffer.release()?);
        Ok(())
    })
}

/// Returns the size of a block as it was requested, in bytes; 0 for a null pointer.
///
/// Any thread may call it.
///
/// # Safety
///
/// `block` is null or a live block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn binpool_block_size(block: *const Block) -> usize {
    // SAFETY: As the caller promises.
    let block = unsafe { block.as_ref() };
    block.map_or(
        0,
        |block| of_backend!(&block.0, owned => owned.buffer.size()),
    )
}

/// Returns the device memory that a block takes, in bytes: at least its size; 0 for a null pointer.
///
/// Any thread may call it.
///
/// # Safety
///
/// `block` is null or a live block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn binpool_block_class_size(block: *const Block) -> usize {
    // SAFETY: As the caller promises.
    let block = unsafe { block.as_ref() };
    block.map_or(
        0,
        |block| of_backend!(&block.0, owned => owned.buffer.class_size()),
    )
}

/// Returns the `cl_mem` of the buffer that contains a block, and the block's offset in it, in bytes: for copies, fills and
/// maps, and for kernels that take both. Other bytes of the buffer are other blocks.
///
/// The `cl_mem` is borrowed: do not release it; it is valid until the block is freed. Commands enqueued before that keep it. For
/// a queue other than the block's own, first call `binpool_block_order_before` or `binpool_block_record_use`.
///
/// Any thread may call it. Errors: `INVALID_ARGUMENT` for a block of 0 bytes, `UNSUPPORTED` for a block of a CUDA pool or of shared memory.
///
/// # Safety
///
/// `block` is null or a live block. `memory` and `offset` are null, or places for the results.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn binpool_block_cl_mem(
    block: *const Block,
    memory: *mut *mut c_void,
    offset: *mut usize,
) -> Status {
    guarded(|| {
        // SAFETY: As the caller promises.
        let (block, place) = unsafe { asked(block, "block", memory, "memory") }?;
        // SAFETY: As the caller promises.
        let place_of_offset = unsafe { Out::of(offset, "offset") }?;
        let whole = block.cl_memory()?.whole_and_offset();
        let (whole, offset) = whole.ok_or_else(|| unsupported("a block without a `cl_mem`"))?;
        place.set(whole);
        place_of_offset.set(offset);
        Ok(())
    })
}

/// Returns a `cl_mem` that begins where the block does, only for arguments of kernels. It is the buffer or a sub-buffer of
/// it; on NVIDIA's driver a sub-buffer of a single byte, after which a kernel finds the others.
///
/// Otherwise as `binpool_block_cl_mem`. It belongs to the block: later calls return the same one.
///
/// # Safety
///
/// `block` is null or a live block. `memory` is null, or a place for the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn binpool_block_cl_kernel_argument(
    block: *const Block,
    memory: *mut *mut c_void,
) -> Status {
    guarded(|| {
        // SAFETY: As the caller promises.
        let (block, place) = unsafe { asked(block, "block", memory, "memory") }?;
        place.set(block.cl_memory()?.kernel_argument()?);
        Ok(())
    })
}

/// Returns the address of a block of a CUDA pool, a `CUdeviceptr`. It is valid for commands enqueued before the block is freed. For
/// a stream other than the block's own, first call `binpool_block_order_before` or `binpool_block_record_use`.
///
/// Any thread may call it. Errors: `INVALID_ARGUMENT` for a block of 0 bytes, `UNSUPPORTED` for a block of an OpenCL pool.
///
/// # Safety
///
/// `block` is null or a live block. `address` is null, or a place for the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn binpool_block_device_ptr(
    block: *const Block,
    address: *mut u64,
) -> Status {
    guarded(|| {
        // SAFETY: As the caller promises.
        let (block, place) = unsafe { asked(block, "block", address, "address") }?;
        let OfBackend::Cuda(owned) = &block.0 else {
            return Err(unsupported(
                "an address of an OpenCL block: use `binpool_block_cl_mem`",
            ));
        };
        place.set(owned.memory()?.device_address()?);
        Ok(())
    })
}

/// Returns the address of a block of shared memory (`BINPOOL_MEMORY_SHARED`), for the host and for kernels: `clSetKernelArgSVMPointer`, or
/// an argument of CUDA's.
///
/// Commands of the block's former user may still run when it is allocated: use it on the host only after `binpool_block_wait`, and before it
/// is freed. The address is valid until then.
///
/// Any thread may call it. Errors: `INVALID_ARGUMENT` for a block of 0 bytes, `UNSUPPORTED` for a block of device memory.
///
/// # Safety
///
/// `block` is null or a live block. `address` is null, or a place for the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn binpool_block_host_ptr(
    block: *const Block,
    address: *mut *mut c_void,
) -> Status {
    guarded(|| {
        // SAFETY: As the caller promises.
        let (block, place) = unsafe { asked(block, "block", address, "address") }?;
        let (is_shared, address) = match &block.0 {
            OfBackend::OpenCl(owned) => {
                let memory = owned.memory()?;
                (is_svm(memory), memory.device_address())
            }
            OfBackend::Cuda(owned) => (!owned.has_pages, owned.memory()?.device_address()),
        };
        if !is_shared {
            return Err(unsupported(
                "an address of device memory for the host: make the pool with `BINPOOL_MEMORY_SHARED`",
            ));
        }
        let address = usize::try_from(address?).map_err(|error| unsupported(&error.to_string()))?;
        place.set(ptr::with_exposed_provenance_mut(address));
        Ok(())
    })
}

/// Waits on the host until everything enqueued on the block's queue so far has ended. The host may then use shared memory.
///
/// Any thread may call it. Errors: `BACKEND`.
///
/// # Safety
///
/// `block` is null or a live block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn binpool_block_wait(block: *const Block) -> Status {
    guarded(|| {
        // SAFETY: As the caller promises.
        let block = unsafe { borrowed(block, "block") }?;
        of_backend!(&block.0, owned => Ok(owned.queue.finish()?))
    })
}

/// Tells the pool that commands on `queue`, a queue other than the block's own, use the block: it is not reused before everything
/// enqueued there until the block is freed has ended. The program orders these commands after those of the block's own queue.
///
/// Any thread may call it. Errors: `INVALID_ARGUMENT` for a queue of another context or device.
///
/// # Safety
///
/// `block` is null or a live block. `queue` is as in `binpool_allocate_on`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn binpool_block_record_use(
    block: *const Block,
    queue: *mut c_void,
) -> Status {
    guarded(|| {
        // SAFETY: As the caller promises.
        let block = unsafe { borrowed(block, "block") }?;
        of_backend!(&block.0, owned => {
            // SAFETY: As the caller promises.
            let queue = unsafe { owned.buffer.backend().queue_of(queue) }?;
            Ok(owned.buffer.record_use(&queue)?)
        })
    })
}

/// Makes everything enqueued on `queue` from now on wait for everything enqueued on the block's queues so far, by a wait on the
/// device, and records the use of `queue`. The host does not wait.
///
/// Any thread may call it. Errors: as `binpool_block_record_use`, and `BACKEND`.
///
/// # Safety
///
/// `block` is null or a live block. `queue` is as in `binpool_allocate_on`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn binpool_block_order_before(
    block: *const Block,
    queue: *mut c_void,
) -> Status {
    guarded(|| {
        // SAFETY: As the caller promises.
        let block = unsafe { borrowed(block, "block") }?;
        of_backend!(&block.0, owned => {
            // SAFETY: As the caller promises.
            let queue = unsafe { owned.buffer.backend().queue_of(queue) }?;
            Ok(owned.buffer.order_before(&queue)?)
        })
    })
}
