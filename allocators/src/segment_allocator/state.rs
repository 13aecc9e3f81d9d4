//! What a segment allocator keeps under its lock.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use crate::{
    Allocator, EventOf, Memory, MemoryId, MemoryOf,
    segments::{Carved, Leaving, RangeKey, Segments},
    sync::thread::{self, ThreadId},
};

use super::SegmentStatistics;

/// The events that say when a range may be used again.
pub(super) type Events<A> = Arc<[EventOf<A>]>;

/// A range that a block was carved from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lent {
    pub(super) range: RangeKey,
    pub(super) bytes: usize,
}

/// A range that came back while events say that it may still be used.
#[derive(Debug)]
pub(super) struct Pending<A: Allocator> {
    pub(super) lent: Lent,
    pub(super) view: MemoryOf<A>,
    pub(super) after: Events<A>,
}

/// The events that keep a range from its next user, and the number that the range waits under.
pub(super) type Ticket<A> = (u64, Events<A>);

/// What is to be dropped, and only then free, without the lock.
#[derive(Debug)]
pub(super) struct Returning<A: Allocator> {
    pub(super) lent: Lent,
    pub(super) view: MemoryOf<A>,
}

/// Everything of a segment allocator that changes.
///
/// # Invariants
///
/// - I1: a range that is taken is in `lent` (the user has its block), or in `pending`, or in the hands of a call.
/// - I2: `in_use` has the bytes of all ranges that are taken.
/// - I3: nothing is in `pending` without an event.
#[derive(Debug)]
pub(super) struct State<A: Allocator> {
    segments: Segments<MemoryOf<A>, ()>,
    lent: HashMap<MemoryId, Lent>,
    /// Oldest first.
    pending: BTreeMap<u64, Pending<A>>,
    next_ticket: u64,
    pending_bytes: u64,
    in_use: u64,
    allocations: u64,
    segments_made: u64,
    /// The threads that have something in hand which is about to be free, or back at the inner allocator, or that may get a
    /// segment from it of which they need a part.
    on_the_way: Vec<ThreadId>,
    /// How often something became free, or was given back to the inner allocator.
    changes: u64,
}

impl<A: Allocator> State<A> {
    pub(super) fn new() -> Self {
        Self {
            segments: Segments::new(|(), ()| Some(())),
            lent: HashMap::new(),
            pending: BTreeMap::new(),
            next_ticket: 0,
            pending_bytes: 0,
            in_use: 0,
            allocations: 0,
            segments_made: 0,
            on_the_way: Vec::new(),
            changes: 0,
        }
    }

    pub(super) const fn changes(&self) -> u64 {
        self.changes
    }

    /// Whether another thread has something in hand that is worth waiting for. What this thread has does not count: the
    /// inner allocator may call back from where it takes it.
    pub(super) fn is_anything_on_the_way(&self) -> bool {
        let own = thread::current().id();
        self.on_the_way.iter().any(|thread| *thread != own)
    }

    pub(super) fn set_off(&mut self) {
        self.on_the_way.push(thread::current().id());
    }

    /// Ends what [`set_off`](Self::set_off) began on this thread.
    pub(super) fn arrive(&mut self) {
        self.come_back();
        self.changes += 1;
    }

    /// The same for a thread that has nothing in hand.
    pub(super) fn come_back(&mut self) {
        let own = thread::current().id();
        let place = self.on_the_way.iter().position(|thread| *thread == own);
        place.map(|place| self.on_the_way.swap_remove(place));
    }

    /// Takes a range; wherever there is one, where there is no other way.
    pub(super) fn take(&mut self, bytes: usize, anywhere: bool) -> Option<Carved<MemoryOf<A>, ()>> {
        let carved = if anywhere {
            self.segments.take_anywhere(bytes, |()| true)
        } else {
            self.segments.take(bytes, |()| true)
        }?;
        self.in_use += bytes as u64;
        if carved.has_excess {
            self.set_off();
        }
        Some(carved)
    }

    /// Gives back what a range has behind its block.
    pub(super) fn shrink(&mut self, range: RangeKey, bytes: usize) {
        self.segments.shrink(range, bytes, ());
        self.arrive();
    }

