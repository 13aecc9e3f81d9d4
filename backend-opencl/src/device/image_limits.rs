//! The limits of images on a device.

use cl3::device::{
    CL_DEVICE_IMAGE_BASE_ADDRESS_ALIGNMENT, CL_DEVICE_IMAGE_MAX_ARRAY_SIZE,
    CL_DEVICE_IMAGE_MAX_BUFFER_SIZE, CL_DEVICE_IMAGE_PITCH_ALIGNMENT, CL_DEVICE_IMAGE_SUPPORT,
    CL_DEVICE_IMAGE2D_MAX_HEIGHT, CL_DEVICE_IMAGE2D_MAX_WIDTH, CL_DEVICE_IMAGE3D_MAX_DEPTH,
    CL_DEVICE_IMAGE3D_MAX_HEIGHT, CL_DEVICE_IMAGE3D_MAX_WIDTH,
};

use crate::{
    device::{
        info::has_extension,
        limits::{NVIDIA, POCL},
    },
    sys::{self, ClResult, DeviceId},
};

/// The limits of images on a device. Sizes are in pixels and layers, and 0 if it has no images.
///
/// ```
/// use binpool_opencl::{ImageShape, OpenClBackend};
///
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// // A panorama is cut into as many pictures as it takes.
/// let limits = backend.image_limits()?;
/// let (width, height) = (100_000_usize, 1000);
/// let pieces = width.div_ceil(limits.plane_width);
/// let piece = ImageShape::d2(width.div_ceil(pieces), height);
/// limits.check(piece)?;
///
/// let whole = ImageShape::d2(width, height);
/// assert_eq!(limits.check(whole).is_ok(), pieces == 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImageLimits {
    /// Whether it has images at all (`CL_DEVICE_IMAGE_SUPPORT`).
    pub images: bool,
    /// The largest width of 1D and 2D images (`CL_DEVICE_IMAGE2D_MAX_WIDTH`).
    pub plane_width: usize,
    /// The largest height of 2D images (`CL_DEVICE_IMAGE2D_MAX_HEIGHT`).
    pub plane_height: usize,
    /// The largest width of 3D images (`CL_DEVICE_IMAGE3D_MAX_WIDTH`).
    pub volume_width: usize,
    /// The largest height of 3D images (`CL_DEVICE_IMAGE3D_MAX_HEIGHT`).
    pub volume_height: usize,
    /// The largest depth of 3D images (`CL_DEVICE_IMAGE3D_MAX_DEPTH`).
    pub volume_depth: usize,
    /// The most layers of arrays (`CL_DEVICE_IMAGE_MAX_ARRAY_SIZE`).
    pub layers: usize,
    /// The largest width of 1D images over buffers (`CL_DEVICE_IMAGE_MAX_BUFFER_SIZE`).
    pub buffer_width: usize,
    /// Set if 1D images over buffers can be filled. `PoCL` 3.1 crashes at such a fill.
    pub buffer_fills: bool,
    /// Set if layers of an array can be copied within it, and those of 1D arrays to buffers and images of other kinds, and
    /// from them. NVIDIA's driver (580) refuses some of it and mixes up the rest.
    pub layer_copies: bool,
    /// Whether 2D images can be made over buffers (`cl_khr_image2d_from_buffer`).
    pub planes_over_buffers: bool,
    /// The unit of the row pitch of such images, in pixels (`CL_DEVICE_IMAGE_PITCH_ALIGNMENT`).
    pub pitch_alignment: usize,
    /// The unit of the offset of such images in their buffer's block, in pixels (`CL_DEVICE_IMAGE_BASE_ADDRESS_ALIGNMENT`).
    pub base_alignment: usize,
}

impl ImageLimits {
    /// Asks the device for the limits.
    pub(crate) fn query(device: DeviceId) -> ClResult<Self> {
        let number = |what| device.info(what)?.size();
        // Devices do not answer questions of later versions.
        let young = |what| number(what).unwrap_or(0);
        let platform = sys::platform_name_of(device)?;
        let pitch_alignment = young(CL_DEVICE_IMAGE_PITCH_ALIGNMENT);
        Ok(Self {
            images: number(CL_DEVICE_IMAGE_SUPPORT)? != 0,
            plane_width: number(CL_DEVICE_IMAGE2D_MAX_WIDTH)?,
            plane_height: number(CL_DEVICE_IMAGE2D_MAX_HEIGHT)?,
            volume_width: number(CL_DEVICE_IMAGE3D_MAX_WIDTH)?,
            volume_height: number(CL_DEVICE_IMAGE3D_MAX_HEIGHT)?,
            volume_depth: number(CL_DEVICE_IMAGE3D_MAX_DEPTH)?,
            layers: number(CL_DEVICE_IMAGE_MAX_ARRAY_SIZE)?,
            buffer_width: number(CL_DEVICE_IMAGE_MAX_BUFFER_SIZE)?,
            buffer_fills: platform != POCL,
            layer_copies: platform != NVIDIA,
            planes_over_buffers: has_extension(device, "cl_khr_image2d_from_buffer")?
                && pitch_alignment > 0,
            pitch_alignment,
            base_alignment: young(CL_DEVICE_IMAGE_BASE_ADDRESS_ALIGNMENT),
        })
    }
}
