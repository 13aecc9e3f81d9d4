//! The immediate allocator: buffers that are committed before they are handed out.

use std::fmt;

use crate::{Allocator, Backend, MemoryFlags, QueueOrder, Result};

/// Allocates buffers that the device has committed before [`allocate`](Allocator::allocate) returns, so that
/// out-of-memory appears where it can be handled. Pools need this.
///
/// `PyOpenCL`'s `ImmediateAllocator`, with two differences. A buffer whose commit fails is released, not
/// leaked. The commit uses an in-order queue of the allocator's own, so that it does not wait for
/// the commands of the program's queues, which may wait for something that the host does later.
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
#[derive(Clone)]
pub struct ImmediateAllocator<B: Backend> {
    backend: B,
    commit_queue: B::Queue,
    flags: MemoryFlags,
}

impl<B: Backend> fmt::Debug for ImmediateAllocator<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImmediateAllocator")
            .field("backend", &self.backend)
            .field("flags", &self.flags)
            .finish_non_exhaustive()
    }
}

impl<B: Backend> ImmediateAllocator<B> {
    /// Allocates buffers that kernels read and write, committed through a queue of the allocator's own.
    ///
    /// # Errors
    ///
    /// A failure to create that queue.
    pub fn new(backend: &B) -> Result<Self> {
        Self::with_flags(backend, MemoryFlags::empty())
    }

    /// Allocates buffers with `flags`, committed through a queue of the allocator's own.
    ///
    /// ```
    /// use binpool_allocators::{Allocator, Backend, ImmediateAllocator, MemoryFlags, QueueOrder, Region};
    /// # use binpool_mock::MockDevice;
    ///
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// // Staging memory on the host, which the device only reads.
    /// let flags = MemoryFlags::READ_ONLY | MemoryFlags::HOST_RESIDENT;
    /// let staging = ImmediateAllocator::with_flags(&backend, flags)?.allocate(4096)?;
    /// let weights = ImmediateAllocator::new(&backend)?.allocate(4096)?;
    /// backend.write(&queue, &staging, 0, &[7_u8; 4096])?;
    /// backend.enqueue_copy(&queue, &staging, Region::first(4096), &weights, 0)?;
    /// # let mut byte = [0_u8];
    /// backend.read(&queue, &weights, 4095, &mut byte)?;
    /// assert_eq!(byte, [7]);
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A failure to create that queue.
    pub fn with_flags(backend: &B, flags: MemoryFlags) -> Result<Self> {
        Ok(Self {
            commit_queue: backend.create_queue(QueueOrder::InOrder)?,
            backend: backend.clone(),
            flags,
        })
    }

    /// Commits on `queue` instead: every fresh block then waits for the commands enqueued there
    /// before.
    ///
    /// ```
    /// use binpool_allocators::{Allocator, Backend, Event, EventStatus, ImmediateAllocator, QueueOrder};
    /// use binpool_mock::{Completion, MockDevice};
    ///
    /// let backend = MockDevice::builder().completion(Completion::Manual).build().backend();
    /// let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let before = backend.enqueue_marker(&queue)?;
    /// ImmediateAllocator::new(&backend)?.allocate(4096)?;
    /// assert_eq!(before.status()?, EventStatus::Pending);
    /// // Saves a queue, but waits for the program's commands.
    /// ImmediateAllocator::new(&backend)?.with_commit_queue(&queue).allocate(4096)?;
    /// assert_eq!(before.status()?, EventStatus::Complete);
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
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

    fn views_are_addresses(&self) -> bool {
        self.backend.limits().buffer_views_are_addresses
    }

    fn is_deferred(&self) -> bool {
        false
    }

    fn release_needs_events(&self) -> bool {
        false
    }
}
