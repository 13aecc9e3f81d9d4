//! Reclaim hooks: the program's own ways of freeing memory.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use parking_lot::Mutex;
use slab::Slab;

/// What a reclaim hook is told.
///
/// ```
/// use std::sync::{Arc, Mutex};
///
/// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
/// # use binpool_mock::MockDevice;
/// # let backend = MockDevice::builder().capacity_bytes(64 << 20).build().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
/// let blocks = [(); 4].map(|()| pool.allocate(16 << 20).unwrap());
/// let cache = Arc::new(Mutex::new(Vec::from(blocks)));
/// let to_shrink = Arc::clone(&cache);
/// pool.add_reclaim_hook(move |shortage| {
///     let mut cache = to_shrink.lock().unwrap();
///     let mut freed = 0;
///     while freed < shortage.bytes
///         && let Some(block) = cache.pop()
///     {
///         freed += block.size();
///     }
/// });
/// let large = pool.allocate(32 << 20)?;
/// assert_eq!(cache.lock().unwrap().len(), 2); // No more went than was missing.
/// # Ok::<(), binpool::PoolError>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Shortage {
    /// The size in bytes of the block that could not be had.
    pub bytes: usize,
}

/// Names a hook, to take it away again.
///
/// ```
/// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
/// # use binpool_mock::MockDevice;
/// # let backend = MockDevice::new().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
/// let hook = pool.add_reclaim_hook(|shortage| eprintln!("{} bytes are missing", shortage.bytes));
/// assert!(pool.remove_reclaim_hook(hook));
/// assert!(!pool.remove_reclaim_hook(hook));
/// # Ok::<(), binpool::PoolError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HookId {
    key: usize,
    age: u64,
}

type Hook = Arc<dyn Fn(&Shortage) + Send + Sync>;

#[derive(Default)]
struct Registered {
    hooks: Slab<(u64, Hook)>,
    /// Grows with each hook: the order of calls, and what tells a hook from a later one under the same key.
    next_age: u64,
}

/// The hooks of one pool, called in the order in which they were added.
#[derive(Default)]
pub(crate) struct Hooks {
    registered: Mutex<Registered>,
}

impl Hooks {
    pub(crate) fn add(&self, hook: Hook) -> HookId {
        let mut registered = self.registered.lock();
        let age = registered.next_age;
        registered.next_age += 1;
        HookId {
            key: registered.hooks.insert((age, hook)),
            age,
        }
    }

    /// Whether the hook was there.
    pub(crate) fn remove(&self, id: HookId) -> bool {
        let mut registered = self.registered.lock();
        let found = matches!(registered.hooks.get(id.key), Some((age, _)) if *age == id.age);
        // Dropped after the lock: a hook may own blocks of this very pool.
        let _removed = found.then(|| registered.hooks.remove(id.key));
        drop(registered);
        found
    }

    /// The hooks as they are now, oldest first, to be called without a lock.
    pub(crate) fn snapshot(&self) -> Vec<Hook> {
        let mut hooks: Vec<(u64, Hook)> = self
            .registered
            .lock()
            .hooks
            .iter()
            .map(|(_, (age, hook))| (*age, Arc::clone(hook)))
            .collect();
        hooks.sort_by_key(|(age, _)| *age);
        hooks.into_iter().map(|(_, hook)| hook).collect()
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks")
            .field("count", &self.registered.lock().hooks.len())
            .finish()
    }
}

/// Calls one hook. One that panics frees nothing, and does no other harm.
pub(crate) fn call(hook: &Hook, shortage: Shortage) {
    if catch_unwind(AssertUnwindSafe(|| hook(&shortage))).is_err() {
        tracing::error!(
            bytes = shortage.bytes,
            "a reclaim hook panicked; the pool goes on without its help"
        );
    }
}
