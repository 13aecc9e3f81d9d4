//! The allocator that carves blocks from large segments.

mod shared;
mod state;

use std::{fmt, sync::Arc};

use crate::{Align, Allocator, EventOf, GrowthPolicy, MemoryOf, Result, words};

use shared::Shared;

/// The figures of a [`SegmentAllocator`].
///
/// ```
/// use binpool_allocators::{Allocator, ImmediateAllocator, SegmentAllocator};
/// # use binpool_mock::MockDevice;
///
/// # let backend = MockDevice::new().backend();
/// let allocator = SegmentAllocator::new(ImmediateAllocator::new(&backend)?);
/// let [one, two, three, four] = [(); 4].map(|()| allocator.allocate(1 << 19).unwrap());
/// allocator.release(one, &[])?;
/// allocator.release(three, &[])?;
/// let statistics = allocator.statistics();
/// assert_eq!((statistics.segment_bytes, statistics.segments_made), (2 << 20, 1));
/// assert_eq!((statistics.live_blocks, statistics.free_bytes), (2, 1 << 20));
/// // Half of the segment is free, in two pieces: a block of that size needs another segment.
/// assert_eq!(statistics.largest_free_bytes, 1 << 19);
/// # allocator.release(two, &[])?;
/// # allocator.release(four, &[])?;
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentStatistics {
    /// The bytes of all segments, as requested from the inner allocator.
    pub segment_bytes: u64,
    /// The bytes that are free.
    pub free_bytes: u64,
    /// The bytes of the largest free range, which is the largest block that needs no other segment.
    pub largest_free_bytes: usize,
    /// The bytes of released blocks whose events are not known to have ended, or which have views.
    pub pending_bytes: u64,
    /// Blocks that are in use, and those that were dropped instead of released.
    pub live_blocks: usize,
    /// The segments that were made so far, including those that have been released.
    pub segments_made: u64,
}

/// Carves blocks from large segments of another allocator, so that many small blocks cost few large calls to the device.
///
/// For programs that want segments without a pool, or a pool of plain bins over them. (The pool of the crate `binpool` can
/// carve by itself, and then also knows which queue may use a range at once.) [`segments`](crate::segments) describes how
/// segments are sized and ranges are chosen. Blocks are views ([`Backend::create_sub_region`]): sub-buffers,
/// or parts of shared virtual memory (SVM). Clones are the same allocator, and may be used from any thread.
///
/// # Sizes
///
/// Blocks are aligned, within their segment, to the larger of the inner allocator's alignment and the device's
/// ([`alignment`](Allocator::alignment)), and their size is a multiple of that: a block may be larger than requested. An
/// address of SVM has the inner allocator's alignment where that is less.
///
/// # Release
///
/// A range is handed out again once the events in `after` have ended. Nothing else is waited for, so these events must
/// cover *every* command that was enqueued with the block; otherwise the next user's commands race with them.
/// Therefore [`release_needs_events`](Allocator::release_needs_events) is true. Ranges with pending events are checked
/// again when no free range fits, and waited for when the inner allocator has no memory either: an
/// [`allocate`](Allocator::allocate) that would fail otherwise blocks until a command has ended.
///
/// A block that [has views](crate::Memory::has_views) when it is released also stays pending until they are gone. Views are
/// not waited for.
///
/// A block that is dropped instead of released (or given to [`Backend::release`]) is lost to the allocator: the commands
/// that use it are unknown, so its range is not handed out again, and its segment is released with the allocator. Memory
/// that is not a block of this allocator is refused with
/// [`ForeignObject`](crate::InvalidRequest::ForeignObject), and dropped.
///
/// A block of SVM that is bound to a queue ([`SvmBackend::set_bound_queue`](crate::SvmBackend::set_bound_queue)) binds
/// its whole segment.
///
/// # Out of memory
///
/// An allocation fails only if no free range fits. Where the inner allocator has no memory for a usual segment, these are
/// tried in turn: a segment of just the block's size; any free range; releasing segments that are free as a whole, first
/// as many as are needed and then all, and asking the inner allocator again; waiting for pending ranges, oldest first,
/// each followed by all of these steps again. The error is the last one of the inner allocator.
///
/// # Drop
///
/// With the last clone, segments are released to the inner allocator, after the events that blocks were released with. A
/// segment with live blocks is freed with the last of these, without the inner allocator.
///
/// ```
/// use binpool_allocators::{Allocator, ImmediateAllocator, SegmentAllocator};
/// use binpool_mock::MockDevice;
///
/// let device = MockDevice::new();
/// let allocator = SegmentAllocator::new(ImmediateAllocator::new(&device.backend())?);
/// let blocks = [allocator.allocate(1000)?, allocator.allocate(3000)?];
/// assert_eq!(device.statistics().live_blocks, 1);
/// for block in blocks {
///     allocator.release(block, &[])?; // No command was enqueued with it.
/// }
/// let statistics = allocator.statistics();
/// assert_eq!(statistics.free_bytes, statistics.segment_bytes);
/// assert_eq!(allocator.free_idle(), statistics.segment_bytes);
/// assert_eq!(device.statistics().live_blocks, 0);
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
///
/// [`Backend::create_sub_region`]: crate::Backend::create_sub_region
/// [`Backend::release`]: crate::Backend::release
pub struct SegmentAllocator<A: Allocator> {
    shared: Arc<Shared<A>>,
}

