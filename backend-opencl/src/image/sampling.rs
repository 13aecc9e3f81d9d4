//! How a kernel reads an image outside of it, and between its pixels.

use cl3::memory::{
    CL_ADDRESS_CLAMP, CL_ADDRESS_CLAMP_TO_EDGE, CL_ADDRESS_MIRRORED_REPEAT, CL_ADDRESS_NONE,
    CL_ADDRESS_REPEAT, CL_FILTER_LINEAR, CL_FILTER_NEAREST,
};

/// The value that is read outside of the image (`addressing_mode` of `PyOpenCL`).
///
/// ```
/// use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
/// use binpool_opencl::{Addressing, ClSampler, Filter, OpenClBackend};
/// # use binpool_opencl::{
/// #     ChannelOrder, ChannelType, ClProgram, Extent, HostPitches, ImageFormat, ImageKind, ImageShape, Parameter,
/// #     ParameterAccess,
/// # };
///
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let source = "kernel void look_up(read_only image2d_t picture, sampler_t sampler, float2 at, global float4 *color)
/// #     { color[get_global_id(0)] = read_imagef(picture, sampler, at); }";
/// # let program = ClProgram::build(&backend, source, "")?;
/// # let parameters = [
/// #     Parameter::image(ImageKind::D2, ParameterAccess::Input),
/// #     Parameter::sampler(),
/// #     Parameter::value::<[f32; 2]>(),
/// #     Parameter::output::<[f32; 4]>(Extent::PerItem(1)),
/// # ];
/// # // SAFETY: each work item writes the colour of its id, and reads the image through a sampler that says what is beyond.
/// # let look_up = unsafe { program.kernel("look_up", &parameters) }?;
/// # let image = backend.create_image_with_data(
/// #     MemoryFlags::READ_ONLY,
/// #     ImageFormat::new(ChannelOrder::Rgba, ChannelType::Float),
/// #     ImageShape::d2(2, 1),
/// #     &[[0.25_f32; 4], [0.75; 4]],
/// #     HostPitches::TIGHT,
/// # )?;
/// # let color = backend.create_buffer(16, MemoryFlags::empty())?;
/// // A picture of two pixels, 0.25 and 0.75. The kernel looks one and a half pixels to their left.
/// let beside = |addressing| -> Result<f32, Box<dyn std::error::Error>> {
///     let sampler = ClSampler::new(&backend, false, addressing, Filter::Nearest)?;
///     let launch = look_up.launch(&queue, &[1]).image(&image).sampler(&sampler);
///     launch.value(&[-1.5_f32, 0.5]).memory(&color).enqueue()?;
///     Ok(backend.map::<f32>(&queue, &color, 0..16)?[0])
/// };
/// assert_eq!(beside(Addressing::ClampToEdge)?, 0.25);
/// assert_eq!(beside(Addressing::Clamp)?, 0.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Addressing {
    /// Kernels must not read there: the value is undefined.
    None,
    /// The nearest pixel of the edge.
    ClampToEdge,
    /// A border of zeros.
    Clamp,
    /// The image again. For normalized coordinates.
    Repeat,
    /// The image's reflection. For normalized coordinates.
    MirroredRepeat,
}

impl Addressing {
    pub(crate) const ALL: [Self; 5] = [
        Self::None,
        Self::ClampToEdge,
        Self::Clamp,
        Self::Repeat,
        Self::MirroredRepeat,
    ];

    pub(crate) const fn code(self) -> u32 {
        match self {
            Self::None => CL_ADDRESS_NONE,
            Self::ClampToEdge => CL_ADDRESS_CLAMP_TO_EDGE,
            Self::Clamp => CL_ADDRESS_CLAMP,
            Self::Repeat => CL_ADDRESS_REPEAT,
            Self::MirroredRepeat => CL_ADDRESS_MIRRORED_REPEAT,
        }
    }
}

/// The value that is read between pixels (`filter_mode` of `PyOpenCL`).
///
/// ```
/// use binpool_opencl::{Addressing, ClSampler, Filter, OpenClBackend};
///
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// // A picture is smooth where it is drawn larger, and a table is not: its entries are read as they are.
/// let sampler = |filter| ClSampler::new(&backend, true, Addressing::ClampToEdge, filter);
/// let (picture, table) = (sampler(Filter::Linear)?, sampler(Filter::Nearest)?);
/// assert_ne!(picture.filter()?, table.filter()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Filter {
    /// The nearest pixel.
    Nearest,
    /// The weighted mean of the pixels around.
    Linear,
}

impl Filter {
    pub(crate) const ALL: [Self; 2] = [Self::Nearest, Self::Linear];

    pub(crate) const fn code(self) -> u32 {
        match self {
            Self::Nearest => CL_FILTER_NEAREST,
            Self::Linear => CL_FILTER_LINEAR,
        }
    }
}
