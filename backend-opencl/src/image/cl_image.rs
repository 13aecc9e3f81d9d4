//! An OpenCL image as an owned value, over memory of its own or of a block.

use std::{ffi::c_void, sync::Arc};

use binpool_allocators::{
    CountedView, MemoryFlags, MemoryKind, ObjectKind, Region, Result, debug_by, runtime::Access,
};
use cl3::memory::{CL_IMAGE_ROW_PITCH, CL_IMAGE_SLICE_PITCH, CL_MEM_SIZE};

use super::{
    format::ImageFormat,
    region::ImageRegion,
    shape::{ImageKind, ImageShape},
    view::View,
};
use crate::{
    backend::OpenClBackend,
    context::Context,
    identity::same_by,
    kept_memory::LetGo,
    memory::{MemoryKey, info::MemoryInfo, root::Root},
    order::{access_log::AccessLog, memory_use::MemoryUse},
    sys::{self, DeviceBytes, MapShape, MemHandle, transfer::DevicePixels},
};

/// An image of OpenCL (`Image` of `PyOpenCL`). Clones are the same image.
///
/// Values are equal if they are the same object of the runtime. The runtime keeps an image until the commands that use
/// it have ended, so that the last clone may be dropped at any time.
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
/// let format = ImageFormat::new(ChannelOrder::Rgba, ChannelType::UnormInt8);
/// let shape = ImageShape::d2(64, 32);
/// let image = backend.create_image(MemoryFlags::empty(), format, shape)?;
///
/// let all = ImageRegion::all(shape);
/// let red = ImageColor::Float([1.0, 0.0, 0.0, 1.0]);
/// backend.enqueue_fill_image(&queue, &image, all, red)?;
/// let mut pixels = vec![[0_u8; 4]; 64 * 32];
/// backend.read_part(&queue, ImagePart::new(&image, all), &mut pixels)?;
/// assert_eq!(pixels[0], [255, 0, 0, 255]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// An image knows its shape and format, and asks the runtime how its pixels lie on the device, which may leave gaps:
///
/// ```
/// # use binpool_allocators::MemoryFlags;
/// # use binpool_opencl::{ChannelOrder, ChannelType, ImageFormat, ImageShape, OpenClBackend};
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// let format = ImageFormat::new(ChannelOrder::Rgba, ChannelType::UnormInt8);
/// let shape = ImageShape::d2_array(7, 5, 3);
/// let image = backend.create_image(MemoryFlags::READ_ONLY, format, shape)?;
/// assert_eq!((image.shape(), image.format()), (shape, format));
/// assert_eq!(image.flags(), MemoryFlags::READ_ONLY);
/// assert_eq!(image.item_bytes(), 4);
/// assert!(image.row_pitch()? >= 7 * 4);
/// assert!(image.slice_pitch()? >= 5 * 7 * 4);
/// assert!(image.bytes()? >= 3 * 5 * 7 * 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct ClImage {
    inner: Arc<ImageInner>,
}

struct ImageInner {
    context: Arc<Context>,
    format: ImageFormat,
    shape: ImageShape,
    flags: MemoryFlags,
    pixels: Pixels,
    /// Dropped with it, so that no log keeps its memory.
    _let_go: LetGo,
}

/// The runtime's object, and the memory of its pixels.
pub(crate) enum Pixels {
    /// The image's own.
    Own { image: MemHandle, log: AccessLog },
    /// Bytes of a buffer, which the image keeps alive.
    Buffer {
        image: View,
        /// The memory that the image was made over.
        parent: MemoryKey,
        /// The object that it was made over, which is released after the image.
        _under: View,
        /// Its count as a view of the buffer; `None` for an image that was wrapped by its handle.
        counted: Option<CountedView>,
    },
}