impl<A: Allocator> SegmentAllocator<A> {
    /// Carves blocks from segments of `inner`.
    pub fn new(inner: A) -> Self {
        Self {
            shared: Arc::new(Shared::new(inner)),
        }
    }

    /// Sets what the segments save when they grow, for an allocator that has made none yet: calls to the device, or memory.
    ///
    /// ```
    /// use binpool_allocators::{Allocator, GrowthPolicy, ImmediateAllocator, SegmentAllocator};
    /// # use binpool_mock::MockDevice;
    ///
    /// # let backend = MockDevice::new().backend();
    /// let dense = SegmentAllocator::new(ImmediateAllocator::new(&backend)?).with_growth(GrowthPolicy::Dense);
    /// # let block = dense.allocate(1000)?;
    /// # dense.release(block, &[])?;
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    #[must_use]
    pub fn with_growth(self, policy: GrowthPolicy) -> Self {
        self.shared.state.lock().set_growth(policy);
        self
    }

    /// Releases the segments that have no live block and no pending range to the inner allocator. Returns their bytes.
    ///
    /// A failure of such a release is logged: the memory is gone in any case.
    #[allow(clippy::must_use_candidate, reason = "it is called for what it does")]
    pub fn free_idle(&self) -> u64 {
        self.shared.free_idle()
    }

    /// Returns the current figures.
    #[must_use]
    pub fn statistics(&self) -> SegmentStatistics {
        self.shared.state.lock().statistics()
    }

    /// The allocator that segments come from. Blocks of this adaptor must be released through this adaptor.
    ///
    /// ```
    /// use binpool_allocators::adaptors::Statistics;
    /// use binpool_allocators::{Allocator, ImmediateAllocator, SegmentAllocator};
    /// # use binpool_mock::MockDevice;
    ///
    /// # let backend = MockDevice::new().backend();
    /// let counted = Statistics::new(ImmediateAllocator::new(&backend)?);
    /// let allocator = SegmentAllocator::new(counted);
    /// let blocks = [(); 100].map(|()| allocator.allocate(10_000).unwrap());
    /// assert_eq!(allocator.inner().reading().allocations, 1); // The calls to the device.
    /// # drop(blocks);
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    #[must_use]
    pub fn inner(&self) -> &A {
        &self.shared.inner
    }
}

impl<A: Allocator> Clone for SegmentAllocator<A> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<A: Allocator> fmt::Debug for SegmentAllocator<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (now, bytes) = (self.statistics(), words::bytes);
        f.debug_struct("SegmentAllocator")
            .field("inner", self.inner())
            .field("live_blocks", &now.live_blocks)
            .field("segments", &format_args!("{}", bytes(now.segment_bytes)))
            .field("free", &format_args!("{}", bytes(now.free_bytes)))
            .finish()
    }
}

impl<A: Allocator> Allocator for SegmentAllocator<A> {
    type Backend = A::Backend;

    fn backend(&self) -> &Self::Backend {
        self.shared.inner.backend()
    }

    fn allocate(&self, bytes: usize) -> Result<MemoryOf<Self>> {
        self.shared.allocate(bytes)
    }

    /// The range of a block without events is free as soon as this returns. Costs no call to the device, unless the segment
    /// has many blocks.
    fn release(&self, memory: MemoryOf<Self>, after: &[EventOf<Self>]) -> Result<()> {
        self.shared.release(memory, after)
    }

    fn is_deferred(&self) -> bool {
        self.shared.inner.is_deferred()
    }

    /// Returns `true`, whatever the inner allocator needs.
    fn release_needs_events(&self) -> bool {
        true
    }

    fn alignment(&self) -> Align {
        self.shared.alignment
    }

    fn largest_block(&self) -> usize {
        self.shared.inner.largest_block()
    }

    fn capacity_bytes(&self) -> u64 {
        self.shared.inner.capacity_bytes()
    }

    fn available_bytes(&self) -> u64 {
        let free = self.statistics().free_bytes;
        self.shared.inner.available_bytes().saturating_add(free)
    }
}
