//! What a memory does for a storage that is a pool itself.

use super::{DEDICATED_POOL_POS, ErrorGraph, ManagedMemoryBinding, MemoryAllocationMode, MemoryManagement, PageUpdate};
use crate::storage::ComputeStorage;

impl<Storage: ComputeStorage> MemoryManagement<Storage> {
    /// Gives back to the storage what nothing holds any more.
    pub fn give_back(&mut self, failures: &mut ErrorGraph) {
        if self.dedicated.reclaim(&mut self.storage, failures) {
            self.storage.flush();
        }
    }

    /// Records that commands of another stream, `queue`, use an allocation. Returns whether the storage waits for them by itself;
    /// else, the caller keeps the allocation until they have ended.
    pub fn record_use(&mut self, binding: &ManagedMemoryBinding, queue: usize) -> bool {
        let location = binding.descriptor().location();
        location.init != 0
            && location.pool == DEDICATED_POOL_POS
            && self.dedicated.share(binding).is_some_and(|id| self.storage.record_use(id, queue))
    }

    /// A pool may be asked while a graph is recorded: nothing that it does is recorded.
    pub(super) fn permitted(&self, update: PageUpdate) -> PageUpdate {
        match (self.mode, update) {
            (MemoryAllocationMode::Dedicated, PageUpdate::Forbidden) => PageUpdate::AddOnly,
            _ => update,
        }
    }
}
