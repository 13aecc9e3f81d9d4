//! How segments are added and released, and ranges carved from them. Every call to the inner allocator, the backend and
//! events is made here, without the lock.

use std::collections::HashMap;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::{
    Align, Allocator, Backend, Error, Event, EventId, EventOf, InvalidRequest, Memory, MemoryOf,
    ObjectKind, OutOfMemory, Result, Scope,
    segments::{Carved, Leaving, release_views},
};

use super::state::{Outstanding, Pending, PendingFree, State, Ticket};

/// The state that all clones of a segment allocator share.
#[derive(Debug)]
pub(super) struct Shared<A: Allocator> {
    pub(super) inner: A,
    pub(super) alignment: Align,
    pub(super) state: Mutex<State<A>>,
    /// Signals that memory in transit is free, or has been released to the inner allocator.
    pub(super) transit_ended: Condvar,
}

impl<A: Allocator> Shared<A> {
    pub(super) fn new(inner: A) -> Self {
        let alignment = inner.alignment().max(inner.backend().limits().alignment);
        Self {
            inner,
            alignment,
            state: Mutex::new(State::new()),
            transit_ended: Condvar::new(),
        }
    }

    pub(super) fn allocate(&self, bytes: usize) -> Result<MemoryOf<A>> {
        let size = self.size_for(bytes)?;
        let carved = self.take(size).or_else(|| {
            self.settle_ended();
            self.take(size)
        });
        match carved {
            Some(carved) => self.view(carved),
            None => self.grow(size).and_then(|carved| self.view(carved)),
        }
    }

    pub(super) fn release(&self, memory: MemoryOf<A>, after: &[EventOf<A>]) -> Result<()> {
        let taken = self.state.lock().take_back(memory, after.into());
        match taken {
            Ok(pending_free) => {
                self.finish(pending_free);
                Ok(())
            }
            Err(foreign) => {
                drop(foreign);
                let kind = ObjectKind::Memory;
                Err(InvalidRequest::ForeignObject { kind }.into())
            }
        }
    }

    /// Releases the segments that are free as a whole. Returns their bytes.
    pub(super) fn free_idle(&self) -> u64 {
        self.settle_ended();
        let leaving = self.state.lock().take_idle(u64::MAX);
        self.release_segments(leaving)
    }

    /// Returns the size of the range for a block of `bytes` bytes. A block of the inner allocator's largest size fills its
    /// segment, so its size need not be a multiple of the alignment.
    fn size_for(&self, bytes: usize) -> Result<usize> {
        if bytes == 0 {
            return Err(InvalidRequest::ZeroSize.into());
        }
        let largest = self.inner.largest_block();
        if bytes > largest {
            let requested = bytes;
            return Err(InvalidRequest::TooLarge { requested, largest }.into());
        }
        let rounded = self.alignment.round_up(bytes);
        Ok(rounded.filter(|size| *size <= largest).unwrap_or(bytes))
    }

    fn take(&self, size: usize) -> Option<Carved<MemoryOf<A>, ()>> {
        self.state.lock().take(size, false)
    }

    /// Creates the block of a range that was taken.
    fn view(&self, carved: Carved<MemoryOf<A>, ()>) -> Result<MemoryOf<A>> {
        let (range, region) = (carved.range, carved.region);
        let view = carved.into_view(&self.inner, |range, bytes, ()| {
            self.state.lock().shrink(range, bytes);
            self.transit_ended.notify_all();
        });
        let outstanding = Outstanding {
            range,
            bytes: region.bytes,
        };
        match &view {
            Ok(memory) => self.state.lock().hand_out(memory.id(), outstanding),
            Err(_) => self.state.lock().give(outstanding, None),
        }
        view
    }

    /// Returns the refusal of the inner allocator's limits, where these rule out a segment of `size` bytes even once all idle
    /// segments have been released for it. Releasing any would not help.
    fn refusal_of_limits(&self, size: usize) -> Option<Error> {
        let available = self.inner.available_bytes();
        let room = available.saturating_add(self.state.lock().idle_bytes());
        let most = room.min(self.inner.capacity_bytes());
        let refusal = || OutOfMemory::new(size, Scope::Limit).with_available(available);
        (size as u64 > most).then(|| refusal().into())
    }

