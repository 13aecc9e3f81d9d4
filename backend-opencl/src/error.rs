//! Why a device could not be opened.

use std::fmt;

use crate::{cl_error::ClError, device::selector::DeviceSelector};

/// Why a device could not be opened, or an object of the program's own not be wrapped.
///
/// Everything that happens later, with an open device, is an error of `binpool_allocators`.
///
/// ```
/// use binpool_opencl::{DeviceSelector, OpenClBackend, OpenClError};
///
/// let backend = match OpenClBackend::open(&"a device of dreams".parse()?) {
///     Err(error @ OpenClError::NoDevice { .. }) => {
///         let start = r#"no OpenCL device is named like "a device of dreams"; there are "#;
///         assert!(error.to_string().starts_with(start));
///         OpenClBackend::open(&DeviceSelector::Any)?
///     }
///     // Without a library, or without a driver, the error says what to install.
///     opened => opened?,
/// };
/// # assert!(backend.version() >= (1, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenClError {
    /// The system has no OpenCL library.
    #[error(
        "no OpenCL library found ({library}): install an ICD loader and a driver, e.g. \
         pocl-opencl-icd, or name the library in OPENCL_DYLIB_PATH"
    )]
    NoLibrary {
        /// What was looked for.
        library: &'static str,
    },
    /// There is an OpenCL library, but it knows no driver.
    #[error(
        "the OpenCL library lists no platform: install a driver for your device, e.g. pocl-opencl-icd \
         for the processor"
    )]
    NoPlatform,
    /// No device is what was asked for.
    #[error("no OpenCL device is {selector}; there are {available}")]
    NoDevice {
        /// What was asked for.
        selector: DeviceSelector,
        /// What there is.
        available: AvailableDevices,
    },
    /// The device is older than this crate supports.
    #[error("{device} has OpenCL {major}.{minor}: OpenCL 1.2 or newer is needed")]
    TooOld {
        /// The device's name.
        device: String,
        /// Its version's major number.
        major: u32,
        /// Its version's minor number.
        minor: u32,
    },
    /// The device is not one of the context's.
    #[error("the device is not one of the context's devices")]
    NotInContext,
    /// A call of the runtime failed.
    #[error(transparent)]
    Call(#[from] ClError),
}

/// The platforms of a system and their devices, for an error that lists them.
///
/// ```
/// use binpool_opencl::{DeviceSelector, OpenClBackend, OpenClError, list_devices};
///
/// let opened = OpenClBackend::open(&DeviceSelector::Index(1000));
/// let Err(OpenClError::NoDevice { available, .. }) = opened else {
///     panic!("a thousand devices");
/// };
/// let listed: Vec<String> = list_devices()?.iter().map(ToString::to_string).collect();
/// assert_eq!(available.devices, listed); // What the program can offer to its user instead.
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AvailableDevices {
    /// One line for each device, as [`DeviceInfo`](crate::DeviceInfo) prints itself.
    pub devices: Vec<String>,
    /// The names of platforms that have no device.
    pub empty_platforms: Vec<String>,
}

impl fmt::Display for AvailableDevices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.devices.as_slice() {
            [] => f.write_str("no devices at all")?,
            devices => f.write_str(&devices.join("; "))?,
        }
        if !self.empty_platforms.is_empty() {
            let platforms = self.empty_platforms.join(", ");
            write!(f, " (platforms without a device: {platforms})")?;
        }
        Ok(())
    }
}