    /// The size of the segment to ask for, and the segments that go first.
    pub(super) fn grow(
        &mut self,
        bytes: usize,
        alignment: usize,
        capacity: u64,
    ) -> (usize, Vec<Leaving<MemoryOf<A>, ()>>) {
        let (size, leaving) =
            self.segments
                .grow(bytes, self.in_use, alignment, self.allocations, capacity);
        self.send_off(&leaving);
        (size, leaving)
    }

    pub(super) fn refuse(&mut self, size: usize) {
        self.segments.refuse(size);
    }

    /// Adds a segment that was [on the way](Self::set_off), and takes the first range of it.
    pub(super) fn add(
        &mut self,
        memory: MemoryOf<A>,
        size: usize,
        bytes: usize,
    ) -> Option<Carved<MemoryOf<A>, ()>> {
        self.segments_made += 1;
        self.arrive();
        let carved = self.segments.add(memory, size, bytes)?;
        self.in_use += bytes as u64;
        Some(carved)
    }

    /// Takes segments away that are free as a whole, largest first, until they have `enough` bytes together.
    pub(super) fn take_idle(&mut self, enough: u64) -> Vec<Leaving<MemoryOf<A>, ()>> {
        let leaving = self.segments.release(enough, |()| true);
        self.send_off(&leaving);
        leaving
    }

    fn send_off(&mut self, leaving: &[Leaving<MemoryOf<A>, ()>]) {
        for _ in leaving {
            self.set_off();
        }
    }

    /// Takes note of a block that goes to the user.
    pub(super) fn lend(&mut self, memory: MemoryId, lent: Lent) {
        self.allocations += 1;
        self.lent.insert(memory, lent);
    }

    /// Takes a block back, once the events in `after` have ended: now, where there are none, with what is to be dropped
    /// first. `Err` with the memory, if it is no block of this allocator.
    pub(super) fn take_back(
        &mut self,
        memory: MemoryOf<A>,
        after: Option<Events<A>>,
    ) -> Result<Option<Returning<A>>, MemoryOf<A>> {
        let Some(lent) = self.lent.remove(&memory.id()) else {
            return Err(memory);
        };
        let Some(after) = after else {
            return Ok(self.give_back(lent, memory));
        };
        self.pending_bytes += lent.bytes as u64;
        let pending = Pending {
            lent,
            view: memory,
            after,
        };
        self.pending.insert(self.next_ticket, pending);
        self.next_ticket += 1;
        Ok(None)
    }

    /// What pending ranges wait for, oldest first.
    pub(super) fn tickets(&self) -> Vec<Ticket<A>> {
        let tickets = self.pending.iter();
        tickets
            .map(|(ticket, pending)| (*ticket, Arc::clone(&pending.after)))
            .collect()
    }

    /// Frees a range that waits under this number no more, with its events, and what is to be dropped first.
    pub(super) fn settle(&mut self, ticket: u64) -> Option<(Events<A>, Option<Returning<A>>)> {
        let Pending { lent, view, after } = self.pending.remove(&ticket)?;
        self.pending_bytes -= lent.bytes as u64;
        Some((after, self.give_back(lent, view)))
    }

    /// Takes all pending ranges out, to be freed by [`give`](Self::give).
    pub(super) fn take_pending(&mut self) -> Vec<Pending<A>> {
        self.pending_bytes = 0;
        std::mem::take(&mut self.pending).into_values().collect()
    }

    /// Frees a range, with its view, if that is kept; or else once the view has been dropped.
    fn give_back(&mut self, lent: Lent, view: MemoryOf<A>) -> Option<Returning<A>> {
        if self.segments.may_keep_view(lent.range) {
            self.give(lent, Some(view));
            return None;
        }
        self.set_off();
        Some(Returning { lent, view })
    }

    /// Frees a range, with its view, if that is kept; otherwise it has gone.
    pub(super) fn give(&mut self, lent: Lent, view: Option<MemoryOf<A>>) {
        self.in_use -= lent.bytes as u64;
        self.changes += 1;
        self.segments.give(lent.range, (), view);
    }

    pub(super) fn statistics(&self) -> SegmentStatistics {
        SegmentStatistics {
            segment_bytes: self.segments.bytes(),
            free_bytes: self.segments.free_bytes(),
            largest_free_bytes: self.segments.largest_free(),
            pending_bytes: self.pending_bytes,
            live_blocks: self.lent.len(),
            segments_made: self.segments_made,
        }
    }
}
