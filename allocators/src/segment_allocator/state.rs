//! The state of a segment allocator under its lock.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use crate::{
    Allocator, EventOf, GrowthPolicy, Memory, MemoryId, MemoryOf,
    segments::{Carved, Leaving, RangeKey, Segments},
    sync::thread::{self, ThreadId},
};

use super::SegmentStatistics;

/// The events that say when a range may be used again.
pub(super) type Events<A> = Arc<[EventOf<A>]>;

/// A range whose block is in use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outstanding {
    pub(super) range: RangeKey,
    pub(super) bytes: usize,
}

/// A released range whose events have not ended, or whose block has views.
#[derive(Debug)]
pub(super) struct Pending<A: Allocator> {
    pub(super) outstanding: Outstanding,
    pub(super) view: MemoryOf<A>,
    pub(super) after: Events<A>,
}

/// The number of a pending range, and the events that it waits for.
pub(super) type Ticket<A> = (u64, Events<A>);

/// A range that is free once its view has been dropped, which happens without the lock.
#[derive(Debug)]
pub(super) struct PendingFree<A: Allocator> {
    pub(super) outstanding: Outstanding,
    pub(super) view: MemoryOf<A>,
}

/// The mutable state of a segment allocator.
///
/// # Invariants
///
/// - I1: a range that is taken is in `outstanding` (its block is in use), in `pending`, or held by a call.
/// - I2: `in_use` is the bytes of all ranges that are taken.
/// - I3: a range enters `pending` with an event to wait for, or with views.
#[derive(Debug)]
pub(super) struct State<A: Allocator> {
    segments: Segments<MemoryOf<A>, ()>,
    outstanding: HashMap<MemoryId, Outstanding>,
    /// Oldest first.
    pending: BTreeMap<u64, Pending<A>>,
    next_ticket: u64,
    pending_bytes: u64,
    in_use: u64,
    allocations: u64,
    segments_made: u64,
    /// The threads with memory in transit: it is about to be free or released to the inner allocator, or they may get a
    /// segment from the inner allocator of which they need only a part.
    in_transit: Vec<ThreadId>,
    /// How often memory became free, or was released to the inner allocator.
    changes: u64,
}

impl<A: Allocator> State<A> {
    pub(super) fn new() -> Self {
        Self {
            segments: Segments::new(|(), ()| Some(())),
            outstanding: HashMap::new(),
            pending: BTreeMap::new(),
            next_ticket: 0,
            pending_bytes: 0,
            in_use: 0,
            allocations: 0,
            segments_made: 0,
            in_transit: Vec::new(),
            changes: 0,
        }
    }

    /// Sets what the segments save when they grow; without effect once there is one.
    pub(super) fn set_growth(&mut self, policy: GrowthPolicy) {
        if self.segments_made == 0 {
            self.segments = Segments::new(|(), ()| Some(())).with_growth(policy);
        }
    }

    pub(super) const fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns whether another thread has memory in transit that is worth waiting for. This thread's own does not count: the
    /// inner allocator may call back while it takes it.
    pub(super) fn is_other_memory_in_transit(&self) -> bool {
        let own = thread::current().id();
        self.in_transit.iter().any(|thread| *thread != own)
    }

    pub(super) fn begin_transit(&mut self) {
        self.in_transit.push(thread::current().id());
    }

    /// Ends what [`begin_transit`](Self::begin_transit) began on this thread.
    pub(super) fn end_transit(&mut self) {
        self.cancel_transit();
        self.changes += 1;
    }

    /// Ends a transit in which no memory became free.
    pub(super) fn cancel_transit(&mut self) {
        let own = thread::current().id();
        let index = self.in_transit.iter().position(|thread| *thread == own);
        index.map(|index| self.in_transit.swap_remove(index));
    }

    /// Takes a range that the rules of growth allow or, with `anywhere`, any range.
    pub(super) fn take(&mut self, bytes: usize, anywhere: bool) -> Option<Carved<MemoryOf<A>, ()>> {
        let carved = if anywhere {
            self.segments.take_anywhere(bytes, |()| true)
        } else {
            self.segments.take(bytes, |()| true)
        }?;
        self.in_use += bytes as u64;
        if carved.has_excess {
            self.begin_transit();
        }
        Some(carved)
    }

    /// Frees what a range has behind its block.
    pub(super) fn shrink(&mut self, range: RangeKey, bytes: usize) {
        self.segments.shrink(range, bytes, ());
        self.end_transit();
    }

    /// Returns the size of the segment to request, and the segments to release before.
    pub(super) fn grow(
        &mut self,
        bytes: usize,
        alignment: usize,
        capacity: u64,
    ) -> (usize, Vec<Leaving<MemoryOf<A>, ()>>) {
        let (size, leaving) =
            self.segments
                .grow(bytes, self.in_use, alignment, self.allocations, capacity);
        self.begin_transits(&leaving);
        (size, leaving)
    }

