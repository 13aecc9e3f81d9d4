//! The sizes of images.

use std::fmt;

use super::kind::ImageKind;
use crate::sys::image::ImageSize;

/// The kind of an image, and its size in pixels (`shape` and `is_array` of `PyOpenCL`).
///
/// ```
/// use binpool_opencl::{ImageKind, ImageShape};
///
/// let shape = ImageShape::D2Array { width: 640, height: 480, layers: 3 };
/// assert_eq!(shape.kind(), ImageKind::D2Array);
/// assert_eq!(shape.extent(), [640, 480, 3]);
/// assert_eq!((shape.layers(), shape.pixels()), (Some(3), Some(921_600)));
///
/// // The third size of a volume is no number of layers: filters mix what lies behind one another.
/// let volume = ImageShape::D3 { width: 640, height: 480, depth: 3 };
/// assert_eq!((volume.layers(), volume.pixels()), (None, Some(921_600)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "a width is a width")]
pub enum ImageShape {
    /// One row.
    D1 { width: usize },
    /// One row over the bytes of a buffer.
    D1Buffer { width: usize },
    /// Rows.
    D1Array { width: usize, layers: usize },
    /// A plane.
    D2 { width: usize, height: usize },
    /// Planes.
    D2Array {
        width: usize,
        height: usize,
        layers: usize,
    },
    /// A volume.
    D3 {
        width: usize,
        height: usize,
        depth: usize,
    },
}

impl ImageShape {
    /// Its kind.
    #[must_use]
    pub const fn kind(self) -> ImageKind {
        match self {
            Self::D1 { .. } => ImageKind::D1,
            Self::D1Buffer { .. } => ImageKind::D1Buffer,
            Self::D1Array { .. } => ImageKind::D1Array,
            Self::D2 { .. } => ImageKind::D2,
            Self::D2Array { .. } => ImageKind::D2Array,
            Self::D3 { .. } => ImageKind::D3,
        }
    }

    /// The size in the coordinates of regions, x, y and z. The layers of a 1D array count as y, those of a 2D array as z; a
    /// coordinate that an image of this kind does not have is 1.
    #[must_use]
    pub const fn extent(self) -> [usize; 3] {
        match self {
            Self::D1 { width } | Self::D1Buffer { width } => [width, 1, 1],
            Self::D1Array { width, layers } => [width, layers, 1],
            Self::D2 { width, height } => [width, height, 1],
            Self::D2Array {
                width,
                height,
                layers,
            } => [width, height, layers],
            Self::D3 {
                width,
                height,
                depth,
            } => [width, height, depth],
        }
    }

    /// The number of layers of an array (`array_size`); `None` for an image that is no array.
    #[must_use]
    pub const fn layers(self) -> Option<usize> {
        match self {
            Self::D1Array { layers, .. } | Self::D2Array { layers, .. } => Some(layers),
            Self::D1 { .. } | Self::D1Buffer { .. } | Self::D2 { .. } | Self::D3 { .. } => None,
        }
    }

    /// Returns the number of pixels; `None` if no `usize` holds it.
    #[must_use]
    pub fn pixels(self) -> Option<usize> {
        let [width, height, depth] = self.extent();
        width.checked_mul(height)?.checked_mul(depth)
    }

    /// Returns the shape of that kind and extent.
    pub(crate) const fn of(kind: ImageKind, [x, y, z]: [usize; 3]) -> Self {
        match kind {
            ImageKind::D1 => Self::D1 { width: x },
            ImageKind::D1Buffer => Self::D1Buffer { width: x },
            ImageKind::D1Array => Self::D1Array {
                width: x,
                layers: y,
            },
            ImageKind::D2 => Self::D2 {
                width: x,
                height: y,
            },
            ImageKind::D2Array => Self::D2Array {
                width: x,
                height: y,
                layers: z,
            },
            ImageKind::D3 => Self::D3 {
                width: x,
                height: y,
                depth: z,
            },
        }
    }
}

impl From<ImageShape> for ImageSize {
    fn from(shape: ImageShape) -> Self {
        Self {
            kind: shape.kind().code(),
            extent: shape.extent(),
            layers: shape.layers().unwrap_or(0),
        }
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
