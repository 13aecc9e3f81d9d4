//! Pixels of an image, and how they lie in the host's memory.

use cl3::{error_codes::CL_INVALID_HOST_PTR, types::CL_FALSE as NOT_BLOCKING};

use super::{
    ClError, ClResult, EventHandle, MemHandle, QueueHandle, WaitList, enqueue::enqueue,
    host::HostSide,
};

/// A box of pixels of an image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PixelBox {
    /// The first pixel.
    pub(crate) origin: [usize; 3],
    /// The number of pixels along each coordinate.
    pub(crate) size: [usize; 3],
}

/// How the pixels of one box lie in the host's memory.
///
/// # Invariants
///
/// I1: a command on the box with these pitches touches at most `bytes` bytes of the host. `HostPitches::layout`, which makes
/// all layouts, computes `bytes` from the box and the pitches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostLayout {
    /// From row to row and from slice to slice, as the runtime takes them for an image of this kind.
    pub(crate) pitches: (usize, usize),
    pub(crate) bytes: usize,
}

/// Enqueues a transfer between pixels of an image and the host's bytes, which lie as `layout`, the layout of these pixels,
/// says.
pub(super) fn enqueue_pixels(
    queue: &QueueHandle,
    (image, region): (&MemHandle, PixelBox),
    layout: HostLayout,
    host: &HostSide<'_>,
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    if host.bytes() != layout.bytes {
        return Err(ClError::new("clEnqueueReadImage", CL_INVALID_HOST_PTR));
    }
    let (origin, size) = (region.origin.as_ptr(), region.size.as_ptr());
    let (row, slice) = layout.pitches;
    if host.is_target() {
        // SAFETY: (1) queue, image and events are kept alive by their handles; (2) origin and size have three numbers; (3)
        // the command touches at most as many bytes as the layout has (I1), which are all of the host's, as was
        // checked; (4) these can be written (I1 of `HostSide`), and are kept until the command has ended (rule 3 of `sys`).
        enqueue!(wait; "clEnqueueReadImage", unsafe enqueue_read_image(
            queue.raw(), image.raw(), NOT_BLOCKING, origin, size, row, slice, host.start()
        ))
    } else {
        // SAFETY: As above, but that the host's bytes are read.
        enqueue!(wait; "clEnqueueWriteImage", unsafe enqueue_write_image(
            queue.raw(), image.raw(), NOT_BLOCKING, origin, size, row, slice, host.start()
        ))
    }
}
