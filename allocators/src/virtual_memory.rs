//! Virtual memory: addresses that are reserved separately from memory.

use crate::{Backend, Region, Result};

/// A backend with which programs reserve addresses, and map memory to them and unmap it.
///
/// Both are values of [`Memory`](Backend::Memory). A *reservation* is addresses without memory: views of it, made as of any
/// block, are only addresses, and commands may use what is mapped. *Pages* are memory without addresses, of the kind
/// [`MemoryKind::Pages`](crate::MemoryKind::Pages): no command takes them before they are mapped, and they have no views.
/// [`VirtualMemoryAllocator`](crate::VirtualMemoryAllocator) is an allocator over it, and a pool over that moves free pages to where
/// they are needed.
///
/// Many backends map pages at several addresses at once. Commands that come one after the other see the same bytes through each of
/// them (CUDA C++ Programming Guide, "Virtual Aliasing Support"). A single command that uses pages at two addresses may see old bytes through one of
/// them. So pages can move while commands still use them at the old address: they are mapped a second time, later commands use them at the
/// new address, and the old one is unmapped once the commands before have ended.
///
/// The calls are those of CUDA's virtual memory management (CUDA Driver API, section 6.14) and of `VkSparseMemoryBind`.
///
/// ```
/// use binpool_allocators::{Backend, Memory, MemoryKind, QueueOrder, Region, VirtualMemory};
/// use binpool_mock::MockDevice;
///
/// let backend = MockDevice::builder().virtual_memory(true).build().backend();
/// let page = backend.page_bytes();
/// let reservation = backend.reserve(16 * page)?;
/// let pages = backend.create_pages(2 * page)?;
/// assert_eq!((pages.bytes(), pages.kind()), (2 * page, MemoryKind::Pages));
/// backend.map(&reservation, 3 * page, &pages)?;
/// let view = backend.create_sub_region(&reservation, Region::new(4 * page, 256))?;
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// backend.write(&queue, &view, 0, &[7_u8; 256])?;
/// // The pages keep their contents wherever they are mapped.
/// backend.unmap(&reservation, Region::new(3 * page, 2 * page))?;
/// backend.map(&reservation, 0, &pages)?;
/// # let moved = backend.create_sub_region(&reservation, Region::new(page, 256))?;
/// # let mut byte = [0_u8];
/// backend.read(&queue, &moved, 0, &mut byte)?;
/// assert_eq!(byte, [7]);
/// // On this device they can have a second address: it shows what is written through the first.
/// backend.map(&reservation, 8 * page, &pages)?;
/// # let second = backend.create_sub_region(&reservation, Region::new(9 * page, 256))?;
/// backend.write(&queue, &moved, 0, &[8_u8])?;
/// backend.read(&queue, &second, 0, &mut byte)?;
/// assert_eq!(byte, [8]);
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
pub trait VirtualMemory: Backend {
    /// The granularity in bytes, a power of two: reservations, pages and the places where they are mapped are multiples of it.
    fn page_bytes(&self) -> usize;

    /// Reserves `bytes` bytes of addresses, rounded up to whole pages, without memory.
    ///
    /// What is mapped when the reservation and all views of it are dropped is unmapped, after every command that was enqueued before
    /// has ended.
    ///
    /// # Errors
    ///
    /// [`ZeroSize`](crate::InvalidRequest::ZeroSize), [`TooLarge`](crate::InvalidRequest::TooLarge), or a failure of the runtime.
    fn reserve(&self, bytes: usize) -> Result<Self::Memory>;

    /// Creates `bytes` bytes of memory, rounded up to whole pages. Dropping it frees it; if it is still mapped, the last `unmap` does, which
    /// leaves it mapped nowhere.
    ///
    /// # Errors
    ///
    /// [`ZeroSize`](crate::InvalidRequest::ZeroSize), [`TooLarge`](crate::InvalidRequest::TooLarge), or
    /// [`OutOfMemory`](crate::Error::OutOfMemory).
    fn create_pages(&self, bytes: usize) -> Result<Self::Memory>;

    /// Maps `pages` from `offset` of the reservation on, so that commands may use them there. All or nothing: if the call fails, nothing is
    /// mapped there, and whatever was mapped before stays.
    ///
    /// Pages that are mapped already get a further address, if the backend supports that. There is no need to wait: commands may be using
    /// them at the other addresses. Through each address, a command sees what all earlier commands have written, whichever address they
    /// used. A command that uses the same pages at two addresses may see old bytes.
    ///
    /// # Errors
    ///
    /// [`ForeignObject`](crate::InvalidRequest::ForeignObject), [`Misaligned`](crate::InvalidRequest::Misaligned),
    /// [`OutOfBounds`](crate::InvalidRequest::OutOfBounds), [`AlreadyMapped`](crate::InvalidRequest::AlreadyMapped),
    /// [`Unsupported`](crate::Error::Unsupported) for pages that are mapped already, if the backend maps pages at one address only; or
    /// a failure of the runtime.
    fn map(&self, reservation: &Self::Memory, offset: usize, pages: &Self::Memory) -> Result<()>;

    /// Unmaps all pages that are mapped at `region`, which begins and ends where pages do. They keep their contents, and stay mapped at
    /// other addresses that they have. Pages that were dropped and are mapped nowhere now are freed.
    ///
    /// The call does not wait: it fails while a command that was enqueued through this backend still uses these addresses.
    /// Commands that use the same pages at another address do not matter. Commands that the program enqueues by itself must have
    /// ended, as when memory is freed.
    ///
    /// # Errors
    ///
    /// [`NotMapped`](crate::InvalidRequest::NotMapped) if the region splits a page or is not fully mapped,
    /// or [`InUse`](crate::InvalidRequest::InUse) while a command uses it, and then nothing changes;
    /// [`ForeignObject`](crate::InvalidRequest::ForeignObject), or a failure of the runtime.
    fn unmap(&self, reservation: &Self::Memory, region: Region) -> Result<()>;
}
