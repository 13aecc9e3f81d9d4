//! How a pool is set up.

use std::sync::Arc;

use binpool_allocators::{Allocator, Backend, QueueOf};

use crate::{
    LeadingBits, MemoryPool, PoolError, ReusePolicy, ScrubPolicy, SizeClasses, scrub::Scrubber,
};

/// Settings of a [`MemoryPool`].
///
/// ```
/// use binpool::{Backend, ImmediateAllocator, PoolOptions, QueueOrder};
/// use binpool_mock::MockDevice;
///
/// let backend = MockDevice::new().backend();
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// // Blocks up to an eighth larger than asked, which makes fewer classes and more hits.
/// let pool = PoolOptions::new()
///     .leading_bits(3)
///     .build(ImmediateAllocator::new(&backend)?, &queue)?;
/// assert_eq!(pool.allocate(9000)?.class_size(), 9216);
/// # Ok::<(), binpool::PoolError>(())
/// ```
#[derive(Clone, Debug)]
pub struct PoolOptions {
    classes: Classes,
    policy: ReusePolicy,
    segments: bool,
    scrub: ScrubPolicy,
}

#[derive(Clone, Debug)]
enum Classes {
    LeadingBits(u32),
    Given(Arc<dyn SizeClasses>),
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self {
            classes: Classes::LeadingBits(LeadingBits::default().bits()),
            policy: ReusePolicy::default(),
            segments: false,
            scrub: ScrubPolicy::default(),
        }
    }
}

impl PoolOptions {
    /// The default settings: size classes of [`LeadingBits`] with four bits, and the default [`ReusePolicy`].
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Size classes by `bits` leading bits: blocks are at most `1 / 2^bits` larger than asked.
    #[must_use]
    pub fn leading_bits(mut self, bits: u32) -> Self {
        self.classes = Classes::LeadingBits(bits);
        self
    }

    /// Size classes of the program's own.
    #[must_use]
    pub fn size_classes(mut self, classes: impl SizeClasses + 'static) -> Self {
        self.classes = Classes::Given(Arc::new(classes));
        self
    }

    /// Carves blocks from segments: large pieces of device memory, in which free neighbours become one again.
    ///
    /// Without it a free block serves requests of its own class only, and a program whose sizes vary takes far more
    /// from the device than it has in use. With it, and with finer classes ([`leading_bits`](Self::leading_bits) of 7
    /// or 8, since free bytes are no longer lost to their class), it takes hardly more. Blocks are then views of their
    /// segments ([`create_sub_region`](Backend::create_sub_region)), which cost a call to the device where the pool has
    /// none of the right size at hand.
    ///
    /// NVIDIA's driver (580) crashes in kernels that are given a buffer of which there are views that overlap: the pool
    /// keeps from making such, and there a program should not use a [region](crate::PooledBuffer::sub_region) of a block
    /// in kernels while it is carved from a segment of buffers. It also crashes, for a reason yet to be found, in a
    /// stress of several threads over segments of buffers. One thread is well, and so is shared virtual memory from many.
    ///
    /// ```
    /// use binpool::{Backend, ImmediateAllocator, PoolOptions, QueueOrder};
    /// use binpool_mock::MockDevice;
    ///
    /// let backend = MockDevice::new().backend();
    /// let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let pool = PoolOptions::new()
    ///     .segments(true)
    ///     .leading_bits(8)
    ///     .build(ImmediateAllocator::new(&backend)?, &queue)?;
    /// let blocks = [(); 100].map(|()| pool.allocate(1000).unwrap());
    /// assert_eq!(pool.statistics().misses, 1);
    /// drop(blocks);
    /// assert_eq!(pool.statistics().managed_bytes, pool.free_held());
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    #[must_use]
    pub fn segments(mut self, carve: bool) -> Self {
        self.segments = carve;
        self
    }

    /// How free blocks are reused across queues.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, PoolOptions, QueueOrder};
    /// # use binpool_mock::{Completion, MockDevice};
    /// use binpool::ReusePolicy;
    ///
    /// # let backend = MockDevice::builder().completion(Completion::Manual).build().backend();
    /// # let [upload, compute] = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
    /// let pool = PoolOptions::new()
    ///     .reuse(ReusePolicy::InsertWait)
    ///     .build(ImmediateAllocator::new(&backend)?, &upload)?;
    /// let block = pool.allocate(4096)?;
    /// block.enqueue_fill(&upload, 0..4096, &[1], &[])?;
    /// drop(block);
    /// // The same memory, although the fill has not run: `compute` waits for it on the device.
    /// let block = pool.allocate_on(&compute, 4096)?;
    /// assert_eq!(pool.statistics().device_wait_hits, 1);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    #[must_use]
    pub fn reuse(mut self, policy: ReusePolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Whether blocks are filled with zeros between their users: for tenants that share a pool and must not read what
    /// another left.
    ///
    /// ```
    /// use binpool::{Backend, ImmediateAllocator, PoolOptions, QueueOrder, ScrubPolicy};
    /// use binpool_mock::MockDevice;
    ///
    /// let backend = MockDevice::new().backend();
    /// let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let pool = PoolOptions::new()
    ///     .scrub(ScrubPolicy::OnFree)
    ///     .build(ImmediateAllocator::new(&backend)?, &queue)?;
    /// let secret = pool.allocate(4096)?;
    /// secret.write(&queue, 0, &[7; 4096], &[])?;
    /// drop(secret);
    ///
    /// let block = pool.allocate(4096)?; // The same memory, without a call to the device.
    /// let mut bytes = [1; 4096];
    /// block.read(&queue, 0, &mut bytes, &[])?;
    /// assert_eq!(bytes, [0; 4096]);
    /// # assert_eq!(pool.statistics().hits, 1);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    #[must_use]
    pub fn scrub(mut self, policy: ScrubPolicy) -> Self {
        self.scrub = policy;
        self
    }

    /// Builds a pool over `allocator`, whose blocks are for `queue` unless their allocation names another.
    ///
    /// A deferred allocator is accepted with a warning through `tracing`: a pool over it cannot see
    /// out-of-memory, hence not do anything about it.
    ///
    /// # Errors
    ///
    /// [`PoolError::LeadingBits`] for more leading bits than are permitted,
    /// [`ForeignObject`](crate::InvalidRequest::ForeignObject) for a queue of another backend, and the backend's where a
    /// pool that [scrubs on free](ScrubPolicy::OnFree) gets no queue of its own.
    pub fn build<A: Allocator>(
        self,
        allocator: A,
        queue: &QueueOf<A>,
    ) -> Result<MemoryPool<A>, PoolError> {
        let classes = match self.classes {
            Classes::LeadingBits(bits) => Arc::new(LeadingBits::new(bits)?),
            Classes::Given(classes) => classes,
        };
        allocator.backend().check_queue(queue)?;
        if allocator.is_deferred() {
            tracing::warn!(
                ?allocator,
                "a pool over a deferred allocator: out-of-memory will show in commands, where the pool \
                 cannot free anything; use an `ImmediateAllocator`"
            );
        }
        let scrubber = Scrubber::new(self.scrub, allocator.backend())?;
        Ok(MemoryPool::assemble(
            allocator,
            queue,
            classes,
            self.policy,
            self.segments,
            scrubber,
        ))
    }
}
