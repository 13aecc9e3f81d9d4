//! Which contexts of the runtime have a value of ours, so that wrapping one twice gives one [`Context`].
//!
//! The lock is taken where a context is opened or wrapped and where its last value is dropped. No call of the runtime
//! is made under it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;

use crate::context::Context;

/// The addresses of a context and one of its devices.
type Key = (usize, usize);

/// # Invariants
///
/// I1: An entry that can be upgraded stands under the handle that its value holds a reference to, so that
/// the runtime cannot have given that handle to another context.
static CONTEXTS: Mutex<BTreeMap<Key, Weak<Context>>> = Mutex::new(BTreeMap::new());

fn key(context: &Context) -> Key {
    (context.handle.raw().addr(), context.device.raw().addr())
}

/// Enters `context`, unless another value stands for the same context and device already; that one is returned then.
pub(crate) fn find_or_insert(context: Arc<Context>) -> Arc<Context> {
    let mut contexts = CONTEXTS.lock();
    let entry = contexts.entry(key(&context)).or_default();
    if let Some(known) = entry.upgrade() {
        drop(contexts);
        // `context` is dropped here, outside the lock, and is not the one entered.
        return known;
    }
    *entry = Arc::downgrade(&context);
    context
}

/// Removes the entry of a value that is being dropped, unless a newer one has taken its place.
pub(crate) fn forget(context: &Context) {
    let mut contexts = CONTEXTS.lock();
    if contexts
        .get(&key(context))
        .is_some_and(|entry| std::ptr::eq(entry.as_ptr(), context))
    {
        contexts.remove(&key(context));
    }
}
