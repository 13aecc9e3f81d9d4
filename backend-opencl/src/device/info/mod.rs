//! The devices of this system.

use std::fmt;

use binpool_allocators::DeviceLimits;
use cl3::{
    device::{CL_DEVICE_EXTENSIONS, CL_DEVICE_TYPE, CL_DEVICE_VERSION},
    error_codes::DLOPEN_FUNCTION_NOT_AVAILABLE,
    platform::CL_PLATFORM_NAME,
};
use parking_lot::Mutex;

use crate::{
    device::{kind::DeviceKind, limits, selector::DeviceSelector},
    error::{AvailableDevices, OpenClError},
    sys::{self, ClResult, DeviceId, PlatformId},
};

/// One device of this system.
///
/// ```
/// use binpool_allocators::Backend;
/// use binpool_opencl::{DeviceSelector, OpenClBackend, list_devices};
///
/// // No selector asks for the device with the most memory.
/// let devices = list_devices()?;
/// let largest = devices.iter().max_by_key(|device| device.limits().capacity_bytes);
/// let largest = largest.ok_or("no device")?;
/// println!("{} of {}, a {}", largest.name(), largest.platform(), largest.kind());
///
/// let backend = OpenClBackend::open(&DeviceSelector::Index(largest.index()))?;
/// assert_eq!(backend.limits(), largest.limits());
/// assert_eq!(backend.version(), largest.version());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    index: usize,
    platform: String,
    kind: DeviceKind,
    version: (u32, u32),
    limits: DeviceLimits,
    id: DeviceId,
}

impl DeviceInfo {
    /// Its index in [`list_devices`].
    pub fn index(&self) -> usize {
        self.index
    }

    /// The name of its platform.
    pub fn platform(&self) -> &str {
        &self.platform
    }

    /// Its own name.
    pub fn name(&self) -> &str {
        &self.limits.device_name
    }

    /// Its kind.
    pub fn kind(&self) -> DeviceKind {
        self.kind
    }

    /// The OpenCL version that it has, major and minor.
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// Its limits.
    pub fn limits(&self) -> &DeviceLimits {
        &self.limits
    }

    pub(crate) const fn id(&self) -> DeviceId {
        self.id
    }

    pub(crate) fn query(index: usize, id: DeviceId) -> ClResult<Self> {
        Ok(Self {
            index,
            platform: sys::platform_name_of(id)?,
            kind: DeviceKind::of_type(id.info(CL_DEVICE_TYPE)?.number()?),
            version: version_of(id)?,
            limits: limits::query(id)?,
            id,
        })
    }

    /// Checks that the device has the calls that this crate makes.
    pub(crate) fn check_version(&self) -> Result<(), OpenClError> {
        let (major, minor) = self.version;
        if (major, minor) < (1, 2) {
            return Err(OpenClError::TooOld {
                device: self.name().to_owned(),
                major,
                minor,
            });
        }
        Ok(())
    }
}

impl fmt::Display for DeviceInfo {
    /// One line: number, name, kind and platform.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (index, name, kind) = (self.index, self.name(), self.kind);
        write!(f, "[{index}] {name} ({kind}, {})", self.platform)
    }
}

/// All devices of this system, platform by platform.
///
/// A device that does not answer is left out, with a warning.
///
/// # Errors
///
/// [`NoLibrary`](OpenClError::NoLibrary), [`NoPlatform`](OpenClError::NoPlatform), or a failure of the runtime.
///
/// ```
/// for (index, device) in binpool_opencl::list_devices()?.iter().enumerate() {
///     assert_eq!(device.index(), index); // What `DeviceSelector::Index` takes.
///     println!("{device}: {} bytes", device.limits().capacity_bytes);
/// }
/// # Ok::<(), binpool_opencl::OpenClError>(())
/// ```
pub fn list_devices() -> Result<Vec<DeviceInfo>, OpenClError> {
    Ok(System::look()?.devices)
}