impl ClImage {
    pub(crate) fn new(
        context: &Arc<Context>,
        (format, shape, flags): (ImageFormat, ImageShape, MemoryFlags),
        pixels: Pixels,
    ) -> Self {
        let inner = ImageInner {
            context: Arc::clone(context),
            format,
            shape,
            flags,
            pixels,
            _let_go: LetGo,
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The format of its pixels (`format`).
    pub fn format(&self) -> ImageFormat {
        self.inner.format
    }

    /// Its kind and its size in pixels (`shape`, `width`, `height`, `depth`, `array_size`).
    pub fn shape(&self) -> ImageShape {
        self.inner.shape
    }

    /// The flags that say how device and host may use it (`flags`). An image over a buffer has those of the buffer.
    pub fn flags(&self) -> MemoryFlags {
        self.inner.flags
    }

    /// The size of a pixel in bytes (`element_size`).
    pub fn item_bytes(&self) -> usize {
        self.inner.format.item_bytes()
    }

    /// The distance between rows on the device, in bytes (`row_pitch`).
    ///
    /// # Errors
    ///
    /// A failure of the runtime.
    pub fn row_pitch(&self) -> Result<usize> {
        Ok(sys::image::info(self.handle(), CL_IMAGE_ROW_PITCH)?.size()?)
    }

    /// The distance between slices of a 3D image, or layers of an array, on the device, in bytes; 0 for other images
    /// (`slice_pitch`).
    ///
    /// # Errors
    ///
    /// A failure of the runtime.
    pub fn slice_pitch(&self) -> Result<usize> {
        Ok(sys::image::info(self.handle(), CL_IMAGE_SLICE_PITCH)?.size()?)
    }

    /// Its size on the device in bytes, as the runtime reports it (`size`).
    ///
    /// # Errors
    ///
    /// A failure of the runtime.
    pub fn bytes(&self) -> Result<usize> {
        Ok(self.handle().info(CL_MEM_SIZE)?.size()?)
    }

    /// Returns information about it as memory: `map_count`, `reference_count` and the like of `PyOpenCL`.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::{ChannelOrder, ChannelType, ImageFormat, ImageRegion, ImageShape, OpenClBackend};
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let format = ImageFormat::new(ChannelOrder::Rgba, ChannelType::UnormInt8);
    /// let image = backend.create_image(MemoryFlags::READ_ONLY, format, ImageShape::d1(16))?;
    /// let all = ImageRegion::all(image.shape());
    /// let map = backend.map_image::<u8>(&queue, &image, all)?;
    /// let info = image.info()?;
    /// assert_eq!((info.map_count, info.flags), (Some(1), MemoryFlags::READ_ONLY));
    /// assert!(info.reference_count >= Some(1) && info.bytes >= 64);
    /// # drop(map);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A failure of the runtime.
    pub fn info(&self) -> Result<MemoryInfo> {
        let place = match &self.inner.pixels {
            Pixels::Own { .. } => (None, 0),
            Pixels::Buffer { image, .. } => (Some(image.root().key()), image.region().offset),
        };
        let made = (MemoryKind::Buffer, self.flags());
        let (bytes, handle) = (self.bytes()?, Some(self.handle()));
        Ok(MemoryInfo::new(made, bytes, place, handle)?)
    }

    /// The key of the memory that it is made over, and that it keeps (`buffer`); `None` if it has pixels of its own.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::{ChannelOrder, ChannelType, ImageFormat, ImageShape, OpenClBackend};
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let format = ImageFormat::new(ChannelOrder::Rgba, ChannelType::UnormInt8);
    /// let buffer = backend.create_buffer(64, MemoryFlags::empty())?;
    /// let shape = ImageShape::d1_buffer(16);
    /// let row = backend.create_image_over(&queue, &buffer, format, shape, None)?;
    /// assert_eq!(row.parent(), Some(buffer.key()));
    ///
    /// let own = backend.create_image(MemoryFlags::empty(), format, ImageShape::d1(16))?;
    /// assert_eq!(own.parent(), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn parent(&self) -> Option<MemoryKey> {
        match &self.inner.pixels {
            Pixels::Own { .. } => None,
            Pixels::Buffer { parent, .. } => Some(*parent),
        }
    }

    /// The runtime's `cl_mem` (`int_ptr`).
    ///
    /// It is borrowed: valid while this value or a clone lives, and not to be released. Code that keeps it longer has to
    /// retain it.
    ///
    /// For questions and commands that this crate does not have:
    ///
    /// ```
    /// # use binpool_allocators::MemoryFlags;
    /// # use binpool_opencl::{ChannelOrder, ChannelType, ImageFormat, ImageShape, OpenClBackend};
    /// use cl3::memory::{CL_MEM_REFERENCE_COUNT, get_mem_object_info};
    ///
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let format = ImageFormat::new(ChannelOrder::Rgba, ChannelType::UnormInt8);
    /// let image = backend.create_image(MemoryFlags::empty(), format, ImageShape::d1(16))?;
    /// let _clone = image.clone();
    /// let references = get_mem_object_info(image.raw(), CL_MEM_REFERENCE_COUNT)
    ///     .map_err(|code| format!("error {code}"))?;
    /// assert_eq!(references.to_uint(), 1); // clones share one
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn raw(&self) -> *mut c_void {
        self.handle().raw()
    }

    pub(crate) fn handle(&self) -> &MemHandle {
        match &self.inner.pixels {
            Pixels::Own { image, .. } => image,
            Pixels::Buffer { image, .. } => image,
        }
    }

    pub(crate) fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Counts one more view of the memory that it is made over, if it is a view itself.
    pub(crate) fn count_view(&self) -> Option<CountedView> {
        match &self.inner.pixels {
            Pixels::Own { .. } => None,
            Pixels::Buffer { counted, .. } => counted.clone(),
        }
    }

    /// Returns the number of its other clones.
    pub(super) fn clones(&self) -> usize {
        Arc::strong_count(&self.inner) - 1
    }

    /// Returns the pixels of a region for transfers and copies.
    ///
    /// The pixels of a 1D buffer image are bytes of its buffer: NVIDIA's driver reads others where the image lies over a view,
    /// and `PoCL` 3.1 crashes at a copy of such an image to a buffer, and refuses one to another image.
    pub(crate) fn device_pixels(&self, region: ImageRegion) -> DevicePixels<'_> {
        match self.row_of_buffer(region) {
            Some((root, bytes)) => {
                DevicePixels::Bytes(DeviceBytes::Buffer(&root.handle, bytes.offset))
            }
            None => DevicePixels::Image(self.handle(), region.into()),
        }
    }

