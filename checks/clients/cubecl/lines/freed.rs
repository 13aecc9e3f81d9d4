//! Says which allocations nothing holds any more, so that no pool has to look through them.

use super::{ManagedMemoryDescriptor, ManagedMemoryHandle};
use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The numbers of slices, once for each owner that let go of its slice.
#[derive(Debug, Default)]
pub struct FreedSlices {
    any: AtomicBool,
    slices: Mutex<Vec<u32>>,
}

impl FreedSlices {
    fn push(&self, slice: u32) {
        let mut slices = self.slices.lock().unwrap_or_else(PoisonError::into_inner);
        slices.push(slice);
        self.any.store(true, Ordering::Release);
    }

    /// Moves the numbers that have come to the end of `to`.
    pub fn take(&self, to: &mut Vec<u32>) {
        if self.any.load(Ordering::Acquire) {
            let mut slices = self.slices.lock().unwrap_or_else(PoisonError::into_inner);
            self.any.store(false, Ordering::Relaxed);
            to.append(&mut slices);
        }
    }
}

/// Whom a descriptor tells of its end.
pub(super) type Freed = OnceLock<Arc<FreedSlices>>;

impl ManagedMemoryHandle {
    /// Adds this memory's slice to `freed` when the last of its handles and bindings is dropped.
    pub fn report_to(&self, freed: &Arc<FreedSlices>) {
        let _already = self.descriptor.freed.set(freed.clone());
    }

    /// Returns a handle by which a pool knows this memory without keeping it. It counts among the handles as the pool's own does.
    pub fn for_pool(&self) -> Self {
        let location = self.descriptor.location.load(Ordering::Relaxed);
        Self {
            descriptor: Arc::new(ManagedMemoryDescriptor {
                id: self.descriptor.id,
                location: AtomicU64::new(location),
                freed: Freed::new(),
            }),
            handle_count: self.handle_count.clone(),
        }
    }
}

impl ManagedMemoryDescriptor {
    /// How many of the references to this are a pool's.
    pub(super) fn references_of_pool(&self) -> usize {
        usize::from(self.freed.get().is_none())
    }
}

impl Drop for ManagedMemoryDescriptor {
    fn drop(&mut self) {
        if let Some(freed) = self.freed.get() {
            freed.push(self.location().slice);
        }
    }
}
