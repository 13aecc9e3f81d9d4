//! Blocks that other processes use.

#![expect(
    unsafe_code,
    reason = "functions that are found by name, and whose arguments the caller answers for"
)]

use std::{
    collections::HashMap,
    ffi::{c_int, c_void},
    os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd},
    slice,
};

use binpool::Memory;
use binpool_allocators::contained::contained;
use binpool_cuda::{CudaMemory, ExportedMemory};
use parking_lot::Mutex;

use super::{
    functions::{address_of, pointer_of},
    pools::{DevicePool, Place},
};
use crate::{
    border::{Out, guarded, handed_over},
    status::{Failure, Status},
};

/// The descriptors of the pages of shared blocks. Blocks on the same pages share their descriptors, so that the receiving process maps the
/// pages once.
#[derive(Default)]
struct Shared {
    /// By the address where the pages begin: the descriptor, and how many shared blocks lie on them.
    pages: HashMap<u64, (OwnedFd, usize)>,
    /// By the address of the block: where it begins in its first page, and the addresses and bytes of its pages.
    blocks: HashMap<u64, (usize, Vec<(u64, usize)>)>,
}

static SHARED: Mutex<Option<Shared>> = Mutex::new(None);

/// Returns where a block begins in its pages, and their descriptors and bytes. They are open until the block is [taken back](take_back).
fn share(place: &Place, address: u64) -> Result<(usize, Vec<(RawFd, usize)>), Failure> {
    let mut shared = SHARED.lock();
    let shared = shared.get_or_insert_default();
    if !shared.blocks.contains_key(&address) {
        let backend = place.pool.pool().backend();
        let exported = place
            .pool
            .memory
            .with_block(address, |block| backend.export(place.queue(), block));
        let exported = exported
            .ok_or_else(|| Failure::argument(format!("no block starts at {address:#x}")))??;
        shared.add(address, &exported)?;
    }
    let (offset, pages) = shared.blocks.get(&address).cloned().unwrap_or_default();
    let descriptors = pages.iter().filter_map(|(page, bytes)| {
        let (descriptor, _) = shared.pages.get(page)?;
        Some((descriptor.as_raw_fd(), *bytes))
    });
    Ok((offset, descriptors.collect()))
}

/// Closes the descriptors of a block that no other process uses any more.
fn take_back(address: u64) {
    if let Some(shared) = SHARED.lock().as_mut() {
        shared.remove(address);
    }
}

impl Shared {
    fn add(&mut self, address: u64, exported: &ExportedMemory) -> Result<(), Failure> {
        let layout = exported.layout();
        let numbers: Vec<_> = layout
            .iter()
            .map(|number| usize::try_from(*number).unwrap_or(usize::MAX))
            .collect();
        let [offset, _, sizes @ ..] = &numbers[..] else {
            return Ok(());
        };
        let mut at = address - *offset as u64;
        let mut pages = Vec::new();
        let mut new = Vec::new();
        for (descriptor, bytes) in exported.descriptors().zip(sizes) {
            if !self.pages.contains_key(&at) {
                let own = descriptor.try_clone_to_owned().map_err(|error| Failure::argument(format!(
                    "no file descriptor is left ({error}): raise the limit of open files (`ulimit -n`)"
                )))?;
                new.push((at, (own, 0)));
            }
            pages.push((at, *bytes));
            at += *bytes as u64;
        }
        // Nothing fails from here on. A page that stayed without a block would be sent later in the place of others at its address.
        self.pages.extend(new);
        for (page, _) in &pages {
            if let Some((_, blocks)) = self.pages.get_mut(page) {
                *blocks += 1;
            }
        }
        self.blocks.insert(address, (*offset, pages));
        Ok(())
    }

    fn remove(&mut self, address: u64) {
        let Some((_, pages)) = self.blocks.remove(&address) else {
            return;
        };
        for (page, _) in pages {
            if let Some((_, blocks)) = self.pages.get_mut(&page) {
                *blocks -= 1;
                if *blocks == 0 {
                    self.pages.remove(&page);
                }
            }
        }
    }
}

