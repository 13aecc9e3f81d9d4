//! A reference to a pool that does not keep it alive.

use std::{fmt, sync::Weak};

use binpool_allocators::Backend;

use crate::{MemoryPool, pool::Handle};

/// A reference to a pool that does not keep it alive. For callbacks that the pool or its allocator keeps, such as a
/// [reclaim hook](MemoryPool::add_reclaim_hook) or a [soft limit](crate::Budget::on_soft_limit). With a
/// handle instead, the callback and the pool would keep each other alive forever.
///
/// ```
/// use binpool::{Backend, Budget, ImmediateAllocator, PoolOptions, QueueOrder};
/// # use binpool_mock::MockDevice;
/// # let backend = MockDevice::new().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let budget = Budget::new(64 << 20);
/// let pool = PoolOptions::new()
///     .budget(&budget)
///     .build(ImmediateAllocator::new(&backend)?, &queue)?;
/// let weak = pool.downgrade();
/// budget.on_soft_limit(32 << 20, move |_| {
///     if let Some(pool) = weak.upgrade() {
///         pool.free_held();
///     }
/// });
/// # Ok::<(), binpool::PoolError>(())
/// ```
pub struct WeakPool<B: Backend> {
    handle: Weak<Handle<B>>,
}

impl<B: Backend> fmt::Debug for WeakPool<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_alive = self.handle.strong_count() > 0;
        f.debug_struct("WeakPool")
            .field("is_alive", &is_alive)
            .finish()
    }
}

impl<B: Backend> Clone for WeakPool<B> {
    fn clone(&self) -> Self {
        Self {
            handle: Weak::clone(&self.handle),
        }
    }
}

impl<B: Backend> WeakPool<B> {
    /// Returns a handle of the pool; `None` if its last handle is gone.
    #[must_use]
    pub fn upgrade(&self) -> Option<MemoryPool<B>> {
        self.handle.upgrade().map(MemoryPool::of)
    }
}

impl<B: Backend> MemoryPool<B> {
    /// Returns a reference to the pool that does not keep it alive.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// // A program that watches all of its pools keeps this of each.
    /// let known = vec![pool.downgrade()];
    /// let managed = || -> u64 {
    ///     let alive = known.iter().filter_map(|weak| weak.upgrade());
    ///     alive.map(|pool| pool.managed_bytes()).sum()
    /// };
    /// drop(pool.allocate(64 << 20)?);
    /// assert_eq!(managed(), 64 << 20);
    /// drop(pool); // The last handle: its memory goes.
    /// assert_eq!(managed(), 0);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    #[must_use]
    pub fn downgrade(&self) -> WeakPool<B> {
        WeakPool {
            handle: self.weak_handle(),
        }
    }
}
