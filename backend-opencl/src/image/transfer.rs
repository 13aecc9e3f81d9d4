//! Transfers between the host's pixels and an image's.

use std::sync::Arc;

use binpool_allocators::{On, PendingRead, Result};
use bytemuck::{AnyBitPattern, NoUninit};

use super::{cl_image::ClImage, layout::HostPitches, region::ImageRegion, shape::ImageShape};
use crate::{
    backend::OpenClBackend,
    error::OpenClError,
    event::{ClEvent, ClOn},
    order::access::Access,
    queue::ClQueue,
    sys::{
        host::HostSide,
        transfer::{DevicePixels, DeviceSide},
    },
    transfer::{
        host::{HostPart, HostTransfer, Shape},
        migration::{MigrationFlags, migrate, purpose},
    },
};

/// Transfers between the host and images (`enqueue_copy`; OpenCL 3.0, section 5.3.3).
///
/// The number of the host's bytes follows from the size of the region, the format and the pitches: whole rows, and whole
/// slices.
impl OpenClBackend {
    /// Writes the host's pixels to a region of an image, and waits until they are there.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::{
    /// #     ChannelOrder, ChannelType, HostPitches, ImageFormat, ImageRegion, ImageShape, OpenClBackend,
    /// # };
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let format = ImageFormat::new(ChannelOrder::Rgba, ChannelType::Float);
    /// let shape = ImageShape::d2(8, 8);
    /// let image = backend.create_image(MemoryFlags::empty(), format, shape)?;
    /// // Two pixels, one above the other, of four floats each.
    /// let two = ImageRegion::new([5, 2], [1, 2]);
    /// let colors = [[0.5_f32, 0.0, 0.0, 1.0], [0.0, 0.5, 0.0, 1.0]];
    /// backend.write_image(&queue, &image, two, &colors, HostPitches::TIGHT)?;
    ///
    /// let mut lower = [0.0_f32; 4];
    /// let pixel = ImageRegion::new([5, 3], [1, 1]);
    /// backend.read_image(&queue, &image, pixel, &mut lower, HostPitches::TIGHT)?;
    /// assert_eq!(lower, colors[1]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Image`](OpenClError::Image) for a region without pixels or beyond the image, and for pitches that do not fit;
    /// data of another length; objects of another backend; the failure of the command, or of a command that it waits for.
    pub fn write_image<'q, T: NoUninit>(
        &self,
        on: impl Into<ClOn<'q>>,
        image: &ClImage,
        region: ImageRegion,
        data: &[T],
        pitches: HostPitches,
    ) -> Result<(), OpenClError> {
        self.transfer(
            on.into(),
            &Pixels(image, region, pitches),
            &HostSide::source(data),
        )
    }

    /// Reads a region of an image, and waits until its pixels are there.
    ///
    /// Padding between rows and slices stays as it is.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::{
    /// #     ChannelOrder, ChannelType, HostPitches, ImageFormat, ImageRegion, ImageShape, OpenClBackend,
    /// # };
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let format = ImageFormat::new(ChannelOrder::R, ChannelType::UnsignedInt8);
    /// # let shape = ImageShape::d2(3, 2);
    /// # let pixels = [1_u8, 2, 3, 4, 5, 6];
    /// # let image =
    /// #     backend.create_image_with_data(MemoryFlags::empty(), format, shape, &pixels, HostPitches::TIGHT)?;
    /// // Two columns of a picture, 1, 2, 3 above 4, 5, 6, into rows that are longer.
    /// let columns = ImageRegion::new([1, 0], [2, 2]);
    /// let mut rows = [9_u8; 8];
    /// let pitches = HostPitches::rows(4);
    /// backend.read_image(&queue, &image, columns, &mut rows, pitches)?;
    /// assert_eq!(rows, [2, 3, 9, 9, 5, 6, 9, 9]); // what lies between is as it was
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`write_image`](Self::write_image).
    pub fn read_image<'q, T: NoUninit + AnyBitPattern>(
        &self,
        on: impl Into<ClOn<'q>>,
        image: &ClImage,
        region: ImageRegion,
        data: &mut [T],
        pitches: HostPitches,
    ) -> Result<(), OpenClError> {
        self.transfer(
            on.into(),
            &Pixels(image, region, pitches),
            &HostSide::target(data),
        )
    }

    /// Enqueues a write of the host's pixels, which the command keeps until it has ended.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// # use binpool_allocators::{Backend, Event, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::{
    /// #     ChannelOrder, ChannelType, HostPitches, ImageFormat, ImageRegion, ImageShape, OpenClBackend,
    /// # };
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let format = ImageFormat::new(ChannelOrder::R, ChannelType::UnsignedInt8);
    /// # let shape = ImageShape::d2(3, 2);
    /// # let image = backend.create_image(MemoryFlags::empty(), format, shape)?;
    /// let data: Arc<[u8]> = [1, 2, 3, 4, 5, 6].into();
    /// let (all, tight) = (ImageRegion::all(shape), HostPitches::TIGHT);
    /// let write = backend.enqueue_write_image(&queue, &image, all, data, tight)?;
    ///
    /// // Meanwhile the host does other work. What reads the image comes after the write by itself.
    /// let corner = ImageRegion::new([1, 1], [2, 1]);
    /// let read = backend.enqueue_read_image(&queue, &image, corner)?;
    /// assert_eq!(read.wait()?, [5, 6]);
    /// assert!(write.status()?.has_ended());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`write_image`](Self::write_image), without those of commands, which the event reports.
    pub fn enqueue_write_image<'q>(
        &self,
        on: impl Into<ClOn<'q>>,
        image: &ClImage,
        region: ImageRegion,
        data: Arc<[u8]>,
        pitches: HostPitches,
    ) -> Result<ClEvent, OpenClError> {
        self.write_shared(on.into(), &Pixels(image, region, pitches), data)
    }

    /// Enqueues a read of a region, without gaps between its pixels.
    ///
    /// # Errors
    ///
    /// Those of [`write_image`](Self::write_image), without those of commands, which the event reports.
    pub fn enqueue_read_image<'q>(
        &self,
        on: impl Into<ClOn<'q>>,
        image: &ClImage,
        region: ImageRegion,
    ) -> Result<PendingRead<ClEvent>, OpenClError> {
        self.read_to_new(on.into(), &Pixels(image, region, HostPitches::TIGHT))
    }

    /// Checks a command on a region of an image.
    pub(crate) fn check_image(
        &self,
        queue: &ClQueue,
        image: &ClImage,
        region: ImageRegion,
    ) -> Result<(), OpenClError> {
        self.check_own_queue(queue)?;
        self.check_own_image(image)?;
        region.check_within(image.shape())
    }
}

