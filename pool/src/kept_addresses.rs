//! Memory that stays where it is, for as long as something outside the pool knows its addresses.

use binpool_allocators::Backend;

use crate::MemoryPool;

/// While this lives, no memory leaves the pool, and no pages of it move: every address that the pool has handed out stays the
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

impl<B: Backend> KeptAddresses<B> {
    pub(crate) fn new(pool: MemoryPool<B>) -> Self {
        pool.handle().state.lock().keep_addresses();
        Self { pool }
    }
}

impl<B: Backend> Drop for KeptAddresses<B> {
    fn drop(&mut self) {
        let shared = self.pool.handle();
        shared.state.lock().stop_keeping_addresses();
        shared.release_unless_holding();
    }
}
