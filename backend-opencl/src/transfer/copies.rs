//! Copies with the seed's defaults, between any two kinds of memory.

use binpool_allocators::{AsMemory, Backend, Region, Result};

use crate::{backend::OpenClBackend, event::ClEvent, queue::ClQueue};

impl OpenClBackend {
    /// Enqueues a copy of as many bytes as both sides have, from the start of either: `PyOpenCL`'s `enqueue_copy` without
    /// a byte count, between buffers, shared virtual memory and pooled blocks in any combination. Sizes are those that
    /// were asked for.
    ///
    /// # Errors
    ///
    /// Those of [`enqueue_copy`](Backend::enqueue_copy).
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
    /// backend.enqueue_copy_common(&queue, &source, &destination, &[])?.wait()?; // 40 bytes.
    /// let mut copied = [0; 40];
    /// backend.read(&queue, &destination, 0, &mut copied, &[])?;
    /// assert_eq!(copied, [7; 40]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn enqueue_copy_common(
        &self,
        queue: &ClQueue,
        source: &(impl AsMemory<Self> + ?Sized),
        destination: &(impl AsMemory<Self> + ?Sized),
        wait_for: &[ClEvent],
    ) -> Result<ClEvent> {
        let common = Region::first(source.size().min(destination.size()));
        self.check_own_queue(queue)?;
        match (source.memory_on(queue), destination.memory_on(queue)) {
            (Some(source), Some(destination)) => {
                self.enqueue_copy(queue, source, common, destination, 0, wait_for)
            }
            _ => self.enqueue_marker(queue, wait_for),
        }
    }
}