/// Migrations, as of memory ([`enqueue_migrate`](OpenClBackend::enqueue_migrate)).
impl OpenClBackend {
    /// Enqueues a migration of images: `PyOpenCL`'s `enqueue_migrate_mem_objects`.
    ///
    /// ```
    /// # use binpool_allocators::Event;
    /// use binpool_opencl::MigrationFlags;
    /// # use binpool_opencl::{ChannelOrder, ChannelType, ImageColor, ImageFormat, ImageRegion, ImageShape};
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let format = ImageFormat::new(ChannelOrder::Rgba, ChannelType::Float);
    /// # let shape = ImageShape::d2(64, 64);
    ///
    /// let drawn = backend.create_image(MemoryFlags::empty(), format, shape)?;
    /// let white = ImageColor::Float([1.0; 4]);
    /// backend.enqueue_fill_image(&queue, &drawn, ImageRegion::all(shape), white)?;
    /// // Behind the fill. When the host looks, the image is there already.
    /// let moved = backend.enqueue_migrate_images(&queue, &[&drawn], MigrationFlags::HOST)?;
    /// moved.wait()?;
    /// let map = backend.map_image::<f32>(&queue, &drawn, ImageRegion::all(shape))?;
    /// assert_eq!(map.row(63, 0), Some(&[1.0; 256][..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ForeignObject`](binpool_allocators::InvalidRequest::ForeignObject);
    /// [`Mapped`](binpool_allocators::InvalidRequest::Mapped); the failures of the runtime.
    pub fn enqueue_migrate_images<'q>(
        &self,
        on: impl Into<ClOn<'q>>,
        images: &[&ClImage],
        flags: MigrationFlags,
    ) -> Result<ClEvent> {
        let On { queue, wait_for } = on.into();
        self.check_own_queue(queue)?;
        for image in images {
            self.check_own_image(image)?;
        }
        let stays = self.stays(flags);
        let moving = images.iter().filter(|_| !stays);
        let handles: Vec<_> = moving.map(|image| image.handle()).collect();
        let uses: Vec<_> = images.iter().map(|it| it.used(Access::Write)).collect();
        self.submit(queue, purpose(&uses), &uses, wait_for, |wait| {
            migrate(queue, &handles, &[], flags, wait)
        })
    }
}

/// Pixels of an image, and how the host's lie.
struct Pixels<'a>(&'a ClImage, ImageRegion, HostPitches);

impl Shape for Pixels<'_> {
    type Error = OpenClError;

    fn checked(
        &self,
        backend: &OpenClBackend,
        queue: &ClQueue,
        host: HostPart,
    ) -> Result<Option<HostTransfer<'_>>, OpenClError> {
        let Self(image, region, pitches) = *self;
        backend.check_image(queue, image, region)?;
        image.flags().check_host(host.access.host_use())?;
        let part = ImageShape::of(image.shape().kind(), region.size);
        let layout = pitches.layout(part, image.item_bytes())?;
        layout.check_length(host.bytes.unwrap_or(layout.bytes))?;
        let device = match image.device_pixels(region) {
            DevicePixels::Image(image, pixels) => DeviceSide::Image(image, pixels, layout),
            DevicePixels::Bytes(bytes) => DeviceSide::Bytes(bytes),
        };
        Ok(Some(HostTransfer {
            device,
            used: image.used(host.access),
            bytes: layout.bytes,
            host_bytes: layout.bytes,
        }))
    }
}
