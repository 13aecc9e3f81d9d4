//! What a function of the C interface returns.

use std::fmt;

use binpool::{Error, PoolError, TraceError, TraceErrorKind};
use binpool_opencl::OpenClError;

/// The result of a call. After a failure, `binpool_last_error_message` has the message.
///
/// Later versions may add values: treat unknown ones as `BINPOOL_STATUS_BACKEND`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The call succeeded.
    Ok = 0,
    /// No memory is left, even after the pool has tried everything. The message is a report with advice.
    OutOfMemory = 1,
    /// An argument is wrong: a null pointer, a queue of another context, a value outside its enum.
    InvalidArgument = 2,
    /// The device, the driver or the pool does not support the request; the message says what to do instead.
    Unsupported = 3,
    /// A call of the driver failed.
    Backend = 4,
    /// The device is lost: nothing that lives on it can be used again.
    DeviceLost = 5,
    /// The pool is being recorded already.
    Busy = 6,
    /// A file could not be written.
    Io = 7,
    /// A bug in binpool. The call did its work in part or not at all.
    Panic = 8,
}

/// Why a call fails.
#[derive(Debug)]
pub struct Failure {
    pub(crate) status: Status,
    pub(crate) message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl Failure {
    /// Which kind of failure it is.
    #[must_use]
    pub const fn status(&self) -> Status {
        self.status
    }

    pub(crate) fn new(status: Status, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { status, message }
    }

    pub(crate) fn argument(message: impl Into<String>) -> Self {
        Self::new(Status::InvalidArgument, message)
    }

    /// A failure with the texts of an error and of what caused it.
    ///
    /// ```
    /// use binpool::Error;
    /// use binpool_capi::{Failure, Status};
    ///
    /// let error = Error::backend("clFlush", Some(-36), "the queue is gone");
    /// let failure = Failure::of(Status::Backend, &error);
    /// assert_eq!(failure.to_string(), format!("{error}: the queue is gone"));
    /// ```
    pub fn of(status: Status, error: &dyn std::error::Error) -> Self {
        let chain = std::iter::successors(Some(error), |error| error.source());
        let texts: Vec<_> = chain.map(ToString::to_string).collect();
        Self::new(status, texts.join(": "))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match &error {
            // The report says everything; its sources repeat its numbers.
            Error::OutOfMemory(_) => Self::new(Status::OutOfMemory, error.to_string()),
            Error::InvalidRequest(_) => Self::of(Status::InvalidArgument, &error),
            Error::Unsupported { .. } => Self::of(Status::Unsupported, &error),
            Error::DeviceLost { .. } => Self::of(Status::DeviceLost, &error),
            _ => Self::of(Status::Backend, &error),
        }
    }
}

impl From<PoolError> for Failure {
    fn from(error: PoolError) -> Self {
        Error::from(error).into()
    }
}

impl From<OpenClError> for Failure {
    fn from(error: OpenClError) -> Self {
        match error {
            OpenClError::NoLibrary { .. }
            | OpenClError::NoPlatform
            | OpenClError::TooOld { .. } => Self::of(Status::Unsupported, &error),
            OpenClError::NotInContext => Self::of(Status::InvalidArgument, &error),
            other => Error::from(other).into(),
        }
    }
}

impl From<TraceError> for Failure {
    fn from(error: TraceError) -> Self {
        match error.kind() {
            TraceErrorKind::AlreadyRecording => Self::of(Status::Busy, &error),
            _ => Self::of(Status::Io, &error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_error_has_its_status() {
        let lost = Error::DeviceLost {
            operation: "clFinish",
            source: None,
        };
        for (error, status) in [
            (
                Error::device_out_of_memory(4096, "none is left"),
                Status::OutOfMemory,
            ),
            (
                binpool::InvalidRequest::ZeroSize.into(),
                Status::InvalidArgument,
            ),
            (Error::unsupported("sub-buffers"), Status::Unsupported),
            (lost, Status::DeviceLost),
            (
                Error::backend("clFlush", Some(-36), "the queue is gone"),
                Status::Backend,
            ),
        ] {
            assert_eq!(Failure::from(error).status(), status);
        }
    }
}
