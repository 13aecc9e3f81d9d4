//! Blocks carved from large segments.

mod shared;
mod state;

use std::{fmt, sync::Arc};

use crate::{Align, Allocator, EventOf, MemoryOf, Result};

use shared::Shared;

/// What a [`SegmentAllocator`] has, in bytes and numbers.
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
    /// The bytes of all segments, as they were asked for.
    pub segment_bytes: u64,
    /// The bytes that are free.
    pub free_bytes: u64,
    /// The bytes of the largest free range: the largest block that needs no other segment.
    pub largest_free_bytes: usize,
    /// The bytes of blocks that came back and whose events are not known to have ended.
    pub pending_bytes: u64,
    /// Blocks in the user's hands, and those that were dropped instead of released.
    pub live_blocks: usize,
    /// The segments that were made so far, those that went back among them.
    pub segments_made: u64,
}

/// Carves blocks from large segments of another allocator: few and large calls to the device for many and small blocks.
///
/// For programs that want segments without a pool, or a pool of plain bins over them. (The pool of the crate `binpool` can
/// carve by itself, and then knows more: which queue may have a range at once.) Which segments there are, and which range
/// a block gets, is told in [`segments`](crate::segments). Blocks are views ([`Backend::create_sub_region`]): sub-buffers,
/// or parts of shared virtual memory (SVM). Clones are the same allocator, and all of it may be used from any thread.
///
/// # Sizes
///
/// Blocks start, within their segment, on the larger of the inner allocator's alignment and the device's
/// ([`alignment`](Allocator::alignment)), and have a multiple of that: a block may be larger than was asked for. An
/// address of SVM is aligned as the inner allocator aligns its blocks, where that is less.
///
/// # Release
///
/// A range is handed out again once the events in `after` have ended. Nothing else is waited for, so these events must
/// cover *every* command that was enqueued with the block: with fewer, the next user's commands race with them. That is
/// what [`release_needs_events`](Allocator::release_needs_events) says. Ranges whose events have not ended are looked at
/// when nothing free fits, and waited for when the inner allocator has no memory, either: an
/// [`allocate`](Allocator::allocate) that would fail otherwise blocks until a command has ended.
///
/// A block that is dropped instead of released (or given to [`Backend::release`]) is lost to the allocator: nobody knows
/// which commands use it, so its range is not handed out again, and its segment goes when the allocator does. Memory
/// that is no block of this allocator is refused with
/// [`ForeignObject`](crate::InvalidRequest::ForeignObject), and dropped.
///
/// A block of SVM that is bound to a queue ([`SvmBackend::set_bound_queue`](crate::SvmBackend::set_bound_queue)) binds
/// its whole segment.
///
/// # Out of memory
///
/// Only if no free range fits. Where the inner allocator has no memory for a usual segment, one of just the block's size
/// is asked for; then whatever range there is will do; then segments that are free as a whole go back, as many as are
/// needed, and then all, and the inner allocator is asked again; then pending ranges are waited for, oldest first, each
/// followed by another look at all of these. The error in the end is the inner allocator's last one.
///
/// # When it goes
///
/// With the last clone, segments go back to the inner allocator, after the events that blocks were released with. A
/// segment of which blocks live is freed with the last of these, past the inner allocator.
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

    /// Gives the segments of which no block lives, and no range is pending, back to the inner allocator. Their bytes.
    ///
    /// What a release by the inner allocator answers is logged: the memory is gone all the same.
    #[allow(clippy::must_use_candidate, reason = "it is called for what it does")]
    pub fn free_idle(&self) -> u64 {
        self.shared.free_idle()
    }

    /// What there is now.
    #[must_use]
    pub fn statistics(&self) -> SegmentStatistics {
        self.shared.state.lock().statistics()
    }

    /// The allocator that segments come from. Blocks of this adaptor must come back to this adaptor.
    ///
    /// ```
    /// use binpool_allocators::{Allocator, ImmediateAllocator, SegmentAllocator, Statistics};
    /// # use binpool_mock::MockDevice;
    ///
    /// # let backend = MockDevice::new().backend();
    /// let counted = Statistics::new(ImmediateAllocator::new(&backend)?);
    /// let allocator = SegmentAllocator::new(counted);
    /// let blocks = [(); 100].map(|()| allocator.allocate(10_000).unwrap());
    /// assert_eq!(allocator.inner().reading().allocations, 1); // What the device was asked for.
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
        f.debug_struct("SegmentAllocator")
            .field("inner", self.inner())
            .field("statistics", &self.statistics())
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

    /// As soon as it returns, the range of a block without events is free. Costs no call to the device, unless the segment
    /// has many blocks.
    fn release(&self, memory: MemoryOf<Self>, after: &[EventOf<Self>]) -> Result<()> {
        self.shared.release(memory, after)
    }

    fn is_deferred(&self) -> bool {
        self.shared.inner.is_deferred()
    }

    /// Always, whatever the inner allocator needs.
    fn release_needs_events(&self) -> bool {
        true
    }

    fn alignment(&self) -> Align {
        self.shared.alignment
    }

    fn largest_block(&self) -> usize {
        self.shared.inner.largest_block()
    }

    /// Of the inner allocator: views of views are views of the segment.
    fn has_concurrent_views(&self) -> bool {
        self.shared.inner.has_concurrent_views()
    }

    fn capacity_bytes(&self) -> u64 {
        self.shared.inner.capacity_bytes()
    }

    fn available_bytes(&self) -> u64 {
        let free = self.statistics().free_bytes;
        self.shared.inner.available_bytes().saturating_add(free)
    }
}
