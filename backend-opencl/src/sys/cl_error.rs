//! The errors of the OpenCL runtime.

use std::fmt;

use binpool_allocators::{Error, OutOfMemory, Scope};
use cl3::error_codes::{
    CL_CONTEXT_TERMINATED_KHR, CL_DEVICE_NOT_AVAILABLE, CL_MEM_OBJECT_ALLOCATION_FAILURE,
    CL_OUT_OF_HOST_MEMORY, CL_OUT_OF_RESOURCES, DLOPEN_FUNCTION_NOT_AVAILABLE, error_text,
};

/// The result of one call of the runtime.
pub(crate) type ClResult<T> = Result<T, ClError>;

/// A call of the OpenCL runtime that failed: which one, and with what code.
///
/// It is the source of the errors of `binpool_allocators` that this backend returns.
///
/// # Out of memory
///
/// Runtimes do not agree on the code for exhausted memory. `CL_MEM_OBJECT_ALLOCATION_FAILURE` (-4) and
/// `CL_OUT_OF_HOST_MEMORY` (-6) always mean it. `CL_OUT_OF_RESOURCES` (-5) means it in calls that make or move
/// memory, which are those that create buffers and sub-buffers, commit, write, read, copy and fill, and in
/// waits for such commands: NVIDIA's driver answers a commit that does not fit with it. Elsewhere (queues,
/// markers, flushes, kernels) it means registers, handles, or a kernel that touched memory it does not own,
/// and becomes [`Error::Backend`].
///
/// ```
/// use binpool_allocators::Error;
/// use binpool_opencl::{ClError, OpenClBackend};
///
/// let backend = OpenClBackend::open(&"any".parse()?)?;
/// // SAFETY: null is allowed, and refused by the runtime.
/// let wrapped = unsafe { backend.wrap_raw_queue(std::ptr::null_mut()) };
/// let Err(Error::Backend(failure)) = wrapped else {
///     panic!("no call of the runtime failed");
/// };
/// let source = failure.source.as_ref().and_then(|source| source.downcast_ref::<ClError>());
/// assert_eq!(source.map(ClError::name), Some("CL_INVALID_COMMAND_QUEUE"));
/// assert_eq!(source.map(|error| error.code), Some(-36));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClError {
    /// The call, by its name in the OpenCL specification.
    pub operation: &'static str,
    /// The code, negative.
    pub code: i32,
}

impl ClError {
    pub(crate) const fn new(operation: &'static str, code: i32) -> Self {
        Self { operation, code }
    }

    /// The name of the code in the OpenCL headers, `UNKNOWN_ERROR` for a code without a name.
    pub const fn name(&self) -> &'static str {
        error_text(self.code)
    }
}

impl fmt::Display for ClError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.operation, self.name(), self.code)
    }
}

impl std::error::Error for ClError {}

/// The purpose of a call, which decides what its codes mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Making or moving this many bytes of memory.
    Memory(usize),
    /// Anything else.
    Control,
}

impl Purpose {
    const fn bytes(self) -> usize {
        match self {
            Self::Memory(bytes) => bytes,
            Self::Control => 0,
        }
    }
}

impl ClError {
    /// Returns whether a call that makes memory has failed for lack of it.
    pub(crate) const fn is_exhaustion(self) -> bool {
        matches!(
            self.code,
            CL_MEM_OBJECT_ALLOCATION_FAILURE | CL_OUT_OF_HOST_MEMORY | CL_OUT_OF_RESOURCES
        )
    }

    /// Returns this failure as an error of the vocabulary.
    pub(crate) fn into_error(self, purpose: Purpose) -> Error {
        let exhausted = |scope| {
            OutOfMemory::new(purpose.bytes(), scope)
                .with_source(self)
                .into()
        };
        match self.code {
            CL_MEM_OBJECT_ALLOCATION_FAILURE => exhausted(Scope::Device),
            CL_OUT_OF_HOST_MEMORY => exhausted(Scope::Host),
            CL_OUT_OF_RESOURCES if matches!(purpose, Purpose::Memory(_)) => {
                exhausted(Scope::Device)
            }
            CL_DEVICE_NOT_AVAILABLE | CL_CONTEXT_TERMINATED_KHR => Error::DeviceLost {
                operation: self.operation,
                source: Some(Box::new(self)),
            },
            DLOPEN_FUNCTION_NOT_AVAILABLE => Error::unsupported(format!(
                "{}, which this system's OpenCL library lacks: install a newer ICD loader",
                self.operation
            )),
            _ => Error::backend(self.operation, Some(self.code), self),
        }
    }
}

/// A failure of a call that is not about memory.
impl From<ClError> for Error {
    fn from(error: ClError) -> Self {
        error.into_error(Purpose::Control)
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    fn scope_of(error: &Error) -> Option<(Scope, usize)> {
        match error {
            Error::OutOfMemory(memory) => Some((memory.scope, memory.requested)),
            _ => None,
        }
    }

    #[test]
    fn exhaustion_has_three_codes_and_keeps_the_call_as_its_source() {
        for (code, scope) in [(-4, Scope::Device), (-5, Scope::Device), (-6, Scope::Host)] {
            let failure = ClError::new("clCreateBuffer", code);
            let error = failure.into_error(Purpose::Memory(64));
            assert_eq!(scope_of(&error), Some((scope, 64)), "code {code}");
            let Error::OutOfMemory(memory) = &error else {
                panic!("not out of memory");
            };
            let source = memory.source().and_then(|source| source.downcast_ref());
            assert_eq!(source, Some(&failure));
        }
    }

    #[test]
    fn resources_are_memory_only_where_memory_is_what_the_call_is_about() {
        let failure = ClError::new("clFinish", CL_OUT_OF_RESOURCES);
        let error = failure.into_error(Purpose::Control);
        assert!(!error.is_out_of_memory());
        let Error::Backend(failure) = error else {
            panic!("not a failure of the backend");
        };
        assert_eq!((failure.operation, failure.code), ("clFinish", Some(-5)));
    }

    #[test]
    fn a_device_that_is_gone_is_lost() {
        for code in [CL_DEVICE_NOT_AVAILABLE, CL_CONTEXT_TERMINATED_KHR] {
            let error = ClError::new("clFlush", code).into_error(Purpose::Memory(1));
            assert!(matches!(
                error,
                Error::DeviceLost {
                    operation: "clFlush",
                    ..
                }
            ));
        }
    }

    #[test]
    fn a_failure_says_call_name_and_code() {
        let failure = ClError::new("clCreateBuffer", -61);
        assert_eq!(
            failure.to_string(),
            "clCreateBuffer: CL_INVALID_BUFFER_SIZE (-61)"
        );
    }
}
