//! Addresses that are reserved, and the pages that are mapped to them.

use std::{collections::BTreeMap, sync::Arc, thread, time::Duration};

use binpool_allocators::{Error, InvalidRequest, QueueId, Region, Result};
use parking_lot::Mutex;

use super::{
    context::Context,
    driver::Address,
    last_uses::LastUses,
    left::Left,
    mark::Mark,
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
/// I3: Each command of this crate that uses the pages of an entry and may not have ended is among its `uses`, or is counted in `enqueuing`.
/// While a command is, `is_changing` is not set, and while `is_changing` is set, none is added.
pub(crate) struct Reservation {
    context: Arc<Context>,
    address: Address,
    bytes: usize,
    mapped: Mutex<BTreeMap<usize, Entry>>,
}

struct Entry {
    pages: Arc<Pages>,
    is_changing: bool,
    /// The commands that are just being enqueued.
    enqueuing: usize,
    uses: LastUses,
}

impl Entry {
    /// Pages that are about to be mapped.
    fn new(pages: &Arc<Pages>) -> Self {
        Self {
            pages: Arc::clone(pages),
            is_changing: true,
            enqueuing: 0,
            uses: LastUses::default(),
        }
    }
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

    /// Maps `pages` from `offset` on, which is aligned. They may be mapped elsewhere, too.
    pub(crate) fn map(&self, offset: usize, pages: &Arc<Pages>) -> Result<()> {
        let region = Region::new(offset, pages.bytes());
        region.check_within(self.bytes)?;
        let unmapped = unmap_left(&self.context);
        {
            let mut mapped = self.mapped.lock();
            let end = offset + pages.bytes();
            let before = mapped.range(..end).next_back();
            let is_left = self.is_left(region);
            if is_left {
                // It cannot be unmapped, unless another thread has left it just now.
                unmapped?;
            }
            if is_left || before.is_some_and(|(start, entry)| start + entry.pages.bytes() > offset)
            {
                let bytes = pages.bytes();
                return Err(InvalidRequest::AlreadyMapped { offset, bytes }.into());
            }
            mapped.insert(offset, Entry::new(pages));
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
                    });
                }
                mapped.remove(&offset);
            }
        }
        drop(mapped);
        result.map_err(|failed| failed.error.into())
    }

    /// Returns whether a failed map has left something at some of these addresses.
    fn is_left(&self, region: Region) -> bool {
        let start = self.address + region.offset as Address;
        let left = self.context.left().lock();
        left.iter().any(|left| left.overlaps(start, region.bytes))
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

    /// Unmaps what is mapped at `region`, which consists of whole pages, and which no command uses any more.
    pub(crate) fn unmap(&self, region: Region) -> Result<()> {
        region.check_within(self.bytes)?;
        if region.bytes == 0 {
            return Ok(());
        }
        let (offsets, uses) = self.begin_unmap(region)?;
        let result = match uses.have_ended() {
            Ok(true) => self
                .unmap_now(region.offset, region.bytes)
                .map_err(Error::from),
            Ok(false) => Err(in_use(region)),
            Err(error) => Err(error.into()),
        };
        let mut gone = Vec::new();
        let mut mapped = self.mapped.lock();
        for offset in offsets {
            if result.is_ok() {
                gone.extend(mapped.remove(&offset));
            } else if let Some(entry) = mapped.get_mut(&offset) {
                entry.is_changing = false;
            }
        }
        drop(mapped);
        // Pages that only the reservation had are released here, outside the lock.
        drop(gone);
        result
    }

    /// Checks that whole pages are mapped at all of `region`, and marks them, so that no command begins to use them. Returns their places, and
    /// the commands that may use them still.
    fn begin_unmap(&self, region: Region) -> Result<(Vec<usize>, LastUses)> {
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
            return Err(not_mapped(region));
        }
        let mut inside = mapped.range(region.offset..end);
        if inside.any(|(_, entry)| entry.enqueuing > 0) {
            return Err(in_use(region));
        }
        let mut uses = LastUses::default();
        for (_, entry) in mapped.range_mut(region.offset..end) {
            entry.is_changing = true;
            uses.add(&entry.uses);
        }
        Ok((offsets, uses))
    }

    fn unmap_now(&self, offset: usize, bytes: usize) -> CudaResult<()> {
        let driver = self.context.enter_relaxed()?;
        // SAFETY: It takes no pointers; the addresses are of this reservation (I1), and no command of this crate uses them (I3), as the callers
        // have seen to.
        let result = unsafe { driver.unmap(self.address + offset as Address, bytes) };
        self.context.seen(result)
    }

    /// Begins a use of `region` by a command. It is refused where not all of it is mapped, or a thread is just mapping or unmapping it: the
    /// command would end the context.
    pub(crate) fn begin_use(&self, region: Region) -> Result<BeingUsed<'_>> {
        let mut mapped = self.mapped.lock();
        let end = region.offset.saturating_add(region.bytes);
        let (mut at, mut offsets) = (region.offset, Vec::new());
        while at < end {
            let entry = mapped.range(..=at).next_back();
            let entry = entry.filter(|(_, entry)| !entry.is_changing);
            match entry.map(|(start, entry)| (*start, start + entry.pages.bytes())) {
                Some((start, next)) if next > at => {
                    offsets.push(start);
                    at = next;
                }
                _ => return Err(not_mapped(region)),
            }
        }
        Ok(self.being_used(&mut mapped, offsets))
    }

    /// Begins a use by a command that touches only what is mapped in `region`, as the program promises.
    pub(crate) fn begin_use_of_mapped(&self, region: Region) -> BeingUsed<'_> {
        let mut mapped = self.mapped.lock();
        let end = region.offset.saturating_add(region.bytes);
        let before = mapped.range(..end).rev();
        let inside =
            before.take_while(|(start, entry)| *start + entry.pages.bytes() > region.offset);
        let stay = inside.filter(|(_, entry)| !entry.is_changing);
        let offsets = stay.map(|(start, _)| *start).collect();
        self.being_used(&mut mapped, offsets)
    }

    fn being_used(
        &self,
        mapped: &mut BTreeMap<usize, Entry>,
        offsets: Vec<usize>,
    ) -> BeingUsed<'_> {
        for offset in &offsets {
            if let Some(entry) = mapped.get_mut(offset) {
                entry.enqueuing += 1;
            }
        }
        BeingUsed {
            reservation: self,
            offsets,
        }
    }

    /// Takes out what is mapped, also what failed maps have left.
    fn take_all(&mut self) -> (Vec<Left>, Vec<Arc<Pages>>) {
        let ours = self.address..self.address + self.bytes as Address;
        let mut left = self.context.left().lock();
        let mut all: Vec<_> = left
            .extract_if(.., |left| ours.contains(&left.address))
            .collect();
        let mapped = std::mem::take(self.mapped.get_mut()).into_iter();
        let pages = mapped.map(|(offset, entry)| {
            all.push(Left {
                address: self.address + offset as Address,
                bytes: entry.pages.bytes(),
            });
            entry.pages
        });
        let pages = pages.collect();
        (all, pages)
    }
}

