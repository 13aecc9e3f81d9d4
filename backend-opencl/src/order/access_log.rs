//! What commands and maps do with one memory object.
//!
//! OpenCL orders the commands of one in-order queue, and nothing else: two queues that use the same bytes race, and so
//! does the host with its maps. Each memory object therefore remembers, for its bytes, the last command that writes
//! them and those that have read them since, and which bytes the host has mapped. A command is enqueued behind what
//! conflicts with it ([`Admission`](crate::order::admission::Admission)), by events that it waits for on the device.
//!
//! ```text
//! bytes   0........64.......128......256
//!         | write 7 | write 9         |    write 9 is of another queue
//!         |         | read 11|        |
//!
//! read  0..128  waits for 7 and 9; stands beside 11
//! write 64..256 waits for 9 and 11; replaces them
//! ```
//!
//! A command that is replaced is no longer looked at, since what replaced it has waited for it. That does not hold where
//! the latter has failed, which it does as soon as something that it waits for has; so a command that may fail early
//! remembers what it has replaced until it has completed, and who finds a failed one goes back along the line.

use std::{
    collections::BTreeMap,
    ops::Bound,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use binpool_allocators::{Error, InvalidRequest, Region, Result};
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::{
    cl_error::ClResult,
    order::access::Access,
    order::logged::{Logged, Standing},
    queue::ClQueue,
    sys::{self, EventHandle},
};

/// Commands that another one has to come after.
pub(crate) type Earlier = SmallVec<[Arc<Logged>; 4]>;

/// What commands and maps do with one memory object.
#[derive(Debug, Default)]
pub(crate) struct AccessLog {
    pub(crate) record: Mutex<Record>,
    /// Whether somebody waits for the end of the object, or of a part of it, so that nothing may keep it beyond its use.
    end_is_awaited: AtomicBool,
}

/// # Invariants
///
/// I1: Pieces do not overlap, and none is empty.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// By their first bytes.
    pieces: BTreeMap<usize, Piece>,
    /// How many pieces there may be before those without pending commands are looked for.
    limit: usize,
    maps: Vec<Map>,
    next_map: u64,
    /// Commands that are no longer looked at, to be dropped without the lock: their queues may go with them.
    discarded: Vec<Arc<Logged>>,
}

/// Bytes that the same commands use.
#[derive(Clone, Debug)]
struct Piece {
    end: usize,
    entries: SmallVec<[Entry; 2]>,
    /// How many entries there may be before those that have completed are looked for.
    limit: usize,
}

#[derive(Clone, Debug)]
struct Entry {
    access: Access,
    command: Arc<Logged>,
    /// A later command that waits for this one, and replaces it as soon as it is enqueued.
    replaced_by: Option<Arc<Logged>>,
}

/// Names a map of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MapId(u64);

#[derive(Debug)]
struct Map {
    id: MapId,
    region: Region,
    access: Access,
}

impl Map {
    fn refusal(&self) -> Error {
        InvalidRequest::Mapped {
            offset: self.region.offset,
            bytes: self.region.bytes,
        }
        .into()
    }
}

const FIRST_LIMIT: usize = 64;
const FIRST_ENTRY_LIMIT: usize = 8;

impl AccessLog {
    /// Somebody waits for the end of the object from now on.
    pub(crate) fn await_end(&self) {
        // Relaxed: commands that are enqueued meanwhile may come before or after.
        self.end_is_awaited.store(true, Ordering::Relaxed);
    }

    pub(crate) fn end_is_awaited(&self) -> bool {
        self.end_is_awaited.load(Ordering::Relaxed)
    }

    /// Ends the map `id`.
    pub(crate) fn forget_map(&self, id: MapId) {
        self.record.lock().maps.retain(|map| map.id != id);
    }

    /// Checks that the host has no map of the object.
    pub(crate) fn check_unmapped(&self) -> Result<()> {
        let all = Region::first(usize::MAX);
        self.record.lock().check_maps(all, Access::Write, None)
    }

    /// Waits, on the host, until no command uses the object any more. How they ended does not matter.
    pub(crate) fn wait_until_unused(&self) -> ClResult<()> {
        loop {
            let events = self.pending()?;
            if events.is_empty() {
                return Ok(());
            }
            // One that fails early may leave others behind: those are found the next time.
            for event in &events {
                if let Err(error) = sys::wait_until_ended(event) {
                    tracing::debug!(%error, "a command that failed holds nothing back");
                }
            }
        }
    }

