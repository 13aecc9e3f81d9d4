//! What commands and maps do with one memory object.
//!
//! OpenCL orders the commands of one in-order queue, and nothing else: two queues that use the same bytes race, and so
//! does the host with its maps. Each memory object therefore remembers, for its bytes, the last command that writes
//! them and those that have read them since, and which bytes the host has mapped. A command is enqueued after what
//! conflicts with it ([`CommandAdmission`](crate::order::admission::CommandAdmission)), by events that it waits for on the device.
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
//! A replaced command is no longer looked at, since the command that replaced it waits for it. This is not enough on a
//! device where a command fails as soon as one of the events that it waits for has failed (docs/failures.md): the failed
//! command says nothing of the others. So on such a device a command remembers the commands that it comes after until it
//! has completed, and a thread that finds a failed command goes back to those.
//!
//! On such a device each queue has a log of its own, too ([`OrderRole`](crate::order::role::OrderRole)). Its commands are
//! entered there as if the queue were an object that they write, so the order of the queue holds after a failure.

use std::{
    collections::BTreeMap,
    ops::Bound,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use binpool_allocators::{InvalidRequest, QueueId, Region, Result, runtime::Access};
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::{
    order::{
        failures::{in_place_of, pending_before},
        tracked_command::{Dependency, Earlier, TrackedCommand},
    },
    sys::{self, ClResult, EventHandle},
};

#[cfg(test)]
mod tests;

/// What commands and maps do with one memory object.
#[derive(Debug, Default)]
pub(crate) struct AccessLog {
    pub(crate) record: Mutex<Record>,
    /// Set if a thread waits for the end of the object, or of a part of it, so that nothing may keep it longer than its
    /// commands do.
    end_is_awaited: AtomicBool,
}

/// # Invariants
///
/// I1: Pieces do not overlap, and none is empty.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// The pieces by their first bytes.
    pieces: BTreeMap<usize, Piece>,
    /// The number of pieces at which those without pending commands are looked for.
    limit: usize,
    maps: Vec<MapRecord>,
    /// The commands that make maps, until they have ended, even if the end of the map is enqueued by then.
    being_made: Vec<MapCommand>,
    /// Commands that are no longer looked at. They are dropped after the lock is released, since their queues may be
    /// dropped with them.
    discarded: Vec<Arc<TrackedCommand>>,
}

/// Bytes that the same commands use.
#[derive(Clone, Debug)]
struct Piece {
    end: usize,
    entries: SmallVec<[PieceUse; 2]>,
    /// The number of entries at which those that are over are looked for.
    limit: usize,
}

#[derive(Clone, Debug)]
struct PieceUse {
    access: Access,
    command: Arc<TrackedCommand>,
    /// A later command that waits for this one, and replaces it as soon as it is enqueued.
    replaced_by: Option<Arc<TrackedCommand>>,
}

/// Names a map of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MapId(u64);

impl MapId {
    pub(crate) fn fresh() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        // Relaxed: the numbers only have to differ.
        Self(LAST.fetch_add(1, Ordering::Relaxed))
    }
}

#[derive(Debug)]
struct MapRecord {
    id: MapId,
    region: Region,
    access: Access,
}

/// A command that makes a map.
#[derive(Debug)]
struct MapCommand {
    id: MapId,
    /// The first byte that it maps.
    start: usize,
    command: Arc<TrackedCommand>,
}

/// Returns the error of what conflicts with `map`, if anything does.
fn refuse(map: Option<&MapRecord>) -> Result<()> {
    map.map_or(Ok(()), |map| {
        let Region { offset, bytes } = map.region;
        Err(InvalidRequest::Mapped { offset, bytes }.into())
    })
}

/// Returns whether the order of two uses of the same bytes matters.
fn conflict(one: Access, other: Access) -> bool {
    [one, other].contains(&Access::Write)
}

const FIRST_LIMIT: usize = 64;
const FIRST_ENTRY_LIMIT: usize = 8;

