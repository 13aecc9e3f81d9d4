//! Why a request got no memory.

use std::fmt;

use binpool::PoolError;

/// A request that got no memory, as PyTorch's program is told it.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) text: String,
    pub(super) is_out_of_memory: bool,
}

impl Failure {
    /// A failure for another reason than lack of memory.
    pub(super) fn other(text: impl fmt::Display) -> Self {
        Self {
            text: format!("binpool: {text}"),
            is_out_of_memory: false,
        }
    }
}

impl From<PoolError> for Failure {
    fn from(error: PoolError) -> Self {
        // The debug text of a lack of memory is the report's table.
        let text = format!("binpool: {error:?}");
        let text = match &error {
            PoolError::OutOfMemory(_) => text,
            _ => format!("binpool: {error}"),
        };
        Self {
            text,
            is_out_of_memory: error.is_out_of_memory(),
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
