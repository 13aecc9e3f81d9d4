//! Maps: memory of a device as bytes of the host.

use std::{
    ffi::c_void,
    fmt,
    ptr::{self, NonNull},
    slice,
};

use cl3::{error_codes::CL_INVALID_VALUE, memory::CL_MAP_READ, types::CL_FALSE};

#[cfg(feature = "images")]
use super::pixels::PixelBox;
use super::{
    ClError, ClResult, DeviceBytes, EventHandle, MemHandle, QueueHandle, SvmRange, WaitList,
    enqueue::enqueue, event::wait_until_ended, transfer::DevicePixels,
};

/// Bytes that the host has mapped.
///
/// The owner of this value keeps two rules. Its slices are taken only after the command that maps has ended, and none is
/// left when the command that unmaps is enqueued (`Mapping` and the guards over it). And meanwhile no command writes bytes
/// that are mapped, or touches bytes that are mapped to be written ([`AccessLog`](crate::order::access_log::AccessLog)).
pub(crate) struct HostView {
    start: NonNull<u8>,
    bytes: usize,
    /// The distances of rows and of slices of an image, in bytes.
    #[cfg_attr(
        not(feature = "images"),
        expect(dead_code, reason = "only images have rows")
    )]
    pitches: [usize; 2],
}

// SAFETY: It is an address and a length, and gives slices only by borrows of itself, shared ones by `&self` and mutable
// ones by `&mut self`.
unsafe impl Send for HostView {}
// SAFETY: As for `Send`.
unsafe impl Sync for HostView {}

impl HostView {
    const fn new(start: NonNull<u8>, bytes: usize, pitches: [usize; 2]) -> Self {
        Self {
            start,
            bytes,
            pitches,
        }
    }

    /// The bytes.
    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: (1) the runtime has mapped `bytes` bytes at `start`; (2) the map is made and not ended, and nothing
        // writes the bytes meanwhile, by the two rules of the type.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    /// The bytes, to be written.
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: As in `as_slice`. The map is one to write, so no command reads the bytes either, and `&mut self` is the
        // only borrow.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }

    /// Returns the distances of rows and of slices of an image, in bytes; 0 if there are none.
    #[cfg(feature = "images")]
    pub(crate) const fn pitches(&self) -> [usize; 2] {
        self.pitches
    }

    fn raw(&self) -> *mut c_void {
        self.start.as_ptr().cast()
    }
}

impl fmt::Debug for HostView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostView({:p}, {} bytes)", self.start, self.bytes)
    }
}

/// Enqueues a map of these bytes or pixels: of `bytes` bytes in all, or of pixels of `item` bytes each. The runtime checks the
/// bounds.
pub(crate) fn enqueue_map(
    queue: &QueueHandle,
    pixels: DevicePixels<'_>,
    shape: MapShape,
    flags: u64,
    wait: &WaitList<'_>,
) -> ClResult<(EventHandle, HostView)> {
    match pixels {
        DevicePixels::Bytes(DeviceBytes::Svm(range)) => svm(queue, range, flags, wait),
        DevicePixels::Bytes(DeviceBytes::Buffer(memory, offset)) => {
            buffer(queue, (memory, offset), shape.bytes, flags, wait)
        }
        #[cfg(feature = "images")]
        DevicePixels::Image(memory, region) => image(queue, (memory, region), shape, flags, wait),
    }
}

/// The size of what is mapped.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(
    not(feature = "images"),
    expect(dead_code, reason = "only images have pixels")
)]
pub(crate) struct MapShape {
    pub(crate) bytes: usize,
    /// The size of a pixel in bytes.
    pub(crate) item: usize,
    /// Whether the rows of the image are its layers: their distance is the runtime's slice pitch.
    pub(crate) rows_are_layers: bool,
}

fn buffer(
    queue: &QueueHandle,
    (buffer, offset): (&MemHandle, usize),
    bytes: usize,
    flags: u64,
    wait: &WaitList<'_>,
) -> ClResult<(EventHandle, HostView)> {
    const CALL: &str = "clEnqueueMapBuffer";
    let mut start = ptr::null_mut();
    // SAFETY: Queue, buffer and events are kept alive by their handles.
    let event = enqueue!(wait; CALL, unsafe enqueue_map_buffer(
        queue.raw(), buffer.raw(), CL_FALSE, flags, offset, bytes, &mut start
    ))?;
    match NonNull::new(start.cast()) {
        Some(start) => Ok((event, HostView::new(start, bytes, [0; 2]))),
        None => Err(ClError::new(CALL, CL_INVALID_VALUE)),
    }
}

