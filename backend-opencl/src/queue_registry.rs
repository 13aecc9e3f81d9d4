//! Which queues of the runtime have a value of ours, so that each has one identity.
//!
//! The lock is taken where a queue is wrapped and where its last value is dropped, never where a command is
//! enqueued, and no call of the runtime is made under it.

use std::{
    collections::BTreeMap,
    ffi::c_void,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;

use crate::queue::QueueInner;

/// # Invariants
///
/// I1: An entry that can be upgraded stands under the handle that its value holds a reference to, so that
/// the runtime cannot have given that handle to another queue.
static QUEUES: Mutex<BTreeMap<usize, Weak<QueueInner>>> = Mutex::new(BTreeMap::new());

/// The value that stands for the queue of this handle.
pub(crate) fn find(handle: *mut c_void) -> Option<Arc<QueueInner>> {
    QUEUES.lock().get(&handle.addr())?.upgrade()
}

/// Enters `queue`, unless another value stands for the same queue already; that one is returned then.
pub(crate) fn find_or_insert(queue: Arc<QueueInner>) -> Arc<QueueInner> {
    let mut queues = QUEUES.lock();
    let entry = queues.entry(queue.raw().addr()).or_default();
    if let Some(known) = entry.upgrade() {
        drop(queues);
        // `queue` is dropped here, outside the lock, and is not the one entered.
        return known;
    }
    *entry = Arc::downgrade(&queue);
    queue
}

/// Removes the entry of a value that is being dropped, unless a newer one has taken its place.
pub(crate) fn forget(queue: &QueueInner) {
    let mut queues = QUEUES.lock();
    let handle = queue.raw().addr();
    if queues
        .get(&handle)
        .is_some_and(|entry| std::ptr::eq(entry.as_ptr(), queue))
    {
        queues.remove(&handle);
    }
}
