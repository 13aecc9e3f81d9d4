//! What a call may answer.

use std::fmt;

use binpool::PoolError;
use binpool_allocators::{Error, InvalidRequest};
use binpool_opencl::{OpenClError, Refused};

/// Why a call did nothing.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The memory is mapped.
    Mapped,
    /// The call is wrong.
    Invalid(String),
    /// The device has no such thing.
    Unsupported(String),
    /// Memory, the device or the runtime.
    Runtime(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mapped => f.write_str("mapped"),
            Self::Invalid(text) | Self::Unsupported(text) | Self::Runtime(text) => {
                f.write_str(text)
            }
        }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let text = format!("{error} ({error:?})");
        match error {
            Error::InvalidRequest(InvalidRequest::Mapped { .. }) => Self::Mapped,
            Error::InvalidRequest(_) => Self::Invalid(text),
            Error::Unsupported { .. } => Self::Unsupported(text),
            _ => Self::Runtime(text),
        }
    }
}

impl From<OpenClError> for Refusal {
    fn from(error: OpenClError) -> Self {
        match error {
            OpenClError::Device(error) => error.into(),
            error => Self::Invalid(format!("{error} ({error:?})")),
        }
    }
}

impl From<PoolError> for Refusal {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Allocator(error) => error.into(),
            error => Self::Runtime(format!("{error} ({error:?})")),
        }
    }
}

impl<T> From<Refused<T>> for Refusal {
    fn from(refused: Refused<T>) -> Self {
        refused.error.into()
    }
}
