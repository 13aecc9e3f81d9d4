//! Pools of shared virtual memory.

use std::ptr::NonNull;

use binpool_allocators::{Allocator, SvmAllocator, SvmBackend};

use crate::{MemoryPool, PooledBuffer};

/// A pool of shared virtual memory (SVM). `PyOpenCL`'s `SVMPool`.
///
/// It is the same pool: the queue that its blocks are for is never optional, since SVM has no reference counts
/// that would keep a block from its next user.
///
/// ```
/// use binpool::{Backend, QueueOrder, SvmAllocator, SvmGrain, SvmPool};
/// use binpool_mock::MockDevice;
///
/// let backend = MockDevice::new().backend();
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let allocator = SvmAllocator::new(&backend, SvmGrain::Coarse)?.with_queue(&queue)?;
/// let pool = SvmPool::new(allocator, &queue)?;
/// let block = pool.allocate(4096)?;
/// assert!(block.address().is_some());
/// # Ok::<(), binpool::PoolError>(())
/// ```
pub type SvmPool<B> = MemoryPool<SvmAllocator<B>>;

/// A block of shared virtual memory that goes back to its pool. `PyOpenCL`'s `PooledSVM`.
pub type PooledSvm<B> = PooledBuffer<SvmAllocator<B>>;

impl<A: Allocator> PooledBuffer<A>
where
    A::Backend: SvmBackend,
{
    /// The address of the block; `None` for the block of 0 bytes, and for memory that has no address.
    ///
    /// A kernel that is given it on another queue than the block's own is named by
    /// [`record_use`](Self::record_use). The host that dereferences it first waits for the block's queue: its
    /// former owner's commands may still run there.
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
    /// first.write(&queue, 0, &address.to_ne_bytes(), &[])?;
    /// // A kernel on another queue is given the first node, and goes from there to the second.
    /// first.order_before(&compute)?;
    /// second.order_before(&compute)?;
    /// let first = first.memory_on(&compute).ok_or("0 bytes")?;
    /// backend.launch(&compute, "walk", &[first], &[], |_, _| {}, &[])?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn address(&self) -> Option<NonNull<u8>> {
        self.backend().svm_address(self.memory()?)
    }
}
