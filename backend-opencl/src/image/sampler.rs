//! Samplers: the way in which kernels read images.

use std::{ffi::c_void, num::NonZeroU64, sync::Arc};

use binpool_allocators::{ObjectKind, Result, debug_by};
use cl3::{
    memory::{
        CL_ADDRESS_CLAMP, CL_ADDRESS_CLAMP_TO_EDGE, CL_ADDRESS_MIRRORED_REPEAT, CL_ADDRESS_NONE,
        CL_ADDRESS_REPEAT, CL_FILTER_LINEAR, CL_FILTER_NEAREST,
    },
    sampler::{
        CL_SAMPLER_ADDRESSING_MODE, CL_SAMPLER_CONTEXT, CL_SAMPLER_FILTER_MODE, CL_SAMPLER_LOD_MAX,
        CL_SAMPLER_LOD_MIN, CL_SAMPLER_MIP_FILTER_MODE, CL_SAMPLER_NORMALIZED_COORDS,
        CL_SAMPLER_PROPERTIES,
    },
};

use super::problem::ImageProblem;
use crate::{
    backend::OpenClBackend,
    context::Context,
    device::info,
    error::OpenClError,
    identity::same_by,
    sys::{self, SamplerHandle},
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
#[repr(u32)]
pub enum Addressing {
    /// Kernels must not read there: the value is undefined.
    None = CL_ADDRESS_NONE,
    /// The nearest pixel of the edge.
    ClampToEdge = CL_ADDRESS_CLAMP_TO_EDGE,
    /// A border of zeros.
    Clamp = CL_ADDRESS_CLAMP,
    /// The image again. For normalized coordinates.
    Repeat = CL_ADDRESS_REPEAT,
    /// The image's reflection. For normalized coordinates.
    MirroredRepeat = CL_ADDRESS_MIRRORED_REPEAT,
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
#[repr(u32)]
pub enum Filter {
    /// The nearest pixel.
    Nearest = CL_FILTER_NEAREST,
    /// The weighted mean of the pixels around.
    Linear = CL_FILTER_LINEAR,
}

/// The properties of a sampler, with OpenCL 2.0 and later (`sampler_properties` of `PyOpenCL`; OpenCL 3.0, section 5.7).
/// `None` leaves a property at the runtime's default.
///
/// ```
/// use binpool_opencl::{Addressing, ClSampler, Filter, OpenClBackend, SamplerProperties};
///
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// let properties = SamplerProperties {
///     filter: Some(Filter::Linear),
///     ..SamplerProperties::default()
/// };
/// let sampler = ClSampler::with_properties(&backend, &properties)?;
/// assert_eq!(sampler.filter()?, Filter::Linear);
/// // And what was not said:
/// assert!(sampler.normalized_coordinates()?);
/// assert_eq!(sampler.addressing()?, Addressing::Clamp);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SamplerProperties {
    /// `true` if coordinates go from 0.0 to 1.0, `false` if they count pixels. Default: true.
    pub normalized_coordinates: Option<bool>,
    /// The value that is read outside of the image. Default: [`Clamp`](Addressing::Clamp).
    pub addressing: Option<Addressing>,
    /// The value that is read between pixels. Default: [`Nearest`](Filter::Nearest).
    pub filter: Option<Filter>,
    /// The value that is read between the levels of a mipmap, on devices with `cl_khr_mipmap_image`.
    pub mip_filter: Option<Filter>,
    /// The least level of detail, on devices with `cl_khr_mipmap_image`.
    pub least_detail: Option<f32>,
    /// The largest level of detail, on devices with `cl_khr_mipmap_image`.
    pub largest_detail: Option<f32>,
    /// Keys and values of extensions. 0 is not a key: it ends the runtime's list.
    pub others: Vec<(NonZeroU64, u64)>,
}

impl SamplerProperties {
    fn list(&self) -> Vec<(u64, u64)> {
        let detail = |detail: Option<f32>| detail.map(|detail| detail.to_bits().into());
        let filter = |filter: Option<Filter>| filter.map(|filter| filter as u64);
        [
            (
                CL_SAMPLER_NORMALIZED_COORDS,
                self.normalized_coordinates.map(u64::from),
            ),
            (
                CL_SAMPLER_ADDRESSING_MODE,
                self.addressing.map(|addressing| addressing as u64),
            ),
            (CL_SAMPLER_FILTER_MODE, filter(self.filter)),
            (CL_SAMPLER_MIP_FILTER_MODE, filter(self.mip_filter)),
            (CL_SAMPLER_LOD_MIN, detail(self.least_detail)),
            (CL_SAMPLER_LOD_MAX, detail(self.largest_detail)),
        ]
        .into_iter()
        .filter_map(|(key, value)| Some((u64::from(key), value?)))
        .chain(self.others.iter().map(|(key, value)| (key.get(), *value)))
        .collect()
    }

    const fn is_for_mipmaps(&self) -> bool {
        self.mip_filter.is_some() || self.least_detail.is_some() || self.largest_detail.is_some()
    }
}

/// The way in which kernels read images (`Sampler` of `PyOpenCL`). Clones are the same sampler.
///
/// Values are equal if they are the same object of the runtime.
///
/// ```
/// use binpool_opencl::{Addressing, ClSampler, Filter, OpenClBackend};
///
/// let backend = OpenClBackend::open(&"any".parse()?)?;
/// let sampler = ClSampler::new(&backend, true, Addressing::Repeat, Filter::Linear)?;
/// assert!(sampler.normalized_coordinates()?);
/// assert_eq!(sampler.addressing()?, Addressing::Repeat);
/// assert_eq!(sampler.filter()?, Filter::Linear);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct ClSampler {
    handle: Arc<SamplerHandle>,
    context: Arc<Context>,
}

