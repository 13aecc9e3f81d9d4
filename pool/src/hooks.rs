//! Reclaim hooks: functions of the program that free memory.

use std::{collections::BTreeMap, sync::Arc};

use binpool_allocators::contained::contained;
use parking_lot::Mutex;

use binpool_lock::sync::{ThreadId, current};

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
///     freed > 0 // It may be called again if the request still fails.
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
/// let hook = pool.add_reclaim_hook(|shortage| {
///     eprintln!("{} bytes are missing", shortage.bytes);
///     false // It freed nothing.
/// });
/// assert!(pool.remove_reclaim_hook(hook));
/// assert!(!pool.remove_reclaim_hook(hook));
/// # Ok::<(), binpool::PoolError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HookId(u64);

type Hook = Arc<dyn Fn(&Shortage) -> bool + Send + Sync>;

/// The most calls of one hook for one request, so that a request ends beside a hook that always says that it freed something.
const MOST_CALLS: u32 = 100;

#[derive(Default)]
struct Registered {
    /// By their numbers, which grow: the oldest comes first.
    hooks: BTreeMap<u64, Hook>,
    next: u64,
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
        let number = registered.next;
        registered.next += 1;
        registered.hooks.insert(number, hook);
        HookId(number)
    }

    /// Removes a hook. Returns whether it was there.
    pub(crate) fn remove(&self, id: HookId) -> bool {
        // Dropped after the lock, because a hook may own blocks of this pool.
        let removed = self.registered.lock().hooks.remove(&id.0);
        removed.is_some()
    }

    /// Returns the present hooks, for this thread to call: none if it is calling them already.
    pub(crate) fn begin_round(&self) -> Round<'_> {
        let mut registered = self.registered.lock();
        // Without hooks, the caller may be a thread in C whose thread-locals are gone, and with them its id.
        let caller = (!registered.hooks.is_empty()).then(|| current().id());
        let caller = caller.filter(|caller| !registered.callers.contains(caller));
        registered.callers.extend(caller);
        let hooks = registered.hooks.values().rev().cloned();
        Round {
            of: self,
            caller,
            hooks: caller.map_or_else(Vec::new, |_| hooks.collect()),
            calls: 0,
        }
    }
}

/// One round of calls of a pool's hooks by one thread.
pub(crate) struct Round<'a> {
    of: &'a Hooks,
    /// `None` if there is nothing to call.
    caller: Option<ThreadId>,
    /// Those that are left to call: the oldest is the last.
    hooks: Vec<Hook>,
    /// How often the present one was called.
    calls: u32,
}

impl Round<'_> {
    /// Calls `before` and then the present hook, and goes on to the next hook unless this one says that it freed something. A panic in it is caught
    /// and logged. Returns whether there was one left.
    pub(crate) fn call_next(&mut self, shortage: Shortage, before: impl FnOnce()) -> bool {
        let Some(hook) = self.hooks.last() else {
            return false;
        };
        before();
        let what = format_args!("a reclaim hook for {} bytes", shortage.bytes);
        let has_freed = contained(what, || hook(&shortage)) == Some(true);
        self.calls += 1;
        if !has_freed || self.calls == MOST_CALLS {
            self.hooks.pop();
            self.calls = 0;
        }
        true
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
