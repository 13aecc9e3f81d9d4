//! Which pages are mapped where in a reservation.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
};

use parking_lot::Mutex;

use super::{
    Objects,
    uses::{Use, Uses},
};
use crate::{Error, InvalidRequest, Region, Result};

/// The pages that are mapped to a reservation, by their offsets. `P` keeps the pages.
///
/// # Invariants
///
/// - M1: entries do not overlap.
/// - M2: an entry is there before its pages are mapped, and until they are unmapped. Only while they are mapped, a transfer begins to use it. A
///   kernel does so also while they are unmapped: if that fails, it uses them.
/// - M3: a mapped entry whose `enqueuing` is not 0 stays, and so do those whose commands have not ended.
pub(super) struct Mapped<R: Objects, P> {
    entries: Mutex<BTreeMap<usize, Entry<R, P>>>,
    /// How many entries there were so far.
    count: AtomicU64,
}

struct Entry<R: Objects, P> {
    /// Tells it from others at its offset.
    number: u64,
    pages: P,
    bytes: usize,
    state: State,
    /// How many commands are being enqueued that use these pages.
    enqueuing: usize,
    uses: Uses<R>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    BeingMapped,
    Mapped,
    BeingUnmapped,
}

impl<R: Objects, P> Default for Mapped<R, P> {
    fn default() -> Self {
        Self {
            entries: Mutex::default(),
            count: AtomicU64::new(0),
        }
    }
}

impl<R: Objects, P> Mapped<R, P> {
    pub(super) fn map(
        &self,
        region: Region,
        pages: P,
        map: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let Region { offset, bytes } = region;
        {
            let mut entries = self.entries.lock();
            let before = entries.range(..offset + bytes).next_back();
            if before.is_some_and(|(start, entry)| start + entry.bytes > offset) {
                return Err(InvalidRequest::AlreadyMapped { offset, bytes }.into());
            }
            let entry = Entry {
                number: self.count.fetch_add(1, Ordering::Relaxed),
                pages,
                bytes,
                state: State::BeingMapped,
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
            entry.state = State::Mapped;
        }
        result
    }

    /// Takes out the pages of a reservation that is gone, with the marks of the commands that use them by it.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = (P, Vec<R::Mark>)> {
        let entries = std::mem::take(self.entries.get_mut()).into_values();
        entries.map(|mut entry| {
            let (mut marks, others) = entry.uses.take();
            marks.extend(others);
            (entry.pages, marks)
        })
    }

    pub(super) fn unmap(&self, region: Region, unmap: impl FnOnce() -> Result<()>) -> Result<()> {
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
                entry.state = State::Mapped;
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
            if *offset != at || entry.state != State::Mapped {
                break;
            }
            offsets.push(*offset);
            at += entry.bytes;
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
            entry.state = State::BeingUnmapped;
            uses.add(&entry.uses);
        }
        Ok((offsets, uses))
    }

    /// Begins a use of `region` by a command. It is refused where not all of it is mapped, or a thread is just mapping or
    /// unmapping it: the command would fault.
    pub(super) fn begin_use(&self, region: Region) -> Result<InUse<'_, R, P>> {
        let mut entries = self.entries.lock();
        let end = region.offset.saturating_add(region.bytes);
        let (mut at, mut offsets) = (region.offset, Vec::new());
        while at < end {
            let entry = entries.range(..=at).next_back();
            let entry = entry.filter(|(_, entry)| entry.state == State::Mapped);
            match entry.map(|(start, entry)| (*start, start + entry.bytes)) {
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
    pub(super) fn begin_use_of_mapped(&self, region: Region) -> InUse<'_, R, P> {
        let mut entries = self.entries.lock();
        let end = region.offset.saturating_add(region.bytes);
        let before = entries.range(..end).rev();
        let inside = before.take_while(|(start, entry)| *start + entry.bytes > region.offset);
        let mapped = inside.filter(|(_, entry)| entry.state != State::BeingMapped);
        let offsets = mapped.map(|(start, _)| *start).collect();
        self.in_use(&mut entries, offsets)
    }

    fn in_use(
        &self,
        entries: &mut BTreeMap<usize, Entry<R, P>>,
        offsets: Vec<usize>,
    ) -> InUse<'_, R, P> {
        let begin = |offset| {
            let entry = entries.get_mut(&offset)?;
            entry.enqueuing += 1;
            Some((offset, entry.number))
        };
        InUse {
            mapped: self,
            entries: offsets.into_iter().filter_map(begin).collect(),
        }
    }
}

/// Pages that a command is about to use. They stay mapped as long as this value lives, and then until the commands have ended
/// that were noted.
pub(super) struct InUse<'a, R: Objects, P> {
    mapped: &'a Mapped<R, P>,
    /// Their offsets and numbers.
    entries: Vec<(usize, u64)>,
}

impl<R: Objects, P> InUse<'_, R, P> {
    pub(super) fn note(&self, used: &Use<R>) {
        self.each(|entry| entry.uses.note(used.clone(), false));
    }

    pub(super) fn note_other(&self, mark: &R::Mark) {
        self.each(|entry| entry.uses.note_other(mark.clone()));
    }

    fn each(&self, mut visit: impl FnMut(&mut Entry<R, P>)) {
        let mut entries = self.mapped.entries.lock();
        for (offset, number) in &self.entries {
            // It stays while it is counted (M3), but for one that a kernel began to use while it was unmapped.
            let entry = entries.get_mut(offset);
            if let Some(entry) = entry.filter(|entry| entry.number == *number) {
                visit(entry);
            }
        }
    }
}

impl<R: Objects, P> Drop for InUse<'_, R, P> {
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
