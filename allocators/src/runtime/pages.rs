//! Runtimes with virtual memory.

use std::sync::Arc;

use super::{
    CoreMemory, Objects, Runtime,
    backend::memory_of,
    memory::{Kind, Pages},
};
use crate::{
    Align, Error, InvalidRequest, Memory as _, MemoryFlags, Region, Result, VirtualMemory,
};

/// A runtime with virtual memory: addresses that are reserved, and pages that are mapped to them.
///
/// A type that implements this has [`VirtualMemory`]. Reservations and pages are blocks of the runtime. As for [`Runtime`], only the core calls the methods
/// that are `unsafe`.
///
/// ```
/// use binpool_allocators::{Region, Result, runtime::RuntimePages};
///
/// /// The calls behind a reservation of one page.
/// fn mapped<R: RuntimePages>(backend: &R) -> Result<R::Block> {
///     let page = RuntimePages::page_bytes(backend);
///     assert!(page <= backend.largest_reservation());
///     let reservation = RuntimePages::reserve(backend, page)?;
///     let pages = RuntimePages::create_pages(backend, page)?;
///     // SAFETY: both are new, of this backend, and as large as the region.
///     unsafe { RuntimePages::map(backend, &reservation, Region::first(page), &pages)? };
///     // SAFETY: they are mapped there, and no command uses them.
///     unsafe { RuntimePages::unmap(backend, &reservation, Region::first(page))? };
///     Ok(reservation)
/// }
/// ```
pub trait RuntimePages: Runtime {
    /// The page size, in bytes: sizes and offsets are multiples of it. 0 if the device has no virtual memory.
    fn page_bytes(&self) -> usize;

    /// Reserves addresses. Dropping the block unmaps what is mapped there, and frees them. Pages that are dropped before they are unmapped
    /// keep their memory until then.
    ///
    /// # Errors
    ///
    /// A failure of the runtime.
    fn reserve(&self, bytes: usize) -> Result<Self::Block>;

    /// The most bytes that can be reserved.
    fn largest_reservation(&self) -> usize;

    /// Allocates pages, which have no address.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`](Error::OutOfMemory), or a failure of the runtime.
    fn create_pages(&self, bytes: usize) -> Result<Self::Block>;

    /// Maps pages as a whole, for commands of all queues.
    ///
    /// # Errors
    ///
    /// A failure of the runtime. Nothing is mapped then.
    ///
    /// # Safety
    ///
    /// Both blocks are of this backend, the first from [`reserve`](Self::reserve) and `pages` from [`create_pages`](Self::create_pages). The region consists of whole pages inside the reservation, is as large as `pages`, and nothing is
    /// mapped there.
    unsafe fn map(
        &self,
        reservation: &Self::Block,
        region: Region,
        pages: &Self::Block,
    ) -> Result<()>;

    /// Unmaps pages.
    ///
    /// # Errors
    ///
    /// A failure of the runtime. They stay mapped then.
    ///
    /// # Safety
    ///
    /// The block is a reservation of this backend. One call of [`map`](Self::map) has mapped this region, or several have mapped parts of it
    /// that lie inside it, and no command uses it any more.
    unsafe fn unmap(&self, reservation: &Self::Block, region: Region) -> Result<()>;
}

impl<R: RuntimePages> VirtualMemory for R {
    fn page_bytes(&self) -> usize {
        RuntimePages::page_bytes(self)
    }

    fn reserve(&self, bytes: usize) -> Result<CoreMemory<R>> {
        let bytes = whole_pages(self, bytes, self.largest_reservation())?;
        let block = RuntimePages::reserve(self, bytes)?;
        let kind = Kind::Reservation(Pages::default());
        Ok(memory_of(self, block, bytes, MemoryFlags::empty(), kind))
    }

    fn create_pages(&self, bytes: usize) -> Result<CoreMemory<R>> {
        let bytes = whole_pages(self, bytes, self.core().limits().largest_block_bytes)?;
        let deferred = &self.core().deferred;
        let block = deferred.allocate(|| RuntimePages::create_pages(self, bytes))?;
        let flags = MemoryFlags::empty();
        Ok(memory_of(self, block, bytes, flags, Kind::Pages))
    }

    fn map(&self, reservation: &CoreMemory<R>, offset: usize, pages: &CoreMemory<R>) -> Result<()> {
        pages.check_own(self.core())?;
        if !pages.root().is_pages() {
            return Err(Error::unsupported(
                "mapping memory that is not pages: make it with `create_pages`",
            ));
        }
        let region = Region::new(offset, pages.bytes());
        let (mapped, block, region) = place(self, reservation, region)?;
        let alignment = Align::new(RuntimePages::page_bytes(self)).unwrap_or(Align::ONE);
        if !alignment.divides(region.offset) {
            let offset = region.offset;
            return Err(InvalidRequest::Misaligned { offset, alignment }.into());
        }
        let Some(source) = pages.block() else {
            return Err(Error::unsupported("mapping pages that were released"));
        };
        mapped.map(region, Arc::clone(pages.root()), || {
            // SAFETY: `place` has checked the reservation, `Mapped` that nothing is mapped there, and the lines above the rest.
            unsafe { RuntimePages::map(self, block, region, source) }
        })
    }

    fn unmap(&self, reservation: &CoreMemory<R>, region: Region) -> Result<()> {
        let (mapped, block, region) = place(self, reservation, region)?;
        if region.bytes == 0 {
            return Ok(());
        }
        mapped.unmap(region, || {
            // SAFETY: `Mapped` has checked that whole pages are mapped in the region, and that no command uses them.
            unsafe { RuntimePages::unmap(self, block, region) }
        })
    }
}

fn whole_pages<R: RuntimePages>(backend: &R, bytes: usize, largest: usize) -> Result<usize> {
    let page = RuntimePages::page_bytes(backend);
    if page == 0 {
        let name = &backend.core().limits().device_name;
        return Err(Error::unsupported(format!(
            "virtual memory on {name}: use `create_buffer`"
        )));
    }
    if bytes == 0 {
        return Err(InvalidRequest::ZeroSize.into());
    }
    let whole = bytes.checked_next_multiple_of(page);
    whole.filter(|whole| *whole <= largest).ok_or_else(|| {
        let requested = bytes;
        InvalidRequest::TooLarge { requested, largest }.into()
    })
}

type Place<'a, R> = (&'a Pages<R>, &'a <R as Objects>::Block, Region);

/// Where a region of a reservation, or of a view of one, lies.
fn place<'a, R: Runtime>(
    backend: &R,
    memory: &'a CoreMemory<R>,
    region: Region,
) -> Result<Place<'a, R>> {
    memory.check_own(backend.core())?;
    let (Some(mapped), Some(block)) = (memory.root().mapped(), memory.block()) else {
        return Err(Error::unsupported(
            "mapping to memory that is not a reservation: make one with `reserve`",
        ));
    };
    region.check_within(memory.bytes())?;
    Ok((mapped, block, memory.in_block(region)))
}
