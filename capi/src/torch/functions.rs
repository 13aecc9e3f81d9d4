//! The functions that PyTorch calls.

#![expect(
    unsafe_code,
    reason = "functions that are found by name, and whose arguments the caller answers for"
)]

use std::{
    ffi::{c_int, c_void},
    ptr,
};

use binpool::contained::contained;

use super::{
    blocks::{self, Given},
    exception, names,
    pools::{self, PER_THREAD, Place},
};
use crate::{
    border::{Out, caught, guarded, handed_over},
    of_backend::OfBackend,
    pool::Pool,
    status::{Failure, Status},
};

/// Allocates `bytes` bytes on a device for a stream (null is the legacy default stream), and returns their address; null for 0 bytes.
///
/// Where there is no memory, it throws a C++ exception: see the [module](super#without-memory). It returns null only where the program has
/// no `libstdc++.so.6`.
///
/// # Safety
///
/// `stream` is a stream of the primary context of the device, and lives as long as the program. The caller is C++.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn binpool_torch_allocate(
    bytes: isize,
    device: c_int,
    stream: *mut c_void,
) -> *mut c_void {
    // SAFETY: The caller promises the same of the stream.
    let allocated = unsafe { allocate(bytes, device, stream) };
    match allocated {
        Ok(pointer) => pointer,
        Err(failure) => {
            // SAFETY: The caller is C++, and nothing is left here to drop.
            unsafe { exception::throw(failure) };
            ptr::null_mut()
        }
    }
}

/// Allocates as [`binpool_torch_allocate`] does, but returns null where there is no memory, after it has logged why.
///
/// # Safety
///
/// `stream` is a stream of the primary context of the device, and lives as long as the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn binpool_torch_try_allocate(
    bytes: isize,
    device: c_int,
    stream: *mut c_void,
) -> *mut c_void {
    // SAFETY: The caller promises the same of the stream.
    let allocated = unsafe { allocate(bytes, device, stream) };
    allocated.unwrap_or_else(|failure| {
        tracing::warn!(error = failure.message, "a request got no memory");
        ptr::null_mut()
    })
}

/// Frees what [`binpool_torch_allocate`] has returned, after the commands that the stream has had until now. Null does nothing; an
/// address that is not of a block is logged.
///
/// # Safety
///
/// As for [`binpool_torch_allocate`]. No command that is enqueued later uses the memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn binpool_torch_free(
    pointer: *mut c_void,
    _bytes: isize,
    device: c_int,
    stream: *mut c_void,
) {
    if !pointer.is_null() {
        contained("freeing a block", || free(pointer, device, stream));
    }
}

/// Notes that commands of a stream use a block: when it is freed, no other request gets it before those have ended.
///
/// # Safety
///
/// `stream` is a stream of the primary context of the block's device, and lives as long as the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn binpool_torch_record_stream(pointer: *mut c_void, stream: *mut c_void) {
    if !pointer.is_null() {
        contained("noting a use", || record_stream(pointer, stream));
    }
}

/// Releases what is free in the pools of all devices.
#[unsafe(no_mangle)]
pub extern "C" fn binpool_torch_empty_cache() {
    contained("releasing free memory", || {
        for device in pools::all() {
            device.pool.trim_to(0);
        }
    });
}

/// Refuses the memory of a graph: throws a C++ exception that says what to do instead.
///
/// PyTorch calls it, by `set_begin_allocate_to_pool`, before it captures a graph, with arguments that this function does not look at. It tells
/// an allocator in its own's place nothing else of graphs, whose memory would go to others while they live.
///
/// # Safety
///
/// The caller is C++.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn binpool_torch_refuse_graph() {
    let failure = Failure::new(
        Status::Unsupported,
        "a graph keeps its memory, which an allocator in place of PyTorch's own cannot see to: leave PyTorch's allocator in place, and take \
         the graph's memory from the pool by `torch.cuda.MemPool` (`binpool.torch.memory_pool()`)",
    );
    // SAFETY: The caller is C++, and nothing is left here to drop.
    unsafe { exception::throw(failure) };
}

/// Returns the pool of a device, which is made where there is none, for the other functions of the interface: its counters, its limit, its
/// recording. It is freed by `binpool_pool_free`, which leaves PyTorch's tensors as they are.
///
/// Any thread may call it. Errors: `UNSUPPORTED` where there is no CUDA driver; `INVALID_ARGUMENT`, `BACKEND`.
///
/// # Safety
///
/// `pool` is null, or a place for the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn binpool_torch_pool(device: c_int, pool: *mut *mut Pool) -> Status {
    guarded(|| {
        // SAFETY: As the caller promises.
        let place = unsafe { Out::of(pool, "pool") }?;
        place.set(handed_over(Pool(OfBackend::Cuda(pools::pool_of(device)?))));
        Ok(())
    })
}

/// Allocates as [`binpool_torch_allocate`] does, for callers in Rust.
///
/// # Errors
///
/// A failure with the pool's report, if memory is lacking.
///
/// # Safety
///
/// `stream` is a stream of the primary context of the device, and lives as long as the program.
pub unsafe fn allocate(
    bytes: isize,
    device: i32,
    stream: *mut c_void,
) -> Result<*mut c_void, Failure> {
    if bytes == 0 {
        return Ok(ptr::null_mut());
    }
    caught(|| {
        let size = usize::try_from(bytes)
            .map_err(|_| Failure::argument(format!("a request of {bytes} bytes")))?;
        let (block, address) = Place::with(device, stream, |place| {
            let pool = &place.pool.pool;
            let block = names::within(pool, || pool.allocate_on(place.queue(), size))?;
            let memory = block.memory_on(place.queue());
            let address = memory.map_or(Ok(0), binpool_cuda::CudaMemory::device_address)?;
            Ok((block, address))
        })?;
        let given = Given {
            block,
            device,
            stream: stream.addr(),
        };
        blocks::insert(address, given);
        // Memory of the device, which nothing on the host looks at. Addresses have 64 bits where CUDA is.
        Ok(ptr::without_provenance_mut(
            usize::try_from(address).unwrap_or(0),
        ))
    })
}

fn free(pointer: *mut c_void, device: i32, stream: *mut c_void) {
    let Some(given) = blocks::take(pointer) else {
        tracing::error!(
            ?pointer,
            "an address was freed that is not of a block: it was freed before, or allocated elsewhere"
        );
        return;
    };
    // The handle of per-thread default streams may mean another one here than where the block was requested.
    if stream.addr() != given.stream || stream.addr() == PER_THREAD {
        note_use(&given, device, stream);
    }
}

fn record_stream(pointer: *mut c_void, stream: *mut c_void) {
    let Some(device) = blocks::with(pointer, |given| given.device) else {
        tracing::error!(
            ?pointer,
            "a use was noted of an address that is not of a block"
        );
        return;
    };
    // The place is looked up before the map is locked. A block notes its uses itself, without its pool.
    let noted = Place::with(device, stream, |place| {
        let noted = blocks::with(pointer, |given| given.block.record_use(place.queue()));
        Ok(noted.transpose().map(drop)?)
    });
    if let Err(failure) = noted {
        tracing::error!(error = failure.message, "a use of a block cannot be noted");
    }
}

fn note_use(given: &Given, device: i32, stream: *mut c_void) {
    let noted = Place::with(device, stream, |place| {
        Ok(given.block.record_use(place.queue())?)
    });
    if let Err(failure) = noted {
        tracing::error!(error = failure.message, "a use of a block cannot be noted");
    }
}
