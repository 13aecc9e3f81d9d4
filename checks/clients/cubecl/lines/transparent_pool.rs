use super::{ManagedMemoryBinding, ManagedMemoryHandle, MemoryPool, PageMapping, Slice, calculate_padding};
use crate::memory_management::{
    Cleanup, ErrorGraph, FreedSlices, MemoryLocation, MemoryPoolKind, MemoryPoolReport, MemoryUsage, PageGuard,
};
use crate::server::IoError;
use crate::storage::{ComputeStorage, StorageId, StorageUtilization};
use alloc::{sync::Arc, vec::Vec};
use cubecl_environment::backtrace::BackTrace;

/// Gives each reservation an allocation of the storage, and gives it back when nothing holds it: for a storage that is a pool itself.
pub struct DirectPool {
    entries: Vec<Option<Entry>>,
    vacant: Vec<u32>,
    /// Where the owners of slices leave their numbers.
    freed: Arc<FreedSlices>,
    /// Slices without owners, which a stream that records a graph can reuse.
    unowned: Vec<u32>,
    alignment: u64,
    location: MemoryLocation,
    live: u64,
    live_peak: u64,
    largest_alloc: u64,
}

struct Entry {
    slice: Slice,
    /// Handles (with all of their clones and bindings) and page guards.
    owners: u32,
    /// Commands of another stream used it, which only the storage waits for.
    shared: bool,
}

impl DirectPool {
    pub fn new(alignment: u64, pool: u8, _reclaim_at: Option<u64>) -> Self {
        Self {
            entries: Vec::new(),
            vacant: Vec::new(),
            freed: Arc::default(),
            unowned: Vec::new(),
            alignment,
            location: MemoryLocation::new(pool, 0, 0),
            live: 0,
            live_peak: 0,
            largest_alloc: 0,
        }
    }

    pub(crate) fn report(&self) -> MemoryPoolReport {
        MemoryPoolReport {
            kind: MemoryPoolKind::Direct,
            usage: self.get_memory_usage(),
            pages: self.live,
            pages_peak: self.live_peak,
            pages_unmapped: self.live().filter(|entry| !entry.slice.mapped).count() as u64,
            largest_alloc: self.largest_alloc,
        }
    }

    fn live(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().flatten()
    }

    /// Gives what nothing holds back to the storage, and returns whether that was anything.
    pub(crate) fn reclaim<Storage: ComputeStorage>(
        &mut self,
        storage: &mut Storage,
        failures: &mut ErrorGraph,
    ) -> bool {
        self.find_unowned();
        let any = !self.unowned.is_empty();
        for index in self.unowned.drain(..) {
            let Some(mut entry) = self.entries[index as usize].take() else {
                continue;
            };
            if entry.slice.mapped {
                storage.dealloc(entry.slice.storage.id);
            }
            entry.slice.tainted.clear(failures);
            self.vacant.push(index);
            self.live -= 1;
        }
        any
    }

    /// Notes that commands of another stream use a slice, and returns its allocation.
    pub(crate) fn share(&mut self, binding: &ManagedMemoryBinding) -> Option<StorageId> {
        let entry = self.entry(binding.descriptor().slice()).ok()?;
        let is_there = entry.slice.mapped && entry.slice.descriptor() == binding.descriptor();
        entry.shared |= is_there;
        is_there.then_some(entry.slice.storage.id)
    }

    fn find_unowned(&mut self) {
        let from = self.unowned.len();
        self.freed.take(&mut self.unowned);
        let mut kept = from;
        for at in from..self.unowned.len() {
            let index = self.unowned[at];
            if let Some(Some(entry)) = self.entries.get_mut(index as usize) {
                entry.owners -= 1;
                if entry.owners == 0 {
                    self.unowned[kept] = index;
                    kept += 1;
                }
            }
        }
        self.unowned.truncate(kept);
    }

    /// A handle of the slice at `index`, which nothing holds, for a new reservation.
    fn hand_out(&mut self, index: u32, size: u64) -> Option<ManagedMemoryHandle> {
        let entry = self.entries.get_mut(index as usize)?.as_mut()?;
        entry.slice.padding = calculate_padding(size, self.alignment);
        entry.slice.storage.utilization = StorageUtilization { offset: 0, size };
        let handle = ManagedMemoryHandle::new();
        let location = MemoryLocation { slice: index, ..self.location };
        handle.descriptor().update_location(location);
        handle.report_to(&self.freed);
        entry.owners += 1;
        entry.slice.handle = handle.for_pool();
        self.largest_alloc = self.largest_alloc.max(size);
        Some(handle)
    }

    fn entry(&mut self, index: usize) -> Result<&mut Entry, IoError> {
        self.entries.get_mut(index).and_then(Option::as_mut).ok_or_else(|| missing(index))
    }
}

