//! The functions below the allocator that the Python package builds against the installed PyTorch (`bindings/python/binpool/torch_allocator`, whose
//! `functions.h` declares them once more). No function here throws.

#![expect(
    unsafe_code,
    reason = "functions that are found by name, and whose arguments the caller answers for"
)]

use std::{
    ffi::{c_int, c_void},
    ptr,
};

use binpool_allocators::contained::contained;

pub use super::pages::PagesWatcher;
use super::{
    functions::{self, pointer_of},
    pages,
    pools::{self, DevicePool},
    segments,
};
use crate::{
    border::{Out, caught, guarded},
    status::{Failure, Status},
};

/// A block, as the allocator gets it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Granted {
    /// Its address; null for a block of 0 bytes.
    pub address: *mut c_void,
    /// What it takes of the device, in bytes.
    pub bytes: usize,
}

/// What the allocator tells PyTorch of the pool of a device. Sizes in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// What the pool has from the device.
    pub managed: u64,
    /// The most of that.
    pub peak_managed: u64,
    /// The part of it that is free.
    pub held: u64,
    /// Free blocks that no stream may have at once.
    pub pending_blocks: u64,
    /// The sizes of those.
    pub pending: u64,
    /// Calls that mapped pages.
    pub maps: u64,
    /// Calls that unmapped pages.
    pub unmaps: u64,
    /// The bytes that those unmapped.
    pub unmapped: u64,
}

/// Allocates `bytes` bytes on a device for a stream. Where that fails, `binpool_last_error_message` has the pool's report.
///
/// # Safety
///
/// `stream` is a stream of the primary context of the device, and lives as long as the program. `granted` is a place for the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn binpool_torch_request(
    bytes: usize,
    device: c_int,
    stream: *mut c_void,
    granted: *mut Granted,
) -> Status {
    guarded(|| {
        // SAFETY: As the caller promises.
        let place = unsafe { Out::of(granted, "granted") }?;
        // SAFETY: The caller promises the same of the stream.
        let (address, bytes) = unsafe { functions::request(bytes, device, stream) }?;
        place.set(Granted {
            address: pointer_of(address),
            bytes,
        });
        Ok(())
    })
}

/// Allocates a segment for PyTorch's own allocator, which carves the blocks of graphs and other private pools from it; null if there is
/// no memory, after the report was logged. It waits until no command uses the memory. The stream, which may be captured, is not used.
#[unsafe(no_mangle)]
pub extern "C" fn binpool_torch_allocate_segment(
    bytes: isize,
    device: c_int,
    _stream: *mut c_void,
) -> *mut c_void {
    let allocated = caught(|| {
        let bytes = usize::try_from(bytes)
            .map_err(|_| Failure::argument(format!("a request of {bytes} bytes")))?;
        segments::allocate(bytes, device)
    });
    allocated.map_or_else(
        |failure| {
            tracing::warn!(error = failure.message, "no memory for a segment");
            ptr::null_mut()
        },
        pointer_of,
    )
}

/// Frees what [`binpool_torch_allocate_segment`] has returned, after everything that the device has been given until now. No stream is
/// captured meanwhile.
#[unsafe(no_mangle)]
pub extern "C" fn binpool_torch_free_segment(
    pointer: *mut c_void,
    _bytes: isize,
    device: c_int,
    _stream: *mut c_void,
) {
    if pointer.is_null() {
        return;
    }
    if let Err(failure) = caught(|| segments::free(pointer, device)) {
        tracing::error!(error = failure.message, "a segment could not be freed");
    }
}

/// Returns the figures of the pool of a device, all of the same moment; zeros where none was made.
#[unsafe(no_mangle)]
pub extern "C" fn binpool_torch_figures(device: c_int) -> Figures {
    let Some(pool) = pools::find(device) else {
        return Figures::default();
    };
    let now = contained("counting", || pool.pool().statistics()).unwrap_or_default();
    Figures {
        managed: now.managed_bytes,
        peak_managed: now.peak_managed_bytes,
        held: now.held_bytes,
        pending_blocks: now.pending_blocks,
        pending: now.pending_bytes,
        maps: now.maps,
        unmaps: now.unmaps,
        unmapped: pool.pages.unmapped_bytes(),
    }
}

/// Has the peaks of the pool of a device begin again.
#[unsafe(no_mangle)]
pub extern "C" fn binpool_torch_reset_peaks(device: c_int) {
    if let Some(pool) = pools::find(device) {
        contained("resetting peaks", || pool.pool().reset_peaks());
    }
}

/// Sets the most bytes that the pool of a device takes.
#[unsafe(no_mangle)]
pub extern "C" fn binpool_torch_set_limit(device: c_int, bytes: u64) -> Status {
    guarded(|| {
        DevicePool::of(device)?.pool().set_limit(bytes);
        Ok(())
    })
}

/// Sets the function that is told of pages that are mapped and unmapped from now on; null for none.
#[unsafe(no_mangle)]
pub extern "C" fn binpool_torch_watch_pages(watcher: Option<PagesWatcher>) {
    pages::watch(watcher);
}

/// Calls `visit` with the address and the bytes of each range of pages that is mapped for the pool of a device, in the order of addresses.
///
/// # Safety
///
/// `visit` may be called with `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn binpool_torch_pages(
    device: c_int,
    visit: extern "C" fn(*mut c_void, u64, usize),
    context: *mut c_void,
) {
    let mapped = pools::find(device).map(|pool| pool.pages.mapped());
    for (address, bytes) in mapped.unwrap_or_default() {
        visit(context, address, bytes);
    }
}

/// Lets kernels of a device use the memory of the pool of another, now and from now on.
#[unsafe(no_mangle)]
pub extern "C" fn binpool_torch_enable_peer_access(device: c_int, other: c_int) -> Status {
    guarded(|| {
        let (device, other) = (DevicePool::of(device)?, DevicePool::of(other)?);
        let mapped = other.pages.lock();
        let backend = other.pool().backend();
        if device.pool().backend().enable_peer_access(backend)? {
            for (address, bytes) in mapped.iter() {
                backend.admit_peers(*address, *bytes)?;
            }
        }
        Ok(())
    })
}
