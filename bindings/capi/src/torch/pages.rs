//! The pages that are mapped, which a snapshot of PyTorch's shows.

use std::{
    collections::BTreeMap,
    ffi::c_int,
    sync::{
        Arc,
        atomic::{AtomicPtr, AtomicU64, Ordering},
    },
};

use binpool::{Allocator, Error, Memory, Region};
use binpool_allocators::forward_to_inner;
use binpool_allocators::{EventOf, MemoryOf};
use parking_lot::{Mutex, MutexGuard};

/// What is told of pages: the device, the address, the bytes, and whether they were mapped (1) or unmapped (0).
pub type PagesWatcher = extern "C" fn(c_int, u64, usize, c_int);

/// The watcher, as a pointer; null if there is none.
static WATCHER: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// Sets the function that is told of pages from now on.
pub(super) fn watch(watcher: Option<PagesWatcher>) {
    let pointer = watcher.map_or(std::ptr::null_mut(), |watcher| watcher as *mut ());
    WATCHER.store(pointer, Ordering::Release);
}

#[expect(unsafe_code, reason = "a function behind an atomic pointer")]
fn tell(device: c_int, address: u64, bytes: usize, is_mapped: bool) {
    let pointer = WATCHER.load(Ordering::Acquire);
    if !pointer.is_null() {
        // SAFETY: Only `watch` stores pointers there, of functions of this type.
        let watcher = unsafe { std::mem::transmute::<*mut (), PagesWatcher>(pointer) };
        watcher(device, address, bytes, c_int::from(is_mapped));
    }
}

/// The pages of one device.
#[derive(Debug, Default)]
pub(super) struct Pages {
    /// By their addresses, with their bytes.
    mapped: Mutex<BTreeMap<u64, usize>>,
    unmapped_bytes: AtomicU64,
}

impl Pages {
    pub(super) fn mapped(&self) -> BTreeMap<u64, usize> {
        self.lock().clone()
    }

    /// Locks what is mapped: nothing is mapped or unmapped meanwhile.
    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, usize>> {
        self.mapped.lock()
    }

    pub(super) fn unmapped_bytes(&self) -> u64 {
        self.unmapped_bytes.load(Ordering::Relaxed)
    }
}

/// An allocator of pages that notes where they are mapped.
#[derive(Debug)]
pub(super) struct NotedPages<A> {
    pub(super) inner: A,
    pub(super) device: c_int,
    pub(super) pages: Arc<Pages>,
}

impl<A: Allocator> Allocator for NotedPages<A> {
    forward_to_inner!(properties);
    forward_to_inner!(views);
    forward_to_inner!(limits);

    fn allocate(&self, bytes: usize) -> Result<MemoryOf<Self>, Error> {
        self.inner.allocate(bytes)
    }

    fn release(&self, memory: MemoryOf<Self>, after: &[EventOf<Self>]) -> Result<(), Error> {
        self.inner.release(memory, after)
    }

    fn page_bytes(&self) -> Option<usize> {
        self.inner.page_bytes()
    }

    fn reserve(&self, bytes: usize) -> Result<MemoryOf<Self>, Error> {
        self.inner.reserve(bytes)
    }

    fn map(
        &self,
        reservation: &MemoryOf<Self>,
        offset: usize,
        pages: &MemoryOf<Self>,
    ) -> Result<(), Error> {
        let address = reservation.device_address()? + offset as u64;
        {
            // Held while the driver maps, so that a device that becomes a peer meanwhile is admitted to these pages, too.
            let mut mapped = self.pages.lock();
            self.inner.map(reservation, offset, pages)?;
            mapped.insert(address, pages.bytes());
        }
        tell(self.device, address, pages.bytes(), true);
        Ok(())
    }

    fn unmap(&self, reservation: &MemoryOf<Self>, region: Region) -> Result<(), Error> {
        let address = reservation.device_address()? + region.offset as u64;
        {
            let mut mapped = self.pages.lock();
            self.inner.unmap(reservation, region)?;
            mapped.retain(|at, _| *at < address || *at >= address + region.bytes as u64);
        }
        let bytes = region.bytes as u64;
        self.pages
            .unmapped_bytes
            .fetch_add(bytes, Ordering::Relaxed);
        tell(self.device, address, region.bytes, false);
        Ok(())
    }
}
