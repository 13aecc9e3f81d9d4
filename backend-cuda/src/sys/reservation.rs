//! Addresses that are reserved, and the pages that are mapped to them.

use std::{collections::BTreeMap, sync::Arc, thread, time::Duration};

use binpool_allocators::{Error, InvalidRequest, Region, Result};
use parking_lot::Mutex;

use super::{
    context::Context,
    driver::Address,
    left::Left,
    pages::Pages,
    status::{CudaError, CudaResult, NOT_READY},
};

/// `cuMemSetAccess` answers that it is not ready while other threads enqueue. It is asked so many times, so far apart.
const ATTEMPTS: usize = 200;
const APART: Duration = Duration::from_micros(100);

/// Reserved addresses, which are freed when this value is dropped. That waits for the device.
///
/// # Invariants
///
/// I1: `address` is that of `bytes` bytes of reserved addresses that nothing else has.
/// I2: The pages of each entry of `mapped` without `is_changing` are mapped at its offset, and nothing is mapped where no entry is, but for
/// what failed maps have left (`Context::left`). Entries and those do not overlap. Only the thread that set `is_changing` changes what is
/// mapped there.
pub(crate) struct Reservation {
    context: Arc<Context>,
    address: Address,
    bytes: usize,
    mapped: Mutex<BTreeMap<usize, Entry>>,
}

struct Entry {
    pages: Arc<Pages>,
    is_changing: bool,
}

impl Reservation {
    pub(crate) fn new(context: &Arc<Context>, bytes: usize) -> CudaResult<Self> {
        let driver = context.enter_relaxed()?;
        let mut address = 0;
        // SAFETY: `address` is a place for the result.
        context.seen(unsafe { driver.reserve(&raw mut address, bytes, 0, 0, 0) })?;
        Ok(Self {
            context: Arc::clone(context),
            address,
            bytes,
            mapped: Mutex::new(BTreeMap::new()),
        })
    }

    pub(crate) fn address(&self) -> Address {
        self.address
    }

    /// Maps `pages` from `offset` on, which is aligned.
    pub(crate) fn map(&self, offset: usize, pages: &Arc<Pages>) -> Result<()> {
        let region = Region::new(offset, pages.bytes());
        region.check_within(self.bytes)?;
        let unmapped = unmap_left(&self.context, |_| true);
        {
            let mut mapped = self.mapped.lock();
            let end = offset + pages.bytes();
            let before = mapped.range(..end).next_back();
            let is_left = self.is_left(region, pages);
            if is_left {
                // It cannot be unmapped, unless another thread has left it just now.
                unmapped?;
            }
            if is_left || before.is_some_and(|(start, entry)| start + entry.pages.bytes() > offset)
            {
                let bytes = pages.bytes();
                return Err(InvalidRequest::AlreadyMapped { offset, bytes }.into());
            }
            if !pages.claim().take() {
                return Err(Error::unsupported(
                    "mapping pages at two places: unmap them first",
                ));
            }
            let pages = Arc::clone(pages);
            let is_changing = true;
            mapped.insert(offset, Entry { pages, is_changing });
        }
        let result = self.map_now(offset, pages);
        let mut mapped = self.mapped.lock();
        match &result {
            Ok(()) => {
                if let Some(entry) = mapped.get_mut(&offset) {
                    entry.is_changing = false;
                }
            }
            Err(failed) => {
                if failed.left {
                    self.context.left().lock().push(Left {
                        address: self.address + offset as Address,
                        bytes: pages.bytes(),
                        claim: pages.claim().clone(),
                    });
                } else {
                    pages.claim().let_go();
                }
                mapped.remove(&offset);
            }
        }
        drop(mapped);
        result.map_err(|failed| failed.error.into())
    }

    /// Returns whether what a failed map has left is in the way of pages.
    fn is_left(&self, region: Region, pages: &Pages) -> bool {
        let start = self.address + region.offset as Address;
        let left = self.context.left().lock();
        left.iter()
            .any(|left| left.is_in_the_way(pages.claim(), start, region.bytes))
    }

    fn map_now(&self, offset: usize, pages: &Pages) -> std::result::Result<(), Failed> {
        let (address, bytes) = (self.address + offset as Address, pages.bytes());
        let nothing = |error| Failed { error, left: false };
        let driver = self.context.enter_relaxed().map_err(nothing)?;
        // SAFETY: The addresses are reserved (I1) and nothing is mapped there (I2).
        let result = unsafe { driver.map(address, bytes, 0, pages.raw(), 0) };
        self.context.seen(result).map_err(nothing)?;
        self.allow(address, bytes).map_err(|error| {
            let undone = self.unmap_now(offset, bytes);
            let left = undone.inspect_err(|error| {
                tracing::warn!(%error, bytes, "pages that cannot be used stay mapped, until the next map unmaps them");
            });
            let left = left.is_err();
            Failed { error, left }
        })
    }

    /// Lets the device and its peers use addresses that were just mapped.
    fn allow(&self, address: Address, bytes: usize) -> CudaResult<()> {
        let driver = self.context.enter_relaxed()?;
        let access = self.context.access();
        let mut attempts = 0;
        loop {
            // SAFETY: `access` lives until the call returns.
            let result =
                unsafe { driver.set_access(address, bytes, access.as_ptr(), access.len()) };
            attempts += 1;
            match result {
                Err(error) if error.code() == NOT_READY && attempts < ATTEMPTS => {
                    thread::sleep(APART);
                }
                result => return self.context.seen(result),
            }
        }
    }