    /// Requests a segment from the inner allocator and takes a range of it.
    fn grow(&self, size: usize) -> Result<Carved<MemoryOf<A>, ()>> {
        let capacity = self.inner.capacity_bytes();
        if let Some(refusal) = self.refusal_of_limits(size) {
            // With more than a limit that was lowered, there may be a free range of that size.
            let most = capacity.max(self.state.lock().statistics().segment_bytes);
            if size as u64 > most {
                return Err(refusal);
            }
            return self.take_in_shortage(size, size as u64, refusal, None);
        }
        let alignment = self.alignment.bytes();
        let (usual, leaving) = self.state.lock().grow(size, alignment, capacity);
        let sent_back = self.release_segments(leaving);
        let usual = usual.min(self.inner.largest_block()).max(size);
        if usual > size {
            match self.add_segment(usual, size) {
                Err(error) if error.is_out_of_memory() => {}
                result => return result,
            }
        }
        let asked = self.state.lock().changes();
        match self.add_segment(size, size) {
            Err(error) if error.is_out_of_memory() => {
                let missing = (size as u64).checked_sub(sent_back);
                let missing = missing.filter(|missing| *missing > 0);
                let missing = missing.unwrap_or(size as u64);
                self.take_in_shortage(size, missing, error, Some(asked))
            }
            result => result,
        }
    }

    /// Requests a segment of `size` bytes from the inner allocator, and takes the first `bytes` of it. Threads that find the
    /// inner allocator full meanwhile wait for the rest of the segment.
    fn add_segment(&self, size: usize, bytes: usize) -> Result<Carved<MemoryOf<A>, ()>> {
        self.state.lock().begin_transit();
        let memory = match self.inner.allocate(size) {
            Ok(memory) => memory,
            Err(error) => {
                let mut state = self.state.lock();
                if error.is_out_of_memory() {
                    state.refuse(size);
                }
                state.cancel_transit();
                drop(state);
                self.transit_ended.notify_all();
                return Err(error);
            }
        };
        tracing::debug!(asked = bytes, bytes = size, "new segment");
        let carved = self.state.lock().add(memory, size, bytes);
        self.transit_ended.notify_all();
        carved.ok_or_else(|| OutOfMemory::new(bytes, Scope::Device).into())
    }

    /// Finds a range after the inner allocator has refused `size` bytes: takes any free range, releases idle segments and asks
    /// the inner allocator again, and waits for pending ranges one by one.
    ///
    /// At first only `missing` bytes are released, and nothing while limits rule the block out all the same. `asked` is the number of changes when the inner allocator was asked last, if it
    /// was; it is asked again only after more changes. Gives up only where nothing has changed since all ranges were checked.
    fn take_in_shortage(
        &self,
        size: usize,
        mut missing: u64,
        mut refusal: Error,
        mut asked: Option<u64>,
    ) -> Result<Carved<MemoryOf<A>, ()>> {
        loop {
            let seen = self.wait_for_transits().changes();
            self.settle_ended();
            if let Some(carved) = self.state.lock().take(size, true) {
                return Ok(carved);
            }
            let ruled_out = self.refusal_of_limits(size);
            if ruled_out.is_none() {
                let leaving = self.state.lock().take_idle(missing);
                self.release_segments(leaving);
                missing = u64::MAX;
            }
            let now = self.state.lock().changes();
            if let Some(error) = ruled_out {
                refusal = error;
            } else if asked != Some(now) {
                asked = Some(now);
                match self.add_segment(size, size) {
                    Err(error) if error.is_out_of_memory() => refusal = error,
                    result => return result,
                }
            }
            let tickets = {
                let state = self.wait_for_transits();
                // Both under one lock: a range that is no longer pending counts as a change.
                (state.changes() == seen).then(|| state.tickets())
            };
            if tickets.is_some_and(|tickets| !self.wait_for_one(tickets)) {
                return Err(refusal);
            }
        }
    }