    /// The commands that use the object, as far as they have not ended and none of the others comes after them.
    pub(crate) fn pending(&self) -> ClResult<SmallVec<[EventHandle; 4]>> {
        let all = Region::first(usize::MAX);
        let mut earlier = Earlier::new();
        self.record.lock().gather(all, Access::Write, &mut earlier);
        behind(None, earlier)
    }
}

/// The events that a command of `queue` has to wait for, to come after `earlier`.
pub(crate) fn behind(
    queue: Option<&ClQueue>,
    earlier: Earlier,
) -> ClResult<SmallVec<[EventHandle; 4]>> {
    let mut events = SmallVec::new();
    let mut failed = Earlier::new();
    // Not after a failure: what failed early may have let its queue get on before its turn.
    let mut left: SmallVec<[_; 8]> = earlier.into_iter().map(|one| (one, queue)).collect();
    while let Some((command, queue)) = left.pop() {
        command.wait_until_decided();
        match command.standing_before(queue)? {
            Standing::Nothing => {}
            Standing::Behind(event) => events.push(event),
            Standing::Failed(replaced) => {
                if !failed.iter().any(|other| Arc::ptr_eq(other, &command)) {
                    left.extend(replaced.into_iter().map(|one| (one, None)));
                    failed.push(command);
                }
            }
        }
    }
    Ok(events)
}

impl Record {
    /// Checks that the host has not mapped what a command is to use in this way, or what is to be mapped so. Both sides
    /// may read.
    pub(crate) fn check_maps(
        &self,
        region: Region,
        access: Access,
        own: Option<MapId>,
    ) -> Result<()> {
        let conflicting = |map: &&Map| {
            Some(map.id) != own && map.region.overlaps(region) && map.access.conflicts_with(access)
        };
        match self.maps.iter().find(conflicting) {
            None => Ok(()),
            Some(map) => Err(map.refusal()),
        }
    }

    /// Checks that no map of shared virtual memory starts where another is to: NVIDIA's driver ends both with the first.
    pub(crate) fn check_address(&self, region: Region) -> Result<()> {
        let same = |map: &&Map| map.region.offset == region.offset;
        match self.maps.iter().find(same) {
            None => Ok(()),
            Some(map) => Err(map.refusal()),
        }
    }

    /// The host has a map of `region` from now on.
    pub(crate) fn add_map(&mut self, region: Region, access: Access) -> MapId {
        let id = MapId(self.next_map);
        self.next_map += 1;
        self.maps.push(Map { id, region, access });
        id
    }

    /// Adds the commands that a use of `region` conflicts with.
    pub(crate) fn gather(&mut self, region: Region, access: Access, earlier: &mut Earlier) {
        let mut discarded = std::mem::take(&mut self.discarded);
        for piece in self.pieces_of(region) {
            piece.tidy(&mut discarded);
            for entry in &piece.entries {
                let known = |other: &Arc<Logged>| Arc::ptr_eq(other, &entry.command);
                if entry.access.conflicts_with(access) && !earlier.iter().any(known) {
                    earlier.push(Arc::clone(&entry.command));
                }
            }
        }
        self.discarded = discarded;
    }

    /// Enters `command`, which comes after everything that it conflicts with.
    pub(crate) fn enter(&mut self, region: Region, access: Access, command: &Arc<Logged>) {
        let end = region.offset.saturating_add(region.bytes);
        self.split_at(region.offset);
        self.split_at(end);
        let entry = Entry {
            access,
            command: Arc::clone(command),
            replaced_by: None,
        };
        let mut gaps = SmallVec::<[(usize, usize); 2]>::new();
        let mut next = region.offset;
        for (&start, piece) in self.pieces.range_mut(region.offset..end) {
            if next < start {
                gaps.push((next, start));
            }
            next = piece.end;
            piece.add(&entry);
        }
        if next < end {
            gaps.push((next, end));
        }
        for (start, end) in gaps {
            let mut entries = SmallVec::new();
            entries.push(entry.clone());
            let limit = FIRST_ENTRY_LIMIT;
            let piece = Piece {
                end,
                entries,
                limit,
            };
            self.pieces.insert(start, piece);
        }
        if self.pieces.len() > self.limit.max(FIRST_LIMIT) {
            self.sweep();
            self.limit = self.pieces.len().saturating_mul(2);
        }
    }

