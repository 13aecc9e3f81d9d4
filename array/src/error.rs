//! What can go wrong with arrays.

use std::{error::Error as StdError, fmt};

use binpool::{Error, PoolError};

/// Why an array could not be made, computed or read.
#[derive(Debug)]
#[non_exhaustive]
pub enum ArrayError {
    /// The pool had no block for it.
    Pool(PoolError),
    /// A transfer or a kernel failed.
    Device(Error),
    /// The operands have different lengths.
    Lengths {
        /// Elements on the left.
        left: usize,
        /// Elements on the right.
        right: usize,
    },
}

impl fmt::Display for ArrayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pool(error) => error.fmt(f),
            Self::Device(error) => error.fmt(f),
            Self::Lengths { left, right } => {
                write!(
                    f,
                    "arrays of {left} and {right} elements: lengths must be equal"
                )
            }
        }
    }
}

impl StdError for ArrayError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Pool(error) => error.source(),
            Self::Device(error) => error.source(),
            Self::Lengths { .. } => None,
        }
    }
}

impl From<PoolError> for ArrayError {
    fn from(error: PoolError) -> Self {
        Self::Pool(error)
    }
}

impl From<Error> for ArrayError {
    fn from(error: Error) -> Self {
        Self::Device(error)
    }
}