impl ClSampler {
    /// Makes a sampler for coordinates from 0.0 to 1.0 if `normalized_coordinates` is set, otherwise for coordinates in
    /// pixels.
    ///
    /// # Errors
    ///
    /// A device without images; [`Image`](OpenClError::Image) for addressing modes that need normalized
    /// coordinates; a failure of the runtime.
    pub fn new(
        backend: &OpenClBackend,
        normalized_coordinates: bool,
        addressing: Addressing,
        filter: Filter,
    ) -> Result<Self, OpenClError> {
        check_images(backend)?;
        check_repeats(normalized_coordinates, addressing)?;
        let context = &backend.context().handle;
        let (addressing, filter) = (addressing as u32, filter as u32);
        let handle = sys::create_sampler(context, normalized_coordinates, addressing, filter);
        Ok(Self::of(backend, handle?))
    }

    /// Makes a sampler from properties.
    ///
    /// A property of an extension is given by its number. A property that is given twice is refused:
    ///
    /// ```
    /// use std::num::NonZeroU64;
    ///
    /// use binpool_opencl::{ClSampler, Filter, OpenClBackend, OpenClError, SamplerProperties};
    /// use cl3::{memory::CL_FILTER_LINEAR, sampler::CL_SAMPLER_FILTER_MODE};
    ///
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// let key = NonZeroU64::new(CL_SAMPLER_FILTER_MODE.into()).ok_or("0 is not a key")?;
    /// let properties = SamplerProperties {
    ///     filter: Some(Filter::Nearest),
    ///     others: vec![(key, CL_FILTER_LINEAR.into())],
    ///     ..SamplerProperties::default()
    /// };
    /// let refused = ClSampler::with_properties(&backend, &properties);
    /// assert!(matches!(refused, Err(OpenClError::Image(_))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A device without images, or before OpenCL 2.0, or without mipmaps if such properties are given; [`Image`](OpenClError::Image) for
    /// addressing modes that need normalized coordinates and for a property that is given twice; a failure of the runtime, such as for a
    /// key that it does not know.
    pub fn with_properties(
        backend: &OpenClBackend,
        properties: &SamplerProperties,
    ) -> Result<Self, OpenClError> {
        check_images(backend)?;
        let (context, instead) = (backend.context(), "use `ClSampler::new`");
        context.check_version((2, 0), "samplers of properties", instead)?;
        if properties.is_for_mipmaps()
            && !info::has_extension(context.device, "cl_khr_mipmap_image")?
        {
            let instead = "leave the filter and the levels of detail out";
            return Err(context.lacks("mipmaps", instead).into());
        }
        check_repeats(
            properties.normalized_coordinates.unwrap_or(true),
            properties.addressing.unwrap_or(Addressing::Clamp),
        )?;
        let list = properties.list();
        for (at, &(key, _)) in list.iter().enumerate() {
            if list[..at].iter().any(|&(before, _)| before == key) {
                let problem = format!("the property {key:#x} is given twice");
                return Err(ImageProblem::Other(problem).into());
            }
        }
        let handle = sys::create_sampler_with_properties(&context.handle, &list);
        Ok(Self::of(backend, handle?))
    }

