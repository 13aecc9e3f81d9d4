//! The kinds and sizes of images.

use std::fmt;

use cl3::memory::{
    CL_MEM_OBJECT_IMAGE1D, CL_MEM_OBJECT_IMAGE1D_ARRAY, CL_MEM_OBJECT_IMAGE1D_BUFFER,
    CL_MEM_OBJECT_IMAGE2D, CL_MEM_OBJECT_IMAGE2D_ARRAY, CL_MEM_OBJECT_IMAGE3D,
};

use crate::sys::image::ImageSize;

/// The kinds of images of OpenCL 1.2 and later (`mem_object_type` of `PyOpenCL`).
///
/// ```
/// use binpool_allocators::MemoryFlags;
/// use binpool_opencl::{
///     ChannelOrder, ChannelType, ImageFormat, ImageKind, ImageShape, OpenClBackend,
/// };
///
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// // Which kinds of images the device has of these pixels.
/// let format = ImageFormat::new(ChannelOrder::Rgba, ChannelType::Float);
/// let mut kinds = Vec::new();
/// for kind in ImageKind::ALL {
///     let formats = backend.supported_image_formats(MemoryFlags::READ_ONLY, kind)?;
///     if formats.contains(&format) {
///         kinds.push(kind);
///     }
/// }
/// let shape = ImageShape::d2_array(16, 9, 250);
/// assert!(kinds.contains(&shape.kind()));
/// assert_eq!(shape.kind().to_string(), "2D array image");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ImageKind {
    /// One row.
    D1 = CL_MEM_OBJECT_IMAGE1D,
    /// One row over the bytes of a buffer, which may be longer than other rows.
    D1Buffer = CL_MEM_OBJECT_IMAGE1D_BUFFER,
    /// Rows of one width, which filters do not mix.
    D1Array = CL_MEM_OBJECT_IMAGE1D_ARRAY,
    /// A plane.
    D2 = CL_MEM_OBJECT_IMAGE2D,
    /// Planes of one size, which filters do not mix.
    D2Array = CL_MEM_OBJECT_IMAGE2D_ARRAY,
    /// A volume.
    D3 = CL_MEM_OBJECT_IMAGE3D,
}

impl ImageKind {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::D1,
        Self::D1Buffer,
        Self::D1Array,
        Self::D2,
        Self::D2Array,
        Self::D3,
    ];

    pub(crate) const fn code(self) -> u32 {
        self as u32
    }

    pub(crate) fn from_code(code: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }
}

impl fmt::Display for ImageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::D1 => "1D image",
            Self::D1Buffer => "1D buffer image",
            Self::D1Array => "1D array image",
            Self::D2 => "2D image",
            Self::D2Array => "2D array image",
            Self::D3 => "3D image",
        })
    }
}

/// The kind of an image, and its size in pixels (`shape` and `is_array` of `PyOpenCL`).
///
/// ```
/// use binpool_opencl::{ImageKind, ImageShape};
///
/// let shape = ImageShape::d2_array(640, 480, 3);
/// assert_eq!(shape.kind(), ImageKind::D2Array);
/// assert_eq!(shape.extent(), [640, 480, 3]);
/// assert_eq!((shape.layers(), shape.pixels()), (Some(3), Some(921_600)));
///
/// // The third size of a volume is not a number of layers: filters mix what lies after one another.
/// let volume = ImageShape::d3(640, 480, 3);
/// assert_eq!((volume.layers(), volume.pixels()), (None, Some(921_600)));
///
/// // A size that the kind does not have is 1. The layers of a 1D array are its second size.
/// assert_eq!(ImageShape::d1(640).extent(), [640, 1, 1]);
/// assert_eq!(ImageShape::d1_buffer(640).kind(), ImageKind::D1Buffer);
/// assert_eq!(ImageShape::d1_array(640, 3).layers(), Some(3));
/// assert_eq!(ImageShape::d2(640, 480).to_string(), "2D image of 640x480");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ImageShape {
    kind: ImageKind,
    extent: [usize; 3],
}

impl ImageShape {
    /// Returns the shape of one row.
    pub const fn d1(width: usize) -> Self {
        Self::of(ImageKind::D1, [width, 1, 1])
    }

    /// Returns the shape of one row over the bytes of a buffer.
    pub const fn d1_buffer(width: usize) -> Self {
        Self::of(ImageKind::D1Buffer, [width, 1, 1])
    }

    /// Returns the shape of rows.
    pub const fn d1_array(width: usize, layers: usize) -> Self {
        Self::of(ImageKind::D1Array, [width, layers, 1])
    }

    /// Returns the shape of a plane.
    pub const fn d2(width: usize, height: usize) -> Self {
        Self::of(ImageKind::D2, [width, height, 1])
    }

    /// Returns the shape of planes.
    pub const fn d2_array(width: usize, height: usize, layers: usize) -> Self {
        Self::of(ImageKind::D2Array, [width, height, layers])
    }

    /// Returns the shape of a volume.
    pub const fn d3(width: usize, height: usize, depth: usize) -> Self {
        Self::of(ImageKind::D3, [width, height, depth])
    }

    /// Returns the shape of that kind and extent.
    pub(crate) const fn of(kind: ImageKind, extent: [usize; 3]) -> Self {
        Self { kind, extent }
    }

    /// Its kind.
    pub const fn kind(self) -> ImageKind {
        self.kind
    }

    /// The size in the coordinates of regions, x, y and z. The layers of a 1D array count as y, those of a 2D array as z; a
    /// coordinate that an image of this kind does not have is 1.
    pub const fn extent(self) -> [usize; 3] {
        self.extent
    }

    /// The number of layers of an array (`array_size`); `None` for an image that is not an array.
    pub const fn layers(self) -> Option<usize> {
        match self.kind {
            ImageKind::D1Array => Some(self.extent[1]),
            ImageKind::D2Array => Some(self.extent[2]),
            _ => None,
        }
    }

    /// Returns it as the runtime takes it.
    pub(crate) fn for_runtime(self) -> ImageSize {
        (self.kind.code(), self.extent, self.layers().unwrap_or(0))
    }

    /// Returns the number of pixels; `None` if no `usize` holds it.
    pub fn pixels(self) -> Option<usize> {
        let [width, height, depth] = self.extent;
        width.checked_mul(height)?.checked_mul(depth)
    }
}

impl fmt::Display for ImageShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind();
        let [x, y, z] = self.extent();
        match kind {
            ImageKind::D1 | ImageKind::D1Buffer => write!(f, "{kind} of {x}"),
            ImageKind::D1Array | ImageKind::D2 => write!(f, "{kind} of {x}x{y}"),
            ImageKind::D2Array | ImageKind::D3 => write!(f, "{kind} of {x}x{y}x{z}"),
        }
    }
}
