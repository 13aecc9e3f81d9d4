//! Commands that fill an image with a colour.

use binpool_allocators::{Event, On, Queue, Result, runtime::Access};

use super::{
    cl_image::ClImage,
    color::ImageColor,
    problem::ImageProblem,
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
            return Err(ImageProblem::Color {
                color,
                format,
                numbers,
            }
            .into());
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
        let purpose = Purpose::Memory(image.region_bytes(region));
        self.submit(queue, purpose, &uses, wait_for, |wait| {
            let (handle, pixels) = (image.handle(), region.into());
            sys::image::enqueue_fill(queue.handle(), handle, pixels, color.bytes(), wait)
        })
    }
}
