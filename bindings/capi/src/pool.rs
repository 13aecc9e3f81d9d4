//! The functions of C for a pool, which is a handle there.

#![expect(unsafe_code, reason = "handles and queues of the program are pointers")]

use std::{
    ffi::{c_char, c_int, c_void},
    ptr,
};

use binpool::{
    ImmediateAllocator, MemoryPool, SvmAllocator, SvmGrain, VirtualMemoryAllocator, WatchOptions,
};
use binpool_cuda::CudaBackend;
use binpool_opencl::OpenClBackend;

use crate::{
    block::{Block, Owned},
    border::{Out, asked, borrowed, guarded, handed_over, string, taken, text},
    managed::ManagedAllocator,
    of_backend,
    of_backend::{AnyPool, OfBackend},
    options::{Options, limit_of},
    queues::QueuesByHandle,
    recording::Recording,
    statistics::Statistics,
    status::{Failure, Status},
};

/// A pool of device memory. Any thread may use it, and several at once.
#[derive(Debug)]
pub struct Pool(pub(crate) AnyPool);

// Threads share handles.
const fn is_shared<T: Send + Sync>() {}
const _: () = is_shared::<Pool>();

/// Allocates a block for a queue of the program, or for the pool's own.
///
/// # Safety
///
/// As for [`binpool_allocate_on`].
unsafe fn allocate(
    pool: *const Pool,
    queue: Option<*mut c_void>,
    bytes: usize,
    block: *mut *mut Block,
) -> Status {
    guarded(|| {
        // SAFETY: As the caller promises.
        let (pool, place) = unsafe { asked(pool, "pool", block, "block") }?;
        let block = match &pool.0 {
            // SAFETY: As the caller promises.
            OfBackend::OpenCl(pool) => OfBackend::OpenCl(unsafe { owned(pool, queue, bytes) }?),
            // SAFETY: As the caller promises.
            OfBackend::Cuda(pool) => OfBackend::Cuda(unsafe { owned(pool, queue, bytes) }?),
        };
        place.set(handed_over(Block(block)));
        Ok(())
    })
}

/// # Safety
///
/// `queue` is as in [`binpool_allocate_on`].
unsafe fn owned<B: QueuesByHandle>(
    pool: &MemoryPool<B>,
    queue: Option<*mut c_void>,
    bytes: usize,
) -> Result<Owned<B>, Failure> {
    let queue = match queue {
        // SAFETY: As the caller promises.
        Some(handle) => unsafe { pool.backend().queue_of(handle) }?,
        None => pool.home_queue().clone(),
    };
    let buffer = pool.allocate_on(&queue, bytes)?;
    Ok(Owned {
        buffer,
        queue,
        has_pages: pool.allocator().page_bytes().is_some(),
    })
}

/// Makes a pool over OpenCL, whose blocks are for `queue` unless their allocation names another.
///
/// The pool retains the context, the device and the queue, so the program may release its own references at
/// any time. `options` may be null. The pool is freed by `binpool_pool_free`.
///
/// Errors: `INVALID_ARGUMENT` for a device that is not the context's or a queue of another context or device; `UNSUPPORTED` if there
/// is no OpenCL library, the device has OpenCL 1.1 or older, or lacks the shared memory that the options request; `BACKEND`.
///
/// # Safety
///
/// `context` and `queue` are null, or a live `cl_context` and `cl_command_queue` of the OpenCL library that binpool loads, the
/// system's one. `options` is null, or points to as many bytes as its `struct_size` says. `pool` is null, or a place for the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn binpool_pool_new_opencl(
    context: *mut c_void,
    device: *mut c_void,
    queue: *mut c_void,
    options: *const Options,
    pool: *mut *mut Pool,
) -> Status {
    guarded(|| {
        // SAFETY: As the caller promises.
        let place = unsafe { Out::of(pool, "pool") }?;
        for (handle, name) in [(context, "context"), (device, "device")] {
            if handle.is_null() {
                return Err(Failure::argument(format!("the argument `{name}` is null")));
            }
        }
        // SAFETY: As the caller promises.
        let options = unsafe { Options::read(options) }?;
        // SAFETY: The context is alive, as the caller promises; the device is looked up in it.
        let backend = unsafe { OpenClBackend::from_raw(context, device) }?;
        // SAFETY: The queue is null or alive, as the caller promises.
        let queue = unsafe { backend.queue_of(queue) }?;
        let pool = options.pool()?;
        let pool = if options.is_shared()? {
            pool.build(SvmAllocator::new(&backend, SvmGrain::Fine)?, &queue)?
        } else {
            pool.build(ImmediateAllocator::new(&backend)?, &queue)?
        };
        place.set(handed_over(Pool(OfBackend::OpenCl(pool))));
        Ok(())
    })
}

