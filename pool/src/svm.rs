//! Pools of shared virtual memory.

use std::ptr::NonNull;

use binpool_allocators::{SvmAllocator, SvmBackend, SvmGrain};

use crate::{MemoryPool, PoolError, PooledBuffer};

/// # Shared virtual memory
impl<B: SvmBackend> MemoryPool<B> {
    /// Makes a pool of shared virtual memory (SVM) whose blocks are for `queue`, an in-order one, and are freed in its order: a
    /// pool over an [`SvmAllocator`] [with that queue](SvmAllocator::with_queue). `PyOpenCL`'s `SVMPool`.
    ///
    /// Its blocks always have a queue: the runtime does not count the users of SVM, so only the queue's order protects a block
    /// from reuse while commands still use it.
    ///
    /// ```
    /// # use binpool::{Backend, MemoryPool, QueueOrder, SvmGrain};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// use binpool::SvmBackend;
    ///
    /// let pool = MemoryPool::svm(&backend, SvmGrain::Coarse, &queue)?;
    /// let block = pool.allocate(4096)?;
    /// assert!(block.address().is_some());
    /// let memory = block.memory_on(&queue).ok_or(binpool::InvalidRequest::ZeroSize)?;
    /// assert_eq!(backend.bound_queue(memory)?, Some(queue));
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`SvmAllocator::new`] and [`SvmAllocator::with_queue`], and of [`MemoryPool::new`].
    pub fn svm(backend: &B, grain: SvmGrain, queue: &B::Queue) -> Result<Self, PoolError> {
        let allocator = SvmAllocator::new(backend, grain)?.with_queue(queue)?;
        Self::new(allocator, queue)
    }
}

impl<B: SvmBackend> PooledBuffer<B> {
    /// The address of the block; `None` for the block of 0 bytes, and for memory that has no address.
    ///
    /// If a kernel on a queue other than the block's own gets the address, name that queue with
    /// [`record_use`](Self::record_use). Before the host dereferences it, wait for the block's queue: commands of the
    /// former user may still run there.
    ///
    /// ```
    /// # use binpool::{Backend, QueueOrder, SvmAllocator, SvmGrain, MemoryPool};
    /// # use binpool_mock::MockDevice;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let backend = MockDevice::new().backend();
    /// # let [queue, compute] = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
    /// # let allocator = SvmAllocator::new(&backend, SvmGrain::Coarse)?.with_queue(&queue)?;
    /// # let pool = MemoryPool::new(allocator, &queue)?;
    /// // A list on the device: the first node has the address of the second.
    /// let [first, second] = [pool.allocate(4096)?, pool.allocate(4096)?];
    /// let address = second.address().ok_or("0 bytes")?.addr().get();
    /// first.write(&queue, 0, &address.to_ne_bytes())?;
    /// // A kernel on another queue gets the first node, and follows it to the second.
    /// first.order_before(&compute)?;
    /// second.order_before(&compute)?;
    /// let first = first.memory_on(&compute).ok_or("0 bytes")?;
    /// backend.launch(&compute, "walk", &[first], &[], |_, _| {})?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn address(&self) -> Option<NonNull<u8>> {
        self.backend().svm_address(self.memory()?)
    }
}
