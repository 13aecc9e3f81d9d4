//! Pooled blocks as elements of one type.

use std::ops::RangeBounds;

use binpool_allocators::{Align, Backend, Error, Slice, SliceMemory};
use bytemuck::Pod;

use crate::{MemoryPool, PoolError, PooledBuffer};

impl<B: Backend> SliceMemory for PooledBuffer<B> {
    type Backend = B;
    type Part<'a> = &'a Self;

    fn backend(&self) -> &B {
        Self::backend(self)
    }

    fn part(&self) -> &Self {
        self
    }

    fn element_alignment(&self) -> Option<Align> {
        Some(self.shared().alignment)
    }
}

/// # Elements
impl<B: Backend> MemoryPool<B> {
    /// Returns a block of `len` elements for the pool's default queue, as [`allocate`](Self::allocate) does of bytes. Their values are
    /// undefined.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// let points = pool.allocate_of::<[f32; 3]>(1000)?;
    /// assert_eq!((points.len(), points.region().bytes), (1000, 12_000)); // Elements, and bytes.
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`allocate`](Self::allocate); [`Unsupported`](Error::Unsupported) for a type with a larger alignment than the pool's
    /// blocks have.
    #[track_caller]
    pub fn allocate_of<T: Pod>(&self, len: usize) -> Result<Slice<T, PooledBuffer<B>>, PoolError> {
        let block = self.allocate(bytes_of::<T>(len))?;
        Ok(block.into_slice()?)
    }

    /// Returns a block of `len` elements for `queue`, as [`allocate_on`](Self::allocate_on) does of bytes.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let [upload, compute] = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &upload)?;
    /// let numbers = pool.allocate_of_on::<f32>(&compute, 100)?;
    /// numbers.enqueue_fill(&compute, .., &[0.5])?;
    /// assert_eq!(numbers.read_to_vec(&compute)?, [0.5; 100]);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`allocate_on`](Self::allocate_on) and [`allocate_of`](Self::allocate_of).
    #[track_caller]
    pub fn allocate_of_on<T: Pod>(
        &self,
        queue: &B::Queue,
        len: usize,
    ) -> Result<Slice<T, PooledBuffer<B>>, PoolError> {
        let block = self.allocate_on(queue, bytes_of::<T>(len))?;
        Ok(block.into_slice()?)
    }
}

/// The bytes of `len` elements. A number that overflows is more than any device has, and is refused as such.
const fn bytes_of<T>(len: usize) -> usize {
    len.saturating_mul(size_of::<T>())
}

impl<B: Backend> PooledBuffer<B> {
    /// Returns some of the bytes, by a range whose ends may be left open. The slice may start at any byte.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// use binpool::Region;
    ///
    /// let block = pool.allocate(4096)?;
    /// let tail = block.slice(4000..)?;
    /// tail.enqueue_fill(&queue, .., &[7])?;
    /// assert_eq!(tail.region(), Region::new(4000, 96));
    /// // The same bytes as numbers.
    /// assert_eq!(tail.cast::<u32>()?.read_to_vec(&queue)?, [0x0707_0707; 24]);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`](binpool_allocators::InvalidRequest::OutOfBounds) unless it lies within [`size`](Self::size).
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Slice<u8, &Self>, Error> {
        Slice::new(self)?.slice(range)
    }

    /// Returns all of the block as elements of one type. [`Slice::new`] does so of a reference, or of an `Arc`.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// let numbers = pool.allocate(400)?.into_slice::<f64>()?;
    /// assert_eq!(numbers.len(), 50);
    /// let row = numbers.into_shared().slice(..10)?;
    /// assert_eq!(pool.active_blocks(), 1); // For `row`.
    /// # drop(row);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`NotWholeElements`](binpool_allocators::InvalidRequest::NotWholeElements) unless the block's size is a multiple of an element's;
    /// [`Unsupported`](Error::Unsupported) for a type with a larger alignment than the pool's blocks have.
    pub fn into_slice<T: Pod>(self) -> Result<Slice<T, Self>, Error> {
        Slice::new(self)
    }
}
