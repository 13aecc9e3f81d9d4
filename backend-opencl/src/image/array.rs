//! Images from arrays, and back.

use binpool_allocators::{Error, MemoryFlags, Result};
use bytemuck::Pod;
use ndarray::{ArrayD, ArrayView, Dimension, IxDyn};

use super::{
    cl_image::ClImage,
    format::{ChannelOrder, ChannelType, ImageFormat},
    layout::HostPitches,
    problem::ImageProblem,
    region::ImageRegion,
    shape::{ImageKind, ImageShape},
    transfer::ImagePart,
};
use crate::{backend::OpenClBackend, error::OpenClError, event::ClOn, sys::host::zeroed};

mod sealed {
    pub trait Sealed {}
}

/// The number types that the channels of an image can have: `i8`, `i16`, `i32`, `u8`, `u16`, `u32` and `f32`.
///
/// ```
/// use binpool_opencl::{ChannelOrder, ChannelValue, ImageFormat};
///
/// /// What pictures of these numbers are made of: kernels read them as 0.0 to 1.0 where that can be.
/// fn format_of<T: ChannelValue>() -> ImageFormat {
///     ImageFormat::new(ChannelOrder::Rgba, T::NORMALIZED.unwrap_or(T::DATA))
/// }
///
/// assert_eq!(format_of::<u8>().to_string(), "RGBA of UNORM_INT8");
/// assert_eq!(format_of::<f32>().to_string(), "RGBA of FLOAT");
/// ```
pub trait ChannelValue: Pod + sealed::Sealed {
    /// The type of such channels.
    const DATA: ChannelType;
    /// The type of such channels if kernels read them as -1.0 to 1.0 or 0.0 to 1.0.
    const NORMALIZED: Option<ChannelType>;
}

macro_rules! channel_values {
    ($($number:ty: $data:ident, $normalized:expr;)+) => {
        $(
            impl sealed::Sealed for $number {}
            impl ChannelValue for $number {
                const DATA: ChannelType = ChannelType::$data;
                const NORMALIZED: Option<ChannelType> = $normalized;
            }
        )+
    };
}

channel_values! {
    i8: SignedInt8, Some(ChannelType::SnormInt8);
    i16: SignedInt16, Some(ChannelType::SnormInt16);
    i32: SignedInt32, None;
    u8: UnsignedInt8, Some(ChannelType::UnormInt8);
    u16: UnsignedInt16, Some(ChannelType::UnormInt16);
    u32: UnsignedInt32, None;
    f32: Float, None;
}

/// Copies between images and arrays.
impl OpenClBackend {
    /// Makes a 2D or 3D image with a copy of an array's elements (`image_from_array`).
    ///
    /// The array is in C order without gaps. With more than one channel, its last dimension is the channels. The dimensions of the image
    /// are those of the array backwards: x is the array's last one. The channels are the first of red, green, blue and alpha. `flags` say
    /// how kernels use the image; `READ_ONLY` and `WRITE_ONLY` are `PyOpenCL`'s modes `"r"` and `"w"`. If `normalized` is set, kernels read
    /// integers as 0.0 to 1.0, or -1.0 to 1.0.
    ///
    /// ```
    /// # use binpool_allocators::MemoryFlags;
    /// # use binpool_opencl::{ImageShape, OpenClBackend};
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// let picture = ndarray::Array3::<u8>::zeros((480, 640, 4));
    /// let image = backend.image_from_array(&picture.view(), 4, MemoryFlags::READ_ONLY, true)?;
    /// assert_eq!(image.shape(), ImageShape::d2(640, 480));
    /// assert_eq!(image.format().to_string(), "RGBA of UNORM_INT8");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Images have no channels of 64 bits:
    ///
    /// ```compile_fail,E0277
    /// # use binpool_allocators::MemoryFlags;
    /// # use binpool_opencl::{DeviceSelector, OpenClBackend};
    /// # let backend = OpenClBackend::open(&DeviceSelector::Any).unwrap();
    /// let picture = ndarray::Array2::<f64>::zeros((480, 640));
    /// backend.image_from_array(&picture.view(), 1, MemoryFlags::READ_ONLY, false);
    /// ```
    ///
    /// # Errors
    ///
    /// [`Image`](OpenClError::Image) for an array that is not in C order without gaps, whose dimensions are not those of a plane or a
    /// volume and its channels, or whose numbers cannot be normalized; otherwise those of [`create_image`](Self::create_image).
    pub fn image_from_array<T: ChannelValue, D: Dimension>(
        &self,
        array: &ArrayView<'_, T, D>,
        channels: usize,
        flags: MemoryFlags,
        normalized: bool,
    ) -> Result<ClImage, OpenClError> {
        let Some(elements) = array.as_slice() else {
            return Err(other(format!(
                "an array of shape {:?} with strides {:?} is not in C order without gaps: copy it with `as_standard_layout`",
                array.shape(),
                array.strides()
            )));
        };
        let order = ChannelOrder::first_of_rgba(channels).ok_or_else(|| {
            other(format!(
                "pixels of {channels} channels: 1 to 4 are possible"
            ))
        })?;
        let shape = image_shape(array.shape(), channels)?;
        let format = ImageFormat::new(order, data_type::<T>(normalized)?);
        self.create_image_with_data(flags, format, shape, elements, HostPitches::TIGHT)
    }

