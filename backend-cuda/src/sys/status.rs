//! The error codes of the driver.

use binpool_allocators::{Error, OutOfMemory, Scope};

/// The result of one call of the driver.
pub(crate) type CudaResult<T> = Result<T, CudaError>;

pub(crate) const SUCCESS: i32 = 0;
pub(crate) const OUT_OF_MEMORY: i32 = 2;
pub(crate) const NOT_FOUND: i32 = 500;
pub(crate) const NOT_READY: i32 = 600;
pub(crate) const PEER_ACCESS_ALREADY_ENABLED: i32 = 704;
const NOT_PERMITTED: i32 = 800;
const NOT_SUPPORTED: i32 = 801;
const STREAM_CAPTURE_UNSUPPORTED: i32 = 900;

/// A call of the CUDA driver that failed: the source of the [`Error`]s of this crate.
///
/// ```
/// use std::error::Error as _;
///
/// use binpool_allocators::Error;
/// use binpool_cuda::CudaError;
///
/// /// Returns whether the program has to start anew, since its context is gone.
/// fn is_fatal(error: &Error) -> bool {
///     let source = error.source().and_then(|source| source.downcast_ref::<CudaError>());
///     if let Some(source) = source {
///         eprintln!("{} returned {}, which is {}", source.call(), source.code(), source.name());
///     }
///     source.is_some_and(CudaError::is_sticky)
/// }
///
/// assert!(!is_fatal(&Error::unsupported("something else")));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call} returned {} ({code}){}", self.name(), self.advice())]
pub struct CudaError {
    call: &'static str,
    code: i32,
}

/// The codes of cuda.h that programs see, a line each, with what to do.
const CODES: &str = "\
1 INVALID_VALUE: an argument is wrong, or the object belongs to another context
2 OUT_OF_MEMORY: free memory, or see what else uses the device with nvidia-smi
3 NOT_INITIALIZED: the driver could not start; see the kernel's log
4 DEINITIALIZED: the process is ending; drop what is on the device before `main` returns
100 NO_DEVICE: there is no device, or CUDA_VISIBLE_DEVICES hides all
101 INVALID_DEVICE: `CudaDevice::all` lists the devices
200 INVALID_IMAGE: it is not PTX, which begins with `.version`
201 INVALID_CONTEXT: the context was destroyed by another part of the program
209 NO_BINARY_FOR_GPU: the code is for other devices; load PTX, or build it for this one
214 ECC_UNCORRECTABLE: the device's memory is damaged; reset the device
218 INVALID_PTX: the text has a mistake; ptxas says where
220 NVLINK_UNCORRECTABLE: a link between devices failed; restart the program
222 UNSUPPORTED_PTX_VERSION: update the driver, or build the PTX for an older one
400 INVALID_HANDLE: the object is gone already
500 NOT_FOUND: the module has no kernel of this name; C++ changes names unless they are `extern \"C\"`
600 NOT_READY: the device was busy each time; try again
700 ILLEGAL_ADDRESS: a kernel or copy used memory that it may not; run it under compute-sanitizer, and restart the program
701 LAUNCH_OUT_OF_RESOURCES: a block has too many threads or too much shared memory for this device
702 LAUNCH_TIMEOUT: a kernel ran too long on a device with a display; restart the program
709 CONTEXT_IS_DESTROYED: another part of the program reset the device; open it again
710 ASSERT: an assertion in a kernel failed; its message is on standard error
711 TOO_MANY_PEERS: a device already has the most peers it can have; copies work without peer access
714 HARDWARE_STACK_ERROR: restart the program
715 ILLEGAL_INSTRUCTION: the kernel was built for another device; restart the program
716 MISALIGNED_ADDRESS: a kernel used an address that is not aligned for its type; run it under compute-sanitizer, and restart the program
717 INVALID_ADDRESS_SPACE: run the kernel under compute-sanitizer, and restart the program
718 INVALID_PC: run the kernel under compute-sanitizer, and restart the program
719 LAUNCH_FAILED: a kernel failed; run it under compute-sanitizer, and restart the program
800 NOT_PERMITTED: this process, or the container that it runs in, may not do this
801 NOT_SUPPORTED: this device or driver does not have it
900 STREAM_CAPTURE_UNSUPPORTED: not while a stream is captured; do it before the capture, or after a launch of the graph
901 STREAM_CAPTURE_INVALIDATED: a call before this one has spoilt the capture; end it, and look for the first error
902 STREAM_CAPTURE_MERGE: an event would join two captures; capture their work one after the other
903 STREAM_CAPTURE_UNMATCHED: the stream joined a capture that began on another; end it there
904 STREAM_CAPTURE_UNJOINED: a stream that joined the capture has work that the first stream does not wait for
905 STREAM_CAPTURE_ISOLATION: a captured command would wait for one before the capture; wait for that before the capture begins
906 STREAM_CAPTURE_IMPLICIT: the legacy default stream would wait for a captured stream; use a queue of `create_queue`
907 CAPTURED_EVENT: an event of a captured command is for the graph only; wait for what launches the graph
999 UNKNOWN: restart the program, and see the kernel's log
";

