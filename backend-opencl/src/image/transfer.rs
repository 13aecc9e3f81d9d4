//! Transfers between the host's pixels and an image's.

use binpool_allocators::{On, Result, runtime::Access};

use super::{cl_image::ClImage, layout::HostPitches, region::ImageRegion, shape::ImageShape};
use crate::{
    backend::OpenClBackend,
    error::OpenClError,
    event::{ClEvent, ClOn},
    queue::ClQueue,
    sys::transfer::{DevicePixels, DeviceSide},
    transfer::{
        host::{HostPart, HostTransfer, TransferPart},
        migration::{MigrationFlags, migrate, purpose},
    },
};

impl OpenClBackend {
    /// Checks a command on a region of an image.
    pub(crate) fn check_image(
        &self,
        queue: &ClQueue,
        image: &ClImage,
        region: ImageRegion,
    ) -> Result<(), OpenClError> {
        self.check_own_queue(queue)?;
        self.check_own_image(image)?;
        Ok(region.check_within(image.shape())?)
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

/// A region of an image and how its pixels lie in the host's bytes, for the [transfers of parts](OpenClBackend::write_part).
///
/// The number of the host's bytes follows from the size of the region, the format and the pitches: whole rows, and whole slices. Padding
/// between them stays as it is.
///
/// # Errors
///
/// Transfers of it: [`Image`](OpenClError::Image) for a region without pixels or beyond the image, and for pitches that do not fit; data of
/// another length.
///
/// ```
/// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
/// # use binpool_opencl::ImagePart;
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
/// backend.read_part(&queue, ImagePart::new(&image, columns).with_pitches(pitches), &mut rows)?;
/// assert_eq!(rows, [2, 3, 9, 9, 5, 6, 9, 9]); // what lies between is as it was
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ImagePart<'a> {
    image: &'a ClImage,
    region: ImageRegion,
    pitches: HostPitches,
}

impl<'a> ImagePart<'a> {
    /// Returns a region whose pixels lie without gaps in the host's bytes.
    pub const fn new(image: &'a ClImage, region: ImageRegion) -> Self {
        Self {
            image,
            region,
            pitches: HostPitches::TIGHT,
        }
    }

    /// The same region, with gaps between rows and slices of the host's pixels.
    #[must_use]
    pub const fn with_pitches(self, pitches: HostPitches) -> Self {
        Self { pitches, ..self }
    }
}

impl TransferPart for ImagePart<'_> {
    type Error = OpenClError;

    #[expect(private_interfaces, reason = "no program implements it")]
    fn checked(
        &self,
        backend: &OpenClBackend,
        queue: &ClQueue,
        host: HostPart,
    ) -> Result<Option<HostTransfer<'_>>, OpenClError> {
        let Self {
            image,
            region,
            pitches,
        } = *self;
        backend.check_image(queue, image, region)?;
        image.flags().check_host(host.host_use())?;
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
            host_bytes: layout.bytes,
        }))
    }
}
