//! Transfers to, from and between pooled blocks, bounded by the size that was asked for.

use std::sync::Arc;

use binpool_allocators::{
    Allocator, Backend, Error, EventOf, InvalidRequest, PendingRead, QueueOf, Region,
};

use crate::PooledBuffer;

/// Transfers. Each is the method of the same name of [`Backend`], on the queue given, which is
/// recorded as used; bounds are those of [`size`](PooledBuffer::size), not of the class.
impl<A: Allocator> PooledBuffer<A> {
    /// Writes `data` from `offset` on, and waits until it is there.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`](InvalidRequest::OutOfBounds), and the failures of the backend.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// let block = pool.allocate(1000)?;
    /// block.write(&queue, 0, &[7; 1000], &[])?;
    /// block.write(&queue, 400, &[9; 2], &[])?;
    /// let mut bytes = [0; 4];
    /// block.read(&queue, 399, &mut bytes, &[])?;
    /// assert_eq!(bytes, [7, 9, 9, 7]);
    /// // Its class has more bytes, which are nobody's.
    /// assert_eq!(block.class_size(), 1024);
    /// assert!(block.write(&queue, 1000, &[7], &[]).is_err());
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    pub fn write(
        &self,
        queue: &QueueOf<A>,
        offset: usize,
        data: &[u8],
        wait_for: &[EventOf<A>],
    ) -> Result<(), Error> {
        Region::new(offset, data.len()).check_within(self.size())?;
        match self.memory_on(queue) {
            Some(memory) => self.backend().write(queue, memory, offset, data, wait_for),
            None => Ok(()),
        }
    }

    /// Reads into `data` from `offset` on, and waits until it is there.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`](InvalidRequest::OutOfBounds), and the failures of the backend.
    pub fn read(
        &self,
        queue: &QueueOf<A>,
        offset: usize,
        data: &mut [u8],
        wait_for: &[EventOf<A>],
    ) -> Result<(), Error> {
        Region::new(offset, data.len()).check_within(self.size())?;
        match self.memory_on(queue) {
            Some(memory) => self.backend().read(queue, memory, offset, data, wait_for),
            None => Ok(()),
        }
    }

    /// Enqueues a write of `data` from `offset` on.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`](InvalidRequest::OutOfBounds), and the failures of the backend.
    pub fn enqueue_write(
        &self,
        queue: &QueueOf<A>,
        offset: usize,
        data: Arc<[u8]>,
        wait_for: &[EventOf<A>],
    ) -> Result<EventOf<A>, Error> {
        let backend = self.backend();
        Region::new(offset, data.len()).check_within(self.size())?;
        match self.memory_on(queue) {
            Some(memory) => backend.enqueue_write(queue, memory, offset, data, wait_for),
            None => backend.enqueue_marker(queue, wait_for),
        }
    }

