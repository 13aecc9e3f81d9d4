//! Why a request got no memory.

use std::{error::Error, fmt};

use binpool::PoolError;

/// A request that got no memory, as PyTorch's program is told it.
#[derive(Debug)]
pub struct Failure {
    pub(super) text: String,
    pub(super) is_out_of_memory: bool,
}

impl Failure {
    /// Whether memory was lacking; else the request was wrong, or the device failed.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        self.is_out_of_memory
    }

    /// A failure for another reason than lack of memory.
    pub(super) fn other(text: impl fmt::Display) -> Self {
        Self {
            text: format!("binpool: {text}"),
            is_out_of_memory: false,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for Failure {}

impl From<PoolError> for Failure {
    fn from(error: PoolError) -> Self {
        match &error {
            // The debug text has the cause behind the report's table.
            PoolError::OutOfMemory(_) => Self {
                text: format!("binpool: {error:?}"),
                is_out_of_memory: true,
            },
            _ => Self::other(error),
        }
    }
}

impl From<binpool::Error> for Failure {
    fn from(error: binpool::Error) -> Self {
        Self {
            text: format!("binpool: {error}"),
            is_out_of_memory: error.is_out_of_memory(),
        }
    }
}
