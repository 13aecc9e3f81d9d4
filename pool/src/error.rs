//! Why a pool could not serve a request.

use binpool_allocators::{Error, InvalidRequest};

use crate::OutOfMemoryReport;

/// Why a pool could not be built, or could not serve a request.
///
/// ```
/// use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
/// # use binpool_mock::MockDevice;
/// # let backend = MockDevice::builder().capacity_bytes(1 << 20).build().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
/// let error = pool.allocate(2 << 20).unwrap_err();
/// if let Some(report) = error.out_of_memory() {
///     // Smaller blocks may do, where the caller can work with them.
///     assert!(pool.allocate(report.requested_bytes / 2).is_ok());
/// }
/// # assert!(error.is_out_of_memory());
/// # Ok::<(), binpool::PoolError>(())
/// ```
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
