//! The creation of images.

use binpool_allocators::{AsMemory, Error, InvalidRequest, MemoryFlags, Region, Result};
use bytemuck::NoUninit;
use cl3::{
    error_codes::CL_INVALID_MEM_OBJECT,
    memory::{CL_IMAGE_ELEMENT_SIZE, CL_MEM_READ_ONLY, CL_MEM_READ_WRITE, CL_MEM_WRITE_ONLY},
};
use parking_lot::ReentrantMutex;

use super::{
    cl_image::{ClImage, Pixels},
    format::ImageFormat,
    layout::{HostPitches, check_pitch},
    problem::ImageProblem,
    shape::{ImageKind, ImageShape},
    view::View,
};
use crate::{
    backend::OpenClBackend,
    device::image_limits::ImageLimits,
    error::OpenClError,
    kept_memory,
    memory::flags::to_cl,
    order::access_log::AccessLog,
    queue::ClQueue,
    sys::{self, MemHandle, Purpose, image::Source, pixels::HostLayout},
};

/// The creation of images.
impl OpenClBackend {
    /// Returns the limits of images on the device.
    ///
    /// The limits also say what some devices cannot do with images:
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder, Region};
    /// # use binpool_opencl::{
    /// #     ChannelOrder, ChannelType, ImageColor, ImageFormat, ImageRegion, ImageShape, OpenClBackend,
    /// # };
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let format = ImageFormat::new(ChannelOrder::Rgba, ChannelType::UnsignedInt8);
    /// # let buffer = backend.create_buffer(64, MemoryFlags::empty())?;
    /// let shape = ImageShape::d1_buffer(16);
    /// let row = backend.create_image_over(&queue, &buffer, format, shape, None)?;
    /// if backend.image_limits()?.buffer_fills {
    ///     let sevens = ImageColor::Unsigned([7; 4]);
    ///     backend.enqueue_fill_image(&queue, &row, ImageRegion::all(shape), sevens)?;
    /// } else {
    ///     backend.enqueue_fill(&queue, &buffer, Region::first(64), &[7_u8])?;
    /// }
    /// let bytes = backend.map::<u8>(&queue, &buffer, 0..64)?;
    /// assert_eq!(*bytes, [7; 64]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A failure of the runtime.
    pub fn image_limits(&self) -> Result<&ImageLimits> {
        self.context().image_limits().map_err(Error::from)
    }

    /// Returns the formats that images of a kind can have on this device, for kernels that use them as `flags` say
    /// (`get_supported_image_formats`; OpenCL 3.0, section 5.3.2).
    ///
    /// Formats of extensions, which this crate does not know, are left out. The list is empty on a device without images.
    ///
    /// ```
    /// # use binpool_allocators::MemoryFlags;
    /// # use binpool_opencl::{ChannelOrder, ChannelType, ImageFormat, ImageKind, ImageShape, OpenClBackend};
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// // Three channels would do; most devices have four only.
    /// let wishes = [ChannelOrder::Rgb, ChannelOrder::Rgba];
    /// let wishes = wishes.map(|order| ImageFormat::new(order, ChannelType::UnormInt8));
    /// let known = backend.supported_image_formats(MemoryFlags::READ_ONLY, ImageKind::D2)?;
    /// let format = wishes.iter().find(|wish| known.contains(wish));
    /// let format = *format.ok_or("no such colours")?;
    ///
    /// let shape = ImageShape::d2(640, 480);
    /// let picture = backend.create_image(MemoryFlags::READ_ONLY, format, shape)?;
    /// assert_eq!(picture.format(), format);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Contradictory flags, or a failure of the runtime.
    pub fn supported_image_formats(
        &self,
        flags: MemoryFlags,
        kind: ImageKind,
    ) -> Result<Vec<ImageFormat>> {
        flags.check()?;
        if !self.image_limits()?.images {
            return Ok(Vec::new());
        }
        let (context, flags) = (&self.context().handle, kernel_flags(flags));
        let codes = sys::image::supported_formats(context, flags, kind.code())?;
        Ok(codes
            .into_iter()
            .filter_map(ImageFormat::from_codes)
            .collect())
    }

    /// Makes an image with undefined pixels (`create_image`).
    ///
    /// As with buffers, most runtimes allocate its memory at the first command that uses it.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](Error::Unsupported) for a device without images; [`Image`](OpenClError::Image) for a format or a size that the device
    /// does not have, and for a shape without pixels, or of an image over a buffer; contradictory flags, more bytes than the device's
    /// largest block, or exhausted memory.
    pub fn create_image(
        &self,
        flags: MemoryFlags,
        format: ImageFormat,
        shape: ImageShape,
    ) -> Result<ClImage, OpenClError> {
        let layout = self.check_own_pixels(flags, format, shape, HostPitches::TIGHT)?;
        self.own_image(flags, format, shape, (Source::Nothing, layout))
    }

    /// Makes an image with a copy of the host's pixels (`create_image` with `hostbuf` and `pitches`).
    ///
    /// `data` is as long as the shape, the format and the pitches say: whole rows, and whole slices.
    ///
    /// ```
    /// # use binpool_allocators::MemoryFlags;
    /// # use binpool_opencl::{
    /// #     ChannelOrder, ChannelType, HostPitches, ImageFormat, ImageShape, OpenClBackend,
    /// # };
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// let heights = vec![0.5_f32; 640 * 480];
    /// let image = backend.create_image_with_data(
    ///     MemoryFlags::READ_ONLY,
    ///     ImageFormat::new(ChannelOrder::R, ChannelType::Float),
    ///     ImageShape::d2(640, 480),
    ///     &heights,
    ///     HostPitches::TIGHT,
    /// )?;
    /// assert!(image.bytes()? >= size_of_val(&heights[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`create_image`](Self::create_image); pitches that do not fit; data of another length.
    pub fn create_image_with_data<T: NoUninit>(
        &self,
        flags: MemoryFlags,
        format: ImageFormat,
        shape: ImageShape,
        data: &[T],
        pitches: HostPitches,
    ) -> Result<ClImage, OpenClError> {
        let layout = self.check_own_pixels(flags, format, shape, pitches)?;
        let bytes = bytemuck::cast_slice(data);
        layout.check_length(bytes.len())?;
        self.own_image(flags, format, shape, (Source::Copy(bytes, layout), layout))
    }

    /// Makes an image whose pixels are the first bytes of `memory`, a buffer, a block of a pool or a part of either, in rows
    /// `row_pitch` bytes apart, or without gaps (`create_image` with `buffer`).
    ///
    /// The image keeps the memory, and commands on either are ordered with commands on the other. A pool notes that its
    /// block is used on `queue`, but does not see later uses of the image: keep the block as long as the image, and name
    /// other queues to it (`record_use`).
    ///
    /// The shape is a 1D buffer image, or a 2D image where the device can
    /// ([`planes_over_buffers`](ImageLimits::planes_over_buffers)).
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::ImagePart;
    /// # use binpool_opencl::{
    /// #     ChannelOrder, ChannelType, HostPitches, ImageFormat, ImageRegion, ImageShape, OpenClBackend,
    /// # };
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let format = ImageFormat::new(ChannelOrder::Rgba, ChannelType::UnsignedInt8);
    /// let buffer = backend.create_buffer_from(&[1_u8; 64], MemoryFlags::empty())?;
    /// let shape = ImageShape::d1_buffer(16);
    /// let row = backend.create_image_over(&queue, &buffer, format, shape, None)?;
    ///
    /// // The third pixel of the image is four bytes of the buffer.
    /// let third = ImageRegion::new([2], [1]);
    /// backend.write_part(&queue, ImagePart::new(&row, third), &[5_u8; 4])?;
    /// let around = backend.map::<u8>(&queue, &buffer, 6..14)?;
    /// assert_eq!(*around, [1, 1, 5, 5, 5, 5, 1, 1]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A device without images, without 2D images over buffers, or without images over parts of buffers; memory whose
    /// requested size is smaller than the image, or that is shared virtual memory or starts where no image can; a shape that
    /// is never over a buffer, or a pitch that does not fit; and those of [`create_image`](Self::create_image).
    pub fn create_image_over(
        &self,
        queue: &ClQueue,
        memory: &(impl AsMemory<Self> + ?Sized),
        format: ImageFormat,
        shape: ImageShape,
        row_pitch: Option<usize>,
    ) -> Result<ClImage, OpenClError> {
        let kind = shape.kind();
        if !matches!(kind, ImageKind::D1Buffer | ImageKind::D2) {
            return Err(ImageProblem::Other(format!(
                "a {kind} over a buffer: only 1D buffer images and 2D images can be made so, copy the bytes instead"
            ))
            .into());
        }
        let bytes = self.bytes_on(queue, memory, ..)?;
        let (buffer, bytes) = bytes.ok_or(InvalidRequest::ZeroSize)?;
        buffer.check_may_be_retained()?;
        let (root, start) = buffer.root().ok_or_else(over_svm)?;
        let offset = start.saturating_add(bytes.offset);
        let limits = self.limits_for(shape)?;
        if kind == ImageKind::D2 && !limits.planes_over_buffers {
            let (what, instead) = (
                "2D images over buffers",
                "copy between buffer and image instead",
            );
            return Err(self.context().lacks(what, instead).into());
        }
        let flags = buffer.flags();
        self.check_format(flags, format, kind)?;
        let pitches = HostPitches {
            row: row_pitch,
            slice: None,
        };
        let layout = pitches.layout(shape, format.item_bytes())?;
        let row_pitch = match kind {
            ImageKind::D2 => check_plane_over(limits, offset, format, shape, layout)?,
            _ => 0,
        };
        Region::first(layout.bytes).check_within(bytes.bytes)?;
        // An image starts with its object: a part of a block needs one of its own.
        let part = (bytes.offset > 0).then(|| buffer.view(bytes)).transpose()?;
        let over = part.as_ref().unwrap_or(buffer);
        let handle = over.object()?.ok_or_else(over_svm)?;
        let source = Source::Buffer(handle, row_pitch);
        let region = Region::new(offset, layout.bytes);
        let under = handle.another()?;
        let held = self.context().quirks.view_lock.map(ReentrantMutex::lock);
        // With no flags the image has those of its buffer.
        let image = self.image_handle(0, format, shape, (source, layout));
        drop(held);
        let image = image.map_err(|error| match error {
            // `PoCL` 3.1 refuses sub-buffers here.
            OpenClError::Device(Error::Backend(failure))
                if handle.raw() != root.handle.raw()
                    && failure.code == Some(CL_INVALID_MEM_OBJECT) =>
            {
                let (what, instead) = ("images over a part of a buffer", "use a buffer of its own");
                self.context().lacks(what, instead).into()
            }
            error => error,
        })?;
        let pixels = Pixels::Buffer {
            image: View::new(self.context(), image, root, region),
            parent: over.key(),
            _under: View::new(self.context(), under, root, region),
            counted: Some(over.count_view()),
        };
        Ok(ClImage::new(self.context(), (format, shape, flags), pixels))
    }

    /// Checks that the device can hold an image of this shape, and returns its limits.
    fn limits_for(&self, shape: ImageShape) -> Result<&ImageLimits, OpenClError> {
        let limits = self.image_limits()?;
        if !limits.images {
            return Err(self.context().lacks("images", "use buffers").into());
        }
        limits.check(shape)?;
        Ok(limits)
    }

    /// Checks everything about an image with pixels of its own, and returns the layout of the host's pixels.
    pub(super) fn check_own_pixels(
        &self,
        flags: MemoryFlags,
        format: ImageFormat,
        shape: ImageShape,
        pitches: HostPitches,
    ) -> Result<HostLayout, OpenClError> {
        let kind = shape.kind();
        if kind == ImageKind::D1Buffer {
            let problem = format!("a {kind} is made over a buffer: use `create_image_over`");
            return Err(ImageProblem::Other(problem).into());
        }
        self.limits_for(shape)?;
        let tight = HostPitches::TIGHT.layout(shape, format.item_bytes())?;
        self.device_limits().check_block(tight.bytes)?;
        self.check_format(flags, format, kind)?;
        Ok(pitches.layout(shape, format.item_bytes())?)
    }

    fn check_format(
        &self,
        flags: MemoryFlags,
        format: ImageFormat,
        kind: ImageKind,
    ) -> Result<(), OpenClError> {
        let supported = self.supported_image_formats(flags, kind)?;
        if supported.contains(&format) {
            return Ok(());
        }
        let others = supported.len();
        Err(ImageProblem::Format {
            kind,
            format,
            others,
        }
        .into())
    }

    fn own_image(
        &self,
        flags: MemoryFlags,
        format: ImageFormat,
        shape: ImageShape,
        source: (Source<'_>, HostLayout),
    ) -> Result<ClImage, OpenClError> {
        let runtimes = self.context().quirks.flags_to_make(to_cl(flags));
        let image = self.image_handle(runtimes, format, shape, source)?;
        let log = AccessLog::default();
        let pixels = Pixels::Own { image, log };
        Ok(ClImage::new(self.context(), (format, shape, flags), pixels))
    }

    fn image_handle(
        &self,
        flags: u64,
        format: ImageFormat,
        shape: ImageShape,
        (source, layout): (Source<'_>, HostLayout),
    ) -> Result<MemHandle, OpenClError> {
        let context = &self.context().handle;
        let handle = kept_memory::allocate(|| {
            sys::image::create(context, flags, format.codes(), shape.for_runtime(), source)
        })
        .map_err(|error| error.into_error(Purpose::Memory(layout.bytes)))?;
        check_item_bytes(&handle, format)?;
        Ok(handle)
    }
}

/// Returns the runtime's flags for what kernels do, the only ones that formats depend on.
pub(super) fn kernel_flags(flags: MemoryFlags) -> u64 {
    match to_cl(flags) & (CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY) {
        0 => CL_MEM_READ_WRITE,
        kernels => kernels,
    }
}

/// Checks that the runtime's pixels have the size that this crate computes with.
pub(super) fn check_item_bytes(image: &MemHandle, format: ImageFormat) -> Result<(), OpenClError> {
    let actual = sys::image::info(image, CL_IMAGE_ELEMENT_SIZE)?.size()?;
    if actual == format.item_bytes() {
        return Ok(());
    }
    Err(Error::unsupported(format!(
        "pixels of {format}, which take {actual} bytes on this device, and {} in the specification",
        format.item_bytes()
    ))
    .into())
}

fn over_svm() -> Error {
    Error::unsupported(
        "an image over shared virtual memory: make it over a buffer, or copy the bytes",
    )
}

/// Checks the row pitch and the offset of a 2D image in its buffer, and returns the pitch.
pub(super) fn check_plane_over(
    limits: &ImageLimits,
    offset: usize,
    format: ImageFormat,
    shape: ImageShape,
    layout: HostLayout,
) -> Result<usize, OpenClError> {
    let item = format.item_bytes();
    let bytes = |pixels: usize| {
        let bytes = pixels.max(1).checked_mul(item);
        bytes.ok_or(ImageProblem::Overflow { shape, item })
    };
    let (pitch, _) = layout.pitches;
    let [width, ..] = shape.extent();
    check_pitch("row", pitch, bytes(width)?, bytes(limits.pitch_alignment)?)?;
    let alignment = bytes(limits.base_alignment)?;
    if !offset.is_multiple_of(alignment) {
        return Err(Error::unsupported(format!(
            "an image over a buffer at byte {offset} of its block: this device needs a multiple of {alignment}"
        ))
        .into());
    }
    Ok(pitch)
}
