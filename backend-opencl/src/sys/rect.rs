//! Rectangular transfers.

use cl3::types::CL_FALSE;

use super::{
    ClResult, DeviceBytes, EventHandle, HostSide, MemHandle, QueueHandle, WaitList,
    enqueue::own_event,
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
    /// Returns the corner of the same rectangle with its first byte at `offset`.
    pub(crate) const fn at(self, offset: usize) -> Self {
        Self { offset, ..self }
    }

    const fn origin(&self) -> [usize; 3] {
        [self.offset, 0, 0]
    }
}

/// A rectangle between memory and the host, whose bounds on both sides are checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostRect<'a> {
    /// The bytes of the memory, from the rectangle's first to its last.
    pub(crate) bytes: DeviceBytes<'a>,
    /// The pitches there; the offset does not count.
    pub(crate) device: Corner,
    pub(crate) host: Corner,
    /// Bytes, rows and slices.
    pub(crate) region: [usize; 3],
}

/// Enqueues a transfer of a rectangle of the host's bytes, which the caller keeps until the command has ended.
pub(super) fn enqueue_transfer(
    queue: &QueueHandle,
    rect: &HostRect<'_>,
    host: &HostSide<'_>,
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    // OpenCL has no such calls for shared virtual memory.
    rect.bytes.on_buffer(|buffer, offset| {
        let device = rect.device.at(offset);
        let (call, event) = if host.is_target() {
            // SAFETY: (1) queue, buffer and events are kept alive by their handles; (2) origins and region have three
            // numbers each; (3) the rectangle lies in the host's bytes, which can be written (I1 of `HostSide`), and which
            // the caller keeps until the command has ended (rule 3 of `sys`). The runtime checks the buffer's bounds.
            let event = unsafe {
                cl3::command_queue::enqueue_read_buffer_rect(
                    queue.raw(),
                    buffer.raw(),
                    CL_FALSE,
                    device.origin().as_ptr(),
                    rect.host.origin().as_ptr(),
                    rect.region.as_ptr(),
                    device.row_pitch,
                    device.slice_pitch,
                    rect.host.row_pitch,
                    rect.host.slice_pitch,
                    host.start(),
                    wait.count(),
                    wait.pointer(),
                )
            };
            ("clEnqueueReadBufferRect", event)
        } else {
            // SAFETY: (1) queue, buffer and events are kept alive by their handles; (2) origins and region have three
            // numbers each; (3) the rectangle lies in the host's bytes, which can be read (I1 of `HostSide`), and which the
            // caller keeps until the command has ended (rule 3 of `sys`). The runtime checks the buffer's bounds.
            let event = unsafe {
                cl3::command_queue::enqueue_write_buffer_rect(
                    queue.raw(),
                    buffer.raw(),
                    CL_FALSE,
                    device.origin().as_ptr(),
                    rect.host.origin().as_ptr(),
                    rect.region.as_ptr(),
                    device.row_pitch,
                    device.slice_pitch,
                    rect.host.row_pitch,
                    rect.host.slice_pitch,
                    host.start(),
                    wait.count(),
                    wait.pointer(),
                )
            };
            ("clEnqueueWriteBufferRect", event)
        };
        // SAFETY: The call above has just returned this event, and nothing else takes its reference.
        unsafe { own_event(call, event) }
    })
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
