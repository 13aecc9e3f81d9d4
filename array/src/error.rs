//! What can go wrong with arrays.

use std::{error::Error as StdError, fmt};

use binpool::{Error, PoolError};

use crate::Reduction;

/// Why an array could not be made, computed or read.
#[derive(Debug)]
#[non_exhaustive]
pub enum ArrayError {
    /// The pool had no block for it.
    Pool(PoolError),
    /// A transfer, a map or a kernel failed.
    Device(Error),
    /// The operands have different lengths.
    Lengths {
        /// Elements on the left, or of what is written.
        left: usize,
        /// Elements on the right, or of what it is written with.
        right: usize,
    },
    /// A slice does not lie within its array.
    OutOfRange {
        /// The first element asked for.
        start: usize,
        /// One past the last element asked for.
        end: usize,
        /// The number of elements that there are.
        length: usize,
    },
    /// No elements have a smallest or a largest one.
    NoElements {
        /// What was asked for.
        reduction: Reduction,
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
            Self::OutOfRange { start, end, length } if start > end => {
                write!(
                    f,
                    "elements {start}..{end} of {length}: a slice cannot end before it starts"
                )
            }
            Self::OutOfRange { start, end, length } => {
                write!(
                    f,
                    "elements {start}..{end} of {length}: a slice lies within 0..{length}"
                )
            }
            Self::NoElements { reduction } => {
                let name = reduction.name();
                write!(f, "the {name} of 0 elements: ask for it where there is one")
            }
        }
    }
}

impl StdError for ArrayError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Pool(error) => error.source(),
            Self::Device(error) => error.source(),
            Self::Lengths { .. } | Self::OutOfRange { .. } | Self::NoElements { .. } => None,
        }
    }
}

impl ArrayError {
    /// Checks that two lengths are equal.
    pub(crate) const fn check_lengths(left: usize, right: usize) -> Result<(), Self> {
        if left == right {
            Ok(())
        } else {
            Err(Self::Lengths { left, right })
        }
    }
}

/// That of the pool or the device, or else a failure of the backend with this one as its source.
impl From<ArrayError> for Error {
    fn from(error: ArrayError) -> Self {
        match error {
            ArrayError::Pool(error) => error.into(),
            ArrayError::Device(error) => error,
            error => Self::backend("computing with arrays", None, error),
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