    pub(super) fn refuse(&mut self, size: usize) {
        self.segments.refuse(size);
    }

    /// Adds a segment that was [in transit](Self::begin_transit), and takes the first range of it.
    pub(super) fn add(
        &mut self,
        memory: MemoryOf<A>,
        size: usize,
        bytes: usize,
    ) -> Option<Carved<MemoryOf<A>, ()>> {
        self.segments_made += 1;
        self.end_transit();
        let carved = self.segments.add(memory, size, bytes)?;
        self.in_use += bytes as u64;
        Some(carved)
    }

    /// Removes segments that are free as a whole, largest first, until they have `enough` bytes together.
    pub(super) fn take_idle(&mut self, enough: u64) -> Vec<Leaving<MemoryOf<A>, ()>> {
        let leaving = self.segments.release(enough, |()| true);
        self.begin_transits(&leaving);
        leaving
    }

    /// The bytes of the segments that are free as a whole.
    pub(super) fn idle_bytes(&self) -> u64 {
        self.segments.idle_bytes()
    }

    fn begin_transits(&mut self, leaving: &[Leaving<MemoryOf<A>, ()>]) {
        for _ in leaving {
            self.begin_transit();
        }
    }

    /// Records a block that is handed to the user.
    pub(super) fn hand_out(&mut self, memory: MemoryId, outstanding: Outstanding) {
        self.allocations += 1;
        self.outstanding.insert(memory, outstanding);
    }

    /// Takes a block back. Without events in `after` and without views, its range is free once the returned view has been
    /// dropped; otherwise it stays pending. `Err` with the memory where it is not a block of this allocator.
    pub(super) fn take_back(
        &mut self,
        memory: MemoryOf<A>,
        after: Events<A>,
    ) -> Result<Option<PendingFree<A>>, MemoryOf<A>> {
        let Some(outstanding) = self.outstanding.remove(&memory.id()) else {
            return Err(memory);
        };
        if after.is_empty() && !memory.has_views() {
            return Ok(self.give_back(outstanding, memory));
        }
        self.pending_bytes += outstanding.bytes as u64;
        let pending = Pending {
            outstanding,
            view: memory,
            after,
        };
        self.pending.insert(self.next_ticket, pending);
        self.next_ticket += 1;
        Ok(None)
    }

    /// The events that pending ranges wait for, oldest first. Ranges with views are left out: no views are added to them.
    pub(super) fn tickets(&self) -> Vec<Ticket<A>> {
        let pending = self.pending.iter();
        let unviewed = pending.filter(|(_, pending)| !pending.view.has_views());
        unviewed
            .map(|(ticket, pending)| (*ticket, Arc::clone(&pending.after)))
            .collect()
    }

    /// Frees a pending range. Returns its events, and the view to be dropped first.
    pub(super) fn settle(&mut self, ticket: u64) -> Option<(Events<A>, Option<PendingFree<A>>)> {
        let Pending {
            outstanding,
            view,
            after,
        } = self.pending.remove(&ticket)?;
        self.pending_bytes -= outstanding.bytes as u64;
        Some((after, self.give_back(outstanding, view)))
    }

    /// Removes all pending ranges, to be freed by [`give`](Self::give).
    pub(super) fn take_pending(&mut self) -> Vec<Pending<A>> {
        self.pending_bytes = 0;
        std::mem::take(&mut self.pending).into_values().collect()
    }

    /// Frees a range and caches its view, or returns the view to be dropped first.
    fn give_back(&mut self, outstanding: Outstanding, view: MemoryOf<A>) -> Option<PendingFree<A>> {
        if self.segments.may_keep_view(outstanding.range) {
            self.give(outstanding, Some(view));
            return None;
        }
        self.begin_transit();
        Some(PendingFree { outstanding, view })
    }

    /// Frees a range and caches its view, if it may be; otherwise the view has been dropped already.
    pub(super) fn give(&mut self, outstanding: Outstanding, view: Option<MemoryOf<A>>) {
        self.in_use -= outstanding.bytes as u64;
        self.changes += 1;
        self.segments.give(outstanding.range, (), view);
    }

    pub(super) fn statistics(&self) -> SegmentStatistics {
        SegmentStatistics {
            segment_bytes: self.segments.bytes(),
            free_bytes: self.segments.free_bytes(),
            largest_free_bytes: self.segments.largest_free(),
            pending_bytes: self.pending_bytes,
            live_blocks: self.outstanding.len(),
            segments_made: self.segments_made,
        }
    }
}
