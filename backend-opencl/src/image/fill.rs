//! Commands that fill an image with a colour.

use binpool_allocators::{Event, On, Queue, Result, runtime::Access};

use super::{
    cl_image::ClImage,
    format::{ChannelType, ImageFormat},
    region::ImageRegion,
    shape::{ImageKind, ImageShape},
};
use crate::{
    backend::OpenClBackend,
    error::OpenClError,
    event::{ClEvent, ClOn},
    queue::ClQueue,
    sys::{self, Purpose},
};

/// A colour in the order red, green, blue, alpha, whatever the order of the image's channels. The runtime takes the
/// channels that the image has, and converts them (OpenCL 3.0, section 5.3.5).
///
/// ```
/// use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
/// # use binpool_opencl::ImagePart;
/// use binpool_opencl::{
///     ChannelOrder, ChannelType, HostPitches, ImageColor, ImageFormat, ImageRegion,
///     ImageShape, OpenClBackend, OpenClError,
/// };
///
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let format = ImageFormat::new(ChannelOrder::Bgra, ChannelType::UnormInt8);
/// let shape = ImageShape::d1(1);
/// let image = backend.create_image(MemoryFlags::empty(), format, shape)?;
/// let all = ImageRegion::all(shape);
/// let fill = |color| backend.enqueue_fill_image(&queue, &image, all, color);
///
/// fill(ImageColor::Float([1.0, 0.0, 0.0, 1.0]))?;
/// let mut pixel = [0_u8; 4];
/// backend.read_part(&queue, ImagePart::new(&image, all), &mut pixel)?;
/// assert_eq!(pixel, [0, 0, 255, 255], "red is the third channel of BGRA");
///
/// // Kernels read these channels as floats, and so are they filled.
/// let refused = fill(ImageColor::Unsigned([255, 0, 0, 255]));
/// assert!(matches!(refused, Err(OpenClError::Image(_))));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ImageColor {
    /// For floats and normalized integers. Images of depth take the first.
    Float([f32; 4]),
    /// For signed integers.
    Signed([i32; 4]),
    /// For unsigned integers.
    Unsigned([u32; 4]),
}

impl ImageColor {
    /// Returns the name of the numbers that images of that format are filled with.
    const fn numbers_of(format: ImageFormat) -> &'static str {
        use ChannelType as T;
        match format.data {
            T::SignedInt8 | T::SignedInt16 | T::SignedInt32 => "signed integers",
            T::UnsignedInt8 | T::UnsignedInt16 | T::UnsignedInt32 => "unsigned integers",
            _ => "floats",
        }
    }

    /// Returns the name of its numbers.
    const fn numbers(self) -> &'static str {
        match self {
            Self::Float(_) => "floats",
            Self::Signed(_) => "signed integers",
            Self::Unsigned(_) => "unsigned integers",
        }
    }

    /// Returns the 16 bytes that are passed to the runtime.
    pub(crate) fn bytes(self) -> [u8; 16] {
        match self {
            Self::Float(channels) => bytemuck::cast(channels),
            Self::Signed(channels) => bytemuck::cast(channels),
            Self::Unsigned(channels) => bytemuck::cast(channels),
        }
    }
}

impl OpenClBackend {
    /// Enqueues a fill of a region of an image with one colour (`enqueue_fill_image`; OpenCL 3.0, section 5.3.5).
    ///
    /// # Errors
    ///
    /// A device that cannot fill 1D buffer images ([`buffer_fills`](crate::ImageLimits::buffer_fills));
    /// [`Image`](OpenClError::Image) for a colour of other numbers than the image's format takes, and for a region without
    /// pixels or beyond the image; objects of another backend;
    /// a failure of the runtime.
    ///
    /// ```
    /// use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::ImagePart;
    /// use binpool_opencl::{
    ///     ChannelOrder, ChannelType, HostPitches, ImageColor, ImageFormat, ImageRegion, ImageShape,
    ///     OpenClBackend,
    /// };
    ///
    /// let backend = OpenClBackend::open(&"any".parse()?)?;
    /// let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let format = ImageFormat::new(ChannelOrder::Rgba, ChannelType::Float);
    /// let shape = ImageShape::d2(640, 480);
    /// let image = backend.create_image(MemoryFlags::empty(), format, shape)?;
    /// let black = ImageColor::Float([0.0, 0.0, 0.0, 1.0]);
    /// let all = ImageRegion::all(shape);
    /// backend.enqueue_fill_image(&queue, &image, all, black)?;
    ///
    /// let corner = ImageRegion::new([639, 479], [1, 1]);
    /// let mut pixel = [0.5_f32; 4];
    /// backend.read_part(&queue, ImagePart::new(&image, corner), &mut pixel)?;
    /// assert_eq!(pixel, [0.0, 0.0, 0.0, 1.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn enqueue_fill_image<'q>(
        &self,
        on: impl Into<ClOn<'q>>,
        image: &ClImage,
        region: ImageRegion,
        color: ImageColor,
    ) -> Result<ClEvent, OpenClError> {
        let On { queue, wait_for } = on.into();
        self.check_image(queue, image, region)?;
        let format = image.format();
        let numbers = ImageColor::numbers_of(format);
        if color.numbers() != numbers {
            return Err(OpenClError::Image(format!(
                "the colour {color:?} for pixels of {format}: their channels take {numbers}"
            )));
        }
        if image.shape().kind() == ImageKind::D1Buffer && !self.image_limits()?.buffer_fills {
            let what = "fills of 1D buffer images";
            let instead = "fill the bytes of the buffer, or write the pixels";
            return Err(self.context().lacks(what, instead).into());
        }
        let quirks = &self.context().quirks;
        if image.shape().kind() == ImageKind::D3 && quirks.fills_of_volumes_block {
            return self.fill_by_copy(queue, image, region, color, wait_for);
        }
        Ok(self.submit_fill(queue, image, region, color, wait_for)?)
    }

    /// Fills another image of the region's shape on a queue on which nothing is pending, waits for that, and enqueues a
    /// copy of it.
    fn fill_by_copy(
        &self,
        queue: &ClQueue,
        image: &ClImage,
        region: ImageRegion,
        color: ImageColor,
        wait_for: &[ClEvent],
    ) -> Result<ClEvent, OpenClError> {
        let shape = ImageShape::of(ImageKind::D3, region.size);
        let filled = self.create_image(image.flags(), image.format(), shape)?;
        let all = ImageRegion::all(shape);
        self.on_idle_queue(queue, |queue| {
            self.submit_fill(queue, &filled, all, color, &[])?.wait()
        })?;
        self.enqueue_copy_image(queue.after(wait_for), &filled, all, image, region.origin)
    }

    fn submit_fill(
        &self,
        queue: &ClQueue,
        image: &ClImage,
        region: ImageRegion,
        color: ImageColor,
        wait_for: &[ClEvent],
    ) -> Result<ClEvent> {
        let uses = [image.used(Access::Write)];
        let purpose = Purpose::Memory(image.region_bytes(region)?);
        self.submit(queue, purpose, &uses, wait_for, |wait| {
            let (handle, pixels) = (image.handle(), region.into());
            sys::image::enqueue_fill(queue.handle(), handle, pixels, color.bytes(), wait)
        })
    }
}
