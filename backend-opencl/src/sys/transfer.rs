//! Transfers between the host and the device, and copies on the device: of runs of bytes and of rectangles.

use std::ffi::c_void;

use cl3::types::CL_FALSE as NOT_BLOCKING;

#[cfg(feature = "images")]
use super::pixels::{HostLayout, PixelBox, enqueue_pixels};
use super::{
    ClResult, EventHandle, MemHandle, QueueHandle, SvmRange, WaitList,
    enqueue::{enqueue, enqueue_copy_buffer},
    host::HostSide,
};

/// Bytes on the device.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DeviceBytes<'a> {
    /// A buffer and the offset of the first byte. The runtime checks the bounds.
    Buffer(&'a MemHandle, usize),
    /// Bytes of shared virtual memory.
    Svm(SvmRange<'a>),
}

impl DeviceBytes<'_> {
    /// Calls `enqueue` with a buffer and the offset of the bytes in it. For shared virtual memory that is a buffer over its
    /// block, which the runtime keeps until the commands that `enqueue` enqueues have ended.
    pub(crate) fn on_buffer<T>(
        self,
        enqueue: impl FnOnce(&MemHandle, usize) -> ClResult<T>,
    ) -> ClResult<T> {
        match self {
            Self::Buffer(buffer, offset) => enqueue(buffer, offset),
            Self::Svm(range) => {
                let (buffer, offset) = range.as_buffer()?;
                enqueue(&buffer, offset)
            }
        }
    }
}

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

