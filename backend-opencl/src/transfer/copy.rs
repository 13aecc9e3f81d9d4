//! Copies between any two kinds of memory.

use binpool_allocators::{AsMemory, Backend, InvalidRequest, Memory, Region, Result, Span};

use crate::{
    backend::OpenClBackend,
    event::{ClEvent, ClOn},
    memory::cl_memory::ClMemory,
    order::access::Access,
    sys::{self, Purpose},
};

pub(super) const fn overlap(from: Region, into: Region) -> InvalidRequest {
    InvalidRequest::OverlappingCopy {
        from: from.offset,
        to: into.offset,
        bytes: from.bytes,
    }
}

impl OpenClBackend {
    /// Enqueues a copy, or a marker where that has no bytes.
    pub(crate) fn copy(
        &self,
        on: ClOn<'_>,
        from: Span<'_, ClMemory>,
        to: Span<'_, ClMemory>,
    ) -> Result<ClEvent> {
        self.check_own_queue(on.queue)?;
        for Span { memory, region } in [from, to] {
            self.check_own_memory(memory)?;
            region.check_within(memory.bytes())?;
        }
        if from.region.bytes == 0 {
            return self.marker(on);
        }
        let uses = [
            from.memory.used(from.region, Access::Read),
            to.memory.used(to.region, Access::Write),
        ];
        if uses[0].shares_bytes_with(&uses[1]) {
            return Err(overlap(from.region, to.region).into());
        }
        let [source, destination] =
            [from, to].map(|Span { memory, region }| memory.device_bytes(region));
        let (queue, bytes) = (on.queue.handle(), from.region.bytes);
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
    /// Those of [`enqueue_copy`](binpool_allocators::Backend::enqueue_copy).
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