#[cfg(feature = "images")]
fn image(
    queue: &QueueHandle,
    (image, region): (&MemHandle, PixelBox),
    shape: MapShape,
    flags: u64,
    wait: &WaitList<'_>,
) -> ClResult<(EventHandle, HostView)> {
    const CALL: &str = "clEnqueueMapImage";
    let mut start = ptr::null_mut();
    let (mut row, mut slice) = (0, 0);
    // SAFETY: (1) queue, image and events are kept alive by their handles; (2) origin and size have three numbers each; (3)
    // the pitches are written to local variables.
    let event = enqueue!(wait; CALL, unsafe enqueue_map_image(
        queue.raw(), image.raw(), CL_FALSE, flags, region.origin.as_ptr(), region.size.as_ptr(), &raw mut row,
        &raw mut slice, &mut start
    ))?;
    if shape.rows_are_layers && slice > 0 {
        row = slice;
    }
    // The last row ends with its last pixel: bytes after that belong to the runtime.
    let [width, height, depth] = region.size;
    let bytes = (depth - 1)
        .checked_mul(slice)
        .zip((height - 1).checked_mul(row))
        .zip(width.checked_mul(shape.item))
        .and_then(|((slices, rows), pixels)| slices.checked_add(rows)?.checked_add(pixels));
    match NonNull::new(start.cast()).zip(bytes) {
        Some((start, bytes)) => Ok((event, HostView::new(start, bytes, [row, slice]))),
        None => Err(ClError::new(CALL, CL_INVALID_VALUE)),
    }
}

fn svm(
    queue: &QueueHandle,
    range: SvmRange<'_>,
    flags: u64,
    wait: &WaitList<'_>,
) -> ClResult<(EventHandle, HostView)> {
    let view = HostView::new(range.start(), range.bytes(), [0; 2]);
    // SAFETY: (1) queue and events are kept alive by their handles; (2) the range lies in its block, which is not freed
    // while a command uses it (rule 1 of `sys`).
    let event = enqueue!(wait; "clEnqueueSVMMap", unsafe enqueue_svm_map(
        queue.raw(), CL_FALSE, flags, view.raw(), view.bytes
    ))?;
    Ok((event, view))
}

/// Enqueues the end of a map of these bytes or pixels. A block of shared virtual memory is not freed before.
pub(crate) fn enqueue_unmap(
    queue: &QueueHandle,
    pixels: DevicePixels<'_>,
    view: &HostView,
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    match pixels {
        // SAFETY: (1) queue and events are kept alive by their handles; (2) the address is one that was mapped.
        DevicePixels::Bytes(DeviceBytes::Svm(_)) => enqueue!(
            wait; "clEnqueueSVMUnmap", unsafe enqueue_svm_unmap(queue.raw(), view.raw())
        ),
        DevicePixels::Bytes(DeviceBytes::Buffer(object, _)) => {
            unmap_object(queue, object, view, wait)
        }
        #[cfg(feature = "images")]
        DevicePixels::Image(object, _) => unmap_object(queue, object, view, wait),
    }
}

fn unmap_object(
    queue: &QueueHandle,
    object: &MemHandle,
    view: &HostView,
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    // SAFETY: (1) queue, object and events are kept alive by their handles; (2) the address is one that a map of this object
    // gave.
    enqueue!(
        wait; "clEnqueueUnmapMemObject", unsafe enqueue_unmap_mem_object(
            queue.raw(), object.raw(), view.raw()
        )
    )
}

/// Brings what the device has written to an object over memory of the host into that memory, by way of a map (OpenCL 3.0,
/// section 5.2.1). No command uses the object, and `queue` has no other commands.
pub(crate) fn bring_back(
    queue: &QueueHandle,
    pixels: DevicePixels<'_>,
    shape: MapShape,
) -> ClResult<()> {
    let none = WaitList::none();
    let (mapped, view) = enqueue_map(queue, pixels, shape, CL_MAP_READ, &none)?;
    wait_until_ended(&mapped)?;
    wait_until_ended(&enqueue_unmap(queue, pixels, &view, &none)?)
}