    /// Returns a sampler of the program's own, by its bare handle (`from_int_ptr`).
    ///
    /// With `retain`, the program keeps its own reference. Without it, this value takes over the program's reference, even if the call fails.
    ///
    /// ```
    /// use cl3::memory::{CL_ADDRESS_CLAMP, CL_FILTER_NEAREST};
    /// use cl3::sampler::create_sampler;
    ///
    /// # use binpool_opencl::{Addressing, ClSampler, OpenClBackend};
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// // A sampler that the program makes by itself, and hands over.
    /// let context = backend.raw_context();
    /// let handle = create_sampler(context, 0, CL_ADDRESS_CLAMP, CL_FILTER_NEAREST)
    ///     .map_err(|code| format!("error {code}"))?;
    /// // SAFETY: the sampler lives, and its only reference is given.
    /// let sampler = unsafe { ClSampler::from_raw(&backend, handle, false) }?;
    /// assert_eq!(sampler.raw(), handle);
    /// assert_eq!(sampler.addressing()?, Addressing::Clamp);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A sampler of another context; a null handle.
    ///
    /// # Safety
    ///
    /// `sampler` is null or a live `cl_sampler`, and unless `retain`, the caller gives away one reference to it.
    #[allow(unsafe_code)]
    pub unsafe fn from_raw(
        backend: &OpenClBackend,
        sampler: *mut c_void,
        retain: bool,
    ) -> Result<Self, OpenClError> {
        // SAFETY: The sampler is null or alive, and unless `retain` one reference is the caller's to give, as the caller
        // promises.
        let handle = unsafe { SamplerHandle::adopt(sampler, retain) }?;
        backend.check_context(
            handle.info(CL_SAMPLER_CONTEXT)?.value()?,
            ObjectKind::Memory,
        )?;
        Ok(Self::of(backend, handle))
    }

    fn of(backend: &OpenClBackend, handle: SamplerHandle) -> Self {
        Self {
            handle: Arc::new(handle),
            context: Arc::clone(backend.context()),
        }
    }

    /// Returns whether coordinates go from 0.0 to 1.0 (`normalized_coords`).
    ///
    /// # Errors
    ///
    /// A failure of the runtime.
    pub fn normalized_coordinates(&self) -> Result<bool, OpenClError> {
        Ok(self.number(CL_SAMPLER_NORMALIZED_COORDS)? != 0)
    }

    /// The value that is read outside of the image (`addressing_mode`).
    ///
    /// # Errors
    ///
    /// [`Image`](OpenClError::Image) for a mode of an extension.
    pub fn addressing(&self) -> Result<Addressing, OpenClError> {
        use Addressing::{Clamp, ClampToEdge, MirroredRepeat, None, Repeat};
        let all = [None, ClampToEdge, Clamp, Repeat, MirroredRepeat];
        self.one_of(all, CL_SAMPLER_ADDRESSING_MODE, |it| it as u32)
    }

