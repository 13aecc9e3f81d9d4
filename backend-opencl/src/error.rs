//! Why a device could not be opened.

use std::fmt;

use binpool_allocators::Error;

use crate::{
    device::selector::DeviceSelector,
    sys::{ClError, Purpose},
};

/// Why a device could not be opened, or an object of the program's own not be wrapped.
///
/// Everything that happens later, with an open device, is an error of `binpool_allocators`, and this one becomes one by
/// `?`.
///
/// ```
/// use binpool_opencl::{DeviceSelector, OpenClBackend, OpenClError};
///
/// let backend = match OpenClBackend::open(&"a device of dreams".parse()?) {
///     Err(error @ OpenClError::NoDevice { .. }) => {
///         let start = r#"no OpenCL device is named like "a device of dreams"; there "#;
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
        /// The name of the library that was looked for.
        library: &'static str,
    },
    /// There is an OpenCL library, but it knows no driver.
    #[error(
        "the OpenCL library lists no platform: install a driver for your device, e.g. pocl-opencl-icd \
         for the processor"
    )]
    NoPlatform,
    /// No device is what was asked for.
    #[error("no OpenCL device is {selector}; {available}")]
    NoDevice {
        /// The description that no device fits.
        selector: DeviceSelector,
        /// The devices that there are.
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
    /// A memory object of another kind was passed where a buffer belongs.
    #[error("the memory object is of type {object_type:#x}: a buffer, 0x10f0, is needed")]
    NotABuffer {
        /// The object's `cl_mem_object_type`.
        object_type: u32,
    },
    /// A call of the runtime failed.
    #[error(transparent)]
    Call(#[from] ClError),
}

impl From<OpenClError> for Error {
    /// Returns a failed call of the runtime as any other call would report it, and any other error as a failure of the
    /// backend with this one as its source.
    fn from(error: OpenClError) -> Self {
        match error {
            OpenClError::Call(error) => error.into_error(Purpose::Control),
            OpenClError::NotABuffer { .. } => {
                Self::backend("taking a memory object in", None, error)
            }
            error => Self::backend("opening a device", None, error),
        }
    }
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
            [] => f.write_str("there are no devices at all")?,
            [device] => write!(f, "there is {device}")?,
            devices => write!(f, "there are {}", devices.join("; "))?,
        }
        if !self.empty_platforms.is_empty() {
            let platforms = self.empty_platforms.join(", ");
            write!(f, " (platforms without a device: {platforms})")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as StdError;

    use binpool_allocators::InvalidRequest;

    use super::*;
    use crate::{Addressing, ImageError, ImageKind, KernelError, Refused, WorkSizeProblem};

    /// Returns the texts of an error and its causes, and checks that no text has another one in it.
    fn told_once(error: &dyn StdError) -> Vec<String> {
        let chain = std::iter::successors(Some(error), |&error| error.source());
        let texts: Vec<_> = chain.map(ToString::to_string).collect();
        for (index, cause) in texts.iter().enumerate() {
            let before = &texts[..index];
            assert!(!before.iter().any(|text| text.contains(cause)), "{texts:?}");
        }
        texts
    }

    fn call() -> Error {
        ClError::new("clSetKernelArg", -50).into_error(Purpose::Control)
    }

    #[test]
    fn errors_of_every_kind_tell_each_cause_once() {
        let refused = || Error::from(InvalidRequest::ZeroSize);
        let work_size = KernelError::WorkSize {
            kernel: "scale".into(),
            problem: WorkSizeProblem::NoLocalSize,
        };
        let argument = KernelError::ArgumentRefused {
            kernel: "scale".into(),
            index: 1,
            source: call(),
        };
        let (error, value) = (refused(), ());
        let errors: [(Box<dyn StdError>, usize); 11] = [
            (Box::new(ClError::new("clFlush", -36)), 1),
            (Box::new(call()), 2),
            (Box::new(OpenClError::NoPlatform), 1),
            (Box::new(OpenClError::Call(ClError::new("clFlush", -36))), 1),
            (Box::new(work_size), 1),
            (Box::new(argument), 3),
            (Box::new(KernelError::Memory(refused())), 1),
            (Box::new(KernelError::Memory(call())), 2),
            (Box::new(ImageError::Device(refused())), 1),
            (Box::new(ImageError::Device(call())), 2),
            (Box::new(Refused { error, value }), 1),
        ];
        for (error, causes) in errors {
            assert_eq!(told_once(&*error).len(), causes, "{error}");
        }
    }

    /// Converts an error as a program does that has one error type for everything.
    fn converted<E: StdError + Into<Error>>(error: E) -> (String, Error) {
        (error.to_string(), error.into())
    }

    #[test]
    fn errors_of_every_kind_become_one_with_the_original_as_its_source() {
        let addressing = Addressing::Repeat;
        let kind = ImageKind::D1Buffer;
        for (text, error) in [
            converted(OpenClError::NoPlatform),
            converted(KernelError::EmptySource),
            converted(ImageError::NeedsBuffer { kind }),
            converted(ImageError::NeedsNormalized { addressing }),
        ] {
            assert_eq!(told_once(&error)[1..], [text]);
        }
        // An error of the device is converted to itself.
        let is_the_call =
            |error: Error| matches!(error, Error::Backend(failure) if failure.code == Some(-50));
        assert!(is_the_call(KernelError::from(call()).into()));
        assert!(is_the_call(ImageError::from(call()).into()));
        let failure = ClError::new("clSetKernelArg", -50);
        assert!(is_the_call(OpenClError::from(failure).into()));
    }
}
