//! The allocator of pages, which a pool maps to addresses that it has reserved.

use crate::{Allocator, Region, Result, VirtualMemory};

/// Allocates pages of virtual memory. They have no addresses: the user of this allocator [reserves](Allocator::reserve) addresses, and
/// [maps](Allocator::map) pages to them.
///
/// A pool over it places its blocks in a few large reservations, allocates pages when memory is missing there, and moves free pages: once
/// the commands that used them have ended, or earlier, by a second address, for a block whose commands come after these. So it holds little
/// more than the program uses.
///
/// ```
/// use binpool_allocators::{Allocator, Backend, MemoryKind, Memory, Region, VirtualMemoryAllocator};
/// use binpool_mock::MockDevice;
///
/// let backend = MockDevice::builder().virtual_memory(true).build().backend();
/// let allocator = VirtualMemoryAllocator::new(&backend);
/// let page = allocator.page_bytes().unwrap();
/// let pages = allocator.allocate(page)?;
/// let reservation = allocator.reserve(1 << 30)?;
/// allocator.map(&reservation, 0, &pages)?;
/// let block = allocator.create_view(&reservation, Region::first(4096))?;
/// assert_eq!((pages.kind(), block.kind()), (MemoryKind::Pages, MemoryKind::Buffer));
/// # drop(block);
/// allocator.unmap(&reservation, Region::first(page))?;
/// allocator.release(pages, &[])?;
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct VirtualMemoryAllocator<B> {
    backend: B,
}

impl<B: VirtualMemory> VirtualMemoryAllocator<B> {
    /// Allocates pages of `backend`.
    #[must_use]
    pub fn new(backend: &B) -> Self {
        Self {
            backend: backend.clone(),
        }
    }
}

impl<B: VirtualMemory> Allocator for VirtualMemoryAllocator<B> {
    type Backend = B;

    fn backend(&self) -> &B {
        &self.backend
    }

    fn allocate(&self, bytes: usize) -> Result<B::Memory> {
        self.backend.create_pages(bytes)
    }

    fn release(&self, memory: B::Memory, after: &[B::Event]) -> Result<()> {
        self.backend.release(memory, after)
    }

    fn views_are_addresses(&self) -> bool {
        true
    }

    fn is_deferred(&self) -> bool {
        false
    }

    fn page_bytes(&self) -> Option<usize> {
        Some(self.backend.page_bytes())
    }

    fn reserve(&self, bytes: usize) -> Result<B::Memory> {
        self.backend.reserve(bytes)
    }

    fn map(&self, reservation: &B::Memory, offset: usize, pages: &B::Memory) -> Result<()> {
        self.backend.map(reservation, offset, pages)
    }

    fn unmap(&self, reservation: &B::Memory, region: Region) -> Result<()> {
        self.backend.unmap(reservation, region)
    }
}
