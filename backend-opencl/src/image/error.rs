//! The errors of images.

use std::fmt;

use binpool_allocators::{Error, InvalidRequest, OutOfMemory};

use super::{
    color::ImageColor, format::ImageFormat, kind::ImageKind, region::ImageRegion,
    sampling::Addressing, shape::ImageShape,
};

/// The direction along which a pitch or a size is counted.
///
/// ```
/// use binpool_allocators::MemoryFlags;
/// use binpool_opencl::{
///     Axis, ChannelOrder, ChannelType, ImageError, ImageFormat, ImageShape, OpenClBackend,
/// };
///
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// let format = ImageFormat::new(ChannelOrder::Rgba, ChannelType::UnormInt8);
/// let film = |layers| {
///     let shape = ImageShape::D2Array { width: 16, height: 9, layers };
///     backend.create_image(MemoryFlags::empty(), format, shape)
/// };
/// // What an array of layers cannot hold goes to a second one.
/// let frames = 1_000_000;
/// let first = match film(frames) {
///     Err(ImageError::TooLarge { axis: Axis::Layers, largest, .. }) => film(largest)?,
///     all => all?,
/// };
/// let rest = frames - first.shape().layers().unwrap_or(0);
/// assert_eq!(rest > 0, film(frames).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Axis {
    /// Along x.
    Width,
    /// Along y.
    Height,
    /// Along z.
    Depth,
    /// From layer to layer of an array.
    Layers,
    /// From row to row, in bytes.
    Row,
    /// From slice to slice, in bytes.
    Slice,
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Width => "width",
            Self::Height => "height",
            Self::Depth => "depth",
            Self::Layers => "number of layers",
            Self::Row => "row",
            Self::Slice => "slice",
        })
    }
}

