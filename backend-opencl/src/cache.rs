//! Values that are made once for each context.

use std::{
    any::{Any, TypeId},
    cell::{RefCell, RefMut},
    collections::HashMap,
    fmt,
    hash::Hash,
    mem,
    sync::Arc,
};

use binpool_allocators::{Error, InvalidRequest};
use parking_lot::{Mutex, ReentrantMutex};

/// Values by their type, and by the type and value of a key.
///
/// Code of the program runs under two locks only: `build` under that of the slot, and `Hash`, `Eq` and `Clone` of a key
/// under that of the values of its type. No lock is held while values are dropped.
#[derive(Default)]
pub(crate) struct Cache {
    /// `Arc<Slots<K, V>>` under the identity of that type.
    kinds: Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>,
}

type Slots<K, V> = Mutex<HashMap<K, Arc<Slot<V>>>>;

/// The slot of a value that is there or will be. Its lock is held while the value is built, and survives a panic of
/// `build`. The thread that builds can take the lock again, and then finds the value borrowed.
type Slot<V> = ReentrantMutex<RefCell<Option<Arc<V>>>>;

impl Cache {
    pub(crate) fn get_or_build<K, V, E>(
        &self,
        key: K,
        build: impl FnOnce() -> Result<V, E>,
    ) -> Result<Arc<V>, E>
    where
        K: Hash + Eq + Clone + Send + Sync + 'static,
        V: Send + Sync + 'static,
        E: From<Error>,
    {
        let slots = self.slots::<K, V>();
        let slot = {
            let mut slots = slots.lock();
            match slots.get(&key) {
                Some(slot) => Arc::clone(slot),
                None => Arc::clone(slots.entry(key.clone()).or_default()),
            }
        };
        let locked = slot.lock();
        let Ok(value) = locked.try_borrow_mut() else {
            return Err(Error::from(InvalidRequest::AsksForItself).into());
        };
        if let Some(value) = &*value {
            return Ok(Arc::clone(value));
        }
        let mut building = Building {
            slots: &slots,
            key,
            slot: &slot,
            value,
        };
        let built = Arc::new(build()?);
        *building.value = Some(Arc::clone(&built));
        Ok(built)
    }

    /// Returns the values of one type under keys of one type.
    fn slots<K, V>(&self) -> Arc<Slots<K, V>>
    where
        K: Send + Sync + 'static,
        V: Send + Sync + 'static,
    {
        let mut kinds = self.kinds.lock();
        let kind = kinds.entry(TypeId::of::<Slots<K, V>>());
        let slots = kind.or_insert_with(|| Arc::<Slots<K, V>>::default());
        // The entry of a type has a value of that type, so this does not fail.
        Arc::clone(slots).downcast().unwrap_or_default()
    }

    pub(crate) fn clear(&self) {
        let kinds = mem::take(&mut *self.kinds.lock());
        drop(kinds);
    }
}

/// A value that is being built. If the build fails, its slot is removed, unless another thread waits for it.
struct Building<'a, K, V>
where
    K: Hash + Eq,
{
    slots: &'a Slots<K, V>,
    key: K,
    slot: &'a Arc<Slot<V>>,
    value: RefMut<'a, Option<Arc<V>>>,
}

impl<K, V> Drop for Building<'_, K, V>
where
    K: Hash + Eq,
{
    fn drop(&mut self) {
        if self.value.is_some() {
            return;
        }
        let removed = {
            let mut slots = self.slots.lock();
            // One reference of the map, and one of this thread: a thread that waits has got its own from the map, under the
            // lock.
            let is_ours =
                |slot: &Arc<Slot<V>>| Arc::ptr_eq(slot, self.slot) && Arc::strong_count(slot) == 2;
            match slots.get(&self.key) {
                Some(slot) if is_ours(slot) => slots.remove_entry(&self.key),
                _ => None,
            }
        };
        drop(removed);
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("kinds", &self.kinds.lock().len())
            .finish()
    }
}
