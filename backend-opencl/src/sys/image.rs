//! Calls of OpenCL on images.

use std::ptr;

use cl3::{
    error_codes::{CL_INVALID_HOST_PTR, CL_INVALID_VALUE},
    memory::{
        CL_IMAGE_BUFFER, CL_MEM_COPY_HOST_PTR, CL_MEM_USE_HOST_PTR, cl_image_desc, cl_image_format,
    },
};

use super::{
    ClError, ClResult, ContextHandle, EventHandle, MemHandle, QueueHandle, WaitList,
    answer::Answer,
    destructor::when_destroyed,
    enqueue::enqueue,
    host::Loan,
    pixels::{HostLayout, PixelBox},
    transfer::{DevicePixels, enqueue_copy},
};

/// The runtime's number for a kind of images, the width, height and depth, and the number of layers, 0 for images without layers.
pub(crate) type ImageSize = (u32, [usize; 3], usize);

/// The pixels that an image starts with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source<'a> {
    /// Undefined pixels.
    Nothing,
    /// A copy of the host's bytes, which lie as the layout of the whole image says.
    Copy(&'a [u8], HostLayout),
    /// The bytes of a buffer, in rows this many bytes apart.
    Buffer(&'a MemHandle, usize),
}

/// Creates an image. The runtime checks shape and format.
pub(crate) fn create(
    context: &ContextHandle,
    flags: u64,
    format: (u32, u32),
    size: ImageSize,
    source: Source<'_>,
) -> ClResult<MemHandle> {
    let mut desc = description(size);
    let (flags, host) = match source {
        Source::Nothing => (flags, ptr::null_mut()),
        Source::Copy(bytes, layout) => {
            set_pitches(&mut desc, bytes.len(), layout)?;
            (flags | CL_MEM_COPY_HOST_PTR, bytes.as_ptr().cast_mut())
        }
        Source::Buffer(buffer, row_pitch) => {
            desc.image_row_pitch = row_pitch;
            desc.buffer = buffer.raw();
            (flags, ptr::null_mut())
        }
    };
    // SAFETY: (1) the buffer is null or kept alive by its handle; (2) the host's bytes are null, or equal in number to what shape and
    // pitches say (checked above), and the runtime only reads them during the call.
    unsafe { create_as(context, flags, format, &desc, host) }
}

/// Creates an image over lent memory, which lies as the layout of the whole image says.
pub(crate) fn create_over(
    context: &ContextHandle,
    flags: u64,
    format: (u32, u32),
    size: ImageSize,
    (loan, layout): (Loan, HostLayout),
) -> ClResult<MemHandle> {
    let mut desc = description(size);
    set_pitches(&mut desc, loan.bytes(), layout)?;
    let (flags, start) = (flags | CL_MEM_USE_HOST_PTR, loan.start().as_ptr());
    // SAFETY: (1) the buffer is null; (2) the number of the host's bytes follows from shape and pitches (checked above), they can be
    // read and written, and nothing else touches them, until the loan is dropped (I1 of `Loan`): when the runtime has
    // destroyed the image.
    let image = unsafe { create_as(context, flags, format, &desc, start) }?;
    // If this fails, no command has used the image, which is released here.
    when_destroyed(&image, move || drop(loan))?;
    Ok(image)
}

/// Returns the description of an image without a buffer, tightly packed on the host's side.
fn description((kind, [width, height, depth], layers): ImageSize) -> cl_image_desc {
    cl_image_desc {
        image_type: kind,
        image_width: width,
        image_height: height,
        image_depth: depth,
        image_array_size: layers,
        image_row_pitch: 0,
        image_slice_pitch: 0,
        num_mip_levels: 0,
        num_samples: 0,
        buffer: ptr::null_mut(),
    }
}

/// Sets the pitches of the host's bytes, if their number is that of the layout.
fn set_pitches(desc: &mut cl_image_desc, bytes: usize, layout: HostLayout) -> ClResult<()> {
    if bytes != layout.bytes {
        return Err(ClError::new(CREATE, CL_INVALID_HOST_PTR));
    }
    (desc.image_row_pitch, desc.image_slice_pitch) = layout.pitches;
    Ok(())
}

const CREATE: &str = "clCreateImage";

/// # Safety
///
/// (1) The buffer of the description is null or lives; (2) `host` is null, or the number of bytes there is what shape and
/// pitches say, for as long as the flags have the runtime use them.
unsafe fn create_as(
    context: &ContextHandle,
    flags: u64,
    (order, data): (u32, u32),
    desc: &cl_image_desc,
    host: *mut u8,
) -> ClResult<MemHandle> {
    let format = cl_image_format {
        image_channel_order: order,
        image_channel_data_type: data,
    };
    let (format, host) = (&raw const format, host.cast());
    // SAFETY: (1) the context is kept alive by its handle; (2) format and description live during the call; (3) the buffer
    // of the description and the host's bytes are as the caller promises.
    let created = unsafe { cl3::memory::create_image(context.raw(), flags, format, desc, host) };
    // SAFETY: The call above has just returned this reference, and nothing else takes it.
    unsafe { MemHandle::own(created, CREATE) }
}

/// The runtime's numbers of the formats that images of a kind can have.
pub(crate) fn supported_formats(
    context: &ContextHandle,
    flags: u64,
    kind: u32,
) -> ClResult<Vec<(u32, u32)>> {
    match cl3::memory::get_supported_image_formats(context.raw(), flags, kind) {
        Ok(formats) => Ok(formats
            .into_iter()
            .map(|format| (format.image_channel_order, format.image_channel_data_type))
            .collect()),
        // There are none. `cl3` then asks for 0 formats, and the runtime refuses that.
        Err(CL_INVALID_VALUE) => Ok(Vec::new()),
        Err(code) => Err(ClError::new("clGetSupportedImageFormats", code)),
    }
}

/// Returns the runtime's answer to a question about an image.
pub(crate) fn info(image: &MemHandle, what: u32) -> ClResult<Answer> {
    Answer::new(
        cl3::memory::get_image_data(image.raw(), what),
        "clGetImageInfo",
    )
}

/// Returns a reference to the buffer that an image was made over.
pub(crate) fn parent(image: &MemHandle) -> ClResult<Option<MemHandle>> {
    let raw = info(image, CL_IMAGE_BUFFER)?.value()?;
    if raw == 0 {
        return Ok(None);
    }
    let raw = ptr::with_exposed_provenance_mut(raw);
    // SAFETY: The runtime has just named the buffer, which the image keeps alive.
    unsafe { MemHandle::retain(raw) }.map(Some)
}

/// Enqueues a fill. The runtime copies the colour before it returns.
pub(crate) fn enqueue_fill(
    queue: &QueueHandle,
    image: &MemHandle,
    region: PixelBox,
    color: [u8; 16],
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    // SAFETY: (1) queue, image and events are kept alive by their handles; (2) the colour has the 16 bytes of four
    // channels; (3) origin and size have three numbers.
    enqueue!(wait; "clEnqueueFillImage", unsafe enqueue_fill_image(
        queue.raw(), image.raw(), color.as_ptr().cast(), region.origin.as_ptr(),
        region.size.as_ptr()
    ))
}

/// Enqueues a copy of pixels, which lie without gaps where they are bytes. The runtime checks bounds and formats.
pub(crate) fn enqueue_copy_pixels(
    queue: &QueueHandle,
    from: DevicePixels<'_>,
    to: DevicePixels<'_>,
    bytes: usize,
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    match (from, to) {
        (DevicePixels::Image(source, from), DevicePixels::Image(destination, to)) => {
            // SAFETY: (1) queue, images and events are kept alive by their handles; (2) origins and size have three numbers.
            enqueue!(wait; "clEnqueueCopyImage", unsafe enqueue_copy_image(
                queue.raw(), source.raw(), destination.raw(), from.origin.as_ptr(), to.origin.as_ptr(), from.size.as_ptr()
            ))
        }
        (DevicePixels::Image(source, from), DevicePixels::Bytes(destination)) => {
            destination.on_buffer(|buffer, offset| {
                // SAFETY: As above, of a buffer.
                enqueue!(wait; "clEnqueueCopyImageToBuffer", unsafe enqueue_copy_image_to_buffer(
                    queue.raw(), source.raw(), buffer.raw(), from.origin.as_ptr(), from.size.as_ptr(), offset
                ))
            })
        }
        (DevicePixels::Bytes(source), DevicePixels::Image(destination, to)) => {
            source.on_buffer(|buffer, offset| {
                // SAFETY: As above, of a buffer.
                enqueue!(wait; "clEnqueueCopyBufferToImage", unsafe enqueue_copy_buffer_to_image(
                    queue.raw(), buffer.raw(), destination.raw(), offset, to.origin.as_ptr(), to.size.as_ptr()
                ))
            })
        }
        (DevicePixels::Bytes(source), DevicePixels::Bytes(destination)) => {
            enqueue_copy(queue, source, destination, bytes, wait)
        }
    }
}
