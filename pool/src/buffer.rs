//! A block of memory that goes back to its pool.

#![expect(
    unsafe_code,
    reason = "a share in the pool changes hands in `drop` without being counted"
)]

use std::{fmt, mem::ManuallyDrop, ops::RangeBounds, sync::Arc};

use binpool_allocators::{
    Allocator, AsMemory, Backend, Error, InvalidRequest, Memory, MemoryId, MemoryOf, Queue,
    QueueId, QueueOf, Region,
};

use crate::{
    PooledRegion,
    at_hand::thread_cache::Grant,
    shared::Shared,
    state::{bins::Block, lane::LaneKey, tenure::Tenure},
};

/// A block of device memory that goes back to its pool when it is dropped.
///
/// It has two sizes: [`size`](Self::size), as it was asked for, which bounds every transfer and region made
/// through this type, and [`class_size`](Self::class_size), what it takes of the device. The block of 0 bytes
/// has no memory.
///
/// # Queues
///
/// A block is for the queue that it was allocated for: commands there come after everything that its former users
/// enqueued. Commands on another queue have to come after them, too: after a command on the block's own queue (by
/// its event, say), or after [`order_before`](Self::order_before), which does just that.
///
/// Commands get at its memory through [`memory_on`](Self::memory_on), which names the queue that they will run on:
/// so the block knows where it was used, and the pool lets nobody else have it before those commands have ended. The
/// transfers of this type do it by themselves. Commands that reach the memory in another way (an address in a
/// kernel's data, say) are named by [`record_use`](Self::record_use).
///
/// Enqueue commands before dropping the block, or dropping it waits for none of them.
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
/// // A kernel of the mock device, which is a closure. The memory has all bytes of the class.
/// let memory = block.memory_on(&queue).ok_or("0 bytes")?;
/// let count = |_: &[&[u8]], writes: &mut [&mut [u8]]| {
///     for (byte, number) in writes[0].iter_mut().zip(1..=100) {
///         *byte = number;
///     }
/// };
/// backend.launch(&queue, "count", &[], &[memory], count, &[])?;
/// let mut bytes = [0; 3];
/// block.read(&queue, 97, &mut bytes, &[])?;
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
pub struct PooledBuffer<A: Allocator> {
    /// Taken out by `drop`, and by nothing else.
    pub(crate) shared: ManuallyDrop<Arc<Shared<A>>>,
    size: usize,
    /// Taken out by `drop`, and by nothing else.
    content: ManuallyDrop<Content<A>>,
}

/// What a pooled buffer has in it. Small, since a hit moves it around.
enum Content<A: Allocator> {
    Block(Box<Block<A>>),
    /// 0 bytes.
    Empty(Box<Tenure<A>>),
    GivenBack,
}

impl<A: Allocator> PooledBuffer<A> {
    /// A block of `size` bytes for `queue`, and what it was granted: nothing for 0 bytes.
    pub(crate) fn new(
        shared: &Arc<Shared<A>>,
        queue: &QueueOf<A>,
        size: usize,
        granted: Option<(Box<Block<A>>, LaneKey)>,
    ) -> Self {
        let (block, lane) = granted.unzip();
        let tenure = Tenure::on(queue.id(), lane, lane.is_some() && shared.may_keep(queue));
        let mut share = None;
        let content = match block {
            Some(mut block) => {
                block.tenure = tenure;
                share = block.share.take();
                Content::Block(block)
            }
            None => Content::Empty(Box::new(tenure)),
        };
        Self {
            shared: ManuallyDrop::new(share.unwrap_or_else(|| Arc::clone(shared))),
            size,
            content: ManuallyDrop::new(content),
        }
    }

    /// A block of `size` bytes that the thread had at hand.
    #[inline]
    pub(crate) fn from_hand(grant: Grant<A>, size: usize) -> Self {
        Self {
            shared: ManuallyDrop::new(grant.shared),
            size,
            content: ManuallyDrop::new(Content::Block(grant.block)),
        }
    }

    pub(crate) fn block(&self) -> Option<&Block<A>> {
        match &*self.content {
            Content::Block(block) => Some(block),
            Content::Empty(_) | Content::GivenBack => None,
        }
    }

    pub(crate) fn block_mut(&mut self) -> Option<&mut Block<A>> {
        match &mut *self.content {
            Content::Block(block) => Some(block),
            Content::Empty(_) | Content::GivenBack => None,
        }
    }

    #[inline]
    pub(crate) fn take_block(&mut self) -> Option<Box<Block<A>>> {
        match std::mem::replace(&mut *self.content, Content::GivenBack) {
            Content::Block(block) => Some(block),
            Content::Empty(_) | Content::GivenBack => None,
        }
    }

    pub(crate) fn memory(&self) -> Option<&MemoryOf<A>> {
        self.block().map(|block| &block.memory)
    }