impl AccessLog {
    /// Notes that a thread waits for the end of the object from now on.
    pub(crate) fn await_end(&self) {
        // Relaxed: it does not matter whether a command that is enqueued at the same time sees this.
        self.end_is_awaited.store(true, Ordering::Relaxed);
    }

    pub(crate) fn end_is_awaited(&self) -> bool {
        self.end_is_awaited.load(Ordering::Relaxed)
    }

    /// Forgets the map `id`, so that it no longer refuses commands.
    pub(crate) fn forget_map(&self, id: MapId) {
        self.record.lock().maps.retain(|map| map.id != id);
    }

    /// Returns the commands that are making maps other than `own` which start at byte `start`.
    pub(crate) fn other_maps_being_made(&self, start: usize, own: MapId) -> Earlier {
        let record = self.record.lock();
        let being_made = record.being_made.iter();
        let others = being_made.filter(|it| it.start == start && it.id != own);
        let mut others: Earlier = others.map(|it| Arc::clone(&it.command)).collect();
        drop(record);
        others.retain(|command| !command.has_ended());
        others
    }

    /// Checks that the host has no map of the object.
    pub(crate) fn check_unmapped(&self) -> Result<()> {
        let all = Region::first(usize::MAX);
        self.record.lock().check_maps(all, Access::Write, None)
    }

    /// Waits, on the host, until commands no longer use the object, whether or not they succeeded.
    pub(crate) fn wait_until_unused(&self) -> ClResult<()> {
        while wait_for(self.commands())? {}
        Ok(())
    }

    /// Returns the commands that use the object, without those that another one of them comes after.
    pub(crate) fn commands(&self) -> Earlier {
        self.commands_on(Region::first(usize::MAX))
    }

    /// Returns the commands that use `region`, without those that another one of them comes after.
    pub(crate) fn commands_on(&self, region: Region) -> Earlier {
        let mut commands = Earlier::new();
        self.record
            .lock()
            .collect_conflicting(region, Access::Write, &mut commands);
        commands
    }
}

/// Waits, on the host, until these commands of `queue` have ended, and those of the same queue that they come after. It
/// does not matter whether they succeeded.
pub(crate) fn wait_for_commands(queue: QueueId, commands: Earlier) -> ClResult<()> {
    let mut left = commands;
    while let Some(command) = left.pop() {
        if !command.is_of(queue) {
            continue;
        }
        command.wait_until_decided();
        match command.dependency(None)? {
            Dependency::None => {}
            Dependency::Event(event) => {
                wait_however_it_ends(&event);
                // The next look says whether it has failed.
                left.push(command);
            }
            Dependency::Failed => left.extend(pending_before(&command)?),
        }
    }
    Ok(())
}

/// Waits, on the host, for these commands and all that they come after. Returns whether any of them was pending. A command
/// may fail before those that it comes after have ended: the next call finds these.
pub(crate) fn wait_for(commands: Earlier) -> ClResult<bool> {
    let pending = dependencies(None, commands)?.events;
    pending.iter().for_each(wait_however_it_ends);
    Ok(!pending.is_empty())
}

fn wait_however_it_ends(event: &EventHandle) {
    if let Err(error) = sys::wait_until_ended(event) {
        tracing::debug!(%error, "a command that failed holds nothing back");
    }
}

/// The events that a command has to wait for to come after others.
pub(crate) struct Dependencies {
    pub(crate) events: SmallVec<[EventHandle; 4]>,
    /// Set if any of those others has failed, and what it was to come after may be pending.
    pub(crate) any_failed: bool,
}

