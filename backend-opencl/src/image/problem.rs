//! What is wrong with an image, or with a command on one.

use super::{
    color::ImageColor,
    format::ImageFormat,
    region::ImageRegion,
    shape::{ImageKind, ImageShape},
};

/// What is wrong with an image or a sampler, or with a command on an image, in a form that programs can act on. Printed, it says what to do.
///
/// ```
/// # use binpool_allocators::MemoryFlags;
/// # use binpool_opencl::{ChannelOrder, ChannelType, ImageFormat, ImageShape};
/// use binpool_opencl::{ImageProblem, OpenClBackend, OpenClError};
///
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// # let format = ImageFormat::new(ChannelOrder::Rgba, ChannelType::UnsignedInt8);
/// let row = |width| backend.create_image(MemoryFlags::empty(), format, ImageShape::d1(width));
/// let image = match row(1 << 40) {
///     Err(OpenClError::Image(ImageProblem::TooLarge { largest, .. })) => row(largest.min(4096)),
///     image => image,
/// };
/// assert!(image.is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ImageProblem {
    /// A size of the shape is 0.
    #[error("a {shape} has no pixels: each size has to be at least 1")]
    NoPixels {
        /// The shape.
        shape: ImageShape,
    },
    /// A size of the shape is larger than the device's largest.
    #[error("a {shape}: its {size} is {requested}, and this device's largest is {largest}")]
    TooLarge {
        /// The shape.
        shape: ImageShape,
        /// The size that is too large, such as "width".
        size: &'static str,
        /// What was asked for.
        requested: usize,
        /// The device's largest.
        largest: usize,
    },
    /// The size in bytes is more than a `usize` holds.
    #[error("a {shape} with pixels of {item} bytes: its size in bytes overflows")]
    Overflow {
        /// The shape, of an image or a part of one.
        shape: ImageShape,
        /// The size of a pixel in bytes.
        item: usize,
    },
    /// The device has no such format for images of this kind, as kernels use them.
    /// [`supported_image_formats`](crate::OpenClBackend::supported_image_formats) lists those that it has.
    #[error(
        "a {kind} of {format}: the device has {others} formats for such images and flags, but not this one; see \
         `supported_image_formats`"
    )]
    Format {
        /// The kind of the image.
        kind: ImageKind,
        /// The format.
        format: ImageFormat,
        /// The number of formats that the device has.
        others: usize,
    },
    /// A copy between images of different formats.
    #[error(
        "a copy from pixels of {from} to pixels of {to}: copies cannot change the format, use a kernel"
    )]
    FormatsDiffer {
        /// The format of the source.
        from: ImageFormat,
        /// The format of the destination.
        to: ImageFormat,
    },
    /// A region has a size of 0.
    #[error("a region of {region}: each size has to be at least 1")]
    EmptyRegion {
        /// The region.
        region: ImageRegion,
    },
    /// A region reaches beyond its image.
    #[error("{region} do not lie inside a {shape}")]
    OutOfBounds {
        /// The region.
        region: ImageRegion,
        /// The shape of the image.
        shape: ImageShape,
    },
    /// A copy within an image, to a region that shares pixels with the source.
    #[error("a copy of {from} to {to:?} of the same image: the two regions overlap")]
    Overlap {
        /// The source.
        from: ImageRegion,
        /// The first pixel of the destination.
        to: [usize; 3],
    },
    /// A distance between rows or slices is too small, or not a multiple of its unit.
    #[error(
        "a {of} pitch of {pitch} bytes: at least {least} are needed, and a multiple of {multiple_of}"
    )]
    Pitch {
        /// "row" or "slice".
        of: &'static str,
        /// The pitch in bytes.
        pitch: usize,
        /// The least that is possible.
        least: usize,
        /// What it has to be a multiple of.
        multiple_of: usize,
    },
    /// A colour of other numbers than the channels have.
    #[error("the colour {color:?} for pixels of {format}: their channels take {numbers}")]
    Color {
        /// The colour.
        color: ImageColor,
        /// The format of the image.
        format: ImageFormat,
        /// The numbers that the channels take.
        numbers: &'static str,
    },
    /// Anything else that no device can do, in words.
    #[error("{0}")]
    Other(String),
}