    /// Where it is used; `None` once it was given back.
    pub(crate) fn tenure(&self) -> Option<&Tenure<A>> {
        match &*self.content {
            Content::Block(block) => Some(&block.tenure),
            Content::Empty(tenure) => Some(tenure),
            Content::GivenBack => None,
        }
    }

    pub(crate) fn tenure_mut(&mut self) -> Option<&mut Tenure<A>> {
        match &mut *self.content {
            Content::Block(block) => Some(&mut block.tenure),
            Content::Empty(tenure) => Some(tenure),
            Content::GivenBack => None,
        }
    }

    /// The size in bytes, as it was asked for.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Whether this is the block of 0 bytes, which has no memory.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.size == 0
    }

    /// What the block takes of the device, in bytes: the size of its class, at least [`size`](Self::size).
    #[must_use]
    pub fn class_size(&self) -> usize {
        self.block().map_or(0, |block| block.bytes)
    }

    /// The identity of the block's memory; `None` for the block of 0 bytes. Its later owners will see the
    /// same.
    #[must_use]
    pub fn memory_id(&self) -> Option<MemoryId> {
        self.memory().map(Memory::id)
    }

    /// The identity of the queue that the block is for; `None` after
    /// [`unbind_from_queue`](Self::unbind_from_queue).
    #[must_use]
    pub fn queue_id(&self) -> Option<QueueId> {
        self.tenure()?.queue
    }

    /// The backend that the block lives on.
    #[must_use]
    pub fn backend(&self) -> &A::Backend {
        self.shared.allocator.backend()
    }

    /// The memory, for commands on `queue`; `None` for the block of 0 bytes.
    ///
    /// The pool lets nobody else have the block before what was enqueued on `queue` until the block's release
    /// has ended. The memory may be larger than [`size`](Self::size).
    pub fn memory_on(&self, queue: &QueueOf<A>) -> Option<&MemoryOf<A>> {
        // A queue of another backend is not recorded: no command there can take this memory.
        let _foreign = self.record_use(queue);
        self.memory()
    }

    /// Tells that commands on `queue` use the block, for those that get at it by another way than
    /// [`memory_on`](Self::memory_on).
    ///
    /// # Errors
    ///
    /// [`ForeignObject`](InvalidRequest::ForeignObject) for a queue of another backend.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, PoolOptions, QueueOrder};
    /// # use binpool_mock::{Completion, MockDevice};
    /// # let device = MockDevice::builder().completion(Completion::Manual).build();
    /// # let backend = device.backend();
    /// # let [upload, compute] = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
    /// # let pool = PoolOptions::new().segments(false).build(ImmediateAllocator::new(&backend)?, &upload)?;
    /// let block = pool.allocate_on(&upload, 4096)?;
    /// let kernel = backend.enqueue_marker(&compute, &[])?; // One that finds the block by its address.
    /// block.record_use(&compute)?;
    /// drop(block);
    /// // Nobody has it before the kernel has ended.
    /// assert_eq!(pool.statistics().pending_blocks, 1);
    /// device.run();
    /// let block = pool.allocate_on(&upload, 4096)?;
    /// assert_eq!(pool.statistics().ended_hits, 1);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    pub fn record_use(&self, queue: &QueueOf<A>) -> Result<(), Error> {
        if Some(queue.id()) == self.queue_id() {
            return Ok(());
        }
        self.backend().check_queue(queue)?;
        if let Some(tenure) = self.tenure() {
            tenure.record(queue);
        }
        Ok(())
    }

    /// A view of a region of the block, which cannot outlive it.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`](InvalidRequest::OutOfBounds) unless it lies within [`size`](Self::size),
    /// [`Misaligned`](InvalidRequest::Misaligned) unless it starts on a multiple of the device's
    /// [alignment](binpool_allocators::DeviceLimits::alignment), [`ZeroSize`](InvalidRequest::ZeroSize) for a
    /// region of 0 bytes.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// let block = pool.allocate(4096)?;
    /// let half = block.sub_region(2048..4096)?;
    /// assert_eq!(half.size(), 2048);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    pub fn sub_region(&self, region: impl Into<Region>) -> Result<PooledRegion<'_, A>, Error> {
        let region = region.into();
        region.check_within(self.size)?;
        let memory = self.memory().ok_or(InvalidRequest::ZeroSize)?;
        let memory = self.backend().create_sub_region(memory, region)?;
        Ok(PooledRegion::new(self, memory))
    }

    /// A view of a range of bytes, whose ends may be left open: [`sub_region`](Self::sub_region) of it.
    ///
    /// # Errors
    ///
    /// Those of [`sub_region`](Self::sub_region).
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// let block = pool.allocate(4096)?;
    /// assert_eq!(block.slice(1024..)?.size(), 3072);
    /// assert_eq!(block.slice(..100)?.size(), 100);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<PooledRegion<'_, A>, Error> {
        self.sub_region(Region::within(range, self.size)?)
    }

    /// Gives the block back now. Dropping it does the same, and logs the error.
    ///
    /// # Errors
    ///
    /// A failure of the device. The block is back all the same, though not for others to use where it could not be
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
    /// // Its zeros could not be enqueued. Who drops the block would find this in the log.
    /// assert!(secret.release().is_err());
    /// assert_eq!(pool.active_blocks(), 0);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    pub fn release(mut self) -> Result<(), Error> {
        self.give_back()
    }

    /// Takes the memory out of the pool for good; `None` for the block of 0 bytes.
    ///
    /// The pool forgets the block. The memory is freed when it is dropped. A block that was carved from a segment keeps
    /// all of it, and the pool goes on to manage the rest.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, PoolOptions, QueueOrder, Region};
    /// # use binpool_mock::MockDevice;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let device = MockDevice::new();
    /// # let backend = device.backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = PoolOptions::new().segments(false).build(ImmediateAllocator::new(&backend)?, &queue)?;
    /// // What another library is to own from here on.
    /// let memory = pool.allocate(1 << 20)?.detach().ok_or("0 bytes")?;
    /// assert_eq!(pool.managed_bytes(), 0);
    /// drop(pool);
    /// backend.enqueue_fill(&queue, &memory, Region::first(1 << 20), &[7], &[])?;
    /// assert_eq!(device.statistics().created_bytes, 1 << 20);
    /// drop(memory);
    /// assert_eq!(device.statistics().created_bytes, 0);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use = "the memory is freed when it is dropped"]
    pub fn detach(mut self) -> Option<MemoryOf<A>> {
        let block = self.take_block()?;
        let mut state = self.shared.lock_and_tell();
        state.note_end(&block);
        state.deactivate(self.size, block.bytes);
        if block.range.is_none() {
            state.forget(block.bytes);
        }
        state.leave(block.tenure.lane);
        drop(state);
        Some(block.memory)
    }

    /// Whether its own queue's order is all that keeps the block from its next user.
    #[inline]
    fn is_for_hand(&mut self) -> bool {
        match &mut *self.content {
            Content::Block(block) => block.tenure.may_stay(),
            Content::Empty(_) | Content::GivenBack => false,
        }
    }

    fn give_back(&mut self) -> Result<(), Error> {
        if self.shared.scrubber.is_on_free()
            && let Err(error) = self.scrub()
        {
            self.give_back_unscrubbed(&[])?;
            return Err(error);
        }
        self.hand_back()
    }

    pub(crate) fn hand_back(&mut self) -> Result<(), Error> {
        if self.is_for_hand()
            && let Some(block) = self.take_block()
        {
            let shared = Arc::clone(&self.shared);
            let left = Shared::keep_at_hand(Grant { shared, block }, self.size);
            return left.map_or(Ok(()), |left| left.shared.give_back(left.block, self.size));
        }
        self.take_block()
            .map_or(Ok(()), |block| self.shared.give_back(block, self.size))
    }

    /// The part of `drop` for blocks that are not kept at hand.
    #[cold]
    fn give_back_at_last(&mut self) {
        log_failure(self.give_back(), self.size);
        // SAFETY: only `drop` calls this, as the last thing that it does.
        unsafe {
            ManuallyDrop::drop(&mut self.content);
        }
        // SAFETY: likewise.
        unsafe {
            ManuallyDrop::drop(&mut self.shared);
        }
    }
}

