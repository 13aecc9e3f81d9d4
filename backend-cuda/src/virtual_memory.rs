//! Reservations and pages.

use std::sync::Arc;

use binpool_allocators::{
    Align, Error, InvalidRequest, MemoryFlags, Region, Result, Scope, VirtualMemory,
};

use crate::{
    backend::CudaBackend,
    memory::CudaMemory,
    root::Body,
    sys::{Pages, Reservation},
};

/// The most bytes of a reservation, 2^47: the address space of a device has 48 bits or more.
const MOST_ADDRESSES: usize = (usize::MAX >> 17) + 1;

/// `map` waits for no commands. It asks again for access where the device is busy, for 20 ms at most. Pages may be mapped at several
/// addresses: a kernel, copy or fill sees through each what those before it have written, and one kernel that uses two addresses of the same pages
/// may see old bytes (CUDA C++ Programming Guide, "Virtual Aliasing Support").
///
/// A transfer or fill at addresses where nothing is mapped is refused with [`NotMapped`](InvalidRequest::NotMapped); a kernel there ends the
/// context. `unmap` is refused with [`InUse`](InvalidRequest::InUse) under commands at these addresses that this crate has enqueued, launches of a
/// [`CudaKernel`](crate::CudaKernel) among them; a program that uses the addresses by itself waits for that before it unmaps.
impl VirtualMemory for CudaBackend {
    fn page_bytes(&self) -> usize {
        self.shared.page_bytes
    }

    fn reserve(&self, bytes: usize) -> Result<CudaMemory> {
        let bytes = self.whole_pages(bytes, MOST_ADDRESSES)?;
        let reservation = Reservation::new(&self.shared.context, bytes)?;
        let body = Body::Reservation(reservation);
        Ok(CudaMemory::whole(
            &self.shared,
            body,
            bytes,
            MemoryFlags::empty(),
        ))
    }

    fn create_pages(&self, bytes: usize) -> Result<CudaMemory> {
        let bytes = self.whole_pages(bytes, self.shared.limits.largest_block_bytes)?;
        let context = &self.shared.context;
        let pages = self
            .shared
            .allocate(bytes, Scope::Device, || Pages::create(context, bytes))?;
        let body = Body::Pages(Arc::new(pages));
        Ok(CudaMemory::whole(
            &self.shared,
            body,
            bytes,
            MemoryFlags::empty(),
        ))
    }

    fn map(&self, reservation: &CudaMemory, offset: usize, pages: &CudaMemory) -> Result<()> {
        pages.check_belongs(&self.shared)?;
        let pages = pages.root().pages().ok_or_else(|| {
            Error::unsupported("mapping memory that is not pages: make it with `create_pages`")
        })?;
        let part = Region::new(offset, pages.bytes());
        let (reservation, Region { offset, .. }) = self.part(reservation, part)?;
        let alignment = Align::new(self.shared.page_bytes).unwrap_or(Align::ONE);
        if !alignment.divides(offset) {
            return Err(InvalidRequest::Misaligned { offset, alignment }.into());
        }
        reservation.map(offset, pages)
    }

    fn unmap(&self, reservation: &CudaMemory, region: Region) -> Result<()> {
        let (reservation, region) = self.part(reservation, region)?;
        reservation.unmap(region)
    }
}

impl CudaBackend {
    /// Rounds a size up to whole pages.
    fn whole_pages(&self, bytes: usize, largest: usize) -> Result<usize> {
        if !self.shared.facts.virtual_memory {
            return Err(self.shared.lacks("virtual memory"));
        }
        if bytes == 0 {
            return Err(InvalidRequest::ZeroSize.into());
        }
        let whole = bytes.checked_next_multiple_of(self.shared.page_bytes);
        whole.filter(|whole| *whole <= largest).ok_or_else(|| {
            let requested = bytes;
            InvalidRequest::TooLarge { requested, largest }.into()
        })
    }

    /// Checks a part of a reservation, and returns its place in the whole one.
    fn part<'a>(
        &self,
        memory: &'a CudaMemory,
        region: Region,
    ) -> Result<(&'a Reservation, Region)> {
        use binpool_allocators::Memory as _;

        memory.check_belongs(&self.shared)?;
        let reservation = memory.root().reservation().ok_or_else(|| {
            Error::unsupported("maps to memory that is no reservation: make one with `reserve`")
        })?;
        region.check_within(memory.bytes())?;
        Ok((reservation, memory.in_root(region)))
    }
}
