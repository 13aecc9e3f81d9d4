//! Copies between images, and between images and buffers.

use binpool_allocators::{AsMemory, InvalidRequest, On, Region, Result, runtime::Access};
use cl3::error_codes::CL_MEM_COPY_OVERLAP;

use super::{cl_image::ClImage, problem::ImageProblem, region::ImageRegion, shape::ImageKind};
use crate::{
    backend::OpenClBackend,
    error::OpenClError,
    event::{ClEvent, ClOn},
    order::memory_use::MemoryUse,
    sys::{self, DeviceBytes, MemHandle, Purpose, transfer::DevicePixels},
    transfer::{copy::overlap, parts::enqueue_through_buffer},
};

fn bytes_of(buffer: &MemHandle) -> DevicePixels<'_> {
    DevicePixels::Bytes(DeviceBytes::Buffer(buffer, 0))
}

/// Copies on the device (`enqueue_copy`; OpenCL 3.0, sections 5.3.4 and 5.3.6).
impl OpenClBackend {
    /// Enqueues a copy of the region `from` of one image to the region of the same size at `to` of another one, or of
    /// the same.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::ImagePart;
    /// # use binpool_opencl::{
    /// #     ChannelOrder, ChannelType, HostPitches, ImageFormat, ImageRegion, ImageShape, OpenClBackend, OpenClError,
    /// # };
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let format = ImageFormat::new(ChannelOrder::R, ChannelType::UnsignedInt8);
    /// # let shape = ImageShape::d2(4, 2);
    /// # let pixels = [1_u8, 2, 3, 4, 5, 6, 7, 8];
    /// # let image =
    /// #     backend.create_image_with_data(MemoryFlags::empty(), format, shape, &pixels, HostPitches::TIGHT)?;
    /// // A picture of 4x2 pixels: 1, 2, 3, 4 above 5, 6, 7, 8. Its right half goes to the left.
    /// let half = ImageRegion::new([2, 0], [2, 2]);
    /// backend.enqueue_copy_image(&queue, &image, half, &image, [0, 0, 0])?;
    /// let mut pixels = [0_u8; 8];
    /// let all = ImageRegion::all(shape);
    /// backend.read_part(&queue, ImagePart::new(&image, all), &mut pixels)?;
    /// assert_eq!(pixels, [3, 4, 3, 4, 7, 8, 7, 8]);
    ///
    /// // By one pixel only, some would be read and written.
    /// let refused = backend.enqueue_copy_image(&queue, &image, half, &image, [1, 0, 0]);
    /// assert!(matches!(refused, Err(OpenClError::Image(_))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Image`](OpenClError::Image) for other formats, for a region without pixels or beyond its image, and for regions of one image that
    /// overlap; images over the same bytes of a buffer; a device that cannot copy layers in this way
    /// ([`layer_copies`](crate::ImageLimits::layer_copies)); objects of another backend; a failure of the runtime.
    pub fn enqueue_copy_image<'q>(
        &self,
        on: impl Into<ClOn<'q>>,
        source: &ClImage,
        from: ImageRegion,
        destination: &ClImage,
        to: [usize; 3],
    ) -> Result<ClEvent, OpenClError> {
        let On { queue, wait_for } = on.into();
        let into = from.moved_to(to);
        self.check_image(queue, source, from)?;
        self.check_image(queue, destination, into)?;
        if source.format() != destination.format() {
            return Err(ImageProblem::FormatsDiffer {
                from: source.format(),
                to: destination.format(),
            }
            .into());
        }
        let uses = [source.used(Access::Read), destination.used(Access::Write)];
        if source == destination {
            if from.overlaps(into) {
                return Err(ImageProblem::Overlap { from, to }.into());
            }
        } else {
            check_apart(&uses)?;
        }
        let arrays = [source, destination].map(|image| image.shape().kind() == ImageKind::D1Array);
        let within_layers = source == destination && source.shape().layers().is_some();
        if arrays[0] != arrays[1] || within_layers {
            self.check_layer_copies()?;
        }
        let bytes = source.region_bytes(from);
        let purpose = Purpose::Memory(bytes);
        let ends = (source.device_pixels(from), destination.device_pixels(into));
        let (from, to) = ends;
        let event = self.submit(queue, purpose, &uses, wait_for, |wait| {
            let handle = queue.handle();
            match sys::image::enqueue_copy_pixels(handle, from, to, bytes, wait) {
                // They do not overlap. Intel's runtime takes all layers of an array for the same one.
                Err(error) if error.code == CL_MEM_COPY_OVERLAP => enqueue_through_buffer(
                    queue,
                    bytes,
                    wait,
                    |between, wait| {
                        sys::image::enqueue_copy_pixels(
                            handle,
                            from,
                            bytes_of(between),
                            bytes,
                            wait,
                        )
                    },
                    |between, wait| {
                        sys::image::enqueue_copy_pixels(handle, bytes_of(between), to, bytes, wait)
                    },
                ),
                copied => copied,
            }
        })?;
        Ok(event)
    }

    /// Enqueues a copy of the region `from` of an image to the bytes of `memory` from `offset` on, without gaps between
    /// its pixels.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::{
    /// #     ChannelOrder, ChannelType, HostPitches, ImageFormat, ImageRegion, ImageShape, OpenClBackend,
    /// # };
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let format = ImageFormat::new(ChannelOrder::R, ChannelType::UnsignedInt8);
    /// # let shape = ImageShape::d2(4, 2);
    /// # let pixels = [1_u8, 2, 3, 4, 5, 6, 7, 8];
    /// # let image =
    /// #     backend.create_image_with_data(MemoryFlags::empty(), format, shape, &pixels, HostPitches::TIGHT)?;
    /// // A picture of 4x2 pixels of one byte: 1, 2, 3, 4 above 5, 6, 7, 8.
    /// let middle = ImageRegion::new([1, 0], [2, 2]);
    /// let buffer = backend.create_buffer(16, MemoryFlags::empty())?;
    /// backend.enqueue_copy_image_to_buffer(&queue, &image, middle, &buffer, 8)?;
    /// let bytes = backend.map::<u8>(&queue, &buffer, 8..12)?;
    /// assert_eq!(*bytes, [2, 3, 6, 7]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Image`](OpenClError::Image) for a region without pixels or beyond the image; memory that is too small,
    /// or that the image is made over; a device that cannot copy the layers of 1D arrays
    /// ([`layer_copies`](crate::ImageLimits::layer_copies)); objects of another backend; a failure of the runtime.
    pub fn enqueue_copy_image_to_buffer<'q>(
        &self,
        on: impl Into<ClOn<'q>>,
        source: &ClImage,
        from: ImageRegion,
        memory: &(impl AsMemory<Self> + ?Sized),
        offset: usize,
    ) -> Result<ClEvent, OpenClError> {
        let memory = (memory, offset, Access::Write);
        self.between(on.into(), (source, from, Access::Read), memory)
    }

    /// Enqueues a copy of the bytes of `memory` from `offset` on, which are pixels without gaps, to the region `into`
    /// of an image.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, Error, InvalidRequest, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::ImagePart;
    /// # use binpool_opencl::{
    /// #     ChannelOrder, ChannelType, HostPitches, ImageFormat, ImageRegion, ImageShape, OpenClBackend, OpenClError,
    /// # };
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let format = ImageFormat::new(ChannelOrder::R, ChannelType::UnsignedInt8);
    /// # let shape = ImageShape::d2(4, 2);
    /// # let image = backend.create_image_with_data(
    /// #     MemoryFlags::empty(),
    /// #     format,
    /// #     shape,
    /// #     &[0_u8; 8],
    /// #     HostPitches::TIGHT,
    /// # )?;
    /// let lower = ImageRegion::new([0, 1], [4, 1]);
    /// let bytes = backend.create_buffer_from(&[1_u8, 2, 3, 4, 5, 6], MemoryFlags::empty())?;
    /// backend.enqueue_copy_buffer_to_image(&queue, &bytes, 2, &image, lower)?;
    /// let mut pixels = [0_u8; 4];
    /// backend.read_part(&queue, ImagePart::new(&image, lower), &mut pixels)?;
    /// assert_eq!(pixels, [3, 4, 5, 6]);
    ///
    /// let beyond = backend.enqueue_copy_buffer_to_image(&queue, &bytes, 3, &image, lower);
    /// let Err(OpenClError::Device(Error::InvalidRequest(why))) = beyond else {
    ///     panic!("four bytes from the fourth of six on")
    /// };
    /// let expected = InvalidRequest::OutOfBounds { offset: 3, bytes: 4, size: 6 };
    /// assert_eq!(why, expected);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`enqueue_copy_image_to_buffer`](Self::enqueue_copy_image_to_buffer).
    pub fn enqueue_copy_buffer_to_image<'q>(
        &self,
        on: impl Into<ClOn<'q>>,
        memory: &(impl AsMemory<Self> + ?Sized),
        offset: usize,
        destination: &ClImage,
        into: ImageRegion,
    ) -> Result<ClEvent, OpenClError> {
        let memory = (memory, offset, Access::Read);
        self.between(on.into(), (destination, into, Access::Write), memory)
    }

    fn check_layer_copies(&self) -> Result<(), OpenClError> {
        if self.image_limits()?.layer_copies {
            return Ok(());
        }
        let what =
            "copies between layers of one image, and between 1D array images and anything else,";
        let instead = "read and write the pixels, or take other images";
        Err(self.context().lacks(what, instead).into())
    }

    /// Enqueues a copy between a region of an image and bytes of a buffer, in the direction that `access` says.
    fn between(
        &self,
        On { queue, wait_for }: ClOn<'_>,
        (image, region, how): (&ClImage, ImageRegion, Access),
        (memory, offset, access): (&(impl AsMemory<Self> + ?Sized), usize, Access),
    ) -> Result<ClEvent, OpenClError> {
        self.check_image(queue, image, region)?;
        if image.shape().kind() == ImageKind::D1Array {
            self.check_layer_copies()?;
        }
        let bytes = Region::new(offset, image.region_bytes(region));
        // There are bytes to copy, so the memory is not the block of 0 bytes.
        let found = self.bytes_on(queue, memory, bytes)?;
        let (memory, bytes) = found.ok_or(InvalidRequest::ZeroSize)?;
        let uses = [image.used(how), memory.used(bytes, access)];
        check_apart(&uses)?;
        let purpose = Purpose::Memory(bytes.bytes);
        let pixels = image.device_pixels(region);
        let linear = DevicePixels::Bytes(memory.device_bytes(bytes));
        let (from, to) = match access {
            Access::Write => (pixels, linear),
            Access::Read => (linear, pixels),
        };
        let event = self.submit(queue, purpose, &uses, wait_for, |wait| {
            sys::image::enqueue_copy_pixels(queue.handle(), from, to, bytes.bytes, wait)
        })?;
        Ok(event)
    }
}

/// Checks that source and destination share no bytes of a buffer that images are made over.
fn check_apart([from, to]: &[MemoryUse<'_>; 2]) -> Result<(), OpenClError> {
    if from.shares_bytes_with(to) {
        return Err(overlap(from.region, to.region).into());
    }
    Ok(())
}