    /// Returns the pixels of a region for a map; `None` if they are bytes that lie outside their buffer.
    pub(crate) fn pixels_to_map(&self, region: ImageRegion) -> DevicePixels<'_> {
        match self.row_of_buffer(region) {
            Some((root, bytes)) => DevicePixels::Bytes(root.bytes_to_map(bytes)),
            None => DevicePixels::Image(self.handle(), region.into()),
        }
    }

    /// Returns the bytes of a region of a 1D buffer image and the buffer that they lie in; `None` for other images.
    fn row_of_buffer(&self, region: ImageRegion) -> Option<(&Root, Region)> {
        match &self.inner.pixels {
            Pixels::Buffer { image, .. } if self.shape().kind() == ImageKind::D1Buffer => {
                // Both lie in the buffer, whose size in bytes a `usize` holds.
                let [before, bytes] = [region.origin[0], region.size[0]]
                    .map(|pixels| pixels.saturating_mul(self.item_bytes()));
                let offset = image.region().offset.saturating_add(before);
                Some((image.root(), Region::new(offset, bytes)))
            }
            _ => None,
        }
    }

    /// Returns the size of a map of a region.
    pub(crate) fn map_shape(&self, region: ImageRegion) -> MapShape {
        MapShape {
            bytes: self.region_bytes(region),
            item: self.item_bytes(),
            rows_are_layers: self.shape().kind() == ImageKind::D1Array,
        }
    }

    /// Returns the size of the pixels of a region of this image, in bytes.
    pub(super) fn region_bytes(&self, region: ImageRegion) -> usize {
        // A region of an image that exists: its bytes were counted when the image was made.
        let pixels = region.pixels().unwrap_or(usize::MAX);
        pixels.saturating_mul(self.item_bytes())
    }

    /// Describes a use of the whole image. The use of a part cannot be told apart, since only the device knows where its
    /// pixels lie.
    pub(crate) fn used(&self, access: Access) -> MemoryUse<'_> {
        match &self.inner.pixels {
            Pixels::Own { log, .. } => MemoryUse {
                log,
                region: Region::first(self.region_bytes(ImageRegion::all(self.shape()))),
                access,
                is_svm: false,
            },
            Pixels::Buffer { image, .. } => image.root().used(image.region(), access),
        }
    }
}

impl OpenClBackend {
    pub(crate) fn check_own_image(&self, image: &ClImage) -> Result<()> {
        self.check_context(image.context().handle.raw().addr(), ObjectKind::Memory)
    }
}

debug_by!(
    ClImage,
    |this| shape: this.inner.shape, format: this.inner.format, flags: this.inner.flags, handle: this.handle()
);

same_by!(ClImage, |this| this.raw());
