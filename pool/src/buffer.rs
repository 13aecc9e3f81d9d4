//! A block of memory that goes back to its pool.

#![expect(
    unsafe_code,
    reason = "in `drop` the block moves to the cache of the thread"
)]

use std::{fmt, mem::ManuallyDrop, sync::Arc};

use binpool_allocators::{
    AsMemory, Backend, Error, Memory, MemoryId, Queue, QueueId,
    contained::{contained, guarded},
};

use tracing::{Level, level_filters::LevelFilter};

use crate::{
    block::Lease,
    content::{Content, Empty, PackedContent},
    order::timestamps::QueueKey,
    shared::{Block, BlockBox, LeasedBlock, Share, Shared},
};

/// A block of device memory that goes back to its pool when it is dropped.
///
/// It has two sizes in bytes: [`size`](Self::size), the requested one, which bounds every transfer and region made
/// through this type, and [`class_size`](Self::class_size), the device memory that it takes. The block of 0 bytes has
/// no memory.
///
/// # Queues
///
/// A block belongs to the queue that it was allocated for. Commands there come after everything that its former users
/// enqueued. Commands on another queue have to come after that, too: after a command on the block's own queue (by its
/// event, for example), or after [`order_before`](Self::order_before), which does just that.
///
/// Commands reach the memory through [`memory_on`](Self::memory_on), which names the queue that they will run on. So
/// the block knows where it was used, and the pool gives it to another user only after those commands have ended. The
/// transfers of this type name their queue themselves. If commands reach the memory in another way (through an address
/// in a kernel's data, for example), [`record_use`](Self::record_use) names their queue.
///
/// Enqueue commands before dropping the block: the pool does not wait for commands that are enqueued later.
///
/// # Views
///
/// [`view`](Self::view) makes views that cannot outlive the block. Views made of its memory can: regions of it,
/// images and buffers over it, and maps that are forgotten ([`Memory::has_views`]). They stay valid when the block is
/// dropped. No other user gets the bytes, nor are these scrubbed, before the last view is gone: until then the block
/// counts as active ([`viewed_blocks`](crate::PoolStatistics::viewed_blocks)). Then it is freed as any other, when the
/// pool looks for free memory or is asked for its statistics. A view that is forgotten keeps its block from the pool
/// for good.
///
/// A block whose views are gone counts as used on every queue that the pool knows. Name any other queue on which
/// commands use a view, with [`record_use`](Self::record_use), before the block is dropped.
///
/// ```
/// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder, Region};
/// # use binpool_mock::MockDevice;
/// # let backend = MockDevice::new().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
/// let block = pool.allocate(4096)?;
/// let memory = block.memory_on(&queue).ok_or("0 bytes")?;
/// let view = backend.create_sub_region(memory, Region::first(256))?;
/// backend.write(&queue, &view, 0, &[7_u8; 256])?;
/// drop(block);
/// let other = pool.allocate(4096)?; // Another block: its writes do not reach the view.
/// other.write(&queue, 0, &[9_u8; 4096])?;
/// let mut bytes = [0_u8; 256];
/// backend.read(&queue, &view, 0, &mut bytes)?;
/// assert_eq!(bytes, [7; 256]);
/// assert_eq!(pool.statistics().viewed_bytes, 4096);
/// drop(view);
/// assert_eq!(pool.statistics().viewed_bytes, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Example
///
/// ```
/// use binpool::{Backend, ImmediateAllocator, MemoryPool, Queue, QueueOrder};
/// use binpool_mock::MockDevice;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let backend = MockDevice::new().backend();
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
///
/// let block = pool.allocate(1000)?;
/// assert_eq!((block.size(), block.class_size()), (1000, 1024));
/// assert_eq!(block.queue_id(), Some(queue.id()));
/// // A kernel of the mock device, which is a closure.
/// let count = |_: &[&[u8]], writes: &mut [&mut [u8]]| {
///     for (byte, number) in writes[0].iter_mut().zip(1..=100) {
///         *byte = number;
///     }
/// };
/// backend.launch(&queue, "count", &[], &[&block], count)?;
/// let mut bytes = [0_u8; 3];
/// block.read(&queue, 97, &mut bytes)?;
/// assert_eq!(bytes, [98, 99, 100]);
///
/// let memory = block.memory_id();
/// drop(block); // Back in the pool, which hands the same memory out again.
/// assert_eq!(pool.allocate(1000)?.memory_id(), memory);
///
/// let nothing = pool.allocate(0)?;
/// assert!(nothing.is_empty() && nothing.memory_on(&queue).is_none());
/// # Ok(())
/// # }
/// ```
#[must_use = "the block goes back to its pool when it is dropped"]
pub struct PooledBuffer<B: Backend> {
    /// Only `drop` and [`release`](Self::release) take this out, and neither uses it afterwards.
    content: ManuallyDrop<PackedContent<B>>,
    size: usize,
}

