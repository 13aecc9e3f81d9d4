//! Some bytes of a pooled block, which keep it alive.

use std::{fmt, sync::Arc};

use binpool_allocators::{AsMemory, Backend, Error, IntoRegion, Region};

use crate::PooledBuffer;

/// Some bytes of a [`PooledBuffer`], which they keep alive: what the slice of an array is made of. It may start at any byte, and making
/// one calls nothing of the device. Clones are the same bytes.
///
/// A kernel gets the whole block and the place of the first element. On OpenCL, `Parameter::offset_u64` passes it; a kernel without
/// one gets a view of the bytes, which have to start where the device lets memory start. A kernel of the mock device gets the bytes
/// of the slice alone.
///
/// The block goes back to its pool with its last slice.
///
/// ```
/// use std::sync::Arc;
///
/// use binpool::{Backend, ImmediateAllocator, MemoryPool, PooledSlice, QueueOrder};
/// # use binpool_mock::MockDevice;
///
/// # let backend = MockDevice::new().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
/// let row = {
///     let matrix = Arc::new(pool.allocate(12 * 4)?);
///     matrix.write(&queue, 0, &[0.0_f32, 1.0, 2.0, 3.0, 4.0, 5.0])?;
///     PooledSlice::new(matrix, 3 * 4..6 * 4)?
/// };
/// let mut numbers = [0.0_f32; 3];
/// row.read(&queue, 0, &mut numbers)?;
/// assert_eq!(numbers, [3.0, 4.0, 5.0]);
///
/// let last = row.slice(2 * 4..)?;
/// assert_eq!((last.start(), last.size()), (5 * 4, 4));
/// drop(row);
/// assert_eq!(pool.statistics().active_blocks, 1); // For `last`.
/// # Ok::<(), binpool::PoolError>(())
/// ```
pub struct PooledSlice<B: Backend> {
    buffer: Arc<PooledBuffer<B>>,
    region: Region,
}

impl<B: Backend> Clone for PooledSlice<B> {
    fn clone(&self) -> Self {
        Self {
            buffer: Arc::clone(&self.buffer),
            region: self.region,
        }
    }
}

impl<B: Backend> PooledSlice<B> {
    /// Returns the bytes of `range`, whose ends may be left open. `buffer` is a block or an `Arc` of one.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`](crate::InvalidRequest::OutOfBounds) unless they lie within [`PooledBuffer::size`].
    pub fn new(
        buffer: impl Into<Arc<PooledBuffer<B>>>,
        range: impl IntoRegion,
    ) -> Result<Self, Error> {
        let buffer = buffer.into();
        let region = Region::within(range, buffer.size())?;
        Ok(Self { buffer, region })
    }

    /// Returns some of these bytes, counted from the first of them.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`](crate::InvalidRequest::OutOfBounds) unless they lie within [`size`](Self::size).
    pub fn slice(&self, range: impl IntoRegion) -> Result<Self, Error> {
        let part = Region::within(range, self.region.bytes)?;
        Ok(Self {
            buffer: Arc::clone(&self.buffer),
            region: Region::new(self.region.offset + part.offset, part.bytes),
        })
    }

    /// The number of bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.region.bytes
    }

    /// The offset of the first byte in the block.
    #[must_use]
    pub fn start(&self) -> usize {
        self.region.offset
    }

    /// The block, for example to put its commands in order ([`PooledBuffer::order_before`]).
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, PooledSlice, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let [upload, compute] = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &upload)?;
    /// let slice = PooledSlice::new(pool.allocate(4096)?, 100..200)?;
    /// slice.enqueue_fill(&upload, .., &[7_u8])?;
    /// slice.buffer().order_before(&compute)?;
    /// slice.enqueue_fill(&compute, ..50, &[9_u8])?; // After the other fill.
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    #[must_use]
    pub fn buffer(&self) -> &Arc<PooledBuffer<B>> {
        &self.buffer
    }

    /// The backend of the block.
    #[must_use]
    pub fn backend(&self) -> &B {
        self.buffer.backend()
    }

    /// Returns the memory of the whole block, for commands on `queue`, and records the use; `None` for no bytes. The slice begins at
    /// [`start`](Self::start).
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, PooledSlice, QueueOrder, Region, Transfers};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// let slice = PooledSlice::new(pool.allocate(1000)?, 100..200)?;
    /// // A call of the backend's own, which takes memory and a region of it.
    /// if let Some(memory) = slice.memory_on(&queue) {
    ///     let region = Region::new(slice.start(), slice.size());
    ///     backend.enqueue_fill(&queue, memory, region, &[7], &[])?;
    /// }
    /// let mut bytes = [0_u8; 100];
    /// slice.read(&queue, 0, &mut bytes)?;
    /// assert_eq!(bytes, [7; 100]);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    #[must_use]
    pub fn memory_on(&self, queue: &B::Queue) -> Option<&B::Memory> {
        if self.region.bytes == 0 {
            return None;
        }
        self.buffer.memory_on(queue)
    }
}

impl<B: Backend> AsMemory<B> for PooledSlice<B> {
    fn size(&self) -> usize {
        PooledSlice::size(self)
    }

    fn start(&self) -> usize {
        PooledSlice::start(self)
    }

    fn memory_on(&self, queue: &B::Queue) -> Option<&B::Memory> {
        PooledSlice::memory_on(self, queue)
    }
}

impl<B: Backend> fmt::Debug for PooledSlice<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PooledSlice")
            .field("start", &self.region.offset)
            .field("bytes", &self.region.bytes)
            .field("buffer", &self.buffer)
            .finish()
    }
}