/// The error of an image or a sampler that was not made, or of a command on an image that was not enqueued.
///
/// ```
/// use binpool_allocators::{Error, MemoryFlags};
/// use binpool_opencl::{
///     Axis, ChannelOrder, ChannelType, HostPitches, ImageError, ImageFormat, ImageShape,
///     OpenClBackend,
/// };
///
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// let format = ImageFormat::new(ChannelOrder::Rgba, ChannelType::UnormInt8);
/// let shape = ImageShape::D2 { width: 7, height: 3 };
/// let image = |data: &[u8], pitches| {
///     backend.create_image_with_data(MemoryFlags::empty(), format, shape, data, pitches)
/// };
///
/// // Rows of 7 pixels of 4 bytes each.
/// match image(&[0; 90], HostPitches::rows(30)) {
///     Err(ImageError::Pitch { axis, pitch, least, unit }) => {
///         assert_eq!((axis, pitch, least, unit), (Axis::Row, 30, 28, 4));
///     }
///     other => panic!("{other:?}"),
/// }
/// // What can go wrong with any memory is an error of `binpool_allocators`.
/// let short = image(&[0; 80], HostPitches::TIGHT);
/// assert!(matches!(
///     short,
///     Err(ImageError::Device(Error::InvalidRequest(_)))
/// ));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// An error that any memory can have: exhaustion, objects of another backend, bytes of the wrong length, a device
    /// without images, a failure of the runtime.
    #[error(transparent)]
    Device(#[from] Error),
    /// The device has no such pixels for images of this kind and these flags.
    #[error(
        "a {kind} of {format}: the device has {supported} formats for such images and flags, and not this one; \
         see `supported_image_formats`"
    )]
    UnsupportedFormat {
        /// The value that was asked for.
        format: ImageFormat,
        /// The kind of the image.
        kind: ImageKind,
        /// The number of formats for such images.
        supported: usize,
    },
    /// The image has no pixels.
    #[error("a {shape} has no pixels: each size has to be at least 1")]
    Empty {
        /// The value that was asked for.
        shape: ImageShape,
    },
    /// The image is larger than the device's largest.
    #[error("a {shape}: its {axis} is {asked}, and this device's largest is {largest}")]
    TooLarge {
        /// The value that was asked for.
        shape: ImageShape,
        /// The size that is too large.
        axis: Axis,
        /// Its value, in pixels or layers.
        asked: usize,
        /// The device's limit, in pixels or layers.
        largest: usize,
    },
    /// No number holds the size in bytes.
    #[error("a {shape} with pixels of {item} bytes: no number holds its size in bytes")]
    Overflow {
        /// The shape, of an image or of a part of one.
        shape: ImageShape,
        /// The size of a pixel in bytes.
        item: usize,
    },
    /// A pitch is less than a row or slice takes, or not a multiple of its unit.
    #[error(
        "a {axis} pitch of {pitch} bytes: at least {least} are needed, and a multiple of {unit}"
    )]
    Pitch {
        /// Of rows or of slices.
        axis: Axis,
        /// The pitch in bytes.
        pitch: usize,
        /// The least pitch: the size of a row or slice, in bytes.
        least: usize,
        /// The unit that it has to be a multiple of, in bytes.
        unit: usize,
    },
    /// A pitch of slices was given for an image that has none.
    #[error("a slice pitch of {pitch} bytes for a {kind}, which has no slices: leave it out")]
    NoSlices {
        /// The kind of the image.
        kind: ImageKind,
        /// The pitch in bytes.
        pitch: usize,
    },
    /// Images of this kind can only be made over a buffer.
    #[error("a {kind} is made over a buffer: use `create_image_over`")]
    NeedsBuffer {
        /// The value that was asked for.
        kind: ImageKind,
    },
    /// Images of this kind cannot be made over a buffer.
    #[error(
        "a {kind} over a buffer: only 1D buffer images and 2D images can be, copy the bytes instead"
    )]
    NotOverBuffers {
        /// The value that was asked for.
        kind: ImageKind,
    },
    /// Images cannot be made over shared virtual memory.
    #[error("an image over shared virtual memory: make it over a buffer, or copy the bytes")]
    OverSvm,
    /// The buffer does not start at an offset where the device lets images start.
    #[error(
        "an image over a buffer from byte {offset} of its block on: this device wants multiples of {alignment}"
    )]
    BufferMisaligned {
        /// The offset of the buffer in its whole block, in bytes.
        offset: usize,
        /// The unit that it has to be a multiple of, in bytes.
        alignment: usize,
    },
    /// The region has no pixels.
    #[error("a region of {region}: each size has to be at least 1")]
    EmptyRegion {
        /// The region.
        region: ImageRegion,
    },
    /// The region does not lie inside its image.
    #[error("{region} do not lie inside a {shape}")]
    OutOfBounds {
        /// The region.
        region: ImageRegion,
        /// The shape of the image.
        shape: ImageShape,
    },
    /// A copy between images whose pixels differ.
    #[error(
        "a copy from pixels of {from} to pixels of {to}: copies change no format, use a kernel"
    )]
    FormatMismatch {
        /// The format of the source.
        from: ImageFormat,
        /// The format of the destination.
        to: ImageFormat,
    },
    /// A copy within one image whose source and destination share pixels.
    #[error("a copy of {from} to {:?} of the same image: the two regions overlap", .to.origin)]
    OverlappingCopy {
        /// The source.
        from: ImageRegion,
        /// The destination.
        to: ImageRegion,
    },
    /// A colour is of another type than the image's channels.
    #[error("the colour {color:?} for pixels of {format}: their channels take {}", ImageColor::kind_for(*.format))]
    ColorMismatch {
        /// The format of the image.
        format: ImageFormat,
        /// The colour.
        color: ImageColor,
    },
    /// A bare handle is not that of an image.
    #[error(
        "the handle is not that of an image: the runtime says it is an object of kind {code:#x}"
    )]
    NotAnImage {
        /// The runtime's number of the kind.
        code: u32,
    },
    /// An image of the program's own has pixels that this crate does not know.
    #[error(
        "an image with channel order {order:#x} and type {data:#x}, of which the size is not known"
    )]
    UnknownFormat {
        /// The runtime's number of the order.
        order: u32,
        /// The runtime's number of the type.
        data: u32,
    },
    /// The runtime has pixels of another size than the specification.
    #[error("pixels of {format} take {actual} bytes on this device, and {} in the specification", .format.item_bytes())]
    ItemBytes {
        /// The format.
        format: ImageFormat,
        /// The size of a pixel in bytes.
        actual: usize,
    },
    /// An array whose elements do not lie in C order, without gaps.
    #[error(
        "an array of shape {shape:?} with strides {strides:?} is not in C order without gaps: copy it with \
         `as_standard_layout`"
    )]
    NotStandardLayout {
        /// The shape of the array.
        shape: Vec<usize>,
        /// Its strides, in elements.
        strides: Vec<isize>,
    },
    /// An array that is neither a plane nor a volume, besides its channels.
    #[error(
        "an array of shape {shape:?} with {channels} channels: 2 or 3 dimensions are needed besides the channels"
    )]
    ArrayDimensions {
        /// The shape of the array.
        shape: Vec<usize>,
        /// The number of channels.
        channels: usize,
    },
    /// An array whose last dimension is not its channels.
    #[error("an array of shape {shape:?}: its last dimension has to be the {channels} channels")]
    ArrayChannels {
        /// The shape of the array.
        shape: Vec<usize>,
        /// The number of channels.
        channels: usize,
    },
    /// Pixels have one to four channels.
    #[error("pixels of {channels} channels: 1 to 4 are possible")]
    ChannelCount {
        /// The number of channels.
        channels: usize,
    },
    /// Only integers of 8 and 16 bits can be normalized.
    #[error("normalized {element}: only integers of 8 and 16 bits can be normalized")]
    NotNormalizable {
        /// The name of the element's type.
        element: &'static str,
    },
    /// An array of another type than the image's channels.
    #[error(
        "pixels of {format} into an array of {element}: read the bytes with `read_image` instead"
    )]
    ElementMismatch {
        /// The format of the image.
        format: ImageFormat,
        /// The name of the element's type.
        element: &'static str,
    },
    /// This addressing mode of a sampler needs normalized coordinates.
    #[error("{addressing:?} with coordinates in pixels: it is for normalized coordinates only")]
    NeedsNormalized {
        /// The addressing mode.
        addressing: Addressing,
    },
    /// A property of a sampler is given twice.
    #[error("the property {key:#x} is given twice")]
    PropertyTwice {
        /// The runtime's number of the property.
        key: u64,
    },
    /// A sampler of the program's own has a property that this crate does not know.
    #[error("the sampler's property {key:#x} is {value:#x}, which is not known")]
    UnknownProperty {
        /// The runtime's number of the property.
        key: u32,
        /// The runtime's number of the value.
        value: u32,
    },
}

impl From<ImageError> for Error {
    /// Returns an error of the device as it is, and any other as a failure of the backend with this one as its source.
    fn from(error: ImageError) -> Self {
        match error {
            ImageError::Device(error) => error,
            sampler @ (ImageError::NeedsNormalized { .. }
            | ImageError::PropertyTwice { .. }
            | ImageError::UnknownProperty { .. }) => {
                Self::backend("making a sampler", None, sampler)
            }
            image => Self::backend("using an image", None, image),
        }
    }
}

impl From<InvalidRequest> for ImageError {
    fn from(request: InvalidRequest) -> Self {
        Self::Device(request.into())
    }
}

impl From<OutOfMemory> for ImageError {
    fn from(error: OutOfMemory) -> Self {
        Self::Device(error.into())
    }
}