impl<B: Backend> PooledBuffer<B> {
    /// Makes a buffer of `size` bytes for `queue`, with its block and the key of its queue; without them for 0 bytes.
    pub(crate) fn new(
        shared: &Share<B>,
        queue: &B::Queue,
        size: usize,
        block_and_queue: Option<(BlockBox<B>, QueueKey)>,
    ) -> Self {
        let content = match block_and_queue {
            Some((block, queue_key)) => {
                let lease = Lease::on(queue.id(), Some(queue_key), shared.may_cache(queue));
                Content::Block(block.lease(lease, || Arc::clone(shared)))
            }
            None => Content::Empty(Box::new(Empty {
                share: Arc::clone(shared),
                lease: Lease::on(queue.id(), None, false),
            })),
        };
        Self::with_content(content, size)
    }

    #[inline]
    fn with_content(content: Content<B>, size: usize) -> Self {
        Self {
            content: ManuallyDrop::new(PackedContent::new(content)),
            size,
        }
    }

    /// Makes the buffer of a block that this thread found without the lock, and logs the hit.
    #[inline]
    pub(crate) fn of_hit(block: LeasedBlock<B>, size: usize) -> Self {
        if LevelFilter::current() >= Level::TRACE {
            return log_hit(Self::of_leased(block, size));
        }
        Self::of_leased(block, size)
    }

    /// Makes a buffer of `size` bytes.
    #[inline]
    pub(crate) fn of_leased(block: LeasedBlock<B>, size: usize) -> Self {
        Self::with_content(Content::Block(block), size)
    }

    /// The pool, or what is left of it after its last handle.
    pub(crate) fn shared(&self) -> &Shared<B> {
        self.content.shared()
    }

    pub(crate) fn share(&self) -> Share<B> {
        self.content.share()
    }

    pub(crate) fn block(&self) -> Option<&Block<B>> {
        self.content.block()
    }

    pub(crate) fn block_mut(&mut self) -> Option<&mut Block<B>> {
        self.content.block_mut()
    }

    pub(crate) fn take_block(&mut self) -> Option<BlockBox<B>> {
        self.content.take_block()
    }

    pub(crate) fn take_leased(&mut self) -> Option<LeasedBlock<B>> {
        self.content.take_leased()
    }

    /// Makes this a buffer of `size` bytes, which its memory has, and counts them.
    pub(crate) fn resize(&mut self, size: usize) {
        self.shared().state.lock().resize_active(self.size, size);
        self.size = size;
    }

    pub(crate) fn memory(&self) -> Option<&B::Memory> {
        self.block().map(|block| &block.memory)
    }

    /// Returns the block's lease; `None` once it was freed.
    pub(crate) fn lease(&self) -> Option<&Lease<B>> {
        self.content.lease()
    }

    pub(crate) fn lease_mut(&mut self) -> Option<&mut Lease<B>> {
        self.content.lease_mut()
    }