    /// Enqueues a read of `region`.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`](InvalidRequest::OutOfBounds), and the failures of the backend.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// let block = pool.allocate(1000)?;
    /// let written = block.enqueue_write(&queue, 0, vec![7; 1000].into(), &[])?;
    /// let read = block.enqueue_read(&queue, 500..503, &[written])?;
    /// drop(block); // Back in the pool. The read comes before whatever its next user does.
    /// // ... and the host has time for something else.
    /// assert_eq!(read.wait()?, [7, 7, 7]);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    pub fn enqueue_read(
        &self,
        queue: &QueueOf<A>,
        region: impl Into<Region>,
        wait_for: &[EventOf<A>],
    ) -> Result<PendingRead<EventOf<A>>, Error> {
        let (backend, region) = (self.backend(), region.into());
        region.check_within(self.size())?;
        match self.memory_on(queue) {
            Some(memory) => backend.enqueue_read(queue, memory, region, wait_for),
            None => Ok(PendingRead::new(
                backend.enqueue_marker(queue, wait_for)?,
                Vec::new,
            )),
        }
    }

    /// Enqueues a fill of `region` with `pattern`, over and over.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`](InvalidRequest::OutOfBounds),
    /// [`PatternLength`](InvalidRequest::PatternLength),
    /// [`PatternMismatch`](InvalidRequest::PatternMismatch), and the failures of the backend.
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
    /// ones.enqueue_fill(&queue, 0..4000, &1.0_f32.to_ne_bytes(), &[])?;
    /// let mut last = [0; 4];
    /// ones.read(&queue, 3996, &mut last, &[])?;
    /// assert_eq!(f32::from_ne_bytes(last), 1.0);
    ///
    /// // The region is to hold whole patterns.
    /// let error = ones
    ///     .enqueue_fill(&queue, 0..3998, &1.0_f32.to_ne_bytes(), &[])
    ///     .unwrap_err();
    /// assert!(matches!(
    ///     error,
    ///     Error::InvalidRequest(InvalidRequest::PatternMismatch { .. })
    /// ));
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    pub fn enqueue_fill(
        &self,
        queue: &QueueOf<A>,
        region: impl Into<Region>,
        pattern: &[u8],
        wait_for: &[EventOf<A>],
    ) -> Result<EventOf<A>, Error> {
        let (backend, region) = (self.backend(), region.into());
        region.check_within(self.size())?;
        InvalidRequest::check_pattern(region, pattern)?;
        match self.memory_on(queue) {
            Some(memory) => backend.enqueue_fill(queue, memory, region, pattern, wait_for),
            None => backend.enqueue_marker(queue, wait_for),
        }
    }

    /// Enqueues a copy of this whole block to the start of `destination`: [`size`](Self::size) bytes, not the
    /// class's.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`](InvalidRequest::OutOfBounds) where `destination` is smaller, and the failures of the
    /// backend.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// // A vector that grows.
    /// let small = pool.allocate(1000)?;
    /// small.write(&queue, 0, &[7; 1000], &[])?;
    /// let large = pool.allocate(2000)?;
    /// small.enqueue_copy_to(&queue, &large, &[])?;
    /// drop(small); // On an in-order queue, its next user comes after the copy.
    /// let mut bytes = [0; 1000];
    /// large.read(&queue, 0, &mut bytes, &[])?;
    /// assert_eq!(bytes, [7; 1000]);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    pub fn enqueue_copy_to(
        &self,
        queue: &QueueOf<A>,
        destination: &Self,
        wait_for: &[EventOf<A>],
    ) -> Result<EventOf<A>, Error> {
        self.enqueue_copy_region_to(queue, Region::first(self.size()), destination, 0, wait_for)
    }

    /// Enqueues a copy of `from`, a region of this block, to `destination` from `to` on.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`](InvalidRequest::OutOfBounds) on either side,
    /// [`OverlappingCopy`](InvalidRequest::OverlappingCopy), and the failures of the backend.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// // Two arrays, one behind the other.
    /// let [one, two] = [pool.allocate(300)?, pool.allocate(500)?];
    /// one.write(&queue, 0, &[1; 300], &[])?;
    /// two.write(&queue, 0, &[2; 500], &[])?;
    /// let both = pool.allocate(one.size() + two.size())?;
    /// let first = one.enqueue_copy_to(&queue, &both, &[])?;
    /// two.enqueue_copy_region_to(&queue, 0..two.size(), &both, one.size(), &[first])?;
    /// let mut bytes = [0; 2];
    /// both.read(&queue, 299, &mut bytes, &[])?;
    /// assert_eq!(bytes, [1, 2]);
    /// assert!(
    ///     two.enqueue_copy_region_to(&queue, 0..two.size(), &both, 301, &[])
    ///         .is_err()
    /// );
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    pub fn enqueue_copy_region_to(
        &self,
        queue: &QueueOf<A>,
        from: impl Into<Region>,
        destination: &Self,
        to: usize,
        wait_for: &[EventOf<A>],
    ) -> Result<EventOf<A>, Error> {
        let (backend, from) = (self.backend(), from.into());
        from.check_within(self.size())?;
        Region::new(to, from.bytes).check_within(destination.size())?;
        match (self.memory_on(queue), destination.memory_on(queue)) {
            (Some(source), Some(target)) => {
                backend.enqueue_copy(queue, source, from, target, to, wait_for)
            }
            _ => backend.enqueue_marker(queue, wait_for),
        }
    }
}
