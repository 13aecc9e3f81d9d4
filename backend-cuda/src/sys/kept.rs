//! The values that graphs have kept.

use std::{
    any::Any,
    mem,
    sync::atomic::{AtomicBool, Ordering},
};

use parking_lot::Mutex;

/// A value of any type.
pub(crate) type Kept = Box<dyn Any + Send>;

/// The values of graphs that are gone. The driver says so on a thread that may not call it, so others drop them.
#[derive(Default)]
pub(crate) struct OfEndedGraphs {
    is_any: AtomicBool,
    values: Mutex<Vec<Kept>>,
}

impl OfEndedGraphs {
    pub(super) fn put(&self, value: Kept) {
        self.values.lock().push(value);
        self.is_any.store(true, Ordering::Release);
    }

    /// Drops the values.
    #[inline]
    pub(crate) fn clear(&self) {
        if self.is_any.load(Ordering::Acquire) {
            self.drop_values();
        }
    }

    #[cold]
    fn drop_values(&self) {
        self.is_any.store(false, Ordering::Release);
        // Taken out first: their drops may come here again.
        let values = mem::take(&mut *self.values.lock());
        drop(values);
    }
}
