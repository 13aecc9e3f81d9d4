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
    #[must_use]
    pub fn address(&self) -> Option<NonNull<u8>> {
        self.backend().svm_address(self.memory()?)
    }
}
