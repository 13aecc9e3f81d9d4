//! Transfers between the host's bytes and the device's.

use std::{ffi::c_void, sync::Arc};

use super::{
    EventHandle, HostBytes, MemHandle, QueueHandle, SvmRange, WaitList, enqueue::own_event,
    event::wait_until_ended, host_vec::HostVec,
};
use crate::cl_error::ClResult;

const NOT_BLOCKING: u32 = cl3::types::CL_FALSE;

/// Where on the device a transfer starts, and for SVM also where it ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place<'a> {
    /// A byte of a buffer. The runtime checks the bounds.
    Buffer(&'a MemHandle, usize),
    /// Checked bytes of shared virtual memory.
    Svm(SvmRange<'a>),
}

/// Enqueues a write of the bytes at `source`.
///
/// # Safety
///
/// `bytes` bytes at `source` are readable until the command has ended.
pub(super) unsafe fn write(
    queue: &QueueHandle,
    place: Place<'_>,
    source: *const u8,
    bytes: usize,
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    match place {
        Place::Buffer(buffer, offset) => {
            // SAFETY: (1) queue, buffer and events are live references; (2) `source` stays readable, as
            // the caller promises.
            let event = unsafe {
                cl3::command_queue::enqueue_write_buffer(
                    queue.raw(),
                    buffer.raw(),
                    NOT_BLOCKING,
                    offset,
                    bytes,
                    source.cast::<c_void>(),
                    wait.count(),
                    wait.pointer(),
                )
            };
            // SAFETY: This is that call's event.
            unsafe { own_event("clEnqueueWriteBuffer", event) }
        }
        Place::Svm(range) => {
            // SAFETY: (1) `source` stays readable, as the caller promises; (2) the range lies in its
            // block, which is not freed under a command (see `sys`).
            let event = unsafe {
                cl3::command_queue::enqueue_svm_mem_cpy(
                    queue.raw(),
                    NOT_BLOCKING,
                    range.start().as_ptr().cast::<c_void>(),
                    source.cast::<c_void>(),
                    bytes.min(range.bytes()),
                    wait.count(),
                    wait.pointer(),
                )
            };
            // SAFETY: This is that call's event.
            unsafe { own_event("clEnqueueSVMMemcpy", event) }
        }
    }
}

/// Enqueues a read into the bytes at `target`.
///
/// # Safety
///
/// `bytes` bytes at `target` are writable, and nobody else touches them, until the command has ended.
pub(super) unsafe fn read(
    queue: &QueueHandle,
    place: Place<'_>,
    target: *mut u8,
    bytes: usize,
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    match place {
        Place::Buffer(buffer, offset) => {
            // SAFETY: (1) queue, buffer and events are live references; (2) `target` stays writable, as
            // the caller promises.
            let event = unsafe {
                cl3::command_queue::enqueue_read_buffer(
                    queue.raw(),
                    buffer.raw(),
                    NOT_BLOCKING,
                    offset,
                    bytes,
                    target.cast::<c_void>(),
                    wait.count(),
                    wait.pointer(),
                )
            };
            // SAFETY: This is that call's event.
            unsafe { own_event("clEnqueueReadBuffer", event) }
        }
        Place::Svm(range) => {
            // SAFETY: (1) `target` stays writable, as the caller promises; (2) the range lies in its
            // block, which is not freed under a command (see `sys`).
            let event = unsafe {
                cl3::command_queue::enqueue_svm_mem_cpy(
                    queue.raw(),
                    NOT_BLOCKING,
                    target.cast::<c_void>(),
                    range.start().as_ptr().cast::<c_void>(),
                    bytes.min(range.bytes()),
                    wait.count(),
                    wait.pointer(),
                )
            };
            // SAFETY: This is that call's event.
            unsafe { own_event("clEnqueueSVMMemcpy", event) }
        }
    }
}

/// Writes `data`, calls `enqueued`, and waits until the command has ended.
///
/// Not the runtime's own blocking form: that waits for the whole queue on `PoCL`, and leaves no event to
/// learn from what happened where it fails.
pub(crate) fn write_borrowed(
    queue: &QueueHandle,
    place: Place<'_>,
    data: &[u8],
    wait: &WaitList<'_>,
    enqueued: impl FnOnce(&EventHandle),
) -> ClResult<(EventHandle, ClResult<()>)> {
    // SAFETY: `data` is borrowed until this returns, which is after the command has ended.
    let event = unsafe { write(queue, place, data.as_ptr(), data.len(), wait) }?;
    enqueued(&event);
    let ended = wait_until_ended(&event);
    Ok((event, ended))
}

/// Reads into `data`, calls `enqueued`, and waits until the command has ended.
pub(crate) fn read_borrowed(
    queue: &QueueHandle,
    place: Place<'_>,
    data: &mut [u8],
    wait: &WaitList<'_>,
    enqueued: impl FnOnce(&EventHandle),
) -> ClResult<(EventHandle, ClResult<()>)> {
    // SAFETY: `data` is borrowed exclusively until this returns, which is after the command has ended.
    let event = unsafe { read(queue, place, data.as_mut_ptr(), data.len(), wait) }?;
    enqueued(&event);
    let ended = wait_until_ended(&event);
    Ok((event, ended))
}

/// Enqueues a write of `data`, which the caller keeps until the command has ended.
pub(crate) fn write_kept(
    queue: &QueueHandle,
    place: Place<'_>,
    data: &Arc<[u8]>,
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    // SAFETY: `data` is kept until the command has ended (see `sys`).
    unsafe { write(queue, place, data.as_ptr(), data.len(), wait) }
}

/// Enqueues a read into `target`, which the caller keeps until the command has ended.
pub(crate) fn read_kept(
    queue: &QueueHandle,
    place: Place<'_>,
    target: &Arc<HostBytes>,
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    // SAFETY: (1) `target` is kept until the command has ended (see `sys`); (2) its bytes are taken only after
    // that.
    unsafe { read(queue, place, target.start(), target.length(), wait) }
}

/// Enqueues a write of a vector's elements, which the caller keeps until the command has ended.
pub(crate) fn write_vec<T>(
    queue: &QueueHandle,
    place: Place<'_>,
    source: &Arc<HostVec<T>>,
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    // SAFETY: (1) `source` is kept until the command has ended (see `sys`); (2) its elements have no padding, as the
    // bounds of the calls that make one say, so all their bytes can be read.
    unsafe { write(queue, place, source.start(), source.bytes(), wait) }
}

/// Enqueues a read into a vector's elements, which the caller keeps until the command has ended.
pub(crate) fn read_vec<T>(
    queue: &QueueHandle,
    place: Place<'_>,
    target: &Arc<HostVec<T>>,
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    // SAFETY: (1) `target` is kept until the command has ended (see `sys`); (2) its elements are taken only after that;
    // (3) any bytes are elements, as the bounds of the calls that make one say.
    unsafe { read(queue, place, target.start(), target.bytes(), wait) }
}
