//! The totals of a recording.

/// The totals of a recording.
///
/// ```
/// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
/// # use binpool_mock::MockDevice;
/// # let backend = MockDevice::builder().capacity_bytes(64 << 20).build().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
/// let recording = pool.record(std::io::sink())?;
/// let kept = pool.allocate(48 << 20)?;
/// drop(pool.allocate(4096)?);
/// assert!(pool.allocate(32 << 20).is_err());
/// let summary = recording.finish()?;
/// assert_eq!((summary.allocations, summary.frees), (2, 1));
/// assert_eq!(summary.shortages, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordingSummary {
    /// Blocks that were handed out.
    pub allocations: u64,
    /// Blocks that were freed.
    pub frees: u64,
    /// Requests that failed for lack of memory.
    pub shortages: u64,
}

impl RecordingSummary {
    /// Adds the totals of a part of the recording.
    pub(crate) fn add(&mut self, part: Self) {
        self.allocations += part.allocations;
        self.frees += part.frees;
        self.shortages += part.shortages;
    }
}