impl DeviceSelector {
    /// Returns the device that is meant, among these.
    ///
    /// ```
    /// use binpool_opencl::{DeviceSelector, list_devices};
    ///
    /// // The best among those that have shared virtual memory.
    /// let mut devices = list_devices()?;
    /// devices.retain(|device| device.limits().svm.coarse);
    /// if let Some(best) = DeviceSelector::Any.select(&devices) {
    ///     assert!(devices.iter().all(|device| best.kind() <= device.kind()));
    /// }
    /// # Ok::<(), binpool_opencl::OpenClError>(())
    /// ```
    pub fn select<'a>(&self, devices: &'a [DeviceInfo]) -> Option<&'a DeviceInfo> {
        match self {
            // The first of the least: kinds are ordered by preference.
            Self::Any => devices.iter().min_by_key(|device| device.kind()),
            Self::Index(index) => devices.get(*index),
            Self::Kind(kind) => devices.iter().find(|device| device.kind() == *kind),
            Self::Name(part) => {
                let part = part.to_lowercase();
                devices.iter().find(|device| {
                    device.name().to_lowercase().contains(&part)
                        || device.platform().to_lowercase().contains(&part)
                })
            }
        }
    }
}

/// The platforms and devices of this system.
#[derive(Debug)]
pub(crate) struct System {
    pub(crate) devices: Vec<DeviceInfo>,
    empty_platforms: Vec<String>,
}

impl System {
    pub(crate) fn look() -> Result<Self, OpenClError> {
        // While `PoCL` 3.1 initialises itself in one thread's first call, it tells other threads that it has no devices.
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _guard = ONE_AT_A_TIME.lock();
        check_library()?;
        let platforms = sys::platforms().map_err(|error| match error.code {
            // The library that was loaded is not OpenCL's.
            DLOPEN_FUNCTION_NOT_AVAILABLE => OpenClError::NoLibrary { library: LIBRARY },
            _ => error.into(),
        })?;
        if platforms.is_empty() {
            return Err(OpenClError::NoPlatform);
        }
        let mut system = Self {
            devices: Vec::new(),
            empty_platforms: Vec::new(),
        };
        for platform in platforms {
            system.add(platform)?;
        }
        Ok(system)
    }

    fn add(&mut self, platform: PlatformId) -> ClResult<()> {
        let name = sys::platform_text(platform, CL_PLATFORM_NAME)?;
        let ids = sys::devices_of(platform)?;
        if ids.is_empty() {
            self.empty_platforms.push(name);
            return Ok(());
        }
        for id in ids {
            match DeviceInfo::query(self.devices.len(), id) {
                Ok(device) => self.devices.push(device),
                Err(error) => {
                    tracing::warn!(%error, platform = name, "a device does not answer");
                }
            }
        }
        Ok(())
    }

    pub(crate) fn available(&self) -> AvailableDevices {
        AvailableDevices {
            devices: self.devices.iter().map(ToString::to_string).collect(),
            empty_platforms: self.empty_platforms.clone(),
        }
    }
}

/// The library that is loaded, unless `OPENCL_DYLIB_PATH` names another.
const LIBRARY: &str = if cfg!(target_os = "windows") {
    "OpenCL.dll"
} else if cfg!(target_os = "macos") {
    "OpenCL.framework"
} else {
    "libOpenCL.so.1"
};

/// Checks that there is an OpenCL library.
pub(crate) fn check_library() -> Result<(), OpenClError> {
    if sys::library_is_available() {
        Ok(())
    } else {
        Err(OpenClError::NoLibrary { library: LIBRARY })
    }
}

/// Returns the OpenCL version of a device, major and minor.
pub(crate) fn version_of(device: DeviceId) -> ClResult<(u32, u32)> {
    Ok(parse_version(&device.info(CL_DEVICE_VERSION)?.text()))
}

/// Returns whether a device has an extension.
pub(crate) fn has_extension(device: DeviceId, name: &str) -> ClResult<bool> {
    let extensions = device.info(CL_DEVICE_EXTENSIONS)?.text();
    Ok(extensions.split_whitespace().any(|own| own == name))
}

/// Returns the numbers in `OpenCL MAJOR.MINOR ...`; 0.0 for any other text.
pub(crate) fn parse_version(text: &str) -> (u32, u32) {
    let numbers = text
        .strip_prefix("OpenCL ")
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|version| version.split_once('.'));
    let parsed = numbers.map(|(major, minor)| (major.parse(), minor.parse()));
    match parsed {
        Some((Ok(major), Ok(minor))) => (major, minor),
        _ => (0, 0),
    }
}

#[cfg(test)]
mod tests;
