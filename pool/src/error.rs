//! Why a pool could not serve a request.

use binpool_allocators::{Error, InvalidRequest};

use crate::OutOfMemoryReport;

/// Why a pool could not be built, or could not serve a request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// No memory is left, after everything the pool could do about it.
    #[error(transparent)]
    OutOfMemory(Box<OutOfMemoryReport>),
    /// The allocator or the backend failed, for another reason than memory.
    #[error(transparent)]
    Allocator(#[from] Error),
    /// More leading bits than size classes can have.
    #[error("{requested} leading bits: size classes can have at most {largest}")]
    LeadingBits {
        /// The leading bits asked for.
        requested: u32,
        /// The most that are permitted.
        largest: u32,
    },
    /// The pool's size classes broke their law.
    #[error(
        "the size classes put {requested} bytes into blocks of {class_size}: \
         `alloc_size(bin_number(s))` must be at least `s`, and the bin number below `bin_count()`"
    )]
    SizeClassTooSmall {
        /// The bytes asked for, rounded up to the allocator's alignment.
        requested: usize,
        /// What the classes made of it.
        class_size: usize,
    },
}

impl PoolError {
    /// Whether the request failed for lack of memory.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::OutOfMemory(_))
    }

    /// What the pool knows about an out-of-memory failure.
    #[must_use]
    pub fn out_of_memory(&self) -> Option<&OutOfMemoryReport> {
        match self {
            Self::OutOfMemory(report) => Some(report),
            _ => None,
        }
    }
}

impl From<InvalidRequest> for PoolError {
    fn from(error: InvalidRequest) -> Self {
        Self::Allocator(error.into())
    }
}
