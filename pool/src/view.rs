//! A part of a pooled block with a memory object of its own.

use std::fmt;

use binpool_allocators::{AsMemory, Backend, Error, IntoRegion, InvalidRequest, Memory};

use crate::PooledBuffer;

impl<B: Backend> PooledBuffer<B> {
    /// Returns a view of a range of bytes: a memory object of its own, for calls that take no offset. It cannot outlive the block.
    ///
    /// Everything else takes a [`slice`](Self::slice), which starts anywhere and does not call the device.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`](InvalidRequest::OutOfBounds) unless the range lies within [`size`](Self::size),
    /// [`Misaligned`](InvalidRequest::Misaligned) unless it starts on a multiple of the device's
    /// [alignment](binpool_allocators::DeviceLimits::alignment), [`ZeroSize`](InvalidRequest::ZeroSize) for 0 bytes.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder, Region};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// let block = pool.allocate(4096)?;
    /// let half = block.view(2048..)?;
    /// if let Some(memory) = half.memory_on(&queue) {
    ///     backend.enqueue_fill(&queue, memory, Region::first(half.size()), &[7_u8])?;
    /// }
    /// let mut bytes = [0_u8; 2];
    /// block.read(&queue, 2047, &mut bytes)?;
    /// assert_eq!(bytes[1], 7);
    /// assert!(block.view(100..).is_err()); // A device's memory object does not start there.
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    pub fn view(&self, range: impl IntoRegion) -> Result<PooledView<'_, B>, Error> {
        let region = range.into_region(self.size())?;
        let memory = self.memory().ok_or(InvalidRequest::ZeroSize)?;
        let memory = self.backend().create_sub_region(memory, region)?;
        Ok(PooledView {
            block: self,
            memory,
        })
    }
}

/// A part of a [`PooledBuffer`] with a memory object of its own, made by [`PooledBuffer::view`]. It cannot outlive the block.
///
/// ```
/// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
/// # use binpool_mock::MockDevice;
/// # let backend = MockDevice::new().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
/// let block = pool.allocate(4096)?;
/// let half = block.view(2048..)?;
/// assert_eq!(half.size(), 2048);
/// if let Some(memory) = half.memory_on(&queue) {
///     backend.write(&queue, memory, 0, &[7_u8; 2])?; // At the start of the half.
/// }
/// let mut bytes = [0_u8; 2];
/// block.read(&queue, 2048, &mut bytes)?;
/// assert_eq!(bytes, [7, 7]);
/// # Ok::<(), binpool::PoolError>(())
/// ```
pub struct PooledView<'a, B: Backend> {
    block: &'a PooledBuffer<B>,
    memory: B::Memory,
}

impl<'a, B: Backend> PooledView<'a, B> {
    /// The number of bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.memory.bytes()
    }

    /// The block that this is a part of.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_mock::{Completion, MockDevice};
    /// # let device = MockDevice::builder().completion(Completion::Seeded(7)).build();
    /// # let backend = device.backend();
    /// # let [upload, compute] = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &upload)?;
    /// let block = pool.allocate(4096)?;
    /// block.enqueue_fill(&upload, 0..4096, &[7_u8])?;
    /// let half = block.view(2048..)?;
    /// // The view is enough to put its commands after the block's former ones.
    /// half.block().order_before(&compute)?;
    /// backend.launch(&compute, "negate", &[], &[&half], |_, writes| {
    ///     writes[0].iter_mut().for_each(|byte| *byte = !*byte);
    /// })?;
    /// # device.run();
    /// # assert!(device.violations().is_empty());
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    pub fn block(&self) -> &'a PooledBuffer<B> {
        self.block
    }

    /// Returns the view's memory, for commands on `queue`, and records the use for the whole block. A view is never empty.
    #[must_use]
    pub fn memory_on(&self, queue: &B::Queue) -> Option<&B::Memory> {
        // A foreign queue is reported by the command that it is for.
        let _foreign = self.block.record_use(queue);
        Some(&self.memory)
    }
}

impl<B: Backend> fmt::Debug for PooledView<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PooledView")
            .field("bytes", &self.size())
            .field("memory", &self.memory.id())
            .field("block", &self.block)
            .finish()
    }
}

impl<B: Backend> AsMemory<B> for PooledView<'_, B> {
    fn size(&self) -> usize {
        PooledView::size(self)
    }

    fn memory_on(&self, queue: &B::Queue) -> Option<&B::Memory> {
        PooledView::memory_on(self, queue)
    }
}