    /// The value that is read between pixels (`filter_mode`).
    ///
    /// # Errors
    ///
    /// [`Image`](OpenClError::Image) for a mode of an extension.
    pub fn filter(&self) -> Result<Filter, OpenClError> {
        let all = [Filter::Nearest, Filter::Linear];
        self.one_of(all, CL_SAMPLER_FILTER_MODE, |it| it as u32)
    }

    /// The runtime's keys and values that it was made with; none if it was made by [`new`](Self::new).
    ///
    /// ```
    /// use binpool_opencl::{Addressing, ClSampler, Filter, OpenClBackend, SamplerProperties};
    /// use cl3::{memory::CL_FILTER_LINEAR, sampler::CL_SAMPLER_FILTER_MODE};
    ///
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// let properties = SamplerProperties {
    ///     filter: Some(Filter::Linear),
    ///     ..SamplerProperties::default()
    /// };
    /// let sampler = ClSampler::with_properties(&backend, &properties)?;
    /// let filter = (CL_SAMPLER_FILTER_MODE.into(), CL_FILTER_LINEAR.into());
    /// assert_eq!(sampler.properties()?, [filter]);
    ///
    /// let other = ClSampler::new(&backend, true, Addressing::Clamp, Filter::Linear)?;
    /// assert_eq!(other.properties()?, []);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A device before OpenCL 3.0, which does not answer.
    pub fn properties(&self) -> Result<Vec<(u64, u64)>, OpenClError> {
        let (what, instead) = ("a sampler's properties", "ask for one after the other");
        self.context().check_version((3, 0), what, instead)?;
        let list = self.handle().info(CL_SAMPLER_PROPERTIES)?.list::<u64>();
        let pairs = list.chunks_exact(2).map(|pair| (pair[0], pair[1]));
        Ok(pairs.take_while(|&(key, _)| key != 0).collect())
    }

    fn number(&self, what: u32) -> Result<u32, OpenClError> {
        Ok(self.handle().info(what)?.value()?)
    }

    /// Returns the one of `all` that the property has the number of.
    fn one_of<T: Copy, const N: usize>(
        &self,
        all: [T; N],
        key: u32,
        number: fn(T) -> u32,
    ) -> Result<T, OpenClError> {
        let value = self.number(key)?;
        let found = all.into_iter().find(|&it| number(it) == value);
        found.ok_or_else(|| {
            ImageProblem::Other(format!(
                "the sampler's property {key:#x} is {value:#x}, which is unknown"
            ))
            .into()
        })
    }

    /// The runtime's `cl_sampler` (`int_ptr`).
    ///
    /// It is borrowed: valid while this value or a clone lives, and not to be released. Code that keeps it longer has to
    /// retain it.
    pub fn raw(&self) -> *mut c_void {
        self.handle().raw()
    }

    pub(crate) fn handle(&self) -> &SamplerHandle {
        &self.handle
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }
}

/// Checks that the device has images: without them it has no samplers.
fn check_images(backend: &OpenClBackend) -> Result<()> {
    if backend.image_limits()?.images {
        return Ok(());
    }
    let instead = "it has no images; use buffers";
    Err(backend.context().lacks("samplers", instead))
}

fn check_repeats(normalized: bool, addressing: Addressing) -> Result<(), OpenClError> {
    match addressing {
        Addressing::Repeat | Addressing::MirroredRepeat if !normalized => {
            Err(ImageProblem::Other(format!(
                "{addressing:?} with coordinates in pixels: it is for normalized coordinates only"
            ))
            .into())
        }
        _ => Ok(()),
    }
}

debug_by!(ClSampler, |this| handle: this.handle);

same_by!(ClSampler, |this| this.raw());
