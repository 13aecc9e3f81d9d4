//! Images of the program's own, by their bare handles.

use std::ffi::c_void;

use binpool_allocators::{Error, ObjectKind, Region};
use cl3::memory::{
    CL_IMAGE_ARRAY_SIZE, CL_IMAGE_DEPTH, CL_IMAGE_FORMAT, CL_IMAGE_HEIGHT, CL_IMAGE_WIDTH,
    CL_MEM_CONTEXT, CL_MEM_FLAGS, CL_MEM_TYPE,
};

use super::{
    cl_image::{ClImage, Pixels},
    create::check_item_bytes,
    format::ImageFormat,
    layout::HostPitches,
    problem::ImageProblem,
    shape::{ImageKind, ImageShape},
    view::View,
};
use crate::{
    backend::OpenClBackend,
    context::Context,
    error::OpenClError,
    memory::{flags::from_cl, root::Root},
    order::access_log::AccessLog,
    sys::{self, ClError, MemHandle},
};

impl OpenClBackend {
    /// Returns an image of the program's own, by its bare handle (`from_int_ptr`).
    ///
    /// With `retain`, the program keeps its own reference. Without it, this value takes over the program's reference, even if the call fails.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags};
    /// # use binpool_opencl::{
    /// #     ChannelOrder, ChannelType, ImageFormat, ImageShape, OpenClBackend, OpenClError,
    /// # };
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let format = ImageFormat::new(ChannelOrder::Rgba, ChannelType::UnormInt8);
    /// # let shape = ImageShape::d2(64, 32);
    /// # let theirs = backend.create_image(MemoryFlags::empty(), format, shape)?;
    /// // SAFETY: the image lives, and no other code enqueues commands on it.
    /// let image = unsafe { backend.wrap_raw_image(theirs.raw(), true) }?;
    /// assert_eq!((image.shape(), image.format()), (shape, format));
    /// drop(theirs); // this reference was retained
    ///
    /// let buffer = backend.create_buffer(64, MemoryFlags::empty())?;
    /// let handle = buffer.raw().ok_or("no buffer")?;
    /// // SAFETY: the buffer lives.
    /// let refused = unsafe { backend.wrap_raw_image(handle, true) };
    /// assert!(matches!(refused, Err(OpenClError::Image(_)))); // A buffer is not an image.
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// An image of another context; [`Image`](OpenClError::Image) for an object that is not an image;
    /// [`Unsupported`](Error::Unsupported) for formats of extensions.
    ///
    /// # Safety
    ///
    /// `image` is null or a live memory object, and unless `retain`, the caller gives away one reference to it. Commands on it that are not
    /// enqueued through this value or its clones, and those on a buffer that it is made over, are ordered with commands on this value by
    /// the program. If that buffer is a pooled block, the program releases it after the last of them: the pool does not know of this value.
    #[allow(unsafe_code)]
    pub unsafe fn wrap_raw_image(
        &self,
        image: *mut c_void,
        retain: bool,
    ) -> Result<ClImage, OpenClError> {
        // SAFETY: The object is null or alive, and unless `retain` one reference is the caller's to give, as the caller
        // promises.
        let handle = unsafe { MemHandle::adopt(image, retain) }?;
        self.check_context(handle.info(CL_MEM_CONTEXT)?.value()?, ObjectKind::Memory)?;
        let code = handle.info(CL_MEM_TYPE)?.value()?;
        let kind = ImageKind::from_code(code).ok_or_else(|| {
            ImageProblem::Other(format!(
                "the handle is not an image, but an object of kind {code:#x}"
            ))
        })?;
        // An order and a type.
        let [order, data] = sys::image::info(&handle, CL_IMAGE_FORMAT)?.value()?;
        let codes = (order, data);
        let format = ImageFormat::from_codes(codes).ok_or_else(|| {
            Error::unsupported(format!(
                "an image with channel order {order:#x} and type {data:#x}, whose size is unknown"
            ))
        })?;
        check_item_bytes(&handle, format)?;
        let shape = shape_of(&handle, kind)?;
        let flags = handle.info(CL_MEM_FLAGS)?.value()?;
        let given = self.context().quirks.flags_of_handle(flags);
        let pixels = pixels_of(self.context(), handle, shape, format)?;
        let made = (format, shape, from_cl(given));
        Ok(ClImage::new(self.context(), made, pixels))
    }
}

/// Returns the memory of the pixels. An image over a buffer shares the log of that buffer's other values.
fn pixels_of(
    context: &Context,
    image: MemHandle,
    shape: ImageShape,
    format: ImageFormat,
) -> Result<Pixels, OpenClError> {
    let Some(parent) = sys::image::parent(&image)? else {
        let log = AccessLog::default();
        return Ok(Pixels::Own { image, log });
    };
    let under = parent.another()?;
    let root = Root::of(parent)?;
    let layout = HostPitches::TIGHT.layout(shape, format.item_bytes())?;
    let region = Region::first(layout.bytes);
    Ok(Pixels::Buffer {
        image: View::new(context, image, &root, region),
        parent: root.key(),
        _under: View::new(context, under, &root, region),
        counted: None,
    })
}

fn shape_of(image: &MemHandle, kind: ImageKind) -> Result<ImageShape, ClError> {
    let size = |what| sys::image::info(image, what)?.size();
    let (height, depth) = match kind {
        ImageKind::D1 | ImageKind::D1Buffer => (1, 1),
        ImageKind::D1Array => (size(CL_IMAGE_ARRAY_SIZE)?, 1),
        ImageKind::D2 => (size(CL_IMAGE_HEIGHT)?, 1),
        ImageKind::D2Array => (size(CL_IMAGE_HEIGHT)?, size(CL_IMAGE_ARRAY_SIZE)?),
        ImageKind::D3 => (size(CL_IMAGE_HEIGHT)?, size(CL_IMAGE_DEPTH)?),
    };
    Ok(ImageShape::of(kind, [size(CL_IMAGE_WIDTH)?, height, depth]))
}
