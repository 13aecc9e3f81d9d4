//! Pools of shared virtual memory.

use std::ptr::NonNull;

use binpool_allocators::{Allocator, SvmAllocator, SvmBackend, SvmGrain};

use crate::{MemoryPool, PoolError, PooledBuffer};

/// A pool of shared virtual memory (SVM). `PyOpenCL`'s `SVMPool`.
///
/// Its blocks always have a queue: the runtime does not count the users of SVM, so nothing else would keep a block from
/// its next user.
///
/// ```
/// use binpool::{Backend, QueueOrder, SvmGrain, SvmPool};
/// use binpool_mock::MockDevice;
///
/// let backend = MockDevice::new().backend();
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let pool = SvmPool::bound_to(&backend, SvmGrain::Coarse, &queue)?;
/// let block = pool.allocate(4096)?;
/// assert!(block.address().is_some());
/// # Ok::<(), binpool::PoolError>(())
/// ```
pub type SvmPool<B> = MemoryPool<SvmAllocator<B>>;

impl<B: SvmBackend> SvmPool<B> {
    /// Makes a pool whose blocks are for `queue`, an in-order one, and are freed in its order: a pool over an
    /// [`SvmAllocator`] [with that queue](SvmAllocator::with_queue).
    ///
    /// ```
    /// # use binpool::{Backend, QueueOrder, SvmGrain, SvmPool};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// use binpool::SvmBackend;
    ///
    /// let pool = SvmPool::bound_to(&backend, SvmGrain::Coarse, &queue)?;
    /// let block = pool.allocate(4096)?;
    /// let memory = block.memory_on(&queue).ok_or(binpool::InvalidRequest::ZeroSize)?;
    /// assert_eq!(backend.bound_queue(memory)?, Some(queue));
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`SvmAllocator::new`] and [`SvmAllocator::with_queue`], and of [`MemoryPool::new`].
    pub fn bound_to(backend: &B, grain: SvmGrain, queue: &B::Queue) -> Result<Self, PoolError> {
        let allocator = SvmAllocator::new(backend, grain)?.with_queue(queue)?;
        Self::new(allocator, queue)
    }
}

/// A block of shared virtual memory that goes back to its pool. `PyOpenCL`'s `PooledSVM`.
pub type PooledSvm<B> = PooledBuffer<SvmAllocator<B>>;

impl<A: Allocator> PooledBuffer<A>
where
    A::Backend: SvmBackend,
{
    /// The address of the block; `None` for the block of 0 bytes, and for memory that has no address.
    ///
    /// If a kernel on another queue than the block's own gets the address, name that queue by
    /// [`record_use`](Self::record_use). Before the host dereferences it, wait for the block's queue: commands of the
    /// former user may still run there.
    ///
    /// ```
    /// # use binpool::{Backend, QueueOrder, SvmAllocator, SvmGrain, SvmPool};
    /// # use binpool_mock::MockDevice;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let backend = MockDevice::new().backend();
    /// # let [queue, compute] = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
    /// # let allocator = SvmAllocator::new(&backend, SvmGrain::Coarse)?.with_queue(&queue)?;
    /// # let pool = SvmPool::new(allocator, &queue)?;
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
