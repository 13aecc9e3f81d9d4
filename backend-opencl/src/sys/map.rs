//! Maps: memory of a device as bytes of the host.

use std::{
    ffi::c_void,
    fmt,
    ptr::{self, NonNull},
    slice,
};

use cl3::{error_codes::CL_INVALID_VALUE, types::CL_FALSE};

use super::{
    ClError, ClResult, EventHandle, MemHandle, QueueHandle, SvmRange, WaitList, enqueue::own_event,
    image::PixelBox,
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

/// Enqueues a map of `bytes` bytes of a buffer. The runtime checks the bounds.
pub(crate) fn enqueue_map_buffer(
    queue: &QueueHandle,
    (buffer, offset): (&MemHandle, usize),
    bytes: usize,
    flags: u64,
    wait: &WaitList<'_>,
) -> ClResult<(EventHandle, HostView)> {
    const CALL: &str = "clEnqueueMapBuffer";
    let mut start = ptr::null_mut();
    // SAFETY: Queue, buffer and events are kept alive by their handles.
    let event = unsafe {
        cl3::command_queue::enqueue_map_buffer(
            queue.raw(),
            buffer.raw(),
            CL_FALSE,
            flags,
            offset,
            bytes,
            &mut start,
            wait.count(),
            wait.pointer(),
        )
    };
    // SAFETY: The call above has just returned this event, and nothing else takes its reference.
    let event = unsafe { own_event(CALL, event) }?;
    match NonNull::new(start.cast()) {
        Some(start) => Ok((event, HostView::new(start, bytes, [0; 2]))),
        None => Err(ClError::new(CALL, CL_INVALID_VALUE)),
    }
}

/// Enqueues a map of a region of an image whose pixels have `item` bytes. The runtime checks the bounds.
///
/// The rows of a 1D array are its layers, and their distance is the runtime's slice pitch.
pub(crate) fn enqueue_map_image(
    queue: &QueueHandle,
    (image, region): (&MemHandle, PixelBox),
    (item, rows_are_layers): (usize, bool),
    flags: u64,
    wait: &WaitList<'_>,
) -> ClResult<(EventHandle, HostView)> {
    const CALL: &str = "clEnqueueMapImage";
    let mut start = ptr::null_mut();
    let (mut row, mut slice) = (0, 0);
    // SAFETY: (1) queue, image and events are kept alive by their handles; (2) origin and size have three numbers each; (3)
    // the pitches are written to local variables.
    let event = unsafe {
        cl3::command_queue::enqueue_map_image(
            queue.raw(),
            image.raw(),
            CL_FALSE,
            flags,
            region.origin.as_ptr(),
            region.size.as_ptr(),
            &raw mut row,
            &raw mut slice,
            &mut start,
            wait.count(),
            wait.pointer(),
        )
    };
    // SAFETY: The call above has just returned this event, and nothing else takes its reference.
    let event = unsafe { own_event(CALL, event) }?;
    if rows_are_layers && slice > 0 {
        row = slice;
    }
    // The last row ends with its last pixel: bytes behind that belong to the runtime.
    let [width, height, depth] = region.size;
    let bytes = (depth - 1)
        .checked_mul(slice)
        .zip((height - 1).checked_mul(row))
        .zip(width.checked_mul(item))
        .and_then(|((slices, rows), pixels)| slices.checked_add(rows)?.checked_add(pixels));
    match NonNull::new(start.cast()).zip(bytes) {
        Some((start, bytes)) => Ok((event, HostView::new(start, bytes, [row, slice]))),
        None => Err(ClError::new(CALL, CL_INVALID_VALUE)),
    }
}

/// Enqueues the end of a map of a buffer or image.
pub(crate) fn enqueue_unmap(
    queue: &QueueHandle,
    object: &MemHandle,
    view: &HostView,
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    // SAFETY: (1) queue, object and events are kept alive by their handles; (2) the address is one that a map of this
    // object gave.
    let event = unsafe {
        cl3::command_queue::enqueue_unmap_mem_object(
            queue.raw(),
            object.raw(),
            view.raw(),
            wait.count(),
            wait.pointer(),
        )
    };
    // SAFETY: The call above has just returned this event, and nothing else takes its reference.
    unsafe { own_event("clEnqueueUnmapMemObject", event) }
}

/// Enqueues a map of bytes of a block of shared virtual memory.
pub(crate) fn enqueue_svm_map(
    queue: &QueueHandle,
    range: SvmRange<'_>,
    flags: u64,
    wait: &WaitList<'_>,
) -> ClResult<(EventHandle, HostView)> {
    let view = HostView::new(range.start(), range.bytes(), [0; 2]);
    // SAFETY: (1) queue and events are kept alive by their handles; (2) the range lies in its block, which is not freed
    // while a command uses it (rule 1 of `sys`).
    let event = unsafe {
        cl3::command_queue::enqueue_svm_map(
            queue.raw(),
            CL_FALSE,
            flags,
            view.raw(),
            view.bytes,
            wait.count(),
            wait.pointer(),
        )
    };
    // SAFETY: The call above has just returned this event, and nothing else takes its reference.
    let event = unsafe { own_event("clEnqueueSVMMap", event) }?;
    Ok((event, view))
}

/// Enqueues the end of a map of shared virtual memory, whose block is not freed before.
pub(crate) fn enqueue_svm_unmap(
    queue: &QueueHandle,
    view: &HostView,
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    // SAFETY: (1) queue and events are kept alive by their handles; (2) the address is one that was mapped.
    let event = unsafe {
        cl3::command_queue::enqueue_svm_unmap(queue.raw(), view.raw(), wait.count(), wait.pointer())
    };
    // SAFETY: The call above has just returned this event, and nothing else takes its reference.
    unsafe { own_event("clEnqueueSVMUnmap", event) }
}