/// Pixels on the device.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DevicePixels<'a> {
    /// A box of pixels of an image.
    #[cfg(feature = "images")]
    Image(&'a MemHandle, PixelBox),
    /// Bytes, without gaps.
    Bytes(DeviceBytes<'a>),
}

/// The device's side of a transfer, which is checked.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DeviceSide<'a> {
    /// As many bytes as the host's.
    Bytes(DeviceBytes<'a>),
    Rect(HostRect<'a>),
    /// Pixels, and the layout of the host's bytes.
    #[cfg(feature = "images")]
    Image(&'a MemHandle, PixelBox, HostLayout),
}

/// Enqueues a transfer of the host's bytes, which the caller keeps until the command has ended.
pub(crate) fn enqueue_transfer(
    queue: &QueueHandle,
    device: DeviceSide<'_>,
    host: &HostSide<'_>,
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    match device {
        DeviceSide::Bytes(device) => bytes(queue, device, host, wait),
        DeviceSide::Rect(rect) => rectangle(queue, &rect, host, wait),
        #[cfg(feature = "images")]
        DeviceSide::Image(object, region, layout) => {
            enqueue_pixels(queue, (object, region), layout, host, wait)
        }
    }
}

/// Enqueues a transfer of all of the host's bytes.
fn bytes(
    queue: &QueueHandle,
    device: DeviceBytes<'_>,
    host: &HostSide<'_>,
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    match device {
        DeviceBytes::Buffer(buffer, offset) if host.is_target() => {
            // SAFETY: (1) queue, buffer and events are kept alive by their handles; (2) the host's bytes can be written
            // (I1 of `HostSide`), and the caller keeps them until the command has ended (rule 3 of `sys`).
            enqueue!(wait; "clEnqueueReadBuffer", unsafe enqueue_read_buffer(
                queue.raw(), buffer.raw(), NOT_BLOCKING, offset, host.bytes(), host.start()
            ))
        }
        DeviceBytes::Buffer(buffer, offset) => {
            // SAFETY: As above, but that the host's bytes are read.
            enqueue!(wait; "clEnqueueWriteBuffer", unsafe enqueue_write_buffer(
                queue.raw(), buffer.raw(), NOT_BLOCKING, offset, host.bytes(), host.start()
            ))
        }
        DeviceBytes::Svm(range) => {
            let start = range.start().as_ptr().cast::<c_void>();
            let (to, from) = if host.is_target() {
                (host.start(), start)
            } else {
                (start, host.start())
            };
            // SAFETY: (1) queue and events are kept alive by their handles; (2) the host's bytes can be read or written (I1
            // of `HostSide`), and the caller keeps them until the command has ended (rule 3 of `sys`); (3) the range lies in
            // its block, which is not freed while a command uses it (rule 1 of `sys`).
            enqueue!(wait; "clEnqueueSVMMemcpy", unsafe enqueue_svm_mem_cpy(
                queue.raw(), NOT_BLOCKING, to, from, host.bytes().min(range.bytes())
            ))
        }
    }
}

/// Enqueues a transfer of a rectangle of the host's bytes. OpenCL has no such calls for shared virtual memory.
fn rectangle(
    queue: &QueueHandle,
    rect: &HostRect<'_>,
    host: &HostSide<'_>,
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    let HostRect {
        host: to, region, ..
    } = rect;
    rect.bytes.on_buffer(|buffer, offset| {
        let from = rect.device.at(offset);
        if host.is_target() {
            // SAFETY: (1) queue, buffer and events are kept alive by their handles; (2) origins and region have three
            // numbers each; (3) the rectangle lies in the host's bytes, which can be written (I1 of `HostSide`), and which
            // the caller keeps until the command has ended (rule 3 of `sys`). The runtime checks the buffer's bounds.
            enqueue!(wait; "clEnqueueReadBufferRect", unsafe enqueue_read_buffer_rect(
                queue.raw(), buffer.raw(), NOT_BLOCKING, from.origin().as_ptr(), to.origin().as_ptr(), region.as_ptr(),
                from.row_pitch, from.slice_pitch, to.row_pitch, to.slice_pitch, host.start()
            ))
        } else {
            // SAFETY: As above, but that the host's bytes are read.
            enqueue!(wait; "clEnqueueWriteBufferRect", unsafe enqueue_write_buffer_rect(
                queue.raw(), buffer.raw(), NOT_BLOCKING, from.origin().as_ptr(), to.origin().as_ptr(), region.as_ptr(),
                from.row_pitch, from.slice_pitch, to.row_pitch, to.slice_pitch, host.start()
            ))
        }
    })
}

/// Enqueues a copy of `bytes` bytes on the device. The runtime checks the bounds.
pub(crate) fn enqueue_copy(
    queue: &QueueHandle,
    source: DeviceBytes<'_>,
    destination: DeviceBytes<'_>,
    bytes: usize,
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    if let (DeviceBytes::Svm(source), DeviceBytes::Svm(destination)) = (source, destination) {
        let [from, to] = [source, destination].map(|range| range.start().as_ptr().cast::<c_void>());
        let bytes = source.bytes().min(destination.bytes());
        // SAFETY: (1) queue and events are kept alive by their handles; (2) both ranges lie in their blocks (I1), which are not
        // freed while a command uses it (rule 1 of `sys`); (3) the number of bytes is at most that of either range.
        return enqueue!(wait; "clEnqueueSVMMemcpy", unsafe enqueue_svm_mem_cpy(
            queue.raw(), NOT_BLOCKING, to, from, bytes
        ));
    }
    // OpenCL has no copy between a buffer and SVM, so this makes a buffer over the block of SVM. Transfers with the block as
    // host memory would not work with NVIDIA's driver: it takes the address of the block for ordinary host memory, and reads
    // the bytes of a write when that is enqueued.
    source.on_buffer(|source, from| {
        destination.on_buffer(|destination, to| {
            enqueue_copy_buffer(queue, (source, from), (destination, to), bytes, wait)
        })
    })
}

/// Enqueues a fill. The runtime copies `pattern` before it returns, and checks the bounds of buffers.
pub(crate) fn enqueue_fill(
    queue: &QueueHandle,
    device: DeviceBytes<'_>,
    bytes: usize,
    pattern: &[u8],
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    let (start, length) = (pattern.as_ptr().cast::<c_void>(), pattern.len());
    match device {
        DeviceBytes::Buffer(buffer, offset) => {
            // SAFETY: (1) queue, buffer and events are kept alive by their handles; (2) `pattern` is readable for its length.
            enqueue!(wait; "clEnqueueFillBuffer", unsafe enqueue_fill_buffer(
                queue.raw(), buffer.raw(), start, length, offset, bytes
            ))
        }
        DeviceBytes::Svm(range) => {
            // SAFETY: As above; (3) the range lies in its block (I1), which is not freed while a command uses it (rule 1 of
            // `sys`).
            enqueue!(wait; "clEnqueueSVMMemFill", unsafe enqueue_svm_mem_fill(
                queue.raw(), range.start().as_ptr().cast(), start, length, range.bytes()
            ))
        }
    }
}

/// Enqueues a copy of a rectangle between buffers. The runtime checks the bounds, and whether the two overlap.
pub(crate) fn enqueue_copy_rect(
    queue: &QueueHandle,
    (source, from): (&MemHandle, Corner),
    (destination, to): (&MemHandle, Corner),
    region: [usize; 3],
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    // SAFETY: (1) queue, buffers and events are kept alive by their handles; (2) origins and region have three numbers
    // each.
    enqueue!(wait; "clEnqueueCopyBufferRect", unsafe enqueue_copy_buffer_rect(
        queue.raw(), source.raw(), destination.raw(), from.origin().as_ptr(), to.origin().as_ptr(), region.as_ptr(),
        from.row_pitch, from.slice_pitch, to.row_pitch, to.slice_pitch
    ))
}