/// Returns what a command has to wait for to come after `earlier`. If `queue` is given, the command is on that queue, whose
/// order puts the queue's earlier commands first.
pub(crate) fn dependencies(queue: Option<QueueId>, earlier: Earlier) -> ClResult<Dependencies> {
    let mut events = SmallVec::new();
    let mut any_failed = false;
    // After a failed command the queue's order is not relied on: the queue may have gone on before earlier commands ended.
    let mut left: SmallVec<[_; 8]> = earlier.into_iter().map(|one| (one, queue)).collect();
    while let Some((command, queue)) = left.pop() {
        command.wait_until_decided();
        match command.dependency(queue)? {
            Dependency::None => {}
            Dependency::Event(event) => events.push(event),
            Dependency::Failed => {
                any_failed = true;
                let pending = pending_before(&command)?;
                left.extend(pending.into_iter().map(|one| (one, None)));
            }
        }
    }
    Ok(Dependencies { events, any_failed })
}

impl Record {
    /// Checks that no map other than `own` conflicts with this use of `region` by a command or by a new map. Both sides may
    /// read.
    pub(crate) fn check_maps(
        &self,
        region: Region,
        access: Access,
        own: Option<MapId>,
    ) -> Result<()> {
        let conflicting = |map: &&MapRecord| {
            Some(map.id) != own && map.region.overlaps(region) && conflict(map.access, access)
        };
        refuse(self.maps.iter().find(conflicting))
    }

    /// Checks that no map of shared virtual memory starts at the same byte: NVIDIA's driver ends both when the first one
    /// ends.
    pub(crate) fn check_address(&self, region: Region) -> Result<()> {
        let same = |map: &&MapRecord| map.region.offset == region.offset;
        refuse(self.maps.iter().find(same))
    }

    /// Notes that the host maps `region` from now on, by `command`.
    pub(crate) fn add_map(
        &mut self,
        id: MapId,
        region: Region,
        access: Access,
        command: &Arc<TrackedCommand>,
    ) {
        self.maps.push(MapRecord { id, region, access });
        let ended = self.being_made.extract_if(.., |it| it.command.has_ended());
        self.discarded.extend(ended.map(|it| it.command));
        self.being_made.push(MapCommand {
            id,
            start: region.offset,
            command: Arc::clone(command),
        });
    }

    /// Adds the commands that a use of `region` conflicts with.
    pub(crate) fn collect_conflicting(
        &mut self,
        region: Region,
        access: Access,
        earlier: &mut Earlier,
    ) {
        let mut discarded = std::mem::take(&mut self.discarded);
        for piece in self.pieces_of(region) {
            piece.tidy(&mut discarded);
            for entry in &piece.entries {
                let known = |other: &Arc<TrackedCommand>| Arc::ptr_eq(other, &entry.command);
                if conflict(entry.access, access) && !earlier.iter().any(known) {
                    earlier.push(Arc::clone(&entry.command));
                }
            }
        }
        self.discarded = discarded;
    }

