//! Images over memory of the host that they own.

use std::fmt;

use binpool_allocators::{HostUse, InvalidRequest, MemoryFlags, Result};
use bytemuck::Pod;
use cl3::memory::CL_MAP_READ;

use super::{
    ImageFormat, ImageKind, ImageRegion, ImageShape,
    cl_image::{ClImage, Pixels},
    create::check_item_bytes,
    layout::HostPitches,
};
use crate::{
    backend::OpenClBackend,
    memory::flags::host_flags,
    order::{access::Access, access_log::AccessLog},
    refused::Refused,
    sys::{self, ClResult, Purpose, WaitList, buffer::LentElements, image::HostLayout},
};

/// An image over a vector of the host, which it owns. The vector comes back by [`into_host`](Self::into_host); if not, it
/// is freed when the runtime has destroyed the image.
///
/// Made by [`create_host_image`](OpenClBackend::create_host_image). There is no image over memory that is lent for a call,
/// as there is for [buffers](OpenClBackend::with_host_buffer): images can be cloned, and a clone would prolong the loan.
///
/// ```
/// use binpool_allocators::{Error, InvalidRequest};
/// # use binpool_allocators::MemoryFlags;
/// # use binpool_opencl::{ChannelOrder, ChannelType, HostPitches, ImageFormat, ImageShape, OpenClBackend};
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// # let format = ImageFormat::new(ChannelOrder::Rgba, ChannelType::UnormInt8);
/// # let shape = ImageShape::D2 { width: 3, height: 2 };
/// let pixels = vec![[1_u8; 4]; 6];
/// let image = backend.create_host_image(MemoryFlags::empty(), format, shape, pixels, HostPitches::TIGHT)?;
/// let clone = image.image().clone();
/// let Err(refused) = image.into_host() else {
///     panic!("the clone lies over the vector")
/// };
/// let left = InvalidRequest::ViewsLeft { views: 1, bytes: 24 };
/// assert!(matches!(refused.error, Error::InvalidRequest(request) if request == left));
///
/// drop(clone);
/// let image = refused.value; // Here it is again.
/// assert_eq!(image.into_host()?, [[1; 4]; 6]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct HostImage<T> {
    image: ClImage,
    layout: HostLayout,
    elements: LentElements<T>,
}

impl OpenClBackend {
    /// Makes an image over `elements`, a vector or a boxed slice, and keeps them until the runtime has destroyed it
    /// (`create_image` of `PyOpenCL` with `USE_HOST_PTR`, `hostbuf` and `pitches`).
    ///
    /// The number of elements follows from the shape, the format and the pitches. Devices that share memory with the host
    /// may use them where they are; others copy them. Such an image is always
    /// [`HOST_RESIDENT`](MemoryFlags::HOST_RESIDENT).
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::{ChannelOrder, ChannelType, HostPitches, ImageColor, ImageFormat};
    /// # use binpool_opencl::{ImageRegion, ImageShape, OpenClBackend};
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let format = ImageFormat::new(ChannelOrder::Rgba, ChannelType::UnsignedInt8);
    /// let shape = ImageShape::D2 { width: 3, height: 2 };
    /// let pixels = vec![[1_u8; 4]; 6];
    /// let image = backend.create_host_image(MemoryFlags::empty(), format, shape, pixels, HostPitches::TIGHT)?;
    /// let second_row = ImageRegion::new([0, 1], [3, 1]);
    /// let nines = ImageColor::Unsigned([9; 4]);
    /// backend.enqueue_fill_image(&queue, image.image(), second_row, nines)?;
    /// let pixels = image.into_host()?; // When the fill has ended.
    /// assert_eq!((pixels[2], pixels[3]), ([1; 4], [9; 4]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// All errors give the elements back: those of [`create_image_with_data`](Self::create_image_with_data), and
    /// [`HostAccess`](InvalidRequest::HostAccess) for flags that forbid the host to read the elements that it gets back.
    pub fn create_host_image<T: Pod + Send>(
        &self,
        flags: MemoryFlags,
        format: ImageFormat,
        shape: ImageShape,
        elements: impl Into<Vec<T>>,
        pitches: HostPitches,
    ) -> Result<HostImage<T>, Refused<Vec<T>>> {
        let elements = elements.into();
        let checked = self.check_own_pixels(flags, format, shape, pitches);
        let checked = checked.and_then(|layout| {
            layout.check_length(size_of_val(elements.as_slice()))?;
            flags.check_host(HostUse::Read)?;
            Ok(layout)
        });
        let layout = match checked {
            Ok(layout) => layout,
            Err(error) => {
                return Err(Refused {
                    error: error.into(),
                    value: elements,
                });
            }
        };
        let context = self.context();
        let source = (elements, layout);
        let created = sys::image::create_over_own(
            &context.handle,
            host_flags(flags),
            format.codes(),
            shape.into(),
            source,
        );
        let (handle, elements) = created.map_err(|(error, value)| Refused {
            error: error.into_error(Purpose::Memory(layout.bytes())),
            value,
        })?;
        if let Err(error) = check_item_bytes(&handle, format) {
            drop(handle);
            return Err(Refused {
                error: error.into(),
                value: elements.wait(),
            });
        }
        let log = AccessLog::default();
        log.await_end();
        let what = (format, shape, flags);
        Ok(HostImage {
            image: ClImage::new(context, what, Pixels::Own { image: handle, log }),
            layout,
            elements,
        })
    }
}

