//! Transfers to, from and between pooled blocks, bounded by the requested size.

use std::sync::Arc;

use binpool_allocators::{AsMemory, Backend, Error, IntoRegion, On, PendingRead};
use bytemuck::{AnyBitPattern, NoUninit};

use crate::PooledBuffer;

/// Transfers, on the given queue, which is recorded as used. Offsets are in bytes; the host's side is a slice of any
/// plain type. Transfers must lie within [`size`](Self::size), not the class.
impl<B: Backend> PooledBuffer<B> {
    /// Writes `data` at byte `offset`, and waits until it is written.
    ///
    /// A literal needs the type of its elements: `&[7_u8; 1000]` are 1000 bytes, and `&[7; 1000]` are 4000, of `i32`.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`](binpool_allocators::InvalidRequest::OutOfBounds), and the failures of the backend.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// let block = pool.allocate(1000)?;
    /// block.write(&queue, 0, &[7_u8; 1000])?;
    /// block.write(&queue, 400, &[9_u8; 2])?;
    /// let mut bytes = [0_u8; 4];
    /// block.read(&queue, 399, &mut bytes)?;
    /// assert_eq!(bytes, [7, 9, 9, 7]);
    /// // Its class has more bytes, which no transfer reaches.
    /// assert_eq!(block.class_size(), 1024);
    /// assert!(block.write(&queue, 1000, &[7_u8]).is_err());
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    pub fn write<'q, T: NoUninit>(
        &self,
        on: impl Into<On<'q, B::Queue, B::Event>>,
        offset: usize,
        data: &[T],
    ) -> Result<(), Error> {
        self.backend().write(on, self, offset, data)
    }

    /// Reads into `data` from byte `offset`, and waits until it is read. `vec![0; n]` is of `i32` unless something else gives it a type:
    /// `vec![0_u8; n]` takes `n` bytes.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`](binpool_allocators::InvalidRequest::OutOfBounds), and the failures of the backend.
    pub fn read<'q, T: AnyBitPattern + NoUninit>(
        &self,
        on: impl Into<On<'q, B::Queue, B::Event>>,
        offset: usize,
        data: &mut [T],
    ) -> Result<(), Error> {
        self.backend().read(on, self, offset, data)
    }

    /// Enqueues a write of `data` at byte `offset`.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`](binpool_allocators::InvalidRequest::OutOfBounds), and the failures of the backend.
    pub fn enqueue_write<'q>(
        &self,
        on: impl Into<On<'q, B::Queue, B::Event>>,
        offset: usize,
        data: Arc<[u8]>,
    ) -> Result<B::Event, Error> {
        self.backend().enqueue_write(on, self, offset, data)
    }

    /// Enqueues a read of `region`.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`](binpool_allocators::InvalidRequest::OutOfBounds), and the failures of the backend.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, Queue, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// let block = pool.allocate(1000)?;
    /// let written = block.enqueue_write(&queue, 0, vec![7; 1000].into())?;
    /// let read = block.enqueue_read(queue.after(&[written]), 500..503)?;
    /// drop(block); // Back in the pool. The read comes before the commands of its next user.
    /// // ... and the host has time for something else.
    /// assert_eq!(read.wait()?, [7, 7, 7]);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    pub fn enqueue_read<'q>(
        &self,
        on: impl Into<On<'q, B::Queue, B::Event>>,
        region: impl IntoRegion,
    ) -> Result<PendingRead<B::Event>, Error> {
        self.backend().enqueue_read(on, self, region)
    }

    /// Enqueues a copy of all [`size`](Self::size) bytes of this, not those of the class, to the start of
    /// `destination`, any memory of the backend.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`](binpool_allocators::InvalidRequest::OutOfBounds) if `destination` is smaller, and the failures
    /// of the backend.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// // A vector that grows.
    /// let small = pool.allocate(1000)?;
    /// small.write(&queue, 0, &[7_u8; 1000])?;
    /// let large = pool.allocate(2000)?;
    /// small.enqueue_copy_to(&queue, &large)?;
    /// drop(small); // On an in-order queue, its next user comes after the copy.
    /// let mut bytes = [0_u8; 1000];
    /// large.read(&queue, 0, &mut bytes)?;
    /// assert_eq!(bytes, [7; 1000]);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    pub fn enqueue_copy_to<'q>(
        &self,
        on: impl Into<On<'q, B::Queue, B::Event>>,
        destination: &(impl AsMemory<B> + ?Sized),
    ) -> Result<B::Event, Error> {
        self.enqueue_copy_region_to(on, .., destination, 0)
    }

    /// Enqueues a copy of `from`, a region of this block, to byte `to` of `destination`: a block of this pool or of
    /// another, or any other memory of the backend.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`](binpool_allocators::InvalidRequest::OutOfBounds) on either side,
    /// [`OverlappingCopy`](binpool_allocators::InvalidRequest::OverlappingCopy), and the failures of the backend.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, Queue, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// // Two arrays, one after the other.
    /// let [one, two] = [pool.allocate(300)?, pool.allocate(500)?];
    /// one.write(&queue, 0, &[1_u8; 300])?;
    /// two.write(&queue, 0, &[2_u8; 500])?;
    /// let both = pool.allocate(one.size() + two.size())?;
    /// let first = one.enqueue_copy_to(&queue, &both)?;
    /// two.enqueue_copy_region_to(queue.after(&[first]), 0..two.size(), &both, one.size())?;
    /// let mut bytes = [0_u8; 2];
    /// both.read(&queue, 299, &mut bytes)?;
    /// assert_eq!(bytes, [1, 2]);
    /// assert!(
    ///     two.enqueue_copy_region_to(&queue, 0..two.size(), &both, 301)
    ///         .is_err()
    /// );
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    pub fn enqueue_copy_region_to<'q>(
        &self,
        on: impl Into<On<'q, B::Queue, B::Event>>,
        from: impl IntoRegion,
        destination: &(impl AsMemory<B> + ?Sized),
        to: usize,
    ) -> Result<B::Event, Error> {
        self.backend().enqueue_copy(on, self, from, destination, to)
    }

    /// Enqueues a copy of `from`, a region of any other memory of the backend, to byte `to` of this block.
    ///
    /// # Errors
    ///
    /// Those of [`enqueue_copy_region_to`](Self::enqueue_copy_region_to).
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryFlags, MemoryPool, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// let table = backend.create_buffer(4096, MemoryFlags::empty())?;
    /// # backend.write(&queue, &table, 0, &[7_u8; 4096])?;
    /// let row = pool.allocate(100)?;
    /// row.enqueue_copy_region_from(&queue, &table, 300..400, 0)?;
    /// # assert_eq!(row.enqueue_read(&queue, ..)?.wait()?, [7; 100]);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    pub fn enqueue_copy_region_from<'q>(
        &self,
        on: impl Into<On<'q, B::Queue, B::Event>>,
        source: &(impl AsMemory<B> + ?Sized),
        from: impl IntoRegion,
        to: usize,
    ) -> Result<B::Event, Error> {
        self.backend().enqueue_copy(on, source, from, self, to)
    }
}

