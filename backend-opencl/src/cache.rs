//! Values that are made once for each context.

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    fmt,
    hash::Hash,
    mem,
    sync::Arc,
};

use parking_lot::{Mutex, MutexGuard};

use crate::backend::OpenClBackend;

impl OpenClBackend {
    /// The value of that type and key for this context, which `build` makes where there is none yet: programs and
    /// kernels, which take long to build, and are of one context. The seed's `first_arg_dependent_memoize`, where the
    /// first argument is a context.
    ///
    /// A value is built once, also where several threads ask for it at the same time: the others wait for it. Threads
    /// that ask for different ones do not wait for one another. Keys of different types, and values of different
    /// types, do not meet. An error is passed on and not kept, and neither is a panic: whoever asks next builds again.
    ///
    /// Values are kept until [`clear_cache`](Self::clear_cache), and go with the context: with the last backend,
    /// queue, event or memory of it. All backends of one context and device share them, those of a context of the
    /// program's own that was wrapped several times too. A value that itself holds one of those objects keeps the
    /// context, and with it itself, until the cache is cleared; programs and kernels do not.
    ///
    /// `build` may ask for other values. It must not ask for its own, which would wait for itself.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use binpool_opencl::{ClKernel, ClProgram, Extent, KernelError, OpenClBackend, Parameter};
    ///
    /// /// The kernel that fills floats with a number, built once for each context.
    /// fn filler(backend: &OpenClBackend) -> Result<Arc<ClKernel>, KernelError> {
    ///     backend.cached("fill", || {
    ///         let source = "kernel void fill(global float *data, float value)
    ///             { data[get_global_id(0)] = value; }";
    ///         let program = ClProgram::build(backend, source, "")?;
    ///         let parameters = [
    ///             Parameter::output::<f32>(Extent::PerItem(1)),
    ///             Parameter::value::<f32>(),
    ///         ];
    ///         // SAFETY: each work item writes the float of its id, and touches nothing else.
    ///         unsafe { program.kernel("fill", &parameters) }
    ///     })
    /// }
    ///
    /// let backend = OpenClBackend::open(&"any".parse()?)?;
    /// let fill = filler(&backend)?;
    /// assert!(Arc::ptr_eq(&fill, &filler(&backend)?));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of `build`.
    pub fn cached<K, V, E>(&self, key: K, build: impl FnOnce() -> Result<V, E>) -> Result<Arc<V>, E>
    where
        K: Hash + Eq + Clone + Send + Sync + 'static,
        V: Send + Sync + 'static,
    {
        self.context().cache.get_or_build(key, build)
    }

    /// Lets go of all values that [`cached`](Self::cached) keeps for this context. Whoever holds one keeps it.
    ///
    /// ```
    /// # use std::{convert::Infallible, sync::Arc};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// let table = backend.cached("table", || Ok::<_, Infallible>(vec![0_u8; 1 << 20]))?;
    /// let kept = Arc::downgrade(&table);
    /// drop(table);
    /// assert!(kept.upgrade().is_some(), "the next one who asks gets it");
    /// backend.clear_cache();
    /// assert!(kept.upgrade().is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn clear_cache(&self) {
        self.context().cache.clear();
    }
}

/// Values by their type, and by the type and value of a key.
///
/// No lock is held while a value is built but the one of its own slot, and none while values are dropped. A slot's lock
/// comes before the map's.
#[derive(Default)]
pub(crate) struct Cache {
    /// `Slots<K, V>` under the identity of that type.
    kinds: Mutex<HashMap<TypeId, Box<dyn Any + Send>>>,
}

type Slots<K, V> = HashMap<K, Arc<Slot<V>>>;

/// Where a value is or will be. The lock is held while it is built, and survives a panic meanwhile.
type Slot<V> = Mutex<Option<Arc<V>>>;

impl Cache {
    fn get_or_build<K, V, E>(
        &self,
        key: K,
        build: impl FnOnce() -> Result<V, E>,
    ) -> Result<Arc<V>, E>
    where
        K: Hash + Eq + Clone + Send + Sync + 'static,
        V: Send + Sync + 'static,
    {
        let slot = self.with_slots(|slots: &mut Slots<K, V>| match slots.get(&key) {
            Some(slot) => Arc::clone(slot),
            None => Arc::clone(slots.entry(key.clone()).or_default()),
        });
        let value = slot.lock();
        if let Some(value) = &*value {
            return Ok(Arc::clone(value));
        }
        let mut building = Building {
            cache: self,
            key,
            slot: &slot,
            value,
        };
        let built = Arc::new(build()?);
        *building.value = Some(Arc::clone(&built));
        Ok(built)
    }

    fn with_slots<K, V, R>(&self, run: impl FnOnce(&mut Slots<K, V>) -> R) -> R
    where
        K: Send + Sync + 'static,
        V: Send + Sync + 'static,
    {
        let mut kinds = self.kinds.lock();
        let kind = kinds.entry(TypeId::of::<Slots<K, V>>());
        let slots = kind.or_insert_with(|| Box::new(Slots::<K, V>::new()));
        match slots.downcast_mut() {
            Some(slots) => run(slots),
            // It stands under its own type.
            None => run(&mut Slots::new()),
        }
    }

    fn clear(&self) {
        let kinds = mem::take(&mut *self.kinds.lock());
        drop(kinds);
    }
}

/// A value that is being built. If it is not, its slot is taken out again, unless another thread waits for it.
struct Building<'a, K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    cache: &'a Cache,
    key: K,
    slot: &'a Arc<Slot<V>>,
    value: MutexGuard<'a, Option<Arc<V>>>,
}

impl<K, V> Drop for Building<'_, K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    fn drop(&mut self) {
        if self.value.is_some() {
            return;
        }
        let removed = self.cache.with_slots(|slots: &mut Slots<K, V>| {
            // The map's and ours: whoever waits got theirs from the map, under its lock.
            let is_ours =
                |slot: &Arc<Slot<V>>| Arc::ptr_eq(slot, self.slot) && Arc::strong_count(slot) == 2;
            match slots.get(&self.key) {
                Some(slot) if is_ours(slot) => slots.remove_entry(&self.key),
                _ => None,
            }
        });
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