/// Makes a pool over the primary context of a CUDA device, whose blocks are for `stream` unless their allocation names another.
///
/// `device` is the device's number, counted from 0. `stream` is a `CUstream` or `cudaStream_t`; null is the legacy default stream.
/// `options` may be null. The pool is freed by `binpool_pool_free`.
///
/// Errors: `UNSUPPORTED` if there is no CUDA driver, and for options without segments unless the memory is shared; `BACKEND`.
///
/// # Safety
///
/// `stream` is null, or a stream of the device's primary context that lives until the pool and all of its blocks are freed. `options`
/// is null, or points to as many bytes as its `struct_size` says. `pool` is null, or a place for the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn binpool_pool_new_cuda(
    device: u32,
    stream: *mut c_void,
    options: *const Options,
    pool: *mut *mut Pool,
) -> Status {
    guarded(|| {
        // SAFETY: As the caller promises.
        let place = unsafe { Out::of(pool, "pool") }?;
        // SAFETY: As the caller promises.
        let options = unsafe { Options::read(options) }?;
        let backend = CudaBackend::open(device)?;
        // SAFETY: As the caller promises.
        let queue = unsafe { backend.queue_of(stream) }?;
        let pool = options.pool()?;
        let pool = if options.is_shared()? {
            pool.build(ManagedAllocator::new(backend), &queue)?
        } else {
            pool.build(VirtualMemoryAllocator::new(&backend), &queue)?
        };
        place.set(handed_over(Pool(OfBackend::Cuda(pool))));
        Ok(())
    })
}

/// Frees a pool, and releases its free memory to the device. Blocks that the program still has stay valid; their memory is released when
/// they are freed.
///
/// Called once for each pool, when no other thread uses the handle.
///
/// # Safety
///
/// `pool` is null, or a pool that was not freed yet and that no thread uses during or after the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn binpool_pool_free(pool: *mut Pool) -> Status {
    guarded(|| {
        // SAFETY: As the caller promises.
        drop(unsafe { taken(pool, "pool") }?);
        Ok(())
    })
}

/// Allocates a block of `bytes` bytes for the pool's queue. Commands there come after everything that its former users enqueued. A block
/// of 0 bytes has no memory.
///
/// The block is freed by `binpool_block_free`. Any thread may call it.
///
/// Errors: `OUT_OF_MEMORY`, with a report as its message, which also says if a block of this size can never fit; `BACKEND`.
///
/// # Safety
///
/// `pool` is null or a live pool. `block` is null, or a place for the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn binpool_allocate(
    pool: *const Pool,
    bytes: usize,
    block: *mut *mut Block,
) -> Status {
    // SAFETY: As the caller promises.
    unsafe { allocate(pool, None, bytes, block) }
}

/// Allocates a block of `bytes` bytes for `queue`: a `cl_command_queue` of the pool's context and device, or a `CUstream`, where null is the
/// legacy default stream, and `CU_STREAM_PER_THREAD` that of the calling thread, which may end before the block is freed.
///
/// Otherwise as `binpool_allocate`. Errors: also `INVALID_ARGUMENT` for a queue of another context or device.
///
/// # Safety
///
/// `pool` is null or a live pool. `queue` is null, or a live `cl_command_queue`, or a stream of the device's primary context that lives
/// until the pool and all of its blocks are freed. `block` is null, or a place for the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn binpool_allocate_on(
    pool: *const Pool,
    queue: *mut c_void,
    bytes: usize,
    block: *mut *mut Block,
) -> Status {
    // SAFETY: As the caller promises.
    unsafe { allocate(pool, Some(queue), bytes, block) }
}

