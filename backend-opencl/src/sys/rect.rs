//! Rectangular transfers.

use std::{ffi::c_void, sync::Arc};

use cl3::types::CL_FALSE;

use super::{
    ClResult, EventHandle, HostBytes, MemHandle, QueueHandle, WaitList, enqueue::own_event,
    event::wait_borrowed,
};

/// Where a rectangle lies in memory: its first byte, and the pitches, in bytes.
///
/// The first byte is passed as the first number of the origin, with zeros for row and slice: NVIDIA's driver counts rows
/// and slices up to the ends of their pitches, and this way it counts the least.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Corner {
    pub(crate) offset: usize,
    pub(crate) row_pitch: usize,
    pub(crate) slice_pitch: usize,
}

impl Corner {
    /// Returns the corner of the same rectangle in memory of which this memory begins at byte `start`.
    pub(crate) const fn moved_by(self, start: usize) -> Self {
        let offset = self.offset.saturating_add(start);
        Self { offset, ..self }
    }

    const fn origin(&self) -> [usize; 3] {
        [self.offset, 0, 0]
    }
}

/// A rectangle between a buffer and the host, whose bounds on both sides are checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostRect<'a> {
    pub(crate) buffer: &'a MemHandle,
    pub(crate) device: Corner,
    pub(crate) host: Corner,
    /// Bytes, rows and slices.
    pub(crate) region: [usize; 3],
}

/// Enqueues a write of a rectangle of the bytes at `source`.
///
/// # Safety
///
/// The host's side of `rect` lies in memory at `source` that is readable until the command has ended.
pub(super) unsafe fn write(
    queue: &QueueHandle,
    rect: &HostRect<'_>,
    source: *const u8,
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    // SAFETY: (1) queue, buffer and events are kept alive by their handles; (2) origins and region have three numbers each;
    // (3) `source` is readable, as the caller promises. The runtime checks the buffer's bounds.
    let event = unsafe {
        cl3::command_queue::enqueue_write_buffer_rect(
            queue.raw(),
            rect.buffer.raw(),
            CL_FALSE,
            rect.device.origin().as_ptr(),
            rect.host.origin().as_ptr(),
            rect.region.as_ptr(),
            rect.device.row_pitch,
            rect.device.slice_pitch,
            rect.host.row_pitch,
            rect.host.slice_pitch,
            source.cast::<c_void>(),
            wait.count(),
            wait.pointer(),
        )
    };
    // SAFETY: The call above has just returned this event, and nothing else takes its reference.
    unsafe { own_event("clEnqueueWriteBufferRect", event) }
}

/// Enqueues a read of a rectangle into the bytes at `target`.
///
/// # Safety
///
/// The host's side of `rect` lies in memory at `target` that is writable, and that nothing else touches, until the command
/// has ended.
pub(super) unsafe fn read(
    queue: &QueueHandle,
    rect: &HostRect<'_>,
    target: *mut u8,
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    // SAFETY: (1) queue, buffer and events are kept alive by their handles; (2) origins and region have three numbers each;
    // (3) `target` is writable, as the caller promises. The runtime checks the buffer's bounds.
    let event = unsafe {
        cl3::command_queue::enqueue_read_buffer_rect(
            queue.raw(),
            rect.buffer.raw(),
            CL_FALSE,
            rect.device.origin().as_ptr(),
            rect.host.origin().as_ptr(),
            rect.region.as_ptr(),
            rect.device.row_pitch,
            rect.device.slice_pitch,
            rect.host.row_pitch,
            rect.host.slice_pitch,
            target.cast::<c_void>(),
            wait.count(),
            wait.pointer(),
        )
    };
    // SAFETY: The call above has just returned this event, and nothing else takes its reference.
    unsafe { own_event("clEnqueueReadBufferRect", event) }
}

/// Writes a rectangle of `data`, in whose bounds its host side lies, passes the event on, and waits until the command
/// has ended.
pub(crate) fn write_borrowed(
    queue: &QueueHandle,
    rect: &HostRect<'_>,
    data: &[u8],
    wait: &WaitList<'_>,
    enqueued: impl FnOnce(&EventHandle),
) -> ClResult<(EventHandle, ClResult<()>)> {
    // SAFETY: `data` is borrowed until this returns, which is after the command has ended.
    let event = unsafe { write(queue, rect, data.as_ptr(), wait) }?;
    Ok(wait_borrowed(event, enqueued))
}

/// Reads a rectangle into `data`, in whose bounds its host side lies, passes the event on, and waits until the command
/// has ended.
pub(crate) fn read_borrowed(
    queue: &QueueHandle,
    rect: &HostRect<'_>,
    data: &mut [u8],
    wait: &WaitList<'_>,
    enqueued: impl FnOnce(&EventHandle),
) -> ClResult<(EventHandle, ClResult<()>)> {
    // SAFETY: `data` is borrowed exclusively until this returns, which is after the command has ended.
    let event = unsafe { read(queue, rect, data.as_mut_ptr(), wait) }?;
    Ok(wait_borrowed(event, enqueued))
}

/// Enqueues a write of a rectangle of `data`, which the caller keeps until the command has ended, and in whose bounds its
/// host side lies.
pub(crate) fn write_retained(
    queue: &QueueHandle,
    rect: &HostRect<'_>,
    data: &Arc<[u8]>,
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    // SAFETY: `data` is kept until the command has ended (rule 3 of `sys`).
    unsafe { write(queue, rect, data.as_ptr(), wait) }
}

/// Enqueues a read of a rectangle into `target`, which the caller keeps until the command has ended, and in whose bounds
/// its host side lies.
pub(crate) fn read_retained(
    queue: &QueueHandle,
    rect: &HostRect<'_>,
    target: &Arc<HostBytes>,
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    // SAFETY: (1) `target` is kept until the command has ended (rule 3 of `sys`); (2) its bytes are taken only after that.
    unsafe { read(queue, rect, target.start(), wait) }
}

/// Enqueues a copy of a rectangle between buffers. The runtime checks the bounds, and whether the two overlap.
pub(crate) fn enqueue_copy(
    queue: &QueueHandle,
    (source, from): (&MemHandle, Corner),
    (destination, to): (&MemHandle, Corner),
    region: [usize; 3],
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    // SAFETY: (1) queue, buffers and events are kept alive by their handles; (2) origins and region have three numbers
    // each.
    let event = unsafe {
        cl3::command_queue::enqueue_copy_buffer_rect(
            queue.raw(),
            source.raw(),
            destination.raw(),
            from.origin().as_ptr(),
            to.origin().as_ptr(),
            region.as_ptr(),
            from.row_pitch,
            from.slice_pitch,
            to.row_pitch,
            to.slice_pitch,
            wait.count(),
            wait.pointer(),
        )
    };
    // SAFETY: The call above has just returned this event, and nothing else takes its reference.
    unsafe { own_event("clEnqueueCopyBufferRect", event) }
}
