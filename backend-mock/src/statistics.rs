//! The counters of a device.

use std::time::Duration;

use crate::CallCounts;

/// The counters of a device.
///
/// ```
/// use binpool_allocators::{Allocator, DeferredAllocator};
/// use binpool_mock::MockDevice;
///
/// let device = MockDevice::new();
/// let block = DeferredAllocator::new(&device.backend()).allocate(1 << 20)?;
/// let now = device.statistics();
/// assert_eq!((now.created_bytes, now.committed_bytes), (1 << 20, 0)); // Promised, and not committed yet.
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MockStatistics {
    /// The bytes of all live blocks, committed or not.
    pub created_bytes: u64,
    /// The maximum of [`created_bytes`](Self::created_bytes) so far.
    pub peak_created_bytes: u64,
    /// The bytes that are committed, at most the capacity.
    pub committed_bytes: u64,
    /// The maximum of [`committed_bytes`](Self::committed_bytes) so far.
    pub peak_committed_bytes: u64,
    /// The number of live blocks, including released ones that commands still use. Views do not count.
    pub live_blocks: usize,
    /// The number of views that the host holds.
    pub live_sub_regions: usize,
    /// The number of releases that failed. The memory was released anyway.
    pub failed_releases: u64,
    /// The number of calls with an injected fault.
    pub injected_faults: u64,
    /// The number of calls of each kind.
    pub calls: CallCounts,
    /// The time that all calls would have taken by the device's profile; zero without one.
    pub device_time: Duration,
    /// The time that the host waited for commands, on a device that is [behind](crate::Completion::Behind); zero on others.
    pub waited: Duration,
}

impl MockStatistics {
    /// The number of all calls.
    ///
    /// ```
    /// use binpool_allocators::{Allocator, DeferredAllocator, adaptors::Limit};
    /// use binpool_mock::MockDevice;
    ///
    /// let device = MockDevice::new();
    /// let allocator = Limit::new(DeferredAllocator::new(&device.backend()), 4096);
    /// allocator.release(allocator.allocate(4096)?, &[])?;
    /// let before = device.statistics().total_calls();
    /// // A request beyond the limit takes no call to the device.
    /// assert!(allocator.allocate(4097).is_err());
    /// assert_eq!(device.statistics().total_calls(), before);
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    #[must_use]
    pub fn total_calls(&self) -> u64 {
        self.calls.total()
    }
}