    /// Reads a region of an image as an array in C order, whose dimensions are those of the image backwards, followed by
    /// the channels if there are several.
    ///
    /// The inverse of [`image_from_array`](Self::image_from_array), for images of every kind.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::{ImageRegion, OpenClBackend, OpenClError};
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let picture = ndarray::array![[1_u16, 2, 3], [4, 5, 6]];
    /// let image = backend.image_from_array(&picture.view(), 1, MemoryFlags::empty(), false)?;
    /// let all = ImageRegion::all(image.shape());
    /// let read = backend.array_from_image::<u16>(&queue, &image, all)?;
    /// assert_eq!(read, picture.into_dyn());
    /// // Two columns of two rows, from the second column on.
    /// let right = ImageRegion::new([1, 0], [2, 2]);
    /// let read = backend.array_from_image::<u16>(&queue, &image, right)?;
    /// assert_eq!(read, ndarray::array![[2, 3], [5, 6]].into_dyn());
    ///
    /// let other = backend.array_from_image::<f32>(&queue, &image, all);
    /// assert!(matches!(other, Err(OpenClError::Image(_)))); // These are no floats.
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Image`](OpenClError::Image) if the image's channels are of another type, or packed; otherwise those of
    /// [`read_part`](Self::read_part).
    pub fn array_from_image<'q, T: ChannelValue>(
        &self,
        on: impl Into<ClOn<'q>>,
        image: &ClImage,
        region: ImageRegion,
    ) -> Result<ArrayD<T>, OpenClError> {
        let format = image.format();
        if format.data != T::DATA && Some(format.data) != T::NORMALIZED {
            return Err(other(format!(
                "pixels of {format} into an array of {}: read the bytes with `read_part` instead",
                std::any::type_name::<T>()
            )));
        }
        // Checked before the elements are allocated: a region that is too large must not be reported as a lack of host
        // memory.
        region.check_within(image.shape())?;
        let bytes = image.region_bytes(region);
        let mut elements = zeroed(bytes / size_of::<T>()).map_err(Error::from)?;
        self.read_part(on, ImagePart::new(image, region), &mut elements)?;
        let channels = format.channel_count();
        let array = array_shape(image.shape().kind(), region, channels);
        ArrayD::from_shape_vec(IxDyn(&array), elements).map_err(|_| dimensions(&array, channels))
    }
}

fn data_type<T: ChannelValue>(normalized: bool) -> Result<ChannelType, OpenClError> {
    if !normalized {
        return Ok(T::DATA);
    }
    T::NORMALIZED.ok_or_else(|| {
        let element = std::any::type_name::<T>();
        other(format!(
            "normalized {element}: only integers of 8 and 16 bits can be normalized"
        ))
    })
}

/// Returns the shape of the image that an array of that shape becomes.
fn image_shape(array: &[usize], channels: usize) -> Result<ImageShape, OpenClError> {
    let pixels = match array.split_last() {
        _ if channels == 1 => array,
        Some((&last, pixels)) if last == channels => pixels,
        _ => {
            return Err(other(format!(
                "an array of shape {array:?}: its last dimension has to be the {channels} channels"
            )));
        }
    };
    match *pixels {
        [height, width] => Ok(ImageShape::d2(width, height)),
        [depth, height, width] => Ok(ImageShape::d3(width, height, depth)),
        _ => Err(dimensions(array, channels)),
    }
}

fn other(problem: String) -> OpenClError {
    ImageProblem::Other(problem).into()
}

fn dimensions(array: &[usize], channels: usize) -> OpenClError {
    other(format!(
        "an array of shape {array:?} with {channels} channels: 2 or 3 dimensions are needed besides the channels"
    ))
}

/// Returns the shape of the array that a region of an image of that kind becomes.
fn array_shape(image: ImageKind, region: ImageRegion, channels: usize) -> Vec<usize> {
    let [x, y, z] = region.size;
    let mut shape = match image {
        ImageKind::D1 | ImageKind::D1Buffer => vec![x],
        ImageKind::D1Array | ImageKind::D2 => vec![y, x],
        ImageKind::D2Array | ImageKind::D3 => vec![z, y, x],
    };
    if channels > 1 {
        shape.push(channels);
    }
    shape
}
