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