    /// Enters `command`, which comes after everything that it conflicts with.
    pub(crate) fn enter(&mut self, region: Region, access: Access, command: &Arc<TrackedCommand>) {
        let end = region.offset.saturating_add(region.bytes);
        self.split_at(region.offset);
        self.split_at(end);
        let entry = PieceUse {
            access,
            command: Arc::clone(command),
            replaced_by: None,
        };
        let mut gaps = SmallVec::<[(usize, usize); 2]>::new();
        let mut next = region.offset;
        let mut discarded = std::mem::take(&mut self.discarded);
        for (&start, piece) in self.pieces.range_mut(region.offset..end) {
            if next < start {
                gaps.push((next, start));
            }
            next = piece.end;
            piece.add(&entry);
            if piece.entries.len() > piece.limit {
                // Many more commands may enter before anything looks at these bytes.
                piece.tidy(&mut discarded);
            }
        }
        self.discarded = discarded;
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

    /// Takes the commands that are to be dropped after the lock is released.
    pub(crate) fn take_discarded(&mut self) -> Vec<Arc<TrackedCommand>> {
        std::mem::take(&mut self.discarded)
    }

    /// Returns the pieces that share a byte with `region`.
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

    /// Splits the piece that reaches across `offset`, so that one starts there.
    fn split_at(&mut self, offset: usize) {
        let Some((_, piece)) = self.pieces.range_mut(..offset).next_back() else {
            return;
        };
        if piece.end <= offset {
            return;
        }
        let second = piece.clone();
        piece.end = offset;
        self.pieces.insert(offset, second);
    }

    /// Forgets commands that nothing has to come after now, and joins neighbouring pieces that the same commands use.
    fn sweep(&mut self) {
        let mut swept = BTreeMap::<usize, Piece>::new();
        for (start, mut piece) in std::mem::take(&mut self.pieces) {
            piece.tidy(&mut self.discarded);
            piece.forget_what_is_over(&mut self.discarded);
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
    /// Forgets commands that were replaced or never enqueued.
    fn tidy(&mut self, discarded: &mut Vec<Arc<TrackedCommand>>) {
        self.retain(discarded, |entry| {
            // A later command that is gone has either completed, after this one, or was given up without waiting for it.
            // Both look the same, so this one stays.
            entry.replaced_by.take_if(|later| later.is_gone());
            let replaced = entry
                .replaced_by
                .as_ref()
                .is_some_and(|later| later.is_enqueued());
            !replaced && !entry.command.is_gone()
        });
        if self.entries.len() > self.limit {
            self.forget_what_is_over(discarded);
            self.limit = self.entries.len().saturating_mul(2).max(FIRST_ENTRY_LIMIT);
        }
    }

    /// Forgets commands that nothing has to come after now. A failed one is replaced by those that it should have come after, each of them
    /// once, however many have failed.
    fn forget_what_is_over(&mut self, discarded: &mut Vec<Arc<TrackedCommand>>) {
        self.retain(discarded, |entry| !entry.command.is_over());
        for entry in std::mem::take(&mut self.entries) {
            let Some(replacement) = in_place_of(&entry.command) else {
                self.entries.push(entry);
                continue;
            };
            for command in replacement {
                let new = PieceUse {
                    command,
                    ..entry.clone()
                };
                if self.entries.iter().all(|other| !other.is_same(&new)) {
                    self.entries.push(new);
                }
            }
            discarded.push(entry.command);
        }
    }

    fn retain(
        &mut self,
        discarded: &mut Vec<Arc<TrackedCommand>>,
        keep: impl Fn(&mut PieceUse) -> bool,
    ) {
        self.entries.retain(|entry| {
            let kept = keep(entry);
            if !kept {
                discarded.push(Arc::clone(&entry.command));
            }
            kept
        });
    }

    fn add(&mut self, new: &PieceUse) {
        for entry in &mut self.entries {
            if entry.replaced_by.is_none() && new.replaces(entry) {
                entry.replaced_by = Some(Arc::clone(&new.command));
            }
        }
        self.entries.push(new.clone());
    }

    fn is_used_as(&self, other: &Self) -> bool {
        self.entries.len() == other.entries.len()
            && self
                .entries
                .iter()
                .zip(&other.entries)
                .all(|(one, two)| one.is_same_use(two))
    }
}

impl PieceUse {
    fn is_same_use(&self, other: &Self) -> bool {
        self.access == other.access && Arc::ptr_eq(&self.command, &other.command)
    }

    fn is_same(&self, other: &Self) -> bool {
        let [one, two] = [self, other].map(|it| it.replaced_by.as_ref().map(Arc::as_ptr));
        self.is_same_use(other) && one == two
    }

    /// Returns whether a command that comes after this one thereby comes after `earlier`, too.
    fn replaces(&self, earlier: &Self) -> bool {
        if conflict(self.access, earlier.access) {
            return self.access == Access::Write;
        }
        // Two reads: the order of their queue puts the earlier one first, if that is enqueued already.
        let queue = self.command.queue();
        queue.id() == earlier.command.queue().id()
            && queue.is_in_order()
            && earlier.command.is_enqueued()
    }
}