/// Tells the pool that the program is done with a queue: other queues may reuse its free memory once its commands have ended.
///
/// Any thread may call it. Errors: as `binpool_allocate_on`.
///
/// # Safety
///
/// `pool` is null or a live pool. `queue` is as in `binpool_allocate_on`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn binpool_pool_retire_queue(
    pool: *const Pool,
    queue: *mut c_void,
) -> Status {
    guarded(|| {
        // SAFETY: As the caller promises.
        let pool = unsafe { borrowed(pool, "pool") }?;
        of_backend!(&pool.0, pool => {
            // SAFETY: As the caller promises.
            let queue = unsafe { pool.backend().queue_of(queue) }?;
            pool.retire_queue(&queue);
        });
        Ok(())
    })
}

/// Writes the pool's counters to `statistics`, which has `size` bytes: `sizeof(binpool_statistics)`. If the program knows fewer fields than
/// this version, it gets those; if it knows more, the others are 0.
///
/// Any thread may call it.
///
/// # Safety
///
/// `pool` is null or a live pool. `statistics` is null, or points to `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn binpool_pool_statistics(
    pool: *const Pool,
    statistics: *mut Statistics,
    size: usize,
) -> Status {
    guarded(|| {
        // SAFETY: As the caller promises.
        let pool = unsafe { borrowed(pool, "pool") }?;
        if statistics.is_null() {
            return Err(Failure::argument("the argument `statistics` is null"));
        }
        let now = Statistics::from(of_backend!(&pool.0, pool => pool.statistics()));
        let (from, to) = ((&raw const now).cast::<u8>(), statistics.cast::<u8>());
        // SAFETY: The program has `size` bytes there, as the caller promises.
        unsafe { ptr::write_bytes(to, 0, size) };
        // SAFETY: As above; no more are read than there are.
        unsafe { ptr::copy_nonoverlapping(from, to, size.min(size_of_val(&now))) };
        Ok(())
    })
}

/// Returns a report for people: the counters and, if the pool is watched, what holds the blocks in use, by tag. The text is freed by
/// `binpool_string_free`.
///
/// Any thread may call it.
///
/// # Safety
///
/// `pool` is null or a live pool. `report` is null, or a place for the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn binpool_pool_report(
    pool: *const Pool,
    report: *mut *mut c_char,
) -> Status {
    guarded(|| {
        // SAFETY: As the caller promises.
        let (pool, place) = unsafe { asked(pool, "pool", report, "report") }?;
        let (now, live) = of_backend!(&pool.0, pool => (pool.statistics(), pool.live_blocks()));
        place.set(text(format!("{now}\n\n{live}"))?);
        Ok(())
    })
}

/// Returns what the pool has, block by block, as JSON, which `binpool view` shows. The text is freed by `binpool_string_free`.
///
/// Any thread may call it.
///
/// # Safety
///
/// `pool` is null or a live pool. `json` is null, or a place for the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn binpool_pool_snapshot_json(
    pool: *const Pool,
    json: *mut *mut c_char,
) -> Status {
    guarded(|| {
        // SAFETY: As the caller promises.
        let (pool, place) = unsafe { asked(pool, "pool", json, "json") }?;
        place.set(text(
            of_backend!(&pool.0, pool => pool.snapshot()).to_json()?,
        )?);
        Ok(())
    })
}

/// Returns the most bytes that the pool may take from the device, as `binpool_pool_set_limit` takes it: 0 if there is no limit.
///
/// Any thread may call it.
///
/// # Safety
///
/// `pool` is null or a live pool. `bytes` is null, or a place for the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn binpool_pool_limit(pool: *const Pool, bytes: *mut u64) -> Status {
    guarded(|| {
        // SAFETY: As the caller promises.
        let (pool, place) = unsafe { asked(pool, "pool", bytes, "bytes") }?;
        let limit = of_backend!(&pool.0, pool => pool.limit());
        place.set(if limit == u64::MAX { 0 } else { limit });
        Ok(())
    })
}

