//! The abilities of a device.

use std::fmt;

use binpool_allocators::{DeviceLimits, Result, words};
use cl3::device::{
    CL_DEVICE_DOUBLE_FP_CONFIG, CL_DEVICE_EXTENSIONS, CL_DEVICE_GLOBAL_MEM_CACHE_SIZE,
    CL_DEVICE_GLOBAL_MEM_CACHELINE_SIZE, CL_DEVICE_HALF_FP_CONFIG, CL_DEVICE_HOST_UNIFIED_MEMORY,
    CL_DEVICE_LOCAL_MEM_SIZE, CL_DEVICE_LOCAL_MEM_TYPE, CL_DEVICE_MAX_COMPUTE_UNITS,
    CL_DEVICE_MAX_WORK_GROUP_SIZE, CL_DEVICE_MAX_WORK_ITEM_SIZES, CL_DEVICE_OPENCL_C_VERSION,
    CL_DRIVER_VERSION,
};

use crate::{
    backend::OpenClBackend,
    device::{
        image_limits::ImageLimits,
        info::{DeviceInfo, parse_version},
        kind::DeviceKind,
    },
    error::OpenClError,
    sys::ClResult,
    transfer::p2p,
};

/// `CL_LOCAL` among the answers to `CL_DEVICE_LOCAL_MEM_TYPE`.
const CL_LOCAL: u64 = 1;

/// The abilities of a device, as it reports them: `PyOpenCL`'s module `characterize`. Printed, it is a table.
///
/// ```
/// use binpool_opencl::{ClProgram, OpenClBackend};
///
/// let backend = OpenClBackend::open(&"any".parse()?)?;
/// let device = backend.characterize()?;
/// let real = if device.doubles { "double" } else { "float" };
/// let mut options = format!("-D REAL={real}");
/// if device.has_extension("cl_khr_int64_base_atomics") {
///     options.push_str(" -D COUNT_IN_LONGS");
/// }
/// let source = "kernel void zero(global REAL *data) { data[get_global_id(0)] = 0; }";
/// ClProgram::build(&backend, source, &options)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Which shared virtual memory there is:
///
/// ```
/// use binpool_allocators::{SvmBackend, SvmGrain};
/// # use binpool_opencl::OpenClBackend;
///
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// let device = backend.characterize()?;
/// let svm = device.limits.svm;
/// let kinds = [
///     (svm.coarse, "blocks that the host maps"),
///     (svm.fine, "blocks that both sides touch"),
///     (svm.fine && svm.atomics, "atomics in such blocks"),
///     (svm.system, "all memory of the host"),
///     (svm.system && svm.atomics, "atomics in all of it"),
/// ];
/// let there = kinds.iter().filter(|(has, _)| *has);
/// println!("{:?}", there.map(|(_, what)| what).collect::<Vec<_>>());
///
/// let block = backend.allocate_svm(4096, None, SvmGrain::Fine, None);
/// assert_eq!(block.is_ok(), device.limits.svm.fine); // `Unsupported` elsewhere.
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Characterization {
    /// Its kind.
    pub kind: DeviceKind,
    /// The name of its platform.
    pub platform: String,
    /// The version of its driver, as the driver writes it.
    pub driver: String,
    /// The OpenCL version that it has, major and minor.
    pub version: (u32, u32),
    /// The version of OpenCL C that it builds programs of by default, major and minor.
    pub c_version: (u32, u32),
    /// Its memory, SVM, alignments and queues.
    pub limits: DeviceLimits,
    /// Set if it and the host share one memory, so that maps copy nothing.
    pub unified_memory: bool,
    /// The cache between it and its memory, in bytes; 0 if it reports no cache.
    pub cache_bytes: u64,
    /// The lines of that cache, in bytes.
    pub cache_line_bytes: usize,
    /// The number of its compute units: it runs at least this many work-groups at once.
    pub compute_units: usize,
    /// The most work-items of a work-group. A kernel may allow fewer.
    pub work_group_size: usize,
    /// The most work-items of a work-group along each axis.
    pub work_item_sizes: Vec<usize>,
    /// The local memory of a work-group, in bytes.
    pub local_memory_bytes: usize,
    /// Whether local memory is storage of its own, and not a part of global memory.
    pub dedicated_local_memory: bool,
    /// The limits of images, and whether it has any.
    pub images: ImageLimits,
    /// Whether kernels can use `double`.
    pub doubles: bool,
    /// Whether kernels can compute in `half`.
    pub halves: bool,
    /// Whether buffers can be copied to those of another device directly
    /// ([`copy_p2p_amd`](OpenClBackend::copy_p2p_amd)).
    pub p2p_copies: bool,
    /// The extensions that it has.
    pub extensions: Vec<String>,
}

impl Characterization {
    /// Returns whether it has the extension of that name.
    pub fn has_extension(&self, name: &str) -> bool {
        self.extensions.iter().any(|own| own == name)
    }

