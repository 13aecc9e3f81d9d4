//! The colours that images are filled with.

use super::format::{ChannelType, ImageFormat};

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
    pub(super) const fn numbers_of(format: ImageFormat) -> &'static str {
        use ChannelType as T;
        match format.data {
            T::SignedInt8 | T::SignedInt16 | T::SignedInt32 => "signed integers",
            T::UnsignedInt8 | T::UnsignedInt16 | T::UnsignedInt32 => "unsigned integers",
            _ => "floats",
        }
    }

    /// Returns the name of its numbers.
    pub(super) const fn numbers(self) -> &'static str {
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
