//! What a device counts.

use std::time::Duration;

use crate::CallCounts;

/// What a device counts.
///
/// ```
/// use binpool_allocators::{Allocator, DeferredAllocator};
/// use binpool_mock::MockDevice;
///
/// let device = MockDevice::new();
/// let block = DeferredAllocator::new(&device.backend()).allocate(1 << 20)?;
/// let now = device.statistics();
/// assert_eq!((now.created_bytes, now.committed_bytes), (1 << 20, 0)); // Promised, and not there yet.
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MockStatistics {
    /// The bytes of all live blocks, committed or only promised.
    pub created_bytes: u64,
    /// The most that [`created_bytes`](Self::created_bytes) ever was.
    pub peak_created_bytes: u64,
    /// The bytes that are committed: never more than the capacity.
    pub committed_bytes: u64,
    /// The most that [`committed_bytes`](Self::committed_bytes) ever was.
    pub peak_committed_bytes: u64,
    /// Blocks that are alive, also those that were given back and that commands still use. Views do not count.
    pub live_blocks: usize,
    /// Views of blocks that the host holds.
    pub live_sub_regions: usize,
    /// Releases that failed. The memory was given back all the same.
    pub failed_releases: u64,
    /// Calls that failed because a test asked for it.
    pub injected_faults: u64,
    /// The calls of each kind.
    pub calls: CallCounts,
    /// What all calls together would have taken, by the cost model of the device's profile; zero without one.
    pub device_time: Duration,
}

impl MockStatistics {
    /// All calls.
    ///
    /// ```
    /// use binpool_allocators::{Allocator, ImmediateAllocator, SegmentAllocator};
    /// use binpool_mock::MockDevice;
    ///
    /// let device = MockDevice::new();
    /// let allocator = SegmentAllocator::new(ImmediateAllocator::new(&device.backend())?);
    /// allocator.release(allocator.allocate(1000)?, &[])?;
    /// let before = device.statistics().total_calls();
    /// // The same again takes no call to the device.
    /// allocator.release(allocator.allocate(1000)?, &[])?;
    /// assert_eq!(device.statistics().total_calls(), before);
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    #[must_use]
    pub fn total_calls(&self) -> u64 {
        self.calls.total()
    }
}