fn missing(index: usize) -> IoError {
    IoError::NotFound {
        backtrace: BackTrace::capture(),
        reason: alloc::format!("Memory slice {index} doesn't exist").into(),
    }
}

impl MemoryPool for DirectPool {
    fn accept(&self, _size: u64) -> bool {
        true
    }

    fn find(&self, binding: &ManagedMemoryBinding) -> Result<&Slice, IoError> {
        let index = binding.descriptor().slice();
        let entry = self.entries.get(index).and_then(Option::as_ref);
        entry.map(|entry| &entry.slice).ok_or_else(|| missing(index))
    }

    fn find_mut(&mut self, binding: &ManagedMemoryBinding) -> Result<&mut Slice, IoError> {
        Ok(&mut self.entry(binding.descriptor().slice())?.slice)
    }

    /// Reuses an unowned slice of the same size. There are some only while a graph is recorded, when none are given back.
    fn try_reserve(&mut self, size: u64, failures: &mut ErrorGraph) -> Option<ManagedMemoryHandle> {
        self.find_unowned();
        let wanted = size + calculate_padding(size, self.alignment);
        let fits = |index: &u32| {
            let entry = self.entries.get(*index as usize).and_then(Option::as_ref);
            entry.is_some_and(|entry| !entry.shared && entry.slice.effective_size() == wanted)
        };
        let at = self.unowned.iter().position(fits)?;
        let index = self.unowned.swap_remove(at);
        self.entry(index as usize).ok()?.slice.tainted.clear(failures);
        self.hand_out(index, size)
    }

    fn alloc<Storage: ComputeStorage>(
        &mut self,
        storage: &mut Storage,
        size: u64,
        mapping: PageMapping,
        failures: &mut ErrorGraph,
    ) -> Result<ManagedMemoryHandle, IoError> {
        if let Some(handle) = self.try_reserve(size, failures) {
            return Ok(handle);
        }
        let padding = calculate_padding(size, self.alignment);
        let mut slice = Slice::new(mapping.storage_handle(storage, size + padding)?, padding);
        slice.mapped = matches!(mapping, PageMapping::Eager);
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.entries.push(None);
            (self.entries.len() - 1) as u32
        });
        self.entries[index as usize] = Some(Entry { slice, owners: 0, shared: false });
        self.live += 1;
        self.live_peak = self.live_peak.max(self.live);
        self.hand_out(index, size).ok_or_else(|| missing(index as usize))
    }

    fn materialize<Storage: ComputeStorage>(
        &mut self,
        storage: &mut Storage,
        binding: &ManagedMemoryBinding,
    ) -> Result<(), IoError> {
        match self.entry(binding.descriptor().slice()) {
            Ok(entry) if !entry.slice.mapped && entry.slice.descriptor() == binding.descriptor() => {
                entry.slice.materialize(storage)
            }
            _ => Ok(()),
        }
    }

    fn guard(&mut self, location: MemoryLocation) -> Option<PageGuard> {
        self.find_unowned();
        let freed = self.freed.clone();
        let index = location.slice;
        let entry = self.entry(index as usize).ok()?;
        entry.owners += 1;
        let guard = ManagedMemoryHandle::new();
        guard.descriptor().update_location(location);
        guard.report_to(&freed);
        self.unowned.retain(|unowned| *unowned != index);
        Some(PageGuard::allocation(guard.binding()))
    }

    fn get_memory_usage(&self) -> MemoryUsage {
        let mut usage = MemoryUsage::default();
        for entry in self.live() {
            usage.bytes_reserved += entry.slice.effective_size();
            if entry.owners > 0 {
                usage.number_allocs += 1;
                usage.bytes_in_use += entry.slice.storage.size();
                usage.bytes_padding += entry.slice.padding;
            }
        }
        usage
    }

    fn cleanup<Storage: ComputeStorage>(
        &mut self,
        storage: &mut Storage,
        _alloc_nr: u64,
        _cleanup: Cleanup,
        failures: &mut ErrorGraph,
    ) {
        self.reclaim(storage, failures);
    }

    fn bind(
        &mut self,
        reserved: ManagedMemoryHandle,
        assigned: ManagedMemoryHandle,
        cursor: u64,
        failures: &mut ErrorGraph,
    ) -> Result<(), IoError> {
        let freed = self.freed.clone();
        let entry = self.entry(reserved.descriptor().slice())?;
        assigned.descriptor().update_location(reserved.descriptor().location());
        assigned.report_to(&freed);
        // The drop of `reserved` takes its own away.
        entry.owners += 1;
        entry.slice.bind(assigned.for_pool(), failures);
        entry.slice.cursor = cursor;
        Ok(())
    }
}