    /// The requested size in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns whether this is the block of 0 bytes, which has no memory.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.size == 0
    }

    /// The device memory that the block takes, in bytes: the size of its class, at least [`size`](Self::size).
    #[must_use]
    pub fn class_size(&self) -> usize {
        self.block().map_or(0, |block| block.bytes)
    }

    /// The identity of the block's memory; `None` for the block of 0 bytes. Later users of the same memory see the same
    /// identity.
    #[must_use]
    pub fn memory_id(&self) -> Option<MemoryId> {
        self.memory().map(Memory::id)
    }

    /// The identity of the queue that the block belongs to; `None` after
    /// [`unbind_from_queue`](Self::unbind_from_queue).
    #[must_use]
    pub fn queue_id(&self) -> Option<QueueId> {
        self.lease()?.queue
    }

    /// The backend of the block.
    #[must_use]
    pub fn backend(&self) -> &B {
        &self.shared().backend
    }

    /// Returns the memory, for commands on `queue`, and records the use; `None` for the block of 0 bytes.
    ///
    /// The pool gives the block to another user only after everything that is enqueued on `queue` before the block is
    /// freed has ended. The memory may be larger than [`size`](Self::size).
    pub fn memory_on(&self, queue: &B::Queue) -> Option<&B::Memory> {
        // A foreign queue is not recorded: no command there can take this memory.
        let _foreign = self.record_use(queue);
        self.memory()
    }

    /// Records that commands on `queue` use the block. For commands that reach the memory in another way than through
    /// [`memory_on`](Self::memory_on).
    ///
    /// # Errors
    ///
    /// [`ForeignObject`](crate::InvalidRequest::ForeignObject) for a queue of another backend, unless that
    /// [shares its memory](Backend::check_use).
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, PoolOptions, QueueOrder};
    /// # use binpool_mock::{Completion, MockDevice};
    /// # let device = MockDevice::builder().completion(Completion::Manual).build();
    /// # let backend = device.backend();
    /// # let [upload, compute] = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
    /// # let pool = PoolOptions::new().segments(false).build(ImmediateAllocator::new(&backend)?, &upload)?;
    /// let block = pool.allocate_on(&upload, 4096)?;
    /// let kernel = backend.enqueue_marker(&compute)?; // A kernel that finds the block by its address.
    /// block.record_use(&compute)?;
    /// drop(block);
    /// // No other user gets it before the kernel has ended.
    /// assert_eq!(pool.statistics().pending_blocks, 1);
    /// device.run();
    /// let block = pool.allocate_on(&upload, 4096)?;
    /// assert_eq!(pool.statistics().ended_hits, 1);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    pub fn record_use(&self, queue: &B::Queue) -> Result<(), Error> {
        if Some(queue.id()) == self.queue_id() {
            return Ok(());
        }
        self.backend().check_use(queue)?;
        if let Some(lease) = self.lease() {
            lease.record(queue);
        }
        Ok(())
    }

    /// Frees the block now. A drop does the same, but logs the error.
    ///
    /// # Errors
    ///
    /// A failure of the device. The block is freed anyway, but no other user gets it if it could not be
    /// [scrubbed](crate::ScrubPolicy::OnFree).
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, PoolOptions, QueueOrder, ScrubPolicy};
    /// use binpool_mock::{CallKind, Fault, MockDevice, Persistence};
    ///
    /// # let device = MockDevice::new();
    /// # let backend = device.backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let pool = PoolOptions::new()
    ///     .scrub(ScrubPolicy::OnFree)
    ///     .build(ImmediateAllocator::new(&backend)?, &queue)?;
    /// let secret = pool.allocate(4096)?;
    /// device.fail_nth(CallKind::Fill, 1, Fault::Backend(-5), Persistence::Once);
    /// // Its zeros could not be enqueued. A drop would only log this.
    /// assert!(secret.release().is_err());
    /// assert_eq!(pool.active_blocks(), 0);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    pub fn release(self) -> Result<(), Error> {
        let buffer = ManuallyDrop::new(self);
        // SAFETY: where this returns the block, `buffer` is not dropped, and its content is not used again.
        match unsafe { buffer.content.take_if(may_be_cached) } {
            Some(block) => match Shared::cache_block(block, buffer.size) {
                None => Ok(()),
                Some(uncached) => Self::of_leased(uncached, buffer.size).free(),
            },
            None => ManuallyDrop::into_inner(buffer).free(),
        }
    }

    /// Takes the memory out of the pool permanently; `None` for the block of 0 bytes.
    ///
    /// The memory is freed when it is dropped. A block that was carved from a segment keeps the whole segment alive,
    /// and the pool goes on to manage the rest of it.
    ///
    /// The pool's allocator does not see the drop, and the pool's [limit](crate::PoolOptions::limit) counts the memory as taken for
    /// good. A program with a limit, or with adaptors that count, releases the memory by [`release`](crate::Allocator::release) of the [pool's
    /// allocator](crate::MemoryPool::allocator), or, if it was carved from a segment, by
    /// [`release_view`](crate::Allocator::release_view):
    ///
    /// ```
    /// # use binpool::{Allocator, Backend, ImmediateAllocator, PoolOptions, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let options = PoolOptions::new().segments(false).limit(1 << 20);
    /// let pool = options.build(ImmediateAllocator::new(&backend)?, &queue)?;
    /// for _ in 0..5 {
    ///     let memory = pool.allocate(1 << 20)?.detach().ok_or("0 bytes")?;
    ///     pool.allocator().release(memory, &[])?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A program without these drops the memory:
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, PoolOptions, QueueOrder, Region};
    /// # use binpool_mock::MockDevice;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let device = MockDevice::new();
    /// # let backend = device.backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = PoolOptions::new().segments(false).build(ImmediateAllocator::new(&backend)?, &queue)?;
    /// // Memory that another library owns from here on.
    /// let memory = pool.allocate(1 << 20)?.detach().ok_or("0 bytes")?;
    /// assert_eq!(pool.managed_bytes(), 0);
    /// drop(pool);
    /// backend.enqueue_fill(&queue, &memory, Region::first(1 << 20), &[7_u8])?;
    /// assert_eq!(device.statistics().created_bytes, 1 << 20);
    /// drop(memory);
    /// assert_eq!(device.statistics().created_bytes, 0);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use = "the memory is freed when it is dropped"]
    pub fn detach(mut self) -> Option<B::Memory> {
        let block = self.take_block()?;
        let mut state = self.shared().lock_and_sync();
        state.record_free(&block);
        state.deactivate(self.size, block.bytes);
        if block.range.is_none() {
            state.forget(block.memory.id(), block.bytes);
        }
        state.leave(block.lease.key);
        drop(state);
        Some(block.into_memory())
    }

    fn free(&mut self) -> Result<(), Error> {
        if self.has_views() {
            return self.free_viewed(None);
        }
        if self.shared().scrubber.is_on_free()
            && let Err(error) = guarded("scrubbing a block", || self.scrub())
        {
            self.free_unscrubbed(&[])?;
            return Err(error);
        }
        self.free_clean()
    }

    pub(crate) fn free_clean(&mut self) -> Result<(), Error> {
        if self.block().is_some_and(may_be_cached)
            && let Some(block) = self.take_leased()
        {
            let uncached = Shared::cache_block(block, self.size);
            return uncached.map_or(Ok(()), |uncached| free_block(uncached, self.size));
        }
        let block = self.take_block();
        block.map_or(Ok(()), |block| self.shared().free_block(block, self.size))
    }

    /// The path of `drop` for blocks that do not go to the thread cache.
    #[cold]
    #[inline(never)]
    fn free_slowly(&mut self) {
        contained("giving a block back", || {
            log_failure(self.free(), self.size);
        });
        // SAFETY: `drop` takes `content` out of its `ManuallyDrop`, as the field says. It runs once, calls this
        // function as its last action, and the field is not used again.
        let content = unsafe { ManuallyDrop::take(&mut self.content) };
        // This may drop queues and the pool's last share, with all that the program gave to the pool.
        contained("what a block kept", || match content.into_content() {
            // The pool last.
            Content::Block(block) => {
                let (_shared, block) = block.split();
                drop(block);
            }
            rest => drop(rest),
        });
    }
}