/// Unmaps what failed maps have left.
fn unmap_left(context: &Context) -> CudaResult<()> {
    let mut result = Ok(());
    context.left().lock().retain(|left| {
        let unmapped = context
            .enter_relaxed()
            .and_then(|driver| context.seen(left.unmap(&driver)));
        let is_left = unmapped.is_err();
        if is_left {
            result = unmapped;
        }
        is_left
    });
    result
}

/// A part of a reservation that a command is about to use. What is mapped there stays so as long as this value lives, and then until the
/// commands have ended that were noted.
pub(crate) struct BeingUsed<'a> {
    reservation: &'a Reservation,
    /// The places of the pages.
    offsets: Vec<usize>,
}

impl BeingUsed<'_> {
    /// Notes the command, which is enqueued.
    pub(crate) fn note_use(&self, queue: QueueId, number: u64, mark: &Arc<Mark>) {
        self.each(|entry| entry.uses.note(queue, number, mark));
    }

    /// Notes a command of a context whose end no event tells.
    pub(crate) fn note_unknown_use(&self, context: &Arc<Context>) {
        self.each(|entry| entry.uses.note_unknown(context));
    }

    fn each(&self, mut visit: impl FnMut(&mut Entry)) {
        let mut mapped = self.reservation.mapped.lock();
        for offset in &self.offsets {
            // It stays while it is counted (I3).
            if let Some(entry) = mapped.get_mut(offset) {
                visit(entry);
            }
        }
    }
}

impl Drop for BeingUsed<'_> {
    fn drop(&mut self) {
        self.each(|entry| entry.enqueuing -= 1);
    }
}

fn not_mapped(region: Region) -> Error {
    let Region { offset, bytes } = region;
    InvalidRequest::NotMapped { offset, bytes }.into()
}

fn in_use(region: Region) -> Error {
    let Region { offset, bytes } = region;
    InvalidRequest::InUse { offset, bytes }.into()
}

/// A map that failed.
struct Failed {
    error: CudaError,
    /// Set if the pages are still mapped.
    left: bool,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let (mut mapped, pages) = self.take_all();
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
        // Those that only the reservation had are released after that.
        drop(pages);
    }
}
