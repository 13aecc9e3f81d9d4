//! A view of a region of a pooled block.

use std::fmt;

use binpool_allocators::{AsMemory, Backend, Memory};

use crate::PooledBuffer;

/// A view of a region of a [`PooledBuffer`], which cannot outlive it. Made by [`PooledBuffer::sub_region`].
///
/// ```
/// use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
/// # use binpool_mock::MockDevice;
/// # let backend = MockDevice::new().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
/// let block = pool.allocate(4096)?;
/// let half = block.slice(2048..)?;
/// half.enqueue_fill(&queue, .., &[7_u8])?;
/// let mut bytes = [0_u8; 2];
/// block.read(&queue, 2048, &mut bytes)?;
/// assert_eq!(bytes, [7, 7]);
/// # Ok::<(), binpool::PoolError>(())
/// ```
pub struct PooledRegion<'a, B: Backend> {
    buffer: &'a PooledBuffer<B>,
    memory: B::Memory,
}

impl<'a, B: Backend> PooledRegion<'a, B> {
    pub(crate) fn new(buffer: &'a PooledBuffer<B>, memory: B::Memory) -> Self {
        Self { buffer, memory }
    }

    /// The size of the region in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.memory.bytes()
    }

    /// The block that this is a region of.
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
    /// let half = block.slice(2048..)?;
    /// // The region is enough to put its commands after the block's former ones.
    /// half.buffer().order_before(&compute)?;
    /// half.enqueue_fill(&compute, .., &[9_u8])?;
    /// // For a command of the program's own: its memory, whose use on the queue the pool learns of.
    /// assert!(half.memory_on(&compute).is_some());
    /// # device.run();
    /// # assert!(device.violations().is_empty());
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    pub fn buffer(&self) -> &'a PooledBuffer<B> {
        self.buffer
    }

    /// The backend of the block.
    #[must_use]
    pub fn backend(&self) -> &'a B {
        self.buffer.backend()
    }

    /// Returns the region's memory, for commands on `queue`, and records the use for the whole block. A region is never
    /// empty.
    #[must_use]
    pub fn memory_on(&self, queue: &B::Queue) -> Option<&B::Memory> {
        // A foreign queue is reported by the command that it is for.
        let _foreign = self.buffer.record_use(queue);
        Some(&self.memory)
    }
}

impl<B: Backend> fmt::Debug for PooledRegion<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PooledRegion")
            .field("bytes", &self.size())
            .field("memory", &self.memory.id())
            .field("buffer", &self.buffer)
            .finish()
    }
}

impl<B: Backend> AsMemory<B> for PooledRegion<'_, B> {
    fn size(&self) -> usize {
        PooledRegion::size(self)
    }

    fn memory_on(&self, queue: &B::Queue) -> Option<&B::Memory> {
        PooledRegion::memory_on(self, queue)
    }
}
