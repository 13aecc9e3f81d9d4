//! Images over memory of the host.

use binpool_allocators::{HostUse, InvalidRequest, MemoryFlags, Result, runtime::Access};
use bytemuck::Pod;

use super::{
    cl_image::{ClImage, Pixels},
    create::check_item_bytes,
    format::ImageFormat,
    layout::HostPitches,
    region::ImageRegion,
    shape::ImageShape,
};
use crate::{
    backend::OpenClBackend,
    error::Refused,
    memory::{flags::host_flags, host_memory::HostMemory},
    order::access_log::AccessLog,
    sys::{self, Purpose, host::HostVec},
};

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
    /// let shape = ImageShape::d2(3, 2);
    /// let pixels = vec![[1_u8; 4]; 6];
    /// let image = backend.create_host_image(MemoryFlags::empty(), format, shape, pixels, HostPitches::TIGHT)?;
    /// let second_row = ImageRegion::new([0, 1], [3, 1]);
    /// let nines = ImageColor::Unsigned([9; 4]);
    /// backend.enqueue_fill_image(&queue, image.memory(), second_row, nines)?;
    /// let pixels = image.into_host()?; // When the fill has ended.
    /// assert_eq!((pixels[2], pixels[3]), ([1; 4], [9; 4]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// All errors give the elements back: those of [`create_image_with_data`](Self::create_image_with_data), and
    /// [`HostAccess`](InvalidRequest::HostAccess) for flags that forbid the host to read the elements that are given
    /// back.
    pub fn create_host_image<T: Pod + Send>(
        &self,
        flags: MemoryFlags,
        format: ImageFormat,
        shape: ImageShape,
        elements: impl Into<Vec<T>>,
        pitches: HostPitches,
    ) -> Result<HostMemory<T, ClImage>, Refused<Vec<T>>> {
        HostMemory::new(HostVec::new(elements.into()), |loan| {
            let (layout, bytes) = (
                self.check_own_pixels(flags, format, shape, pitches)?,
                loan.bytes(),
            );
            layout.check_length(bytes)?;
            flags.check_host(HostUse::Read)?;
            let (context, own, codes) = (self.context(), host_flags(flags), format.codes());
            let source = (loan, layout);
            let image =
                sys::image::create_over(&context.handle, own, codes, shape.for_runtime(), source)
                    .map_err(|error| error.into_error(Purpose::Memory(bytes)))?;
            check_item_bytes(&image, format)?;
            let log = AccessLog::default();
            log.await_end();
            let pixels = Pixels::Own { image, log };
            Ok(ClImage::new(context, (format, shape, flags), pixels))
        })
    }
}

impl<T: Pod + Send> HostMemory<T, ClImage> {
    /// Waits until every command on the image has ended, destroys it, and gives the elements back as the commands have
    /// left them.
    ///
    /// ```
    /// use binpool_allocators::{Error, InvalidRequest};
    /// # use binpool_allocators::MemoryFlags;
    /// # use binpool_opencl::{ChannelOrder, ChannelType, HostPitches, ImageFormat, ImageShape, OpenClBackend};
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let format = ImageFormat::new(ChannelOrder::Rgba, ChannelType::UnormInt8);
    /// # let shape = ImageShape::d2(3, 2);
    /// let pixels = vec![[1_u8; 4]; 6];
    /// let image = backend.create_host_image(MemoryFlags::empty(), format, shape, pixels, HostPitches::TIGHT)?;
    /// let clone = image.memory().clone();
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
    ///
    /// If the program keeps a reference of its own to the `cl_mem`, this also waits until that is released.
    ///
    /// # Errors
    ///
    /// [`ViewsLeft`](InvalidRequest::ViewsLeft) if there are clones of the image, [`Mapped`](InvalidRequest::Mapped)
    /// if a map of it was forgotten, or a failure of the runtime. The error returns the image.
    pub fn into_host(self) -> Result<Vec<T>, Refused<Self>> {
        self.returned(|image| {
            let (views, shape) = (
                image.clones(),
                image.map_shape(ImageRegion::all(image.shape())),
            );
            if views > 0 {
                let bytes = shape.bytes;
                return Err(InvalidRequest::ViewsLeft { views, bytes }.into());
            }
            let log = image.used(Access::Write).log;
            // A map that was forgotten never ends.
            log.check_unmapped()?;
            log.wait_until_unused()?;
            let all = image.device_pixels(ImageRegion::all(image.shape()));
            image.context().bring_back(all, shape)
        })
    }
}