/// Fills, on the given queue, which is recorded as used. They must lie within [`size`](Self::size), not the class.
impl<B: Backend> PooledBuffer<B> {
    /// Enqueues a fill of `region` with `pattern`, repeated.
    ///
    /// A literal needs the type of its elements: `&[1_u8]` sets each byte to 1, and `&[1]` is an `i32`, so that every fourth byte is 1.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`](binpool_allocators::InvalidRequest::OutOfBounds),
    /// [`EmptyPattern`](binpool_allocators::InvalidRequest::EmptyPattern),
    /// [`PatternMismatch`](binpool_allocators::InvalidRequest::PatternMismatch), and the failures of the backend.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// use binpool::{Error, InvalidRequest};
    ///
    /// let ones = pool.allocate(1000 * size_of::<f32>())?;
    /// ones.enqueue_fill(&queue, 0..4000, &1.0_f32.to_ne_bytes())?;
    /// let mut last = [0_u8; 4];
    /// ones.read(&queue, 3996, &mut last)?;
    /// assert_eq!(f32::from_ne_bytes(last), 1.0);
    ///
    /// // The region is to hold whole patterns.
    /// let error = ones
    ///     .enqueue_fill(&queue, 0..3998, &1.0_f32.to_ne_bytes())
    ///     .unwrap_err();
    /// assert!(matches!(
    ///     error,
    ///     Error::InvalidRequest(binpool_allocators::InvalidRequest::PatternMismatch { .. })
    /// ));
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    pub fn enqueue_fill<'q, T: NoUninit>(
        &self,
        on: impl Into<On<'q, B::Queue, B::Event>>,
        region: impl IntoRegion,
        pattern: &[T],
    ) -> Result<B::Event, Error> {
        self.backend().enqueue_fill(on, self, region, pattern)
    }
}
