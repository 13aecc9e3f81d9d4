//! Reclaim hooks: functions of the program that free memory.

use std::{fmt, sync::Arc};

use binpool_allocators::contained::contained;
use parking_lot::Mutex;
use slab::Slab;

use crate::sync::{ThreadId, current};

/// The shortage of memory that a reclaim hook is called for.
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
/// assert_eq!(cache.lock().unwrap().len(), 2); // It freed no more than was missing.
/// # Ok::<(), binpool::PoolError>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Shortage {
    /// The size in bytes of the block that could not be allocated.
    pub bytes: usize,
}

/// Identifies a hook, to remove it again.
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
    /// Grows with each hook: gives the order of calls, and tells a hook from a later one with the same key.
    next_age: u64,
    /// The threads that are calling the hooks.
    callers: Vec<ThreadId>,
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

    /// Removes a hook. Returns whether it was there.
    pub(crate) fn remove(&self, id: HookId) -> bool {
        let mut registered = self.registered.lock();
        let found = matches!(registered.hooks.get(id.key), Some((age, _)) if *age == id.age);
        // Dropped after the lock, because a hook may own blocks of this pool.
        let _removed = found.then(|| registered.hooks.remove(id.key));
        drop(registered);
        found
    }

    /// Returns the present hooks, for this thread to call; `None` if it is calling them already.
    pub(crate) fn begin_round(&self) -> Option<Round<'_>> {
        let mut registered = self.registered.lock();
        // Without hooks, no request comes here again, and the caller may be a thread in C whose thread-locals are gone, and with them its id.
        let caller = (!registered.hooks.is_empty()).then(|| current().id());
        if let Some(caller) = caller {
            if registered.callers.contains(&caller) {
                return None;
            }
            registered.callers.push(caller);
        }
        let hooks = registered.hooks.iter();
        let mut hooks: Vec<(u64, Hook)> = hooks
            .map(|(_, (age, hook))| (*age, Arc::clone(hook)))
            .collect();
        hooks.sort_by_key(|(age, _)| *age);
        Some(Round {
            of: self,
            caller,
            hooks,
        })
    }
}

/// One round of calls of a pool's hooks by one thread.
pub(crate) struct Round<'a> {
    of: &'a Hooks,
    /// None if there are no hooks.
    caller: Option<ThreadId>,
    hooks: Vec<(u64, Hook)>,
}

impl Round<'_> {
    /// The hooks, oldest first, to be called without a lock.
    pub(crate) fn hooks(&self) -> impl Iterator<Item = &Hook> {
        self.hooks.iter().map(|(_, hook)| hook)
    }
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        let mut registered = self.of.registered.lock();
        registered
            .callers
            .retain(|caller| Some(*caller) != self.caller);
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks")
            .field("count", &self.registered.lock().hooks.len())
            .finish()
    }
}

/// Calls a hook. A panic in it is caught and logged.
pub(crate) fn call(hook: &Hook, shortage: Shortage) {
    contained(
        format_args!("a reclaim hook for {} bytes", shortage.bytes),
        || hook(&shortage),
    );
}