/// Sets the most bytes that the pool may take from the device; 0 means no limit, as in `binpool_options`. Memory above the limit stays until it is freed:
/// `binpool_pool_trim` releases what is free already.
///
/// Any thread may call it.
///
/// # Safety
///
/// `pool` is null or a live pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn binpool_pool_set_limit(pool: *const Pool, bytes: u64) -> Status {
    guarded(|| {
        // SAFETY: As the caller promises.
        let pool = unsafe { borrowed(pool, "pool") }?;
        of_backend!(&pool.0, pool => pool.set_limit(limit_of(bytes)));
        Ok(())
    })
}

/// Releases free memory until the pool has at most `bytes` bytes of the device. Blocks in use stay. `released`, which may be null, gets the
/// number of released bytes.
///
/// Any thread may call it.
///
/// # Safety
///
/// `pool` is null or a live pool. `released` is null, or a place for the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn binpool_pool_trim(
    pool: *const Pool,
    bytes: u64,
    released: *mut u64,
) -> Status {
    guarded(|| {
        // SAFETY: As the caller promises.
        let pool = unsafe { borrowed(pool, "pool") }?;
        // SAFETY: As the caller promises.
        let place = unsafe { Out::perhaps(released) };
        let bytes = of_backend!(&pool.0, pool => pool.trim_to(bytes));
        if let Some(place) = place {
            place.set(bytes);
        }
        Ok(())
    })
}

/// Begins to track the tag and the age of each block, for reports, snapshots and out-of-memory messages. If `call_stacks` is
/// not 0, also the call stack of the request, which takes a few microseconds for each block.
///
/// Any thread may call it.
///
/// # Safety
///
/// `pool` is null or a live pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn binpool_pool_watch(pool: *const Pool, call_stacks: c_int) -> Status {
    guarded(|| {
        // SAFETY: As the caller promises.
        let pool = unsafe { borrowed(pool, "pool") }?;
        // Without stacks, the line that calls the pool would be one of this file.
        let with_stacks = call_stacks != 0;
        let options = WatchOptions::new()
            .backtraces(with_stacks)
            .tags_only(!with_stacks);
        of_backend!(&pool.0, pool => pool.watch(options));
        Ok(())
    })
}

/// Ends what `binpool_pool_watch` began.
///
/// Any thread may call it.
///
/// # Safety
///
/// `pool` is null or a live pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn binpool_pool_stop_watching(pool: *const Pool) -> Status {
    guarded(|| {
        // SAFETY: As the caller promises.
        let pool = unsafe { borrowed(pool, "pool") }?;
        of_backend!(&pool.0, pool => pool.stop_watching());
        Ok(())
    })
}

/// Begins to record every request of the pool in a new file at `path`, for `binpool replay`, `binpool tune` and `binpool view`. A file
/// that exists is overwritten. `binpool_recording_finish` ends and frees the recording.
///
/// Any thread may call it. Errors: `BUSY` if the pool is being recorded already, and that file stays as it is; `IO`.
///
/// # Safety
///
/// `pool` is null or a live pool. `path` is null, or a text that ends with a zero. `recording` is null, or a place for the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn binpool_pool_record(
    pool: *const Pool,
    path: *const c_char,
    recording: *mut *mut Recording,
) -> Status {
    guarded(|| {
        // SAFETY: As the caller promises.
        let (pool, place) = unsafe { asked(pool, "pool", recording, "recording") }?;
        // SAFETY: As the caller promises.
        let path = unsafe { string(path, "path") }?;
        let begun = Recording::begin(path, |file| {
            Ok(of_backend!(&pool.0, pool => pool.record(file))?)
        })?;
        place.set(handed_over(begun));
        Ok(())
    })
}
