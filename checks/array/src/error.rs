//! What can go wrong with arrays.

use binpool::{Error, PoolError};

use crate::Reduction;

/// Why an array could not be made, computed or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArrayError {
    /// The pool could not allocate a block, or a transfer, a map or a kernel failed.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The operands have different lengths.
    #[error("arrays of {left} and {right} elements: lengths must be equal")]
    Lengths {
        /// Elements on the left, or of what is written.
        left: usize,
        /// Elements on the right, or of what it is written with.
        right: usize,
    },
    /// A slice does not lie within its array.
    #[error(
        "elements {start}..{end} of {length}: a slice cannot end before it starts, nor past {length}"
    )]
    OutOfRange {
        /// The first element asked for.
        start: usize,
        /// One past the last element asked for.
        end: usize,
        /// The number of elements.
        length: usize,
    },
    /// No elements have a smallest or a largest one.
    #[error("the {} of 0 elements is undefined", reduction.name())]
    NoElements {
        /// What was asked for.
        reduction: Reduction,
    },
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
            error => Self::backend("computing with arrays", None, error),
        }
    }
}

impl From<Error> for ArrayError {
    fn from(error: Error) -> Self {
        Self::Pool(error.into())
    }
}