    /// What is to be dropped once the lock is not held any more.
    pub(crate) fn take_discarded(&mut self) -> Vec<Arc<Logged>> {
        std::mem::take(&mut self.discarded)
    }

    /// The pieces that share a byte with `region`.
    fn pieces_of(&mut self, region: Region) -> impl Iterator<Item = &mut Piece> {
        let start = region.offset;
        let end = start.saturating_add(region.bytes);
        let before = self.pieces.range(..=start).next_back();
        let first = before
            .filter(|(_, piece)| piece.end > start)
            .map_or(start, |(&first, _)| first);
        // An empty region touches nothing.
        let last = if region.bytes == 0 { first } else { end };
        self.pieces
            .range_mut((Bound::Included(first), Bound::Excluded(last.max(first))))
            .map(|(_, piece)| piece)
    }

    /// Has a piece start at `place`, where one reaches across it.
    fn split_at(&mut self, place: usize) {
        let Some((_, piece)) = self.pieces.range_mut(..place).next_back() else {
            return;
        };
        if piece.end <= place {
            return;
        }
        let second = piece.clone();
        piece.end = place;
        self.pieces.insert(place, second);
    }

    /// Forgets what has completed, and makes neighbours one that the same commands use.
    fn sweep(&mut self) {
        let mut swept = BTreeMap::<usize, Piece>::new();
        for (start, mut piece) in std::mem::take(&mut self.pieces) {
            piece.tidy(&mut self.discarded);
            piece.forget_completed(&mut self.discarded);
            if piece.entries.is_empty() {
                continue;
            }
            match swept.last_entry() {
                Some(mut last) if last.get().end == start && last.get().is_used_as(&piece) => {
                    last.get_mut().end = piece.end;
                }
                _ => {
                    swept.insert(start, piece);
                }
            }
        }
        self.pieces = swept;
    }
}

impl Piece {
    /// Forgets what was replaced, or never enqueued.
    fn tidy(&mut self, discarded: &mut Vec<Arc<Logged>>) {
        self.retain(discarded, |entry| {
            // One that has completed has waited for this one, one that was given up has not; they look the same.
            entry.replaced_by.take_if(|later| later.is_gone());
            let replaced = entry
                .replaced_by
                .as_ref()
                .is_some_and(|later| later.is_enqueued());
            !replaced && !entry.command.is_gone()
        });
        if self.entries.len() > self.limit {
            self.forget_completed(discarded);
            self.limit = self.entries.len().saturating_mul(2).max(FIRST_ENTRY_LIMIT);
        }
    }

    fn forget_completed(&mut self, discarded: &mut Vec<Arc<Logged>>) {
        self.retain(discarded, |entry| !entry.command.has_completed());
    }

    fn retain(&mut self, discarded: &mut Vec<Arc<Logged>>, keep: impl Fn(&mut Entry) -> bool) {
        self.entries.retain(|entry| {
            let kept = keep(entry);
            if !kept {
                discarded.push(Arc::clone(&entry.command));
            }
            kept
        });
    }

    fn add(&mut self, new: &Entry) {
        for entry in &mut self.entries {
            if entry.replaced_by.is_none() && new.replaces(entry) {
                entry.replaced_by = Some(Arc::clone(&new.command));
                new.command.replaces(&entry.command);
            }
        }
        self.entries.push(new.clone());
    }

    fn is_used_as(&self, other: &Self) -> bool {
        self.entries.len() == other.entries.len()
            && self.entries.iter().zip(&other.entries).all(|(one, two)| {
                one.access == two.access && Arc::ptr_eq(&one.command, &two.command)
            })
    }
}

impl Entry {
    /// Whether what comes after this command comes after `earlier` too.
    fn replaces(&self, earlier: &Self) -> bool {
        if self.access.conflicts_with(earlier.access) {
            return self.access == Access::Write;
        }
        // Two reads: by the order of their queue, if the earlier one is there already.
        let queue = self.command.queue();
        queue == earlier.command.queue() && queue.keeps_its_order() && earlier.command.is_enqueued()
    }
}
