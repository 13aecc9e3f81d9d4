//! The errors of a pool.

use std::fmt;

use binpool_allocators::{Error, InvalidRequest, OutOfMemory, Scope};

use crate::OutOfMemoryReport;

/// The error of a pool that could not be built, or could not serve a request.
///
/// ```
/// use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
/// # use binpool_mock::MockDevice;
/// # let backend = MockDevice::builder().capacity_bytes(1 << 20).build().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
/// let error = pool.allocate(2 << 20).unwrap_err();
/// if let Some(report) = error.out_of_memory() {
///     // Try a smaller block, if the caller can work with it.
///     assert!(pool.allocate(report.requested_bytes / 2).is_ok());
/// }
/// # assert!(error.is_out_of_memory());
/// # Ok::<(), binpool::PoolError>(())
/// ```
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// Out of memory, after the pool has tried everything.
    #[error(transparent)]
    OutOfMemory(Box<OutOfMemoryReport>),
    /// The allocator or the backend failed for a reason other than lack of memory.
    #[error(transparent)]
    Allocator(#[from] Error),
    /// Too many leading bits for size classes.
    #[error("{requested} leading bits: size classes can have at most {largest}")]
    LeadingBits {
        /// The requested leading bits.
        requested: u32,
        /// The most that size classes can have.
        largest: u32,
    },
    /// The pool's size classes broke their contract.
    #[error(
        "the size classes put {requested_bytes} bytes into blocks of {class_bytes}: \
         `alloc_size(bin_number(s))` must be at least `s`, and the bin number below `bin_count()`"
    )]
    SizeClassTooSmall {
        /// The requested bytes, rounded up to the allocator's alignment.
        requested_bytes: usize,
        /// The size of its class, in bytes.
        class_bytes: usize,
    },
}

/// The text of `Display`, then the causes, as when `main` returns the error.
impl fmt::Debug for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfMemory(report) => fmt::Debug::fmt(report, f),
            Self::Allocator(error) => fmt::Debug::fmt(error, f),
            Self::LeadingBits { .. } | Self::SizeClassTooSmall { .. } => fmt::Display::fmt(self, f),
        }
    }
}

impl PoolError {
    /// Returns whether the request failed for lack of memory.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::OutOfMemory(_))
    }

    /// Returns the report of an out-of-memory error; `None` for other errors.
    #[must_use]
    pub fn out_of_memory(&self) -> Option<&OutOfMemoryReport> {
        match self {
            Self::OutOfMemory(report) => Some(report),
            _ => None,
        }
    }
}

/// For programs with one error type: [`PoolError::OutOfMemory`] becomes [`Error::OutOfMemory`], with the same
/// text.
///
/// ```
/// use binpool::{Backend, Error, ImmediateAllocator, MemoryPool, QueueOrder};
/// # use binpool_mock::MockDevice;
///
/// fn largest_half() -> Result<usize, Error> {
///     let backend = MockDevice::builder().capacity_bytes(1 << 20).build().backend();
///     let queue = backend.create_queue(QueueOrder::InOrder)?; // An error of the backend,
///     let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?; // and ones of the pool.
///     let block = pool.allocate(1 << 19)?;
///     Ok(block.size())
/// }
/// assert_eq!(largest_half()?, 1 << 19);
/// # Ok::<(), Error>(())
/// ```
impl From<PoolError> for Error {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Allocator(error) => error,
            PoolError::OutOfMemory(report) => {
                let scope = match &report.source {
                    Some(Self::OutOfMemory(refusal)) => refusal.scope,
                    _ => Scope::Device,
                };
                OutOfMemory::new(report.requested_bytes, scope)
                    .with_report(*report)
                    .into()
            }
            error @ (PoolError::LeadingBits { .. } | PoolError::SizeClassTooSmall { .. }) => {
                Self::backend("setting up or using a pool", None, error)
            }
        }
    }
}

impl From<InvalidRequest> for PoolError {
    fn from(error: InvalidRequest) -> Self {
        Self::Allocator(error.into())
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use binpool_allocators::{Backend, ImmediateAllocator, QueueOrder};
    use binpool_mock::MockDevice;

    use binpool_conformance::told_once;

    use super::*;
    use crate::{MemoryPool, TraceError, TraceErrorKind};

    /// Returns the error of a pool whose allocator has no memory left.
    fn out_of_memory() -> PoolError {
        let backend = MockDevice::builder()
            .capacity_bytes(1 << 20)
            .build()
            .backend();
        let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
        let allocator = ImmediateAllocator::new(&backend).unwrap();
        let pool = MemoryPool::new(allocator, &queue).unwrap();
        let _block = pool.allocate(900_000).unwrap();
        pool.allocate(500_000).unwrap_err()
    }

    #[test]
    fn errors_of_a_pool_name_each_cause_once() {
        let refused = PoolError::from(InvalidRequest::ZeroSize);
        assert_eq!(told_once(&refused).len(), 1);
        assert_eq!(told_once(&out_of_memory()).len(), 3);
        let failed = Error::backend("clFlush", None, "why");
        assert_eq!(told_once(&PoolError::from(failed)).len(), 2);
        let thread = TraceError::new(TraceErrorKind::Io, "no thread to write the recording");
        let thread = thread.because(io::Error::other("no more threads"));
        assert_eq!(told_once(&thread).len(), 2);
        #[cfg(feature = "snapshot")]
        {
            let json = crate::Snapshot::from_json("nothing").unwrap_err();
            assert_eq!(told_once(&json).len(), 2);
        }
    }

    #[test]
    fn a_pool_error_converts_to_a_backend_error_with_the_report_as_its_source() {
        let error = Error::from(out_of_memory());
        assert!(error.is_out_of_memory());
        for text in [error.to_string(), format!("{error:?}")] {
            assert!(
                text.starts_with("out of memory: could not allocate 488.3 KiB"),
                "{text}"
            );
            assert!(text.contains("\nadvice: free blocks"), "{text}");
        }
        let texts = told_once(&error);
        assert!(texts[1].starts_with("out of device memory: "), "{texts:?}");
        let Error::OutOfMemory(shortage) = &error else {
            unreachable!("looked at above");
        };
        assert_eq!(
            (shortage.requested, shortage.scope),
            (500_000, Scope::Device)
        );
        let report = shortage.report.as_ref().unwrap();
        let report = report.downcast_ref::<OutOfMemoryReport>();
        assert_eq!(report.map(|report| report.requested_bytes), Some(500_000));

        let refused = Error::from(PoolError::from(InvalidRequest::ZeroSize));
        assert!(matches!(
            refused,
            Error::InvalidRequest(InvalidRequest::ZeroSize)
        ));
        let largest = PoolError::LeadingBits {
            requested: 60,
            largest: 52,
        };
        let error = Error::from(largest);
        assert!(told_once(&error)[1].starts_with("60 leading bits"));
    }

    #[test]
    fn a_pool_error_converts_to_one_of_the_same_scope() {
        let scope = |error: PoolError| match Error::from(error) {
            Error::OutOfMemory(refusal) => Some(refusal.scope),
            _ => None,
        };
        assert_eq!(scope(out_of_memory()), Some(Scope::Device));
        let backend = MockDevice::new().backend();
        let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
        let allocator = ImmediateAllocator::new(&backend).unwrap();
        let pool = MemoryPool::new(allocator, &queue).unwrap();
        pool.set_limit(1 << 20);
        let refused = pool.allocate(2 << 20).unwrap_err();
        assert_eq!(scope(refused), Some(Scope::Limit));
    }
}
