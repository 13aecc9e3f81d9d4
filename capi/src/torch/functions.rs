//! The functions that PyTorch calls.

#![expect(
    unsafe_code,
    reason = "functions that are found by name, and whose arguments the caller answers for"
)]

use std::{
    ffi::{c_int, c_void},
    panic::{AssertUnwindSafe, catch_unwind},
    ptr,
};

use super::{
    blocks::{self, Given},
    exception,
    failure::Failure,
    pools::{self, Place},
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
            let exception = exception::make(&failure);
            drop(failure);
            if let Some(exception) = exception {
                // SAFETY: The caller is C++, and nothing is left here to drop.
                unsafe { exception.throw() }
            }
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
        tracing::warn!(error = failure.text, "a request got no memory");
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

/// Figures of a device's pool, in bytes where they are not counts. See [`PoolStatistics`](binpool::PoolStatistics).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TorchFigures {
    /// What the program has, as it was requested.
    pub active_bytes: u64,
    /// The most of these.
    pub peak_active_bytes: u64,
    /// What the pool has of the device.
    pub managed_bytes: u64,
    /// The most of these.
    pub peak_managed_bytes: u64,
    /// How often the pool took memory from the device.
    pub misses: u64,
    /// Calls that mapped pages.
    pub maps: u64,
    /// Calls that unmapped pages.
    pub unmaps: u64,
}

/// Writes the figures of the pool of a device, and returns whether there is one: it is made where there is none.
///
/// # Safety
///
/// `figures` points to room for the figures.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn binpool_torch_figures(device: c_int, figures: *mut TorchFigures) -> bool {
    let ask = || pools::pool_of(device).map(|pool| pool.statistics());
    let Some(now) = catch_unwind(ask).ok().flatten() else {
        return false;
    };
    let found = TorchFigures {
        active_bytes: now.active_bytes,
        peak_active_bytes: now.peak_active_bytes,
        managed_bytes: now.managed_bytes,
        peak_managed_bytes: now.peak_managed_bytes,
        misses: now.misses,
        maps: now.maps,
        unmaps: now.unmaps,
    };
    // SAFETY: There is room, as the caller promises.
    unsafe { figures.write(found) };
    true
}

/// Allocates as [`binpool_torch_allocate`] does, for callers in Rust.
///
/// # Errors
///
/// A [`Failure`] with the pool's report.
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
    let work = || {
        let size = usize::try_from(bytes)
            .map_err(|_| Failure::other(format_args!("a request of {bytes} bytes")))?;
        let place = Place::of(device, stream)?;
        let block = place.pool.pool.allocate_on(place.queue, size)?;
        let memory = block.memory_on(place.queue);
        let address = memory.map_or(Ok(0), binpool_cuda::CudaMemory::cu_device_ptr)?;
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
    };
    let panicked = |_| Failure::other("a panic in a request, which is a defect: please report it");
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(panicked(panic)))
}

fn free(pointer: *mut c_void, device: i32, stream: *mut c_void) {
    let Some(given) = blocks::take(pointer) else {
        tracing::error!(
            ?pointer,
            "an address was freed that is not of a block: it was freed before, or allocated elsewhere"
        );
        return;
    };
    if stream.addr() != given.stream {
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
    // Looked up before the map is locked.
    match Place::of(device, stream) {
        Ok(place) => {
            // A block notes its uses itself, without its pool.
            let noted = blocks::with(pointer, |given| given.block.record_use(place.queue));
            if let Some(Err(error)) = noted {
                tracing::error!(%error, "a use of a block cannot be noted");
            }
        }
        Err(failure) => tracing::error!(error = failure.text, "a stream cannot be used"),
    }
}

fn note_use(given: &Given, device: i32, stream: *mut c_void) {
    let noted = Place::of(device, stream).and_then(|place| {
        given.block.record_use(place.queue)?;
        Ok(())
    });
    if let Err(failure) = noted {
        tracing::error!(error = failure.text, "a use of a block cannot be noted");
    }
}

/// Keeps a panic from the caller, which is not Rust.
fn contained(what: &str, work: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(work)).is_err() {
        tracing::error!(what, "a panic, which is a defect: please report it");
    }
}