/// Maps pages of another process, by their descriptors and bytes, and returns the memory with its address.
fn receive(device: i32, pages: &[(BorrowedFd<'_>, usize)]) -> Result<(CudaMemory, u64), Failure> {
    let all: usize = pages.iter().map(|(_, bytes)| bytes).sum();
    let sizes = pages.iter().map(|(_, bytes)| *bytes as u64);
    let layout: Vec<_> = [0, all as u64].into_iter().chain(sizes).collect();
    let descriptors = pages
        .iter()
        .map(|(descriptor, _)| descriptor.try_clone_to_owned());
    let descriptors = descriptors.collect::<Result<Vec<_>, _>>();
    let descriptors = descriptors.map_err(|error| Failure::argument(error.to_string()))?;
    let exported = ExportedMemory::from_parts(descriptors, &layout)?;
    let memory = DevicePool::of(device)?.pool().backend().import(&exported)?;
    let address = memory.device_address()?;
    Ok((memory, address))
}

/// Shares a block with other processes: calls `visit` with the descriptor and the bytes of each range of pages that it lies on, and sets where
/// it begins in the first. The descriptors are open until [`binpool_torch_take_back`].
///
/// # Safety
///
/// `stream` is that of the block. `visit` may be called with `context`, and `offset` is a place for the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn binpool_torch_share(
    pointer: *mut c_void,
    device: c_int,
    stream: *mut c_void,
    visit: extern "C" fn(*mut c_void, c_int, usize),
    context: *mut c_void,
    offset: *mut usize,
) -> Status {
    guarded(|| {
        // SAFETY: As the caller promises.
        let place = unsafe { Out::of(offset, "offset") }?;
        let (begins, pages) = Place::with(device, stream, |of| share(of, address_of(pointer)))?;
        for (descriptor, bytes) in pages {
            visit(context, descriptor, bytes);
        }
        place.set(begins);
        Ok(())
    })
}

/// Closes the descriptors of a block that is no longer shared.
#[unsafe(no_mangle)]
pub extern "C" fn binpool_torch_take_back(pointer: *mut c_void) {
    contained("taking a block back", || {
        take_back(address_of(pointer));
    });
}

/// Maps pages that another process has shared, by their descriptors and bytes, and sets their address. They stay until the handle is given to
/// [`binpool_torch_drop_received`].
///
/// # Safety
///
/// There are `count` open descriptors and sizes; `address` and `received` are places for the results.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn binpool_torch_receive(
    device: c_int,
    descriptors: *const c_int,
    bytes: *const usize,
    count: usize,
    address: *mut *mut c_void,
    received: *mut *mut c_void,
) -> Status {
    guarded(|| {
        // SAFETY: As the caller promises.
        let address = unsafe { Out::of(address, "address") }?;
        // SAFETY: As the caller promises.
        let received = unsafe { Out::of(received, "received") }?;
        // SAFETY: As the caller promises.
        let descriptors = unsafe { slice::from_raw_parts(descriptors, count) };
        // SAFETY: As the caller promises.
        let bytes = unsafe { slice::from_raw_parts(bytes, count) };
        let pages: Vec<_> = descriptors
            .iter()
            .zip(bytes)
            .map(|(descriptor, bytes)| {
                // SAFETY: It is open until the call returns, as the caller promises.
                (unsafe { BorrowedFd::borrow_raw(*descriptor) }, *bytes)
            })
            .collect();
        let (memory, at) = receive(device, &pages)?;
        address.set(pointer_of(at));
        received.set(handed_over(memory).cast());
        Ok(())
    })
}

/// Unmaps what [`binpool_torch_receive`] has mapped, after the device's commands. Null does nothing.
///
/// # Safety
///
/// `received` is null, or a handle that was not given to this function yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn binpool_torch_drop_received(received: *mut c_void) {
    if !received.is_null() {
        // SAFETY: It is of a box, as the caller promises.
        let memory = unsafe { Box::from_raw(received.cast::<CudaMemory>()) };
        contained("dropping received memory", || drop(memory));
    }
}
