//! The errors of this crate.

use std::{error::Error as StdError, fmt};

use binpool_allocators::{Error, InvalidRequest};

#[cfg(feature = "images")]
use crate::image::ImageProblem;
use crate::{device::selector::DeviceSelector, kernel::KernelProblem, sys::ClError};

/// Why a device could not be opened, a program built, a kernel launched, or an image or a sampler used.
///
/// Commands on memory fail with [`Error`] of `binpool_allocators`. This type wraps it ([`Device`](Self::Device)), and
/// `?` converts each into the other.
///
/// ```
/// use binpool_opencl::{DeviceSelector, OpenClBackend, OpenClError};
///
/// let backend = match OpenClBackend::open(&"a device of dreams".parse()?) {
///     Err(error @ OpenClError::NoDevice { .. }) => {
///         let start = r#"no OpenCL device is called "a device of dreams"; there "#;
///         assert!(error.to_string().starts_with(start));
///         OpenClBackend::open(&DeviceSelector::Any)?
///     }
///     // Without a library, or without a driver, the error says what to install.
///     opened => opened?,
/// };
/// # assert!(backend.version() >= (1, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenClError {
    /// The system has no OpenCL library.
    #[error(
        "no OpenCL library found ({library}): install an ICD loader and a driver, e.g. \
         pocl-opencl-icd, or name the library in OPENCL_DYLIB_PATH"
    )]
    NoLibrary {
        /// The name of the library that was searched for.
        library: &'static str,
    },
    /// There is an OpenCL library, but it finds no driver.
    #[error(
        "the OpenCL library lists no platform: install a driver for your device, e.g. pocl-opencl-icd \
         for the processor"
    )]
    NoPlatform,
    /// No device matches the description.
    #[error("no OpenCL device is {selector}; {available}")]
    NoDevice {
        /// The description.
        selector: DeviceSelector,
        /// The devices of this machine.
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
    /// The compiler rejected the program.
    #[error("the program does not build for {device} with options {options:?}:\n{log}")]
    Build {
        /// The device.
        device: String,
        /// The options of the program.
        options: String,
        /// The compiler's log.
        log: String,
    },
    /// A kernel differs from its declaration, or a launch does not fit it: its work size, or an argument.
    #[error("{}{kernel} {problem}", parameter_of(*.parameter))]
    Kernel {
        /// The name of the kernel.
        kernel: String,
        /// The index of the parameter that is wrong, if one is.
        parameter: Option<usize>,
        /// What is wrong and what to do.
        problem: KernelProblem,
    },
    /// An image or a sampler cannot be made or used like this.
    #[cfg(feature = "images")]
    #[error(transparent)]
    Image(#[from] ImageProblem),
    /// A command failed, or the device lacks a feature ([`Unsupported`](binpool_allocators::Error::Unsupported)).
    #[error(transparent)]
    Device(#[from] Error),
}

fn parameter_of(parameter: Option<usize>) -> String {
    parameter.map_or_else(String::new, |index| format!("parameter {index} of "))
}

impl OpenClError {
    pub(crate) fn kernel(
        kernel: &str,
        parameter: Option<usize>,
        problem: impl Into<KernelProblem>,
    ) -> Self {
        Self::Kernel {
            kernel: kernel.to_owned(),
            parameter,
            problem: problem.into(),
        }
    }
}

impl From<OpenClError> for Error {
    /// Returns an error of the device as it is, and any other error as a failure of the backend with this one as its source.
    fn from(error: OpenClError) -> Self {
        let operation = match error {
            OpenClError::Device(error) => return error,
            OpenClError::Build { .. } | OpenClError::Kernel { .. } => {
                "building or launching a kernel"
            }
            #[cfg(feature = "images")]
            OpenClError::Image(
                problem @ (ImageProblem::TooLarge { .. } | ImageProblem::Format { .. }),
            ) => return Self::unsupported(problem.to_string()),
            #[cfg(feature = "images")]
            OpenClError::Image(_) => "using an image or a sampler",
            _ => "opening a device",
        };
        Self::backend(operation, None, error)
    }
}

impl From<ClError> for OpenClError {
    fn from(error: ClError) -> Self {
        Self::Device(error.into())
    }
}

impl From<InvalidRequest> for OpenClError {
    fn from(request: InvalidRequest) -> Self {
        Self::Device(request.into())
    }
}

/// The error of a failed call, with the value that it would have consumed.
///
/// `?` drops the value and passes on the plain error.
///
/// ```
/// use binpool_allocators::{Backend, Error, InvalidRequest, MemoryFlags, QueueOrder};
/// use binpool_opencl::{OpenClBackend, Refused};
///
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let memory = backend.create_buffer(8, MemoryFlags::empty())?;
/// let numbers = vec![1_u32, 2, 3];
/// let enqueued = backend.enqueue_write_owned(&queue, (&memory, 0), numbers);
/// let Err(Refused { error, value }) = enqueued else {
///     panic!("8 bytes have no room for 12");
/// };
/// let beyond = InvalidRequest::OutOfBounds { offset: 0, bytes: 12, size: 8 };
/// assert!(matches!(error, Error::InvalidRequest(request) if request == beyond));
/// assert_eq!(value, [1, 2, 3]); // Not lost: for another try, with what fits.
/// backend.enqueue_write_owned(&queue, (&memory, 0), value[..2].to_vec())?.wait()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Refused<T> {
    /// The error.
    pub error: Error,
    /// The value that was passed to the call, unchanged unless the call says otherwise.
    pub value: T,
}

impl<T> From<Refused<T>> for Error {
    fn from(refused: Refused<T>) -> Self {
        refused.error
    }
}

impl<T> fmt::Debug for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused")
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

impl<T> fmt::Display for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T> StdError for Refused<T> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.error.source()
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
            [] => f.write_str("there are no devices")?,
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
    use binpool_conformance::told_once;

    use super::*;

    fn call() -> Error {
        ClError::new("clSetKernelArg", -50).into()
    }

    fn kernel(parameter: Option<usize>) -> OpenClError {
        OpenClError::Kernel {
            kernel: "scale".into(),
            parameter,
            problem: "takes a value".into(),
        }
    }

    #[test]
    fn errors_of_every_kind_tell_each_cause_once() {
        let refused = || Error::from(InvalidRequest::ZeroSize);
        let (error, value) = (refused(), ());
        let errors: [(Box<dyn StdError>, usize); 8] = [
            (Box::new(ClError::new("clFlush", -36)), 1),
            (Box::new(call()), 2),
            (Box::new(OpenClError::NoPlatform), 1),
            (Box::new(kernel(None)), 1),
            (
                Box::new(OpenClError::Image(ImageProblem::Other(
                    "a region without pixels".into(),
                ))),
                1,
            ),
            (Box::new(OpenClError::Device(refused())), 1),
            (Box::new(OpenClError::Device(call())), 2),
            (Box::new(Refused { error, value }), 1),
        ];
        for (error, causes) in errors {
            assert_eq!(told_once(&*error).len(), causes, "{error}");
        }
    }

    #[test]
    fn a_problem_of_a_kernel_names_the_parameter_that_it_is_about() {
        assert_eq!(kernel(None).to_string(), "scale takes a value");
        assert_eq!(
            kernel(Some(2)).to_string(),
            "parameter 2 of scale takes a value"
        );
    }

    #[test]
    fn errors_of_every_kind_become_one_with_the_original_as_its_source() {
        let image = OpenClError::Image(ImageProblem::Other("a region without pixels".into()));
        for error in [OpenClError::NoPlatform, kernel(Some(0)), image] {
            let text = error.to_string();
            assert_eq!(told_once(&Error::from(error))[1..], [text]);
        }
        // An error of the device is converted to itself.
        let is_the_call =
            |error: Error| matches!(error, Error::Backend(failure) if failure.code == Some(-50));
        assert!(is_the_call(OpenClError::from(call()).into()));
        let failure = ClError::new("clSetKernelArg", -50);
        assert!(is_the_call(OpenClError::from(failure).into()));
    }
}
