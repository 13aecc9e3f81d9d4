//! Images.

use std::{ffi::c_void, ptr, sync::Arc};

use cl3::{
    error_codes::{CL_INVALID_HOST_PTR, CL_INVALID_VALUE},
    info_type::InfoType,
    memory::{CL_MEM_COPY_HOST_PTR, cl_image_desc, cl_image_format},
};

use super::{
    ContextHandle, EventHandle, HostBytes, MemHandle, QueueHandle, WaitList, enqueue::own_event,
    event::wait_until_ended,
};
use crate::{
    cl_error::{ClError, ClResult},
    image::{HostLayout, ImageColor, ImageFormat, ImageKind, ImageRegion, ImageShape},
};

const NOT_BLOCKING: u32 = cl3::types::CL_FALSE;

/// What an image starts with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source<'a> {
    /// Undefined pixels.
    Nothing,
    /// A copy of the host's bytes, which lie as the layout of the whole image says.
    Copy(&'a [u8], HostLayout),
    /// The bytes of a buffer, in rows this many bytes apart.
    Buffer(&'a MemHandle, usize),
}

/// An image. The runtime checks shape and format.
pub(crate) fn create(
    context: &ContextHandle,
    flags: u64,
    format: ImageFormat,
    shape: ImageShape,
    source: Source<'_>,
) -> ClResult<MemHandle> {
    const CALL: &str = "clCreateImage";
    let (order, data) = format.codes();
    let cl_format = cl_image_format {
        image_channel_order: order,
        image_channel_data_type: data,
    };
    let [width, height, depth] = shape.extent();
    let mut desc = cl_image_desc {
        image_type: shape.kind().code(),
        image_width: width,
        image_height: height,
        image_depth: depth,
        image_array_size: shape.layers().unwrap_or(0),
        image_row_pitch: 0,
        image_slice_pitch: 0,
        num_mip_levels: 0,
        num_samples: 0,
        buffer: ptr::null_mut(),
    };
    let (flags, host) = match source {
        Source::Nothing => (flags, ptr::null_mut()),
        Source::Copy(bytes, layout) => {
            check_length(CALL, bytes.len(), layout)?;
            (desc.image_row_pitch, desc.image_slice_pitch) = layout.pitches();
            let host = bytes.as_ptr().cast_mut().cast::<c_void>();
            (flags | CL_MEM_COPY_HOST_PTR, host)
        }
        Source::Buffer(buffer, row_pitch) => {
            desc.image_row_pitch = row_pitch;
            desc.buffer = buffer.raw();
            (flags, ptr::null_mut())
        }
    };
    // SAFETY: (1) context and buffer live; (2) format and description live during the call; (3) the host's bytes are
    // as many as the pitches say, and are only read, during the call.
    let raw = unsafe {
        cl3::memory::create_image(
            context.raw(),
            flags,
            &raw const cl_format,
            &raw const desc,
            host,
        )
    }
    .map_err(|code| ClError::new(CALL, code))?;
    // SAFETY: The call has just returned this reference to us.
    unsafe { MemHandle::own(raw, CALL) }
}

/// A command of these pitches goes over as many bytes of the host as its layout says.
fn check_length(call: &'static str, bytes: usize, layout: HostLayout) -> ClResult<()> {
    if bytes == layout.bytes() {
        Ok(())
    } else {
        Err(ClError::new(call, CL_INVALID_HOST_PTR))
    }
}

/// The runtime's numbers of the formats that images of a kind can have.
pub(crate) fn supported_formats(
    context: &ContextHandle,
    flags: u64,
    kind: ImageKind,
) -> ClResult<Vec<(u32, u32)>> {
    match cl3::memory::get_supported_image_formats(context.raw(), flags, kind.code()) {
        Ok(formats) => Ok(formats
            .into_iter()
            .map(|format| (format.image_channel_order, format.image_channel_data_type))
            .collect()),
        // There are none: `cl3` then asks for 0 of them, which is what the runtime refuses.
        Err(CL_INVALID_VALUE) => Ok(Vec::new()),
        Err(code) => Err(ClError::new("clGetSupportedImageFormats", code)),
    }
}

/// What the runtime says about an image, of the questions that are answered with a size.
pub(crate) fn size(image: &MemHandle, what: u32) -> ClResult<usize> {
    const CALL: &str = "clGetImageInfo";
    match cl3::memory::get_image_info(image.raw(), what) {
        Ok(InfoType::Size(size)) => Ok(size),
        Ok(_) => Err(ClError::new(CALL, CL_INVALID_VALUE)),
        Err(code) => Err(ClError::new(CALL, code)),
    }
}

/// The runtime's numbers of an image's format.
pub(crate) fn format(image: &MemHandle) -> ClResult<(u32, u32)> {
    const CALL: &str = "clGetImageInfo";
    match cl3::memory::get_image_info(image.raw(), cl3::memory::CL_IMAGE_FORMAT) {
        Ok(InfoType::VecImageFormat(formats)) => formats
            .first()
            .map(|format| (format.image_channel_order, format.image_channel_data_type))
            .ok_or(ClError::new(CALL, CL_INVALID_VALUE)),
        Ok(_) => Err(ClError::new(CALL, CL_INVALID_VALUE)),
        Err(code) => Err(ClError::new(CALL, code)),
    }
}

/// A reference to the buffer that an image was made over.
pub(crate) fn parent(image: &MemHandle) -> ClResult<Option<MemHandle>> {
    const CALL: &str = "clGetImageInfo";
    let raw = match cl3::memory::get_image_info(image.raw(), cl3::memory::CL_IMAGE_BUFFER) {
        Ok(InfoType::Ptr(raw)) => usize::from_ne_bytes(raw.to_ne_bytes()),
        Ok(_) => return Err(ClError::new(CALL, CL_INVALID_VALUE)),
        Err(code) => return Err(ClError::new(CALL, code)),
    };
    if raw == 0 {
        return Ok(None);
    }
    let raw = ptr::with_exposed_provenance_mut(raw);
    // SAFETY: The runtime has just named the buffer, and the image keeps it.
    unsafe { MemHandle::retain(raw) }.map(Some)
}

/// Enqueues a write of the bytes at `source`, which lie as `layout` says.
///
/// # Safety
///
/// As many bytes at `source` as `layout` has are readable until the command has ended.
unsafe fn write(
    queue: &QueueHandle,
    image: &MemHandle,
    region: ImageRegion,
    layout: HostLayout,
    source: *const u8,
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    let (row, slice) = layout.pitches();
    // SAFETY: (1) queue, image and events are live references; (2) origin and size have three numbers; (3) the command
    // reads as many bytes as the layout has, which stay readable, as the caller promises.
    let event = unsafe {
        cl3::command_queue::enqueue_write_image(
            queue.raw(),
            image.raw(),
            NOT_BLOCKING,
            region.origin.as_ptr(),
            region.size.as_ptr(),
            row,
            slice,
            source.cast_mut().cast::<c_void>(),
            wait.count(),
            wait.pointer(),
        )
    };
    // SAFETY: This is that call's event.
    unsafe { own_event("clEnqueueWriteImage", event) }
}

/// Enqueues a read into the bytes at `target`, as `layout` says.
///
/// # Safety
///
/// As many bytes at `target` as `layout` has are writable, and nobody else touches them, until the command has ended.
unsafe fn read(
    queue: &QueueHandle,
    image: &MemHandle,
    region: ImageRegion,
    layout: HostLayout,
    target: *mut u8,
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    let (row, slice) = layout.pitches();
    // SAFETY: (1) queue, image and events are live references; (2) origin and size have three numbers; (3) the command
    // writes at most as many bytes as the layout has, which stay writable, as the caller promises.
    let event = unsafe {
        cl3::command_queue::enqueue_read_image(
            queue.raw(),
            image.raw(),
            NOT_BLOCKING,
            region.origin.as_ptr(),
            region.size.as_ptr(),
            row,
            slice,
            target.cast::<c_void>(),
            wait.count(),
            wait.pointer(),
        )
    };
    // SAFETY: This is that call's event.
    unsafe { own_event("clEnqueueReadImage", event) }
}

/// Writes `data`, calls `enqueued`, and waits until the command has ended.
pub(crate) fn write_borrowed(
    queue: &QueueHandle,
    (image, region): (&MemHandle, ImageRegion),
    (data, layout): (&[u8], HostLayout),
    wait: &WaitList<'_>,
    enqueued: impl FnOnce(&EventHandle),
) -> ClResult<(EventHandle, ClResult<()>)> {
    check_length("clEnqueueWriteImage", data.len(), layout)?;
    // SAFETY: `data` is of that length, and borrowed until this returns, which is after the command has ended.
    let event = unsafe { write(queue, image, region, layout, data.as_ptr(), wait) }?;
    enqueued(&event);
    let ended = wait_until_ended(&event);
    Ok((event, ended))
}

/// Reads into `data`, calls `enqueued`, and waits until the command has ended.
pub(crate) fn read_borrowed(
    queue: &QueueHandle,
    (image, region): (&MemHandle, ImageRegion),
    (data, layout): (&mut [u8], HostLayout),
    wait: &WaitList<'_>,
    enqueued: impl FnOnce(&EventHandle),
) -> ClResult<(EventHandle, ClResult<()>)> {
    check_length("clEnqueueReadImage", data.len(), layout)?;
    // SAFETY: `data` is of that length, and borrowed exclusively until this returns, which is after the command has
    // ended.
    let event = unsafe { read(queue, image, region, layout, data.as_mut_ptr(), wait) }?;
    enqueued(&event);
    let ended = wait_until_ended(&event);
    Ok((event, ended))
}

/// Enqueues a write of `data`, which the caller keeps until the command has ended.
pub(crate) fn write_kept(
    queue: &QueueHandle,
    (image, region): (&MemHandle, ImageRegion),
    (data, layout): (&Arc<[u8]>, HostLayout),
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    check_length("clEnqueueWriteImage", data.len(), layout)?;
    // SAFETY: `data` is of that length, and kept until the command has ended (see `sys`).
    unsafe { write(queue, image, region, layout, data.as_ptr(), wait) }
}

/// Enqueues a read into `target`, which the caller keeps until the command has ended.
pub(crate) fn read_kept(
    queue: &QueueHandle,
    (image, region): (&MemHandle, ImageRegion),
    (target, layout): (&Arc<HostBytes>, HostLayout),
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    check_length("clEnqueueReadImage", target.length(), layout)?;
    // SAFETY: (1) `target` is of that length, and kept until the command has ended (see `sys`); (2) its bytes are
    // taken only after that.
    unsafe { read(queue, image, region, layout, target.start(), wait) }
}

/// Enqueues a fill. The runtime copies the colour before it returns.
pub(crate) fn enqueue_fill(
    queue: &QueueHandle,
    image: &MemHandle,
    region: ImageRegion,
    color: ImageColor,
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    let color = color.bytes();
    // SAFETY: (1) queue, image and events are live references; (2) the colour has the 16 bytes of four channels;
    // (3) origin and size have three numbers.
    let event = unsafe {
        cl3::command_queue::enqueue_fill_image(
            queue.raw(),
            image.raw(),
            color.as_ptr().cast(),
            region.origin.as_ptr(),
            region.size.as_ptr(),
            wait.count(),
            wait.pointer(),
        )
    };
    // SAFETY: This is that call's event.
    unsafe { own_event("clEnqueueFillImage", event) }
}

/// Enqueues a copy between images. The runtime checks bounds and formats.
pub(crate) fn enqueue_copy(
    queue: &QueueHandle,
    (source, from): (&MemHandle, ImageRegion),
    (destination, to): (&MemHandle, [usize; 3]),
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    // SAFETY: (1) queue, images and events are live references; (2) origins and size have three numbers.
    let event = unsafe {
        cl3::command_queue::enqueue_copy_image(
            queue.raw(),
            source.raw(),
            destination.raw(),
            from.origin.as_ptr(),
            to.as_ptr(),
            from.size.as_ptr(),
            wait.count(),
            wait.pointer(),
        )
    };
    // SAFETY: This is that call's event.
    unsafe { own_event("clEnqueueCopyImage", event) }
}

/// Enqueues a copy of pixels into a buffer, without gaps. The runtime checks the bounds.
pub(crate) fn enqueue_copy_to_buffer(
    queue: &QueueHandle,
    (source, from): (&MemHandle, ImageRegion),
    (buffer, offset): (&MemHandle, usize),
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    // SAFETY: (1) queue, image, buffer and events are live references; (2) origin and size have three numbers.
    let event = unsafe {
        cl3::command_queue::enqueue_copy_image_to_buffer(
            queue.raw(),
            source.raw(),
            buffer.raw(),
            from.origin.as_ptr(),
            from.size.as_ptr(),
            offset,
            wait.count(),
            wait.pointer(),
        )
    };
    // SAFETY: This is that call's event.
    unsafe { own_event("clEnqueueCopyImageToBuffer", event) }
}

/// Enqueues a copy of pixels that lie in a buffer without gaps. The runtime checks the bounds.
pub(crate) fn enqueue_copy_from_buffer(
    queue: &QueueHandle,
    (buffer, offset): (&MemHandle, usize),
    (destination, to): (&MemHandle, ImageRegion),
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    // SAFETY: (1) queue, buffer, image and events are live references; (2) origin and size have three numbers.
    let event = unsafe {
        cl3::command_queue::enqueue_copy_buffer_to_image(
            queue.raw(),
            buffer.raw(),
            destination.raw(),
            offset,
            to.origin.as_ptr(),
            to.size.as_ptr(),
            wait.count(),
            wait.pointer(),
        )
    };
    // SAFETY: This is that call's event.
    unsafe { own_event("clEnqueueCopyBufferToImage", event) }
}