    fn query(device: &DeviceInfo) -> ClResult<Self> {
        let id = device.id();
        let number = |what| id.info(what)?.number();
        let size = |what| id.info(what)?.size();
        // Devices do not answer questions of later versions, or of extensions that they do not have.
        let answers_yes = |what| number(what).unwrap_or(0) != 0;
        let extensions = id.info(CL_DEVICE_EXTENSIONS)?.text();
        let extensions: Vec<String> = extensions.split_whitespace().map(str::to_owned).collect();
        let has = |name| extensions.iter().any(|own| own == name);
        Ok(Self {
            kind: device.kind(),
            platform: device.platform().to_owned(),
            driver: id.info(CL_DRIVER_VERSION)?.text(),
            version: device.version(),
            c_version: c_version(&id.info(CL_DEVICE_OPENCL_C_VERSION)?.text()),
            limits: device.limits().clone(),
            unified_memory: answers_yes(CL_DEVICE_HOST_UNIFIED_MEMORY),
            cache_bytes: number(CL_DEVICE_GLOBAL_MEM_CACHE_SIZE)?,
            cache_line_bytes: size(CL_DEVICE_GLOBAL_MEM_CACHELINE_SIZE)?,
            compute_units: size(CL_DEVICE_MAX_COMPUTE_UNITS)?,
            work_group_size: size(CL_DEVICE_MAX_WORK_GROUP_SIZE)?,
            work_item_sizes: id.info(CL_DEVICE_MAX_WORK_ITEM_SIZES)?.list(),
            local_memory_bytes: size(CL_DEVICE_LOCAL_MEM_SIZE)?,
            dedicated_local_memory: number(CL_DEVICE_LOCAL_MEM_TYPE)? == CL_LOCAL,
            images: ImageLimits::query(id)?,
            doubles: has("cl_khr_fp64") || answers_yes(CL_DEVICE_DOUBLE_FP_CONFIG),
            halves: has("cl_khr_fp16") || answers_yes(CL_DEVICE_HALF_FP_CONFIG),
            p2p_copies: has(p2p::EXTENSION),
            extensions,
        })
    }
}

/// Returns the numbers in `OpenCL C MAJOR.MINOR ...`; 0.0 for any other text.
fn c_version(text: &str) -> (u32, u32) {
    parse_version(&text.replacen("OpenCL C ", "OpenCL ", 1))
}

impl DeviceInfo {
    /// Asks the device for its abilities.
    ///
    /// ```
    /// // Without a context: what `binpool devices` prints.
    /// for device in binpool_opencl::list_devices()? {
    ///     let can = device.characterize()?;
    ///     assert_eq!((can.kind, &can.limits), (device.kind(), device.limits()));
    ///     println!("{device}\n{can}");
    /// }
    /// # Ok::<(), binpool_opencl::OpenClError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A failure of the runtime.
    pub fn characterize(&self) -> Result<Characterization, OpenClError> {
        Ok(Characterization::query(self)?)
    }
}

impl OpenClBackend {
    /// Asks the device for its abilities.
    ///
    /// ```
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// // The largest work-group whose items each have 16 floats of local memory.
    /// let device = backend.characterize()?;
    /// let room = device.local_memory_bytes / (16 * size_of::<f32>());
    /// let group = device.work_group_size.min(room);
    /// assert!((1..=device.work_group_size).contains(&group));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A failure of the runtime.
    pub fn characterize(&self) -> Result<Characterization> {
        // Its index in the list of devices does not matter here.
        let asked = DeviceInfo::query(0, self.context().device)
            .and_then(|device| Characterization::query(&device));
        asked.map_err(Into::into)
    }
}

impl fmt::Display for Characterization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (limits, images) = (&self.limits, &self.images);
        let (version, c_version) = (self.version, self.c_version);
        let axes: Vec<_> = self.work_item_sizes.iter().map(usize::to_string).collect();
        let [plane, volume] = [
            format!("{} x {}", images.plane_width, images.plane_height),
            format!("{} x {}", images.volume_width, images.volume_height),
        ];
        let bytes = |bytes: usize| words::bytes(bytes as u64);
        for (name, value) in [
            ("OpenCL", format!("{}.{}", version.0, version.1)),
            ("OpenCL C", format!("{}.{}", c_version.0, c_version.1)),
            ("driver", self.driver.clone()),
            ("memory", words::bytes(limits.capacity_bytes)),
            ("  shared with the host", yes(self.unified_memory)),
            ("largest block", bytes(limits.largest_block_bytes)),
            ("alignment", limits.alignment.to_string()),
            ("coarse-grained SVM", yes(limits.svm.coarse)),
            ("fine-grained SVM", yes(limits.svm.fine)),
            ("  with atomics", yes(limits.svm.fine && limits.svm.atomics)),
            ("system SVM", yes(limits.svm.system)),
            (
                "largest SVM alignment",
                limits.largest_svm_alignment.to_string(),
            ),
            ("out-of-order queues", yes(limits.out_of_order_queues)),
            ("cache", words::bytes(self.cache_bytes)),
            ("  of lines of", format!("{} bytes", self.cache_line_bytes)),
            ("compute units", self.compute_units.to_string()),
            ("work-group", format!("{} items", self.work_group_size)),
            ("  along each axis", axes.join(" x ")),
            ("local memory", bytes(self.local_memory_bytes)),
            ("  of its own", yes(self.dedicated_local_memory)),
            ("images", yes(images.images)),
            ("  of two dimensions", format!("{plane} pixels")),
            (
                "  of three dimensions",
                format!("{volume} x {} pixels", images.volume_depth),
            ),
            ("  in an array", images.layers.to_string()),
            ("  over a buffer", format!("{} pixels", images.buffer_width)),
            ("double", yes(self.doubles)),
            ("half", yes(self.halves)),
            ("peer-to-peer copies", yes(self.p2p_copies)),
            ("extensions", self.extensions.join(" ")),
        ] {
            writeln!(f, "{name:<24}{value}")?;
        }
        Ok(())
    }
}

fn yes(answer: bool) -> String {
    if answer { "yes" } else { "no" }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_opencl_c_is_read_from_its_text() {
        assert_eq!(c_version("OpenCL C 1.2 pocl"), (1, 2));
        assert_eq!(c_version("OpenCL C 3.0"), (3, 0));
        assert_eq!(c_version("C 3.0"), (0, 0));
    }
}