    fn wait_for_transits(&self) -> MutexGuard<'_, State<A>> {
        let mut state = self.state.lock();
        while state.is_other_memory_in_transit() {
            self.transit_ended.wait(&mut state);
        }
        state
    }

    /// Frees the pending ranges whose events have ended and whose views are gone. Does not wait.
    fn settle_ended(&self) {
        let tickets = self.state.lock().tickets();
        // Blocks that were released together often have the same events.
        let mut known: HashMap<EventId, bool> = HashMap::new();
        let mut ended = |event: &EventOf<A>| {
            *known
                .entry(event.id())
                .or_insert_with(|| self.is_over(event))
        };
        for (ticket, after) in tickets {
            if after.iter().all(&mut ended) {
                self.settle(ticket);
            }
        }
    }

    /// Waits for the first of these ranges, or the next one where waiting fails. Returns whether a range became free.
    fn wait_for_one(&self, tickets: Vec<Ticket<A>>) -> bool {
        let settled = tickets
            .into_iter()
            .find(|(_, after)| after.iter().all(|event| self.wait_until_over(event)));
        let Some((ticket, _)) = settled else {
            return false;
        };
        self.settle(ticket);
        true
    }

    /// Returns whether the command of this event, and everything before it on its queue, is known to have ended: the event may
    /// be a pool's fence, which stands for all of that.
    fn is_over(&self, event: &EventOf<A>) -> bool {
        let order = self.inner.backend().limits().failure_order;
        event
            .status()
            .is_ok_and(|status| order.ends_all_before(status))
    }

    /// Waits until [`is_over`](Self::is_over) is true. Returns whether it is.
    fn wait_until_over(&self, event: &EventOf<A>) -> bool {
        let _failure = event.wait();
        self.is_over(event) || event.wait_for_all_before().is_ok()
    }

    fn settle(&self, ticket: u64) {
        let settled = self.state.lock().settle(ticket);
        if let Some((after, pending_free)) = settled {
            drop(after);
            self.finish(pending_free);
        }
    }

    /// Drops the view of a range, and then frees the range.
    fn finish(&self, pending_free: Option<PendingFree<A>>) {
        if let Some(PendingFree { outstanding, view }) = pending_free {
            self.inner.release_view(view);
            let mut state = self.state.lock();
            state.give(outstanding, None);
            state.end_transit();
            self.transit_ended.notify_all();
        }
    }

    /// Releases segments to the inner allocator. Returns their bytes.
    fn release_segments(&self, leaving: Vec<Leaving<MemoryOf<A>, ()>>) -> u64 {
        let mut sum = 0;
        for leaving in leaving {
            sum += leaving.bytes as u64;
            self.give_to_inner(leaving, &[]);
            self.state.lock().end_transit();
            self.transit_ended.notify_all();
        }
        sum
    }

    fn give_to_inner(&self, leaving: Leaving<MemoryOf<A>, ()>, after: &[EventOf<A>]) {
        let Leaving {
            views,
            memory,
            bytes,
            ..
        } = leaving;
        release_views(&self.inner, views);
        if let Err(error) = self.inner.release(memory, after) {
            tracing::error!(%error, bytes, "a segment could not be released cleanly");
        }
    }
}

/// Releases the segments to the inner allocator, after the events that their ranges still wait for.
impl<A: Allocator> Drop for Shared<A> {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let mut events = Vec::new();
        for Pending {
            outstanding,
            view,
            after,
        } in state.take_pending()
        {
            // The view keeps its segment alive, also where a live block keeps the segment in this allocator.
            if let Err(error) = self.inner.backend().release(view, &after) {
                let bytes = outstanding.bytes;
                tracing::error!(%error, bytes, "a pending block could not be released cleanly");
            }
            events.extend_from_slice(&after);
            state.give(outstanding, None);
        }
        for leaving in state.take_idle(u64::MAX) {
            self.give_to_inner(leaving, &events);
        }
    }
}
