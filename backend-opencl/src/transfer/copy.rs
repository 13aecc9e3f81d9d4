//! Copies between any two kinds of memory.

use binpool_allocators::{AsMemory, IntoRegion, InvalidRequest, Memory, Region, Result};

use crate::{
    backend::OpenClBackend,
    event::{ClEvent, ClOn},
    memory::cl_memory::ClMemory,
    order::access::Access,
    sys::{self, DeviceBytes, Purpose},
};

pub(super) const fn overlap(from: Region, into: Region) -> InvalidRequest {
    InvalidRequest::OverlappingCopy {
        from: from.offset,
        to: into.offset,
        bytes: from.bytes,
    }
}

/// Returns the device's side of a transfer of a region, which lies in `memory`.
pub(super) fn bytes_of(memory: &ClMemory, region: Region) -> Result<DeviceBytes<'_>> {
    let bytes = memory.device_bytes(region);
    // Only a block that is being freed has no bytes, and such a block is not borrowed here.
    Ok(bytes.ok_or(InvalidRequest::OutOfBounds {
        offset: region.offset,
        bytes: region.bytes,
        size: memory.bytes(),
    })?)
}

impl OpenClBackend {
    /// Enqueues a copy of `from`, a region of `source`, to `destination` from byte `to` on, between buffers, shared virtual
    /// memory, pooled blocks of any pools, and views of these, in any combination.
    ///
    /// # Errors
    ///
    /// [`OverlappingCopy`](binpool_allocators::InvalidRequest::OverlappingCopy) where both sides share a byte;
    /// [`OutOfBounds`](binpool_allocators::InvalidRequest::OutOfBounds) and [`ForeignObject`](binpool_allocators::InvalidRequest::ForeignObject) for either;
    /// [`Mapped`](binpool_allocators::InvalidRequest::Mapped); and the failures of the runtime.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::OpenClBackend;
    /// use binpool::{ImmediateAllocator, MemoryPool, SvmAllocator, SvmGrain};
    ///
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let buffers = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// let shared = MemoryPool::new(SvmAllocator::new(&backend, SvmGrain::Coarse)?, &queue)?;
    /// let (one, other) = (buffers.allocate(100)?, shared.allocate(50)?);
    /// backend.enqueue_fill(&queue, &one, .., &[7_u8])?;
    /// backend.enqueue_fill(&queue, &other, .., &[1_u8])?;
    /// backend.enqueue_copy(&queue, &one, 90..100, &other, 5)?;
    /// let seen = backend.enqueue_read(&queue, &other, 4..16)?.wait()?;
    /// assert_eq!(seen, [1, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 1]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn enqueue_copy<'q>(
        &self,
        on: impl Into<ClOn<'q>>,
        source: &(impl AsMemory<Self> + ?Sized),
        from: impl IntoRegion,
        destination: &(impl AsMemory<Self> + ?Sized),
        to: usize,
    ) -> Result<ClEvent> {
        let on = on.into();
        let from = from.into_region(source.size())?;
        let into = Region::new(to, from.bytes);
        let source = self.bytes_on(on.queue, source, from)?;
        let destination = self.bytes_on(on.queue, destination, into)?;
        let found = source.zip(destination).filter(|_| from.bytes > 0);
        let Some(((source, from), (destination, into))) = found else {
            return self.enqueue_marker(on);
        };
        let uses = [
            source.used(from, Access::Read),
            destination.used(into, Access::Write),
        ];
        if uses[0].shares_bytes_with(&uses[1]) {
            return Err(overlap(from, into).into());
        }
        let (source, destination) = (bytes_of(source, from)?, bytes_of(destination, into)?);
        let (queue, bytes) = (on.queue.handle(), from.bytes);
        let purpose = Purpose::Memory(bytes);
        self.submit(on.queue, purpose, &uses, on.wait_for, |wait| {
            sys::enqueue_copy(queue, source, destination, bytes, wait)
        })
    }

    /// Enqueues a copy of as many bytes as both sides have, from the start of either: `PyOpenCL`'s `enqueue_copy` without a
    /// byte count, between buffers, shared virtual memory and pooled blocks in any combination. The sizes are the requested
    /// ones.
    ///
    /// # Errors
    ///
    /// Those of [`enqueue_copy`](Self::enqueue_copy).
    ///
    /// ```
    /// # use binpool_allocators::Event;
    /// use binpool_opencl::OpenClBackend;
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    ///
    /// let source = backend.create_buffer_from(&[7_u8; 100], MemoryFlags::empty())?;
    /// let destination = backend.create_buffer(40, MemoryFlags::empty())?;
    /// backend.enqueue_copy_common(&queue, &source, &destination)?.wait()?; // 40 bytes.
    /// let mut copied = [0_u8; 40];
    /// backend.read(&queue, &destination, 0, &mut copied)?;
    /// assert_eq!(copied, [7; 40]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn enqueue_copy_common<'q>(
        &self,
        on: impl Into<ClOn<'q>>,
        source: &(impl AsMemory<Self> + ?Sized),
        destination: &(impl AsMemory<Self> + ?Sized),
    ) -> Result<ClEvent> {
        let common = Region::first(source.size().min(destination.size()));
        self.enqueue_copy(on, source, common, destination, 0)
    }
}
