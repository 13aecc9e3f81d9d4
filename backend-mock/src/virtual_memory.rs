//! Virtual memory of the mock device.

use binpool_allocators::{
    Align, Backend, Error, InvalidRequest, Memory, MemoryKind, Region, Result, VirtualMemory,
};

use crate::{CallKind, MockBackend, MockMemory, state::Operand};

/// The size of a page of an NVIDIA device.
const PAGE: usize = 2 << 20;

/// The device has it if [`virtual_memory`](crate::MockDeviceBuilder::virtual_memory) is set. The contents of pages move with them.
/// A command that uses addresses to which nothing is mapped is a
/// [`UseAfterFree`](crate::Violation::UseAfterFree), and an [`unmap`](Self::unmap) of addresses that a command uses which has not
/// ended is refused and a [`FreedInUse`](crate::Violation::FreedInUse): a program that does not wait for its commands shows that wherever
/// it is refused.
///
/// Pages may be mapped at several addresses, unless [`page_aliases`](crate::MockDeviceBuilder::page_aliases) forbids it. What a command
/// writes through one address, later commands read through the others, and a [race](crate::Race) is one of the pages, at whatever addresses
/// they were used. One command that uses the same pages at two addresses may see old bytes, as on a real device.
///
/// The first command on a reservation has the host set addresses aside for all of it, so a reservation that is larger than what the
/// host gives can be mapped, and no command can use it.
impl VirtualMemory for MockBackend {
    fn page_bytes(&self) -> usize {
        PAGE
    }

    fn reserve(&self, bytes: usize) -> Result<MockMemory> {
        let bytes = self.whole_pages(bytes)?;
        let object = self.shared.call(CallKind::Reserve, bytes, |state| {
            state.reserve_addresses(bytes)
        })?;
        Ok(self.new_memory(object, Region::first(bytes), MemoryKind::Buffer, None))
    }

    fn create_pages(&self, bytes: usize) -> Result<MockMemory> {
        let bytes = self.whole_pages(bytes)?;
        self.limits().check_block(bytes)?;
        let object = self.shared.call(CallKind::CreatePages, bytes, |state| {
            state.create_pages(bytes)
        })?;
        Ok(self.new_memory(object, Region::first(bytes), MemoryKind::Pages, None))
    }

    fn map(&self, reservation: &MockMemory, offset: usize, pages: &MockMemory) -> Result<()> {
        let at = self.part(reservation, Region::new(offset, 0))?;
        check_page_start(at.region.offset)?;
        self.check_memory(pages)?;
        if pages.kind() != MemoryKind::Pages {
            return Err(Error::unsupported("mapping memory that is not pages"));
        }
        let pages = pages.operand();
        self.shared
            .call(CallKind::Map, pages.region.bytes, |state| {
                state.map_pages(at, pages)
            })
    }

    fn unmap(&self, reservation: &MockMemory, region: Region) -> Result<()> {
        let part = self.part(reservation, region)?;
        self.shared.call(CallKind::Unmap, region.bytes, |state| {
            state.unmap_pages(part)
        })
    }
}

impl MockBackend {
    /// Returns the memory at an address of [virtual memory](VirtualMemory), which [`launch`](Self::launch) takes instead of an address:
    /// for programs that pass addresses to their kernels.
    ///
    /// As with a pointer, the pool does not see the use. If it reuses the block meanwhile, the device reports the
    /// [race](crate::Race).
    ///
    /// ```
    /// use binpool_allocators::{Backend, Memory, QueueOrder, VirtualMemory};
    /// use binpool_mock::MockDevice;
    ///
    /// let backend = MockDevice::builder().virtual_memory(true).build().backend();
    /// let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let addresses = backend.reserve(backend.page_bytes())?;
    /// backend.map(&addresses, 0, &backend.create_pages(backend.page_bytes())?)?;
    ///
    /// let pointer = addresses.device_address()? + 256;
    /// let argument = backend.memory_at(pointer, 4096)?;
    /// backend.launch(&queue, "ones", &[], &[&argument], |_, writes| writes[0].fill(1))?;
    /// let mut byte = [0_u8];
    /// backend.read(&queue, &addresses, 256 + 4095, &mut byte)?;
    /// assert_eq!(byte, [1]);
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`UnknownAddress`](InvalidRequest::UnknownAddress) for an address outside virtual memory, and
    /// [`OutOfBounds`](InvalidRequest::OutOfBounds) if fewer than `bytes` bytes are reserved from there on.
    pub fn memory_at(&self, address: u64, bytes: usize) -> Result<MockMemory> {
        let found = self.shared.with(|state| state.reservation_at(address));
        let (whole, offset) = found.ok_or(InvalidRequest::UnknownAddress { address })?;
        let region = Region::new(offset, bytes);
        region.check_within(whole.region.bytes)?;
        let part = Operand { region, ..whole };
        let object = self
            .shared
            .call(CallKind::CreateSubRegion, bytes, |state| {
                state.create_view(part)
            })?;
        Ok(self.new_memory(object, region, MemoryKind::Buffer, None))
    }

    /// Rounds a size up to whole pages.
    fn whole_pages(&self, bytes: usize) -> Result<usize> {
        if !self.shared.config.virtual_memory {
            let name = &self.limits().device_name;
            return Err(Error::unsupported(format!(
                "virtual memory on {name}: `MockDeviceBuilder::virtual_memory` turns it on"
            )));
        }
        if bytes == 0 {
            return Err(InvalidRequest::ZeroSize.into());
        }
        let largest = usize::MAX / 2;
        let whole = bytes
            .checked_next_multiple_of(PAGE)
            .filter(|whole| *whole <= largest);
        whole.ok_or_else(|| {
            let requested = bytes;
            InvalidRequest::TooLarge { requested, largest }.into()
        })
    }
}

/// Checks that pages start at a multiple of their size.
fn check_page_start(offset: usize) -> Result<()> {
    let alignment = Align::new(PAGE).unwrap_or(Align::ONE);
    if alignment.divides(offset) {
        return Ok(());
    }
    Err(InvalidRequest::Misaligned { offset, alignment }.into())
}
