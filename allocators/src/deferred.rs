//! The deferred allocator: buffers that are committed on first use.

use crate::{Allocator, Backend, MemoryFlags, Result};

/// Allocates buffers that the device commits on first use. If it has no room then, that command fails.
///
/// `PyOpenCL`'s `DeferredAllocator`. A pool over it cannot notice out-of-memory, and warns when it is built.
///
/// ```
/// use binpool_allocators::{Allocator, DeferredAllocator, Memory};
/// use binpool_mock::MockDevice;
///
/// let backend = MockDevice::builder().capacity_bytes(1 << 20).build().backend();
/// let allocator = DeferredAllocator::new(&backend);
/// // Twice the device's capacity is promised anyway.
/// let blocks = [allocator.allocate(1 << 20)?, allocator.allocate(1 << 20)?];
/// assert_eq!(blocks[1].bytes(), 1 << 20);
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct DeferredAllocator<B> {
    backend: B,
    flags: MemoryFlags,
}

impl<B: Backend> DeferredAllocator<B> {
    /// Allocates buffers that kernels read and write.
    #[must_use]
    pub fn new(backend: &B) -> Self {
        Self::with_flags(backend, MemoryFlags::empty())
    }

    /// Allocates buffers with `flags`.
    ///
    /// ```
    /// use binpool_allocators::{Allocator, DeferredAllocator, MemoryFlags};
    /// # use binpool_allocators::{Backend, QueueOrder};
    /// # use binpool_mock::MockDevice;
    ///
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// // For data that stays on the device, so that the runtime need not prepare access by the host.
    /// let scratch = DeferredAllocator::with_flags(&backend, MemoryFlags::HOST_NO_ACCESS);
    /// let block = scratch.allocate(4096)?;
    /// assert!(backend.write(&queue, &block, 0, &[1_u8]).is_err());
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    #[must_use]
    pub fn with_flags(backend: &B, flags: MemoryFlags) -> Self {
        let backend = backend.clone();
        Self { backend, flags }
    }
}

impl<B: Backend> Allocator for DeferredAllocator<B> {
    type Backend = B;

    fn backend(&self) -> &B {
        &self.backend
    }

    fn allocate(&self, bytes: usize) -> Result<B::Memory> {
        self.backend.create_buffer(bytes, self.flags)
    }

    fn release(&self, memory: B::Memory, after: &[B::Event]) -> Result<()> {
        self.backend.release(memory, after)
    }

    fn views_are_addresses(&self) -> bool {
        self.backend.limits().buffer_views_are_addresses
    }

    fn is_deferred(&self) -> bool {
        true
    }

    fn release_needs_events(&self) -> bool {
        false
    }
}
