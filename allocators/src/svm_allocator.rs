//! The allocator of shared virtual memory.

use crate::{
    Align, Allocator, MemoryFlags, Queue, QueueOrder, Result, SvmBackend, SvmGrain,
    error::{Error, InvalidRequest},
};

/// Allocates shared virtual memory, coarse or fine grained, with an alignment and an optional in-order queue on which
/// frees are ordered.
///
/// `PyOpenCL`'s `SVMAllocator`, with its flags ([`with_flags`](Self::with_flags)), except that a null pointer is out-of-memory, and that an out-of-order queue is
/// refused.
///
/// ```
/// use binpool_allocators::{Allocator, Backend, QueueOrder, SvmAllocator, SvmBackend, SvmGrain};
/// use binpool_mock::MockDevice;
///
/// let backend = MockDevice::new().backend();
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let allocator = SvmAllocator::new(&backend, SvmGrain::Coarse)?.with_queue(&queue)?;
/// let block = allocator.allocate(4096)?;
/// assert!(backend.svm_address(&block).is_some());
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct SvmAllocator<B: SvmBackend> {
    backend: B,
    grain: SvmGrain,
    alignment: Align,
    queue: Option<B::Queue>,
    flags: MemoryFlags,
}

impl<B: SvmBackend> SvmAllocator<B> {
    /// Allocates SVM of this grain with the alignment of the device's buffers, or the largest of SVM if that is less.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](Error::Unsupported) if the device has no SVM.
    pub fn new(backend: &B, grain: SvmGrain) -> Result<Self> {
        let limits = backend.limits();
        if !grain.is_in(limits.svm) {
            return Err(Error::svm_unsupported(&limits.device_name, grain));
        }
        Ok(Self {
            alignment: limits.alignment.min(limits.largest_svm_alignment),
            backend: backend.clone(),
            grain,
            queue: None,
            flags: MemoryFlags::empty(),
        })
    }

    /// Aligns blocks to `alignment`.
    ///
    /// ```
    /// use binpool_allocators::{Align, Allocator, Backend, SvmAllocator, SvmBackend, SvmGrain};
    /// # use binpool_mock::MockDevice;
    ///
    /// # let backend = MockDevice::new().backend();
    /// let page = Align::new(4096).expect("a power of two"); // A page of the host, for system calls.
    /// let allocator = SvmAllocator::new(&backend, SvmGrain::Fine)?.with_alignment(page)?;
    /// assert_eq!((allocator.alignment(), allocator.grain()), (page, SvmGrain::Fine));
    /// let block = allocator.allocate(100)?;
    /// let address = backend.svm_address(&block).expect("it is SVM");
    /// assert!(page.divides(address.addr().get()));
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`AlignmentTooLarge`](InvalidRequest::AlignmentTooLarge).
    pub fn with_alignment(mut self, alignment: Align) -> Result<Self> {
        let largest = self.backend.limits().largest_svm_alignment;
        if alignment > largest {
            return Err(InvalidRequest::AlignmentTooLarge { alignment, largest }.into());
        }
        self.alignment = alignment;
        Ok(self)
    }

    /// Orders frees on `queue`.
    ///
    /// # Errors
    ///
    /// [`OutOfOrderQueue`](InvalidRequest::OutOfOrderQueue).
    pub fn with_queue(mut self, queue: &B::Queue) -> Result<Self> {
        if queue.order() == QueueOrder::OutOfOrder {
            return Err(InvalidRequest::OutOfOrderQueue.into());
        }
        self.queue = Some(queue.clone());
        Ok(self)
    }

    /// Allocates memory that kernels only read, or only write: [`READ_ONLY`](MemoryFlags::READ_ONLY) or
    /// [`WRITE_ONLY`](MemoryFlags::WRITE_ONLY). Allocations with other flags fail
    /// ([`allocate_svm_with_flags`](SvmBackend::allocate_svm_with_flags)).
    ///
    /// ```
    /// use binpool_allocators::{Allocator, Backend, MemoryFlags, QueueOrder, SvmAllocator, SvmGrain};
    /// # use binpool_mock::MockDevice;
    ///
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let tables = SvmAllocator::new(&backend, SvmGrain::Coarse)?.with_flags(MemoryFlags::READ_ONLY);
    /// let table = tables.allocate(4096)?;
    /// backend.write(&queue, &table, 0, &[7_u8; 4096])?;
    /// let clear = backend.launch(&queue, "clear", &[], &[&table], |_, bytes| bytes[0].fill(0));
    /// assert!(clear.is_err(), "a kernel may not write it");
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    #[must_use]
    pub fn with_flags(mut self, flags: MemoryFlags) -> Self {
        self.flags = flags;
        self
    }

    /// How finely host and device share the memory.
    #[must_use]
    pub fn grain(&self) -> SvmGrain {
        self.grain
    }
}

impl<B: SvmBackend> Allocator for SvmAllocator<B> {
    type Backend = B;

    fn backend(&self) -> &B {
        &self.backend
    }

    fn allocate(&self, bytes: usize) -> Result<B::Memory> {
        let (alignment, queue) = (Some(self.alignment), self.queue.as_ref());
        self.backend
            .allocate_svm_with_flags(bytes, alignment, self.grain, queue, self.flags)
    }

    fn release(&self, memory: B::Memory, after: &[B::Event]) -> Result<()> {
        self.backend.release(memory, after)
    }

    fn views_are_addresses(&self) -> bool {
        self.backend.limits().svm_views_are_addresses
    }

    fn is_deferred(&self) -> bool {
        false
    }

    fn alignment(&self) -> Align {
        self.alignment
    }
}