impl<B: Backend> Drop for PooledBuffer<B> {
    /// A leaf function except for its tail calls: otherwise each hit would save registers for them.
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this runs once, and the field is not used again on the path with a block.
        match unsafe { self.content.take_if(may_be_cached) } {
            Some(block) => Shared::give_back(block, self.size),
            None => self.free_slowly(),
        }
    }
}

/// Returns whether the order of its own queue is all that keeps the block from its next user.
#[inline]
fn may_be_cached<B: Backend>(block: &Block<B>) -> bool {
    block.lease.may_be_cached() && !block.memory.has_views()
}

/// Frees a block that a thread cache does not take.
fn free_block<B: Backend>(block: LeasedBlock<B>, asked: usize) -> Result<(), Error> {
    let (shared, block) = block.split();
    shared.free_block(block, asked)
}

/// Logs a hit, and returns its buffer. Out of line, and passing the buffer through, which keeps hits short.
#[cold]
#[inline(never)]
fn log_hit<B: Backend>(hit: PooledBuffer<B>) -> PooledBuffer<B> {
    let (asked, bytes) = (hit.size, hit.class_size());
    contained("a subscriber", || {
        tracing::trace!(asked, bytes, "allocated");
    });
    hit
}

/// The path of `drop` for blocks that the thread cache did not take. Contained, since a panic would lose the block.
#[cold]
pub(crate) fn free_uncached<B: Backend>(uncached: LeasedBlock<B>, asked: usize) {
    contained("giving a block back", || {
        log_failure(free_block(uncached, asked), asked);
    });
}

fn log_failure(result: Result<(), Error>, bytes: usize) {
    if let Err(error) = result {
        tracing::error!(%error, bytes, "a pooled block could not be released cleanly");
    }
}

impl<B: Backend> AsMemory<B> for PooledBuffer<B> {
    fn size(&self) -> usize {
        self.size
    }

    fn memory_on(&self, queue: &B::Queue) -> Option<&B::Memory> {
        PooledBuffer::memory_on(self, queue)
    }
}

impl<B: Backend> fmt::Debug for PooledBuffer<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PooledBuffer")
            .field("bytes", &self.size)
            .field("class_size", &self.class_size())
            .field("memory", &self.memory_id())
            .field("queue", &self.queue_id())
            .finish_non_exhaustive()
    }
}
