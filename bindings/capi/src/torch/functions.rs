//! The functions that PyTorch calls.

#![expect(
    unsafe_code,
    reason = "functions that are found by name, and whose arguments the caller answers for"
)]

use std::{
    ffi::{c_int, c_void},
    ptr,
};

use binpool_allocators::contained::contained;

use super::{
    exception, names,
    pools::{self, Place},
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

/// Allocates as [`binpool_torch_allocate`] does, but returns null if there is no memory, after it has logged why.
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
        tracing::warn!(error = failure.message, "no memory for a request");
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
        for (_, device) in pools::all() {
            device.pool().trim_to(0);
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
        "a graph must keep its memory, which an allocator in place of PyTorch's own cannot ensure: leave PyTorch's allocator in place, and take \
         the graph's memory from the pool by `torch.cuda.MemPool` (`binpool.torch.memory_pool()`)",
    );
    // SAFETY: The caller is C++, and nothing is left here to drop.
    unsafe { exception::throw(failure) };
}

/// Returns the pool of a device, and creates it if needed, for the other functions of the interface: its counters, its limit, its
/// recording. It is freed by `binpool_pool_free`, which leaves PyTorch's tensors as they are.
///
/// Any thread may call it. Errors: `UNSUPPORTED` if there is no CUDA driver; `INVALID_ARGUMENT`, `BACKEND`.
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
        // SAFETY: The caller promises the same of the stream.
        let (address, _) = unsafe { request(size, device, stream) }?;
        Ok(pointer_of(address))
    })
}

/// Allocates a block, and returns its address, and what it takes of the device.
///
/// # Safety
///
/// `stream` is a stream of the primary context of the device, and lives as long as the program.
pub(super) unsafe fn request(
    bytes: usize,
    device: i32,
    stream: *mut c_void,
) -> Result<(u64, usize), Failure> {
    Place::with(device, stream, |place| {
        let memory = &place.pool.memory;
        let allocate = || memory.pool().allocate_on(place.queue(), bytes);
        let block = names::within(memory.pool(), allocate)?;
        let whole = block.class_size();
        Ok((memory.add(place.queue(), block)?, whole))
    })
}

fn free(pointer: *mut c_void, device: i32, stream: *mut c_void) {
    let freed = Place::with(device, stream, |place| {
        let memory = &place.pool.memory;
        Ok(memory.free_on(place.queue(), address_of(pointer))?)
    });
    if let Err(failure) = freed {
        tracing::error!(error = failure.message, "a block could not be freed");
    }
}

fn record_stream(pointer: *mut c_void, stream: *mut c_void) {
    let address = address_of(pointer);
    let pools = pools::all().into_iter();
    let mut of_block = pools.filter(|(_, pool)| pool.memory.contains(address));
    let Some((device, _)) = of_block.next() else {
        tracing::error!(
            ?pointer,
            "a use of an address outside all blocks was recorded"
        );
        return;
    };
    let noted = Place::with(device, stream, |place| {
        Ok(place.pool.memory.record_use(place.queue(), address)?)
    });
    if let Err(failure) = noted {
        tracing::error!(error = failure.message, "could not record a use of a block");
    }
}

pub(super) fn address_of(pointer: *mut c_void) -> u64 {
    pointer.addr() as u64
}

/// Returns an address of the device, which nothing on the host looks at, as a pointer. Addresses have 64 bits where CUDA is.
pub(super) fn pointer_of(address: u64) -> *mut c_void {
    ptr::without_provenance_mut(usize::try_from(address).unwrap_or(0))
}
