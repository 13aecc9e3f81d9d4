//! Addresses that are reserved, and the pages that are mapped to them.

#[cfg(unix)]
use std::os::fd::OwnedFd;
use std::sync::Arc;

use binpool_allocators::{InvalidRequest, Region, Result};
use parking_lot::Mutex;

use super::{context::Context, driver::Address, left::Left, pages::Pages, status::CudaResult};

/// Reserved addresses, which are freed when this value is dropped. That waits for the device.
///
/// # Invariants
///
/// I1: `address` is that of `bytes` bytes of reserved addresses that nothing else has.
/// I2: `mapped` is what is mapped there, but for what failed maps have left (`Context::left`). Nothing of both overlaps.
/// I3: No command uses what the caller unmaps.
pub(crate) struct Reservation {
    context: Arc<Context>,
    address: Address,
    bytes: usize,
    mapped: Mutex<Vec<Left>>,
}

impl Reservation {
    pub(crate) fn new(context: &Arc<Context>, bytes: usize) -> CudaResult<Self> {
        // SAFETY: `address` is a place for the result.
        let address =
            context.ask(|driver, address| unsafe { driver.reserve(address, bytes, 0, 0, 0) })?;
        Ok(Self {
            context: Arc::clone(context),
            address,
            bytes,
            mapped: Mutex::default(),
        })
    }

    pub(crate) fn address(&self) -> Address {
        self.address
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Maps pages where nothing is mapped.
    pub(crate) fn map(&self, region: Region, pages: &Pages) -> Result<()> {
        let place = self.place(region);
        let unmapped = unmap_left(&self.context);
        if self.is_left(&place) {
            // It cannot be unmapped, unless another thread has left it just now.
            unmapped?;
            let Region { offset, bytes } = region;
            return Err(InvalidRequest::AlreadyMapped { offset, bytes }.into());
        }
        let Left { address, bytes } = place;
        self.context.call(|driver| {
            // SAFETY: The addresses are reserved (I1) and nothing is mapped there (I2).
            unsafe { driver.map(address, bytes, 0, pages.raw(), 0) }
        })?;
        if let Err(error) = self.context.allow(address, bytes) {
            if let Err(error) = self.unmap_now(&place) {
                tracing::warn!(%error, bytes, "pages that cannot be used stay mapped, until the next map unmaps them");
                self.context.left.lock().push(place);
            }
            return Err(error.into());
        }
        self.mapped.lock().push(place);
        Ok(())
    }

    fn place(&self, region: Region) -> Left {
        Left {
            address: self.address + region.offset as Address,
            bytes: region.bytes,
        }
    }

    fn is_left(&self, place: &Left) -> bool {
        let left = self.context.left.lock();
        left.iter()
            .any(|left| left.overlaps(place.address, place.bytes))
    }

    /// Unmaps pages that no command uses.
    pub(crate) fn unmap(&self, region: Region) -> CudaResult<()> {
        let place = self.place(region);
        self.unmap_now(&place)?;
        let end = place.address + place.bytes as Address;
        let mut mapped = self.mapped.lock();
        mapped.retain(|other| other.address < place.address || other.address >= end);
        Ok(())
    }

    fn unmap_now(&self, place: &Left) -> CudaResult<()> {
        // The addresses are of this reservation (I1), and no command of this crate uses them (I3).
        self.context.call(|driver| place.unmap(driver))
    }

    /// Returns descriptors of the pages that are mapped at a region, in the order of their addresses, with their bytes, and where the region
    /// begins in them.
    #[cfg(unix)]
    pub(crate) fn export(&self, region: Region) -> Result<(Vec<(OwnedFd, usize)>, usize)> {
        let place = self.place(region);
        let mut mapped = self.mapped.lock().clone();
        mapped.retain(|other| other.overlaps(place.address, place.bytes));
        mapped.sort_unstable_by_key(|other| other.address);
        let start = mapped.first().map_or(place.address, |first| first.address);
        let mut end = start;
        let is_whole = mapped.iter().all(|other| {
            let follows = other.address == end;
            end = other.address + other.bytes as Address;
            follows
        });
        if !is_whole || start > place.address || end < place.address + place.bytes as Address {
            let Region { offset, bytes } = region;
            return Err(InvalidRequest::NotMapped { offset, bytes }.into());
        }
        let exported = mapped.iter().map(|other| {
            let pages = Pages::at(&self.context, other.address)?;
            Ok((pages.export()?, other.bytes))
        });
        let offset = usize::try_from(place.address - start).unwrap_or(usize::MAX);
        Ok((exported.collect::<Result<_>>()?, offset))
    }

    /// Takes out what is mapped, also what failed maps have left.
    fn take_all(&mut self) -> Vec<Left> {
        let ours = self.address..self.address + self.bytes as Address;
        let mut left = self.context.left.lock();
        let mut all: Vec<_> = left
            .extract_if(.., |left| ours.contains(&left.address))
            .collect();
        all.append(self.mapped.get_mut());
        all
    }
}

/// Unmaps what failed maps have left.
fn unmap_left(context: &Context) -> CudaResult<()> {
    let mut result = Ok(());
    context.left.lock().retain(|left| {
        let unmapped = context.call(|driver| left.unmap(driver));
        let is_left = unmapped.is_err();
        if is_left {
            result = unmapped;
        }
        is_left
    });
    result
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut mapped = self.take_all();
        let (address, bytes) = (self.address, self.bytes);
        self.context.free("reserved addresses", move |driver| {
            if !mapped.is_empty() {
                // For commands that this crate has not enqueued.
                // SAFETY: It takes no pointers.
                unsafe { driver.context_wait() }?;
            }
            // Where one cannot be unmapped, the others are, and the addresses stay reserved.
            let mut unmapped = Ok(());
            mapped.retain(|left| {
                let result = left.unmap(driver);
                let is_left = result.is_err();
                unmapped = unmapped.and(result);
                is_left
            });
            unmapped?;
            // SAFETY: It takes no pointers; nothing else has these addresses (I1), and nothing is mapped there any more.
            unsafe { driver.free_addresses(address, bytes) }
        });
    }
}