    /// Unmaps what is mapped at `region`, which consists of whole pages. Waits for no commands.
    pub(crate) fn unmap(&self, region: Region) -> Result<()> {
        region.check_within(self.bytes)?;
        if region.bytes == 0 {
            return Ok(());
        }
        let offsets = self.begin_unmap(region)?;
        let result = self.unmap_now(region.offset, region.bytes);
        let mut gone = Vec::new();
        let mut mapped = self.mapped.lock();
        for offset in offsets {
            if result.is_ok() {
                gone.extend(
                    mapped
                        .remove(&offset)
                        .inspect(|entry| entry.pages.claim().let_go()),
                );
            } else if let Some(entry) = mapped.get_mut(&offset) {
                entry.is_changing = false;
            }
        }
        drop(mapped);
        // Pages that only the reservation had are released here, outside the lock.
        drop(gone);
        Ok(result?)
    }

    /// Checks that whole pages are mapped at all of `region`, and marks them.
    fn begin_unmap(&self, region: Region) -> Result<Vec<usize>> {
        let mut mapped = self.mapped.lock();
        let end = region.offset + region.bytes;
        let (mut at, mut offsets) = (region.offset, Vec::new());
        for (offset, entry) in mapped.range(region.offset..end) {
            if *offset != at || entry.is_changing {
                break;
            }
            offsets.push(*offset);
            at += entry.pages.bytes();
        }
        if at != end {
            let Region { offset, bytes } = region;
            return Err(InvalidRequest::NotMapped { offset, bytes }.into());
        }
        for offset in &offsets {
            if let Some(entry) = mapped.get_mut(offset) {
                entry.is_changing = true;
            }
        }
        Ok(offsets)
    }

    fn unmap_now(&self, offset: usize, bytes: usize) -> CudaResult<()> {
        unmap_at(&self.context, self.address + offset as Address, bytes)
    }

    /// Checks that memory is mapped at all of `region`, and that no thread is just mapping or unmapping it: a command elsewhere would end
    /// the context. That it stays mapped until the command has ended is up to the program.
    pub(crate) fn check_mapped(&self, region: Region) -> Result<()> {
        let mapped = self.mapped.lock();
        let end = region.offset.saturating_add(region.bytes);
        let mut at = region.offset;
        while at < end {
            let entry = mapped.range(..=at).next_back();
            let entry = entry.filter(|(_, entry)| !entry.is_changing);
            let next = entry.map(|(start, entry)| start + entry.pages.bytes());
            match next {
                Some(next) if next > at => at = next,
                _ => {
                    let Region { offset, bytes } = region;
                    return Err(InvalidRequest::NotMapped { offset, bytes }.into());
                }
            }
        }
        Ok(())
    }

    fn free(&self) -> CudaResult<()> {
        let mapped = std::mem::take(&mut *self.mapped.lock());
        if !mapped.is_empty() {
            self.context.synchronize()?;
        }
        // Where one cannot be unmapped, the others are, and the addresses stay reserved.
        let ours = self.address..self.address + self.bytes as Address;
        let mut unmapped = unmap_left(&self.context, |address| ours.contains(&address));
        self.context
            .left()
            .lock()
            .retain(|left| !ours.contains(&left.address));
        for (offset, entry) in mapped {
            match self.unmap_now(offset, entry.pages.bytes()) {
                Ok(()) => entry.pages.claim().let_go(),
                Err(error) => unmapped = Err(error),
            }
        }
        unmapped?;
        let driver = self.context.enter_relaxed()?;
        // SAFETY: It takes no pointers; nothing else has these addresses (I1), and nothing is mapped there any more.
        let result = unsafe { driver.free_addresses(self.address, self.bytes) };
        self.context.seen(result)
    }
}

/// Unmaps what failed maps have left at the `wanted` addresses.
fn unmap_left(context: &Context, wanted: impl Fn(Address) -> bool) -> CudaResult<()> {
    let mut result = Ok(());
    context.left().lock().retain(|left| {
        if !wanted(left.address) {
            return true;
        }
        let unmapped = unmap_at(context, left.address, left.bytes);
        if unmapped.is_ok() {
            left.claim.let_go();
            return false;
        }
        result = unmapped;
        true
    });
    result
}

/// Unmaps addresses of a reservation that lives, which no other thread maps or unmaps, and no command uses.
fn unmap_at(context: &Context, address: Address, bytes: usize) -> CudaResult<()> {
    let driver = context.enter_relaxed()?;
    // SAFETY: It takes no pointers; the addresses are of a reservation, and the program has waited for the commands that use them.
    let result = unsafe { driver.unmap(address, bytes) };
    context.seen(result)
}

/// A map that failed.
struct Failed {
    error: CudaError,
    /// Set if the pages are still mapped.
    left: bool,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Err(error) = self.free() {
            tracing::error!(%error, bytes = self.bytes, "reserved addresses were not freed");
        }
    }
}
