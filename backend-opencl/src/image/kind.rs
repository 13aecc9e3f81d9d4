//! The kinds of images.

use std::fmt;

use cl3::memory::{
    CL_MEM_OBJECT_IMAGE1D, CL_MEM_OBJECT_IMAGE1D_ARRAY, CL_MEM_OBJECT_IMAGE1D_BUFFER,
    CL_MEM_OBJECT_IMAGE2D, CL_MEM_OBJECT_IMAGE2D_ARRAY, CL_MEM_OBJECT_IMAGE3D,
};

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
/// let shape = ImageShape::D2Array { width: 16, height: 9, layers: 250 };
/// assert!(kinds.contains(&shape.kind()));
/// assert_eq!(shape.kind().to_string(), "2D array image");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ImageKind {
    /// One row.
    D1,
    /// One row over the bytes of a buffer, which may be longer than other rows.
    D1Buffer,
    /// Rows of one width, which filters do not mix.
    D1Array,
    /// A plane.
    D2,
    /// Planes of one size, which filters do not mix.
    D2Array,
    /// A volume.
    D3,
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
        match self {
            Self::D1 => CL_MEM_OBJECT_IMAGE1D,
            Self::D1Buffer => CL_MEM_OBJECT_IMAGE1D_BUFFER,
            Self::D1Array => CL_MEM_OBJECT_IMAGE1D_ARRAY,
            Self::D2 => CL_MEM_OBJECT_IMAGE2D,
            Self::D2Array => CL_MEM_OBJECT_IMAGE2D_ARRAY,
            Self::D3 => CL_MEM_OBJECT_IMAGE3D,
        }
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