impl CudaError {
    pub(crate) const fn new(call: &'static str, code: i32) -> Self {
        Self { call, code }
    }

    /// Returns whether the driver will never do this here.
    pub(super) const fn is_refusal(&self) -> bool {
        matches!(self.code, NOT_PERMITTED | NOT_SUPPORTED)
    }

    /// The driver's function.
    #[must_use]
    pub const fn call(&self) -> &'static str {
        self.call
    }

    /// The `CUresult`.
    #[must_use]
    pub const fn code(&self) -> i32 {
        self.code
    }

    /// The name of the code without `CUDA_ERROR_`, or `"another error"`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.known().map_or("another error", |(name, _)| name)
    }

    /// Returns whether the context is lost: every later call in it fails, and only a new process gets another. Such an error is
    /// an [`Error::DeviceLost`].
    #[must_use]
    pub const fn is_sticky(&self) -> bool {
        matches!(self.code, 4 | 214 | 220 | 700 | 702 | 709 | 710 | 714..=719)
    }

    /// The name and the advice of a known code.
    fn known(&self) -> Option<(&'static str, &'static str)> {
        let row = CODES.lines().find_map(|line| {
            let (code, row) = line.split_once(' ')?;
            (code.parse() == Ok(self.code)).then_some(row)
        })?;
        let name_ends = row.find(':').unwrap_or(row.len());
        Some(row.split_at(name_ends))
    }

    fn advice(&self) -> &'static str {
        self.known().map_or("", |(_, advice)| advice)
    }

    /// The error of a call that was to take `bytes` bytes of the memory of `scope`.
    pub(crate) fn shortage(self, bytes: usize, scope: Scope) -> Error {
        if self.code == OUT_OF_MEMORY {
            OutOfMemory::new(bytes, scope).with_source(self).into()
        } else {
            self.into()
        }
    }
}

impl From<CudaError> for Error {
    fn from(error: CudaError) -> Self {
        let operation = error.call;
        if error.is_sticky() {
            let source = Some(error.into());
            return Self::DeviceLost { operation, source };
        }
        match error.code {
            OUT_OF_MEMORY => Self::device_out_of_memory(0, error),
            NOT_SUPPORTED | STREAM_CAPTURE_UNSUPPORTED => Self::unsupported(error.to_string()),
            code => Self::backend(operation, Some(code), error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_sorted_by_what_can_be_done() {
        let error = |code| Error::from(CudaError::new("cuCall", code));
        assert!(error(OUT_OF_MEMORY).is_out_of_memory());
        assert!(matches!(error(700), Error::DeviceLost { .. }));
        assert!(matches!(error(801), Error::Unsupported { .. }));
        assert!(matches!(error(900), Error::Unsupported { .. }));
        assert!(matches!(error(1), Error::Backend(_)));
        let text = CudaError::new("cuMemAlloc", 2).to_string();
        assert!(
            text.starts_with("cuMemAlloc returned OUT_OF_MEMORY (2): free memory"),
            "{text}"
        );
        let text = CudaError::new("cuMemAlloc", 900).to_string();
        assert!(
            text.contains("STREAM_CAPTURE_UNSUPPORTED (900)")
                && text.contains("before the capture"),
            "{text}"
        );
        assert_eq!(
            CudaError::new("cuCall", 12345).to_string(),
            "cuCall returned another error (12345)"
        );
    }
}
