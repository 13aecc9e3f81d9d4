//! A reference to a pool that does not keep it alive.

use std::{fmt, sync::Weak};

use binpool_allocators::Allocator;

use crate::{MemoryPool, pool::Handle};

/// A reference to a pool that does not keep it alive. For callbacks that the pool or its allocator keeps, such as a
/// [reclaim hook](MemoryPool::add_reclaim_hook) or a [soft limit](binpool_allocators::adaptors::Budget::on_soft_limit). With a
/// handle instead, the callback and the pool would keep each other alive for good.
///
/// ```
/// use binpool::adaptors::{Budget, Limit};
/// use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
/// # use binpool_mock::MockDevice;
/// # let backend = MockDevice::new().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let budget = Budget::new(64 << 20);
/// let allocator = Limit::shared(ImmediateAllocator::new(&backend)?, &budget);
/// let pool = MemoryPool::new(allocator, &queue)?;
/// let weak = pool.downgrade();
/// budget.on_soft_limit(32 << 20, move |_| {
///     if let Some(pool) = weak.upgrade() {
///         pool.free_held();
///     }
/// });
/// # Ok::<(), binpool::PoolError>(())
/// ```
pub struct WeakPool<A: Allocator> {
    handle: Weak<Handle<A>>,
}

impl<A: Allocator> fmt::Debug for WeakPool<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_alive = self.handle.strong_count() > 0;
        f.debug_struct("WeakPool")
            .field("is_alive", &is_alive)
            .finish()
    }
}

impl<A: Allocator> Clone for WeakPool<A> {
    fn clone(&self) -> Self {
        Self {
            handle: Weak::clone(&self.handle),
        }
    }
}

impl<A: Allocator> WeakPool<A> {
    pub(crate) const fn new(handle: Weak<Handle<A>>) -> Self {
        Self { handle }
    }

    /// Returns a handle of the pool; `None` if its last handle is gone.
    #[must_use]
    pub fn upgrade(&self) -> Option<MemoryPool<A>> {
        self.handle.upgrade().map(MemoryPool::of)
    }
}
