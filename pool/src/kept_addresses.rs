//! Memory that stays where it is while something outside the pool knows its addresses.

use binpool_allocators::Backend;

use crate::MemoryPool;

/// While this lives, the pool releases no memory and moves no pages: every address that it has handed out stays the
/// address of the same memory. Made by [`MemoryPool::keep_addresses`].
///
/// ```
/// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
/// # use binpool_mock::MockDevice;
/// # let backend = MockDevice::new().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// use binpool::KeptAddresses;
///
/// struct Graph {
///     // Dropped before the memory may go.
///     // executable: ...
///     _addresses: KeptAddresses<binpool_mock::MockBackend>,
/// }
///
/// let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
/// let graph = Graph { _addresses: pool.keep_addresses() };
/// # drop(graph);
/// # Ok::<(), binpool::PoolError>(())
/// ```
#[derive(Debug)]
#[must_use = "memory may go back to the device when this is dropped"]
pub struct KeptAddresses<B: Backend> {
    /// Keeps the pool, whose last handle would give its memory back.
    pool: MemoryPool<B>,
}

impl<B: Backend> MemoryPool<B> {
    /// Keeps all memory where it is until the result is dropped: the pool releases nothing, unmaps nothing, and moves no
    /// pages. Requests and drops go on as usual, with what the pool has and what it takes from the device.
    ///
    /// It is for anything that remembers addresses, such as a CUDA graph: at each launch its kernels use the addresses that they were captured
    /// with, also of blocks dropped since. Give such a graph a pool of its own, since another request
    /// of the same pool may get those blocks, and keep the pool and this value until the graph is gone.
    ///
    /// When memory runs out, the pool cannot release its free memory. A [`GrowableBuffer`](crate::GrowableBuffer) that is dropped
    /// keeps its pages until addresses are no longer kept. A block of a pool without segments that is given up by
    /// [`enqueue_release`](crate::PooledBuffer::enqueue_release) is released nevertheless. Several of these values may live: memory stays until
    /// the last is dropped.
    ///
    /// ```
    /// # use binpool::{Backend, MemoryPool, QueueOrder, VirtualMemoryAllocator};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::builder().virtual_memory(true).build().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let for_graph = MemoryPool::new(VirtualMemoryAllocator::new(&backend), &queue)?;
    /// let kept = for_graph.keep_addresses();
    /// let temporary = for_graph.allocate(64 << 20)?;
    /// // ... a kernel that uses it is captured ...
    /// drop(temporary);
    /// assert_eq!(for_graph.free_held(), 0); // Each launch of the graph uses its memory.
    /// // ... the graph is launched many times, and destroyed ...
    /// drop(kept);
    /// assert_eq!(for_graph.free_held(), 64 << 20);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    pub fn keep_addresses(&self) -> KeptAddresses<B> {
        self.handle().state.lock().keep_addresses();
        KeptAddresses { pool: self.clone() }
    }
}

impl<B: Backend> Drop for KeptAddresses<B> {
    fn drop(&mut self) {
        let shared = self.pool.handle();
        shared.state.lock().stop_keeping_addresses();
        shared.release_dropped();
        shared.release_unless_holding();
    }
}
