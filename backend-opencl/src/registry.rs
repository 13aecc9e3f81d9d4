//! The values that stand for objects of the runtime. With them, wrapping one object twice gives one value.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;

/// The living values of one type, by the handles of their objects.
///
/// The lock is held for a look-up only: no call of the runtime is made, and no value dropped, under it.
///
/// # Invariants
///
/// I1: An entry that can be upgraded stands under the handle that its value holds a reference to, so the runtime cannot have
/// given that handle to another object. Callers insert a value under its own handle, and it keeps its reference until it is
/// dropped.
pub(crate) struct Registry<K, V> {
    entries: Mutex<BTreeMap<K, Weak<V>>>,
}

impl<K: Ord, V> Registry<K, V> {
    pub(crate) const fn new() -> Self {
        Self {
            entries: Mutex::new(BTreeMap::new()),
        }
    }

    /// The value that stands for the object of `handle`.
    pub(crate) fn find(&self, handle: &K) -> Option<Arc<V>> {
        self.entries.lock().get(handle)?.upgrade()
    }

    /// Inserts `value`, unless a value stands for the same object already; that one is returned then.
    pub(crate) fn find_or_insert(&self, handle: K, value: Arc<V>) -> Arc<V> {
        let mut entries = self.entries.lock();
        let entry = entries.entry(handle).or_default();
        if let Some(known) = entry.upgrade() {
            drop(entries);
            // `value` is dropped here, outside the lock.
            return known;
        }
        *entry = Arc::downgrade(&value);
        value
    }

    /// Removes the entry of a value that is being dropped. The entry of a living value, which was inserted since under the same
    /// handle, stays.
    pub(crate) fn forget(&self, handle: &K) {
        let mut entries = self.entries.lock();
        let is_gone = |entry: &Weak<V>| entry.strong_count() == 0;
        if entries.get(handle).is_some_and(is_gone) {
            entries.remove(handle);
        }
    }
}
