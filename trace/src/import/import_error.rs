//! Why an import failed.

use std::io;

use crate::{Problem, TraceError};

/// Why and where an import failed. The caller adds the file's name.
#[derive(Debug)]
pub(crate) enum ImportError {
    Read(io::Error),
    At { place: String, problem: Problem },
}

impl ImportError {
    pub(crate) fn at(place: impl Into<String>, problem: Problem) -> Self {
        Self::At {
            place: place.into(),
            problem,
        }
    }

    pub(crate) fn of(self, name: String) -> TraceError {
        match self {
            Self::Read(source) => TraceError::Read { name, source },
            Self::At { place, problem } => TraceError::Import {
                name,
                place,
                problem,
            },
        }
    }
}

impl From<io::Error> for ImportError {
    fn from(error: io::Error) -> Self {
        Self::Read(error)
    }
}
