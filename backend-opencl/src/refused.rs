//! Errors that give back what was passed to the call.

use std::{error::Error as StdError, fmt};

use binpool_allocators::Error;

/// Why a call failed, and the value that it was to consume.
///
/// Where the value is of no use, `?` turns it into the plain error.
pub struct Refused<T> {
    /// Why.
    pub error: Error,
    /// What was passed to the call, as it was unless the call says otherwise.
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