impl<T: Pod + Send> HostImage<T> {
    /// The image.
    #[must_use]
    pub fn image(&self) -> &ClImage {
        &self.image
    }

    /// Waits until every command on the image has ended, destroys it, and gives the elements back as the commands have
    /// left them.
    ///
    /// If the program keeps a reference of its own to the `cl_mem`, this also waits until that is released.
    ///
    /// # Errors
    ///
    /// [`ViewsLeft`](InvalidRequest::ViewsLeft) where there are clones of the image, [`Mapped`](InvalidRequest::Mapped)
    /// where a map of it was forgotten, or a failure of the runtime. The image comes back with the error.
    pub fn into_host(self) -> Result<Vec<T>, Refused<Self>> {
        if let Err(error) = self.settled() {
            return Err(Refused { error, value: self });
        }
        let Self {
            image, elements, ..
        } = self;
        drop(image);
        Ok(elements.wait())
    }

    /// Brings the results of the commands into the elements. No other thread can enqueue commands any more.
    fn settled(&self) -> Result<()> {
        let (views, bytes) = (self.image.clones(), self.layout.bytes());
        if views > 0 {
            return Err(InvalidRequest::ViewsLeft { views, bytes }.into());
        }
        let log = self.image.used(Access::Write).log;
        // A map that was forgotten never ends.
        log.check_unmapped()?;
        log.wait_until_unused()?;
        self.bring_back()
            .map_err(|error| error.into_error(Purpose::Memory(bytes)))
    }

    /// Brings the device's writes into the elements, by way of a map (OpenCL 3.0, section 5.3.1).
    fn bring_back(&self) -> ClResult<()> {
        let (image, context) = (&self.image, self.image.context());
        // A new queue, which has no other command to wait for.
        let queue = sys::create_queue(&context.handle, context.device, false)?;
        let region = ImageRegion::all(image.shape());
        let rows = (
            image.item_bytes(),
            image.shape().kind() == ImageKind::D1Array,
        );
        let wait = WaitList::none();
        let (mapped, view) = sys::map::enqueue_map_image(
            &queue,
            (image.handle(), region.into()),
            rows,
            CL_MAP_READ,
            &wait,
        )?;
        sys::wait_until_ended(&mapped)?;
        let unmapped = sys::map::enqueue_unmap(&queue, image.handle(), &view, &wait)?;
        sys::wait_until_ended(&unmapped)
    }
}

impl<T> fmt::Debug for HostImage<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostImage")
            .field("image", &self.image)
            .finish_non_exhaustive()
    }
}
