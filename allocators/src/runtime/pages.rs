//! Reservations, and the pages that are mapped to them.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;

use super::{
    CoreMemory, Part, Runtime,
    memory::{Kind, Root},
    uses::Uses,
};
use crate::{
    Align, Error, InvalidRequest, Memory as _, MemoryFlags, QueueId, Region, Result, VirtualMemory,
};

/// A runtime with virtual memory: addresses that are reserved, and pages that are mapped to them.
///
/// A type that implements this has [`VirtualMemory`]. Reservations and pages are blocks of the runtime. As for [`Runtime`], arguments have been
/// checked: parts are whole pages, nothing is mapped where pages are to be, and whole pages are mapped where they are to go, which no
/// command uses.
pub trait RuntimePages: Runtime {
    /// The size that sizes and offsets of pages are multiples of, in bytes. 0 where the device has no virtual memory.
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
    fn map(&self, reservation: &Self::Block, region: Region, pages: &Self::Block) -> Result<()>;

    /// Unmaps pages.
    ///
    /// # Errors
    ///
    /// A failure of the runtime. They stay mapped then.
    fn unmap(&self, reservation: &Self::Block, region: Region) -> Result<()>;
}

impl<R: RuntimePages> VirtualMemory for R {
    fn page_bytes(&self) -> usize {
        RuntimePages::page_bytes(self)
    }

    fn reserve(&self, bytes: usize) -> Result<CoreMemory<R>> {
        let bytes = whole_pages(self, bytes, self.largest_reservation())?;
        let block = RuntimePages::reserve(self, bytes)?;
        let kind = Kind::Reservation(Mapped::default());
        let flags = MemoryFlags::empty();
        Ok(CoreMemory::of_kind(self, block, bytes, flags, kind))
    }

    fn create_pages(&self, bytes: usize) -> Result<CoreMemory<R>> {
        let bytes = whole_pages(self, bytes, self.core().limits().largest_block_bytes)?;
        let deferred = &self.core().deferred;
        let block = deferred.allocate(|| RuntimePages::create_pages(self, bytes))?;
        let flags = MemoryFlags::empty();
        Ok(CoreMemory::of_kind(self, block, bytes, flags, Kind::Pages))
    }

    fn map(&self, reservation: &CoreMemory<R>, offset: usize, pages: &CoreMemory<R>) -> Result<()> {
        pages.check_belongs(self)?;
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
            return Err(Error::unsupported("mapping pages that are gone"));
        };
        mapped.map(region, pages.root(), || {
            RuntimePages::map(self, block, region, source)
        })
    }

    fn unmap(&self, reservation: &CoreMemory<R>, region: Region) -> Result<()> {
        let (mapped, block, region) = place(self, reservation, region)?;
        if region.bytes == 0 {
            return Ok(());
        }
        mapped.unmap(region, || RuntimePages::unmap(self, block, region))
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

type Place<'a, R> = (&'a Mapped<R>, &'a <R as Runtime>::Block, Region);

/// Where a region of a reservation, or of a view of one, lies.
fn place<'a, R: Runtime>(
    backend: &R,
    memory: &'a CoreMemory<R>,
    region: Region,
) -> Result<Place<'a, R>> {
    memory.check_belongs(backend)?;
    let (Some(mapped), Some(block)) = (memory.root().mapped(), memory.block()) else {
        return Err(Error::unsupported(
            "maps to memory that is no reservation: make one with `reserve`",
        ));
    };
    region.check_within(memory.bytes())?;
    Ok((mapped, block, memory.in_block(region)))
}

/// The pages that are mapped to a reservation, by their offsets.
///
/// # Invariants
///
/// - M1: entries do not overlap.
/// - M2: an entry is there before its pages are mapped, and until they are unmapped. While it is `is_changing`, no command begins to use it.
/// - M3: an entry whose `enqueuing` is not 0 stays, and so do those whose commands have not ended.
pub(super) struct Mapped<R: Runtime> {
    entries: Mutex<BTreeMap<usize, Entry<R>>>,
}

struct Entry<R: Runtime> {
    pages: Arc<Root<R>>,
    is_changing: bool,
    /// How many commands are being enqueued that use these pages.
    enqueuing: usize,
    uses: Uses<R>,
}

impl<R: Runtime> Entry<R> {
    fn bytes(&self) -> usize {
        self.pages.bytes()
    }
}

impl<R: Runtime> Default for Mapped<R> {
    fn default() -> Self {
        Self {
            entries: Mutex::default(),
        }
    }
}

impl<R: Runtime> Mapped<R> {
    fn map(
        &self,
        region: Region,
        pages: &Arc<Root<R>>,
        map: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let Region { offset, bytes } = region;
        {
            let mut entries = self.entries.lock();
            let before = entries.range(..offset + bytes).next_back();
            if before.is_some_and(|(start, entry)| start + entry.bytes() > offset) {
                return Err(InvalidRequest::AlreadyMapped { offset, bytes }.into());
            }
            let entry = Entry {
                pages: Arc::clone(pages),
                is_changing: true,
                enqueuing: 0,
                uses: Uses::default(),
            };
            entries.insert(offset, entry);
        }
        let result = map();
        let mut entries = self.entries.lock();
        if result.is_err() {
            entries.remove(&offset);
        } else if let Some(entry) = entries.get_mut(&offset) {
            entry.is_changing = false;
        }
        result
    }