impl<A: Allocator> Drop for PooledBuffer<A> {
    #[inline]
    fn drop(&mut self) {
        if !self.is_for_hand() {
            return self.give_back_at_last();
        }
        // SAFETY: this is `drop`, which runs once, and uses neither field again.
        let shared = unsafe { ManuallyDrop::take(&mut self.shared) };
        // SAFETY: likewise.
        let content = unsafe { ManuallyDrop::take(&mut self.content) };
        if let Content::Block(block) = content
            && let Some(left) = Shared::keep_at_hand(Grant { shared, block }, self.size)
        {
            give_back_left(left, self.size);
        }
    }
}

/// The part of `drop` for blocks that could not be kept at hand.
#[cold]
fn give_back_left<A: Allocator>(left: Grant<A>, asked: usize) {
    log_failure(left.shared.give_back(left.block, asked), asked);
}

fn log_failure(result: Result<(), Error>, bytes: usize) {
    if let Err(error) = result {
        tracing::error!(%error, bytes, "a pooled block could not be given back cleanly");
    }
}

impl<A: Allocator> AsMemory<A::Backend> for PooledBuffer<A> {
    fn size(&self) -> usize {
        self.size
    }

    fn memory_on(&self, queue: &QueueOf<A>) -> Option<&MemoryOf<A>> {
        PooledBuffer::memory_on(self, queue)
    }
}

impl<A: Allocator> fmt::Debug for PooledBuffer<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PooledBuffer")
            .field("size", &self.size)
            .field("class_size", &self.class_size())
            .field("memory", &self.memory())
            .field("queue", &self.queue_id())
            .finish_non_exhaustive()
    }
}
