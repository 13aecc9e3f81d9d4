//! Memory that is there, or an error now.

use crate::{Allocator, Backend, MemoryFlags, QueueOrder, Result};

/// Buffers that the device has committed before [`allocate`](Allocator::allocate) returns, so that
/// out-of-memory shows where it can be handled. What a pool wants.
///
/// `PyOpenCL`'s `ImmediateAllocator`, with two differences. A buffer whose commit fails is released, not
/// leaked. And the commit goes through an in-order queue of the allocator's own, so that it neither waits for
/// the commands of the program's queues, nor hangs where those wait for something that the host does later.
///
/// ```
/// use binpool_allocators::{Allocator, ImmediateAllocator};
/// use binpool_mock::MockDevice;
///
/// let backend = MockDevice::builder().capacity_bytes(1 << 20).build().backend();
/// let allocator = ImmediateAllocator::new(&backend)?;
/// let block = allocator.allocate(1 << 20)?;
/// assert!(allocator.allocate(1 << 20).unwrap_err().is_out_of_memory());
/// drop(block);
/// assert!(allocator.allocate(1 << 20).is_ok());
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ImmediateAllocator<B: Backend> {
    backend: B,
    commit_queue: B::Queue,
    flags: MemoryFlags,
}

impl<B: Backend> ImmediateAllocator<B> {
    /// Buffers that kernels read and write, committed through a queue of the allocator's own.
    ///
    /// # Errors
    ///
    /// Where that queue cannot be made.
    pub fn new(backend: &B) -> Result<Self> {
        Self::with_flags(backend, MemoryFlags::empty())
    }

    /// Buffers that are used as `flags` say, committed through a queue of the allocator's own.
    ///
    /// # Errors
    ///
    /// Where that queue cannot be made.
    pub fn with_flags(backend: &B, flags: MemoryFlags) -> Result<Self> {
        Ok(Self {
            commit_queue: backend.create_queue(QueueOrder::InOrder)?,
            backend: backend.clone(),
            flags,
        })
    }

    /// The same, with commits through `queue`: every fresh block then waits for what was enqueued there
    /// before.
    #[must_use]
    pub fn with_commit_queue(mut self, queue: &B::Queue) -> Self {
        self.commit_queue = queue.clone();
        self
    }
}

impl<B: Backend> Allocator for ImmediateAllocator<B> {
    type Backend = B;

    fn backend(&self) -> &B {
        &self.backend
    }

    fn allocate(&self, bytes: usize) -> Result<B::Memory> {
        let memory = self.backend.create_buffer(bytes, self.flags)?;
        if let Err(error) = self.backend.commit(&self.commit_queue, &memory) {
            if let Err(release) = self.backend.release(memory, &[]) {
                tracing::error!(%release, bytes, "a buffer that could not be committed was lost");
            }
            return Err(error);
        }
        Ok(memory)
    }

    fn release(&self, memory: B::Memory, after: &[B::Event]) -> Result<()> {
        self.backend.release(memory, after)
    }

    fn is_deferred(&self) -> bool {
        false
    }

    fn release_needs_events(&self) -> bool {
        false
    }
}