    /// Makes the pages outlive the commands that use them by this reservation, which is gone.
    pub(super) fn pass_on_uses(&mut self) {
        for entry in self.entries.get_mut().values_mut() {
            let (commands, others) = entry.uses.take();
            let mut uses = entry.pages.uses.lock();
            commands
                .into_iter()
                .chain(others)
                .for_each(|mark| uses.note_other(mark));
        }
    }

    fn unmap(&self, region: Region, unmap: impl FnOnce() -> Result<()>) -> Result<()> {
        let (offsets, uses) = self.begin_unmap(region)?;
        let result = match uses.have_ended() {
            Ok(true) => unmap(),
            Ok(false) => Err(in_use(region)),
            Err(error) => Err(error),
        };
        let mut gone = Vec::new();
        let mut entries = self.entries.lock();
        for offset in offsets {
            if result.is_ok() {
                gone.extend(entries.remove(&offset));
            } else if let Some(entry) = entries.get_mut(&offset) {
                entry.is_changing = false;
            }
        }
        drop(entries);
        // Pages that only the reservation had are released here, outside the lock.
        drop(gone);
        result
    }

    /// Checks that whole pages are mapped at all of `region`, and marks them, so that no command begins to use them. Returns
    /// their offsets, and the commands that may use them still.
    fn begin_unmap(&self, region: Region) -> Result<(Vec<usize>, Uses<R>)> {
        let mut entries = self.entries.lock();
        let end = region.offset + region.bytes;
        let (mut at, mut offsets) = (region.offset, Vec::new());
        for (offset, entry) in entries.range(region.offset..end) {
            if *offset != at || entry.is_changing {
                break;
            }
            offsets.push(*offset);
            at += entry.bytes();
        }
        if at != end {
            return Err(not_mapped(region));
        }
        let mut inside = entries.range(region.offset..end);
        if inside.any(|(_, entry)| entry.enqueuing > 0) {
            return Err(in_use(region));
        }
        let mut uses = Uses::default();
        for (_, entry) in entries.range_mut(region.offset..end) {
            entry.is_changing = true;
            uses.add(&entry.uses);
        }
        Ok((offsets, uses))
    }

    /// Begins a use of `region` by a command. It is refused where not all of it is mapped, or a thread is just mapping or
    /// unmapping it: the command would fault.
    pub(super) fn begin_use(&self, region: Region) -> Result<InUse<'_, R>> {
        let mut entries = self.entries.lock();
        let end = region.offset.saturating_add(region.bytes);
        let (mut at, mut offsets) = (region.offset, Vec::new());
        while at < end {
            let entry = entries.range(..=at).next_back();
            let entry = entry.filter(|(_, entry)| !entry.is_changing);
            match entry.map(|(start, entry)| (*start, start + entry.bytes())) {
                Some((start, next)) if next > at => {
                    offsets.push(start);
                    at = next;
                }
                _ => return Err(not_mapped(region)),
            }
        }
        Ok(self.in_use(&mut entries, offsets))
    }

    /// Begins a use by a command that touches only what is mapped in `region`, as the program promises.
    pub(super) fn begin_use_of_mapped(&self, region: Region) -> InUse<'_, R> {
        let mut entries = self.entries.lock();
        let end = region.offset.saturating_add(region.bytes);
        let before = entries.range(..end).rev();
        let inside = before.take_while(|(start, entry)| *start + entry.bytes() > region.offset);
        let stay = inside.filter(|(_, entry)| !entry.is_changing);
        let offsets = stay.map(|(start, _)| *start).collect();
        self.in_use(&mut entries, offsets)
    }

    fn in_use(&self, entries: &mut BTreeMap<usize, Entry<R>>, offsets: Vec<usize>) -> InUse<'_, R> {
        for offset in &offsets {
            if let Some(entry) = entries.get_mut(offset) {
                entry.enqueuing += 1;
            }
        }
        InUse {
            mapped: self,
            offsets,
        }
    }
}

/// Pages that a command is about to use. They stay mapped as long as this value lives, and then until the commands have ended
/// that were noted.
pub(super) struct InUse<'a, R: Runtime> {
    mapped: &'a Mapped<R>,
    offsets: Vec<usize>,
}

impl<R: Runtime> InUse<'_, R> {
    pub(super) fn note(
        &self,
        part: &Part<'_, R>,
        queue: QueueId,
        number: Option<u64>,
        mark: &R::Mark,
    ) {
        self.each(|entry| entry.uses.note(part.as_use(queue, number, mark), false));
    }

    pub(super) fn note_other(&self, mark: &R::Mark) {
        self.each(|entry| entry.uses.note_other(mark.clone()));
    }

    fn each(&self, mut visit: impl FnMut(&mut Entry<R>)) {
        let mut entries = self.mapped.entries.lock();
        for offset in &self.offsets {
            // It stays while it is counted (M3).
            if let Some(entry) = entries.get_mut(offset) {
                visit(entry);
            }
        }
    }
}

impl<R: Runtime> Drop for InUse<'_, R> {
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
