//! Objects that a program makes, and their handles.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicUsize, Ordering},
};

use parking_lot::Mutex;

use crate::{Code, INVALID_HANDLE};

/// The number of the device is in the bits of a handle from here on.
pub(crate) const ORDINAL: u32 = 40;

/// Returns the handle of a number on a device.
pub(crate) fn handle(ordinal: i32, number: usize) -> usize {
    (usize::try_from(ordinal).unwrap_or(0) << ORDINAL) + number
}

/// Returns a handle that no other object has.
fn fresh(ordinal: i32) -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(1 << 30);
    handle(ordinal, NEXT.fetch_add(1, Ordering::SeqCst))
}

/// The objects of one kind that a program has made on a device, and not destroyed.
pub(crate) struct Objects<T> {
    ordinal: i32,
    by_handle: Mutex<HashMap<usize, T>>,
}

impl<T: Clone> Objects<T> {
    pub(crate) fn of(ordinal: i32) -> Self {
        let by_handle = Mutex::default();
        Self { ordinal, by_handle }
    }

    /// Returns the handle of a new object.
    pub(crate) fn add(&self, object: T) -> usize {
        self.make(|_| object)
    }

    /// Returns the handle of a new object that knows it.
    pub(crate) fn make(&self, make: impl FnOnce(usize) -> T) -> usize {
        let handle = fresh(self.ordinal);
        let object = make(handle);
        self.by_handle.lock().insert(handle, object);
        handle
    }

    pub(crate) fn get(&self, handle: usize) -> Result<T, Code> {
        let objects = self.by_handle.lock();
        objects.get(&handle).cloned().ok_or(INVALID_HANDLE)
    }

    pub(crate) fn change(&self, handle: usize, change: impl FnOnce(&mut T)) -> Result<(), Code> {
        let mut objects = self.by_handle.lock();
        objects.get_mut(&handle).map(change).ok_or(INVALID_HANDLE)
    }

    pub(crate) fn destroy(&self, handle: usize) -> Result<(), Code> {
        let gone = self.by_handle.lock().remove(&handle);
        gone.map(drop).ok_or(INVALID_HANDLE)
    }

    pub(crate) fn count(&self) -> usize {
        self.by_handle.lock().len()
    }
}
