//! How segments come and go, and ranges are carved from them: every call to the inner allocator, the backend and events
//! is made here, without the lock.

use std::collections::HashMap;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::{
    Align, Allocator, Backend, Error, Event, EventId, EventOf, EventStatus, InvalidRequest, Memory,
    MemoryOf, ObjectKind, OutOfMemory, Result, Scope,
    segments::{Carved, Leaving, release_views},
};

use super::state::{Lent, Pending, Returning, State, Ticket};

/// What all clones of a segment allocator share.
#[derive(Debug)]
pub(super) struct Shared<A: Allocator> {
    pub(super) inner: A,
    pub(super) alignment: Align,
    pub(super) state: Mutex<State<A>>,
    /// What was on the way is free, or back at the inner allocator.
    pub(super) arrived: Condvar,
}

impl<A: Allocator> Shared<A> {
    pub(super) fn new(inner: A) -> Self {
        let alignment = inner.alignment().max(inner.backend().limits().alignment);
        Self {
            inner,
            alignment,
            state: Mutex::new(State::new()),
            arrived: Condvar::new(),
        }
    }

    pub(super) fn allocate(&self, bytes: usize) -> Result<MemoryOf<A>> {
        let size = self.size_for(bytes)?;
        let carved = self.take(size).or_else(|| {
            self.look();
            self.take(size)
        });
        match carved {
            Some(carved) => self.view(carved),
            None => self.grow(size).and_then(|carved| self.view(carved)),
        }
    }

    pub(super) fn release(&self, memory: MemoryOf<A>, after: &[EventOf<A>]) -> Result<()> {
        let after = (!after.is_empty()).then(|| after.into());
        let taken = self.state.lock().take_back(memory, after);
        match taken {
            Ok(returning) => {
                self.finish(returning);
                Ok(())
            }
            Err(foreign) => {
                drop(foreign);
                let kind = ObjectKind::Memory;
                Err(InvalidRequest::ForeignObject { kind }.into())
            }
        }
    }

    /// Gives the segments back that are free as a whole. Their bytes.
    pub(super) fn free_idle(&self) -> u64 {
        self.look();
        let leaving = self.state.lock().take_idle(u64::MAX);
        self.send_back(leaving)
    }

    /// The size of the range for a block of `bytes` bytes. One of the inner allocator's largest need not end on the
    /// alignment: nothing lies behind it.
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

    /// The block of a range that was taken.
    fn view(&self, carved: Carved<MemoryOf<A>, ()>) -> Result<MemoryOf<A>> {
        let (range, region) = (carved.range, carved.region);
        let view = carved.into_view(&self.inner, |range, bytes, ()| {
            self.state.lock().shrink(range, bytes);
            self.arrived.notify_all();
        });
        let lent = Lent {
            range,
            bytes: region.bytes,
        };
        match &view {
            Ok(memory) => self.state.lock().lend(memory.id(), lent),
            Err(_) => self.state.lock().give(lent, None),
        }
        view
    }

    /// A range of a segment that the inner allocator is asked for.
    fn grow(&self, size: usize) -> Result<Carved<MemoryOf<A>, ()>> {
        let capacity = self.inner.capacity_bytes();
        let alignment = self.alignment.bytes();
        let (usual, leaving) = self.state.lock().grow(size, alignment, capacity);
        let sent_back = self.send_back(leaving);
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
                self.take_in_shortage(size, missing.unwrap_or(size as u64), error, asked)
            }
            result => result,
        }
    }

    /// Asks the inner allocator for a segment of `size` bytes, and takes the first `bytes` of it. Who finds it full because
    /// of that waits for the rest.
    fn add_segment(&self, size: usize, bytes: usize) -> Result<Carved<MemoryOf<A>, ()>> {
        self.state.lock().set_off();
        let memory = match self.inner.allocate(size) {
            Ok(memory) => memory,
            Err(error) => {
                let mut state = self.state.lock();
                if error.is_out_of_memory() {
                    state.refuse(size);
                }
                state.come_back();
                drop(state);
                self.arrived.notify_all();
                return Err(error);
            }
        };
        tracing::debug!(asked = bytes, bytes = size, "new segment");
        let carved = self.state.lock().add(memory, size, bytes);
        self.arrived.notify_all();
        carved.ok_or_else(|| OutOfMemory::new(bytes, Scope::Device).into())
    }

    /// A range for when the inner allocator has refused one of `size` bytes: after what is free anywhere, what is idle
    /// goes back and the inner allocator is asked again, and then ranges that are pending are waited for, one by one.
    ///
    /// At first only so many bytes go back as are `missing`. The inner allocator was `asked` when there had been so many
    /// changes, and is asked again after others only. That nothing has changed since all was looked through is the only
    /// reason to give up.
    fn take_in_shortage(
        &self,
        size: usize,
        mut missing: u64,
        mut refusal: Error,
        mut asked: u64,
    ) -> Result<Carved<MemoryOf<A>, ()>> {
        loop {
            let seen = self.once_all_has_arrived().changes();
            self.look();
            if let Some(carved) = self.state.lock().take(size, true) {
                return Ok(carved);
            }
            let leaving = self.state.lock().take_idle(missing);
            self.send_back(leaving);
            missing = u64::MAX;
            let now = self.state.lock().changes();
            if now != asked {
                asked = now;
                match self.add_segment(size, size) {
                    Err(error) if error.is_out_of_memory() => refusal = error,
                    result => return result,
                }
            }
            let tickets = {
                let state = self.once_all_has_arrived();
                // Of one moment: what is not pending any more is a change.
                (state.changes() == seen).then(|| state.tickets())
            };
            if tickets.is_some_and(|tickets| !self.wait_for_one(tickets)) {
                return Err(refusal);
            }
        }
    }

    fn once_all_has_arrived(&self) -> MutexGuard<'_, State<A>> {
        let mut state = self.state.lock();
        while state.is_anything_on_the_way() {
            self.arrived.wait(&mut state);
        }
        state
    }

    /// Frees the pending ranges whose events have ended. Does not wait.
    fn look(&self) {
        let tickets = self.state.lock().tickets();
        // Blocks that came back together often have their events in common.
        let mut known: HashMap<EventId, bool> = HashMap::new();
        let mut ended =
            |event: &EventOf<A>| *known.entry(event.id()).or_insert_with(|| has_ended(event));
        for (ticket, after) in tickets {
            if after.iter().all(&mut ended) {
                self.settle(ticket);
            }
        }
    }

    /// Waits for the first of these ranges, or the next one where that cannot be waited for. Whether there was one.
    fn wait_for_one(&self, tickets: Vec<Ticket<A>>) -> bool {
        let settled = tickets
            .into_iter()
            .find(|(_, after)| after.iter().all(wait));
        let Some((ticket, _)) = settled else {
            return false;
        };
        self.settle(ticket);
        true
    }

    fn settle(&self, ticket: u64) {
        let settled = self.state.lock().settle(ticket);
        if let Some((after, returning)) = settled {
            drop(after);
            self.finish(returning);
        }
    }

    /// Drops the view of a range that is to be free.
    fn finish(&self, returning: Option<Returning<A>>) {
        if let Some(Returning { lent, view }) = returning {
            self.inner.release_view(view);
            let mut state = self.state.lock();
            state.give(lent, None);
            state.arrive();
            self.arrived.notify_all();
        }
    }

    /// Gives segments back to the inner allocator. Their bytes.
    fn send_back(&self, leaving: Vec<Leaving<MemoryOf<A>, ()>>) -> u64 {
        let mut sum = 0;
        for leaving in leaving {
            sum += leaving.bytes as u64;
            self.give_to_inner(leaving, &[]);
            self.state.lock().arrive();
            self.arrived.notify_all();
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

/// Segments go back where they came from, after the events that they still wait for.
impl<A: Allocator> Drop for Shared<A> {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let mut events = Vec::new();
        for Pending { lent, view, after } in state.take_pending() {
            // The view keeps its segment from being freed, also where a block that lives keeps it here.
            if let Err(error) = self.inner.backend().release(view, &after) {
                let bytes = lent.bytes;
                tracing::error!(%error, bytes, "a pending block could not be released cleanly");
            }
            events.extend_from_slice(&after);
            state.give(lent, None);
        }
        for leaving in state.take_idle(u64::MAX) {
            self.give_to_inner(leaving, &events);
        }
    }
}

/// Whether a command is known to have ended.
fn has_ended<E: Event>(event: &E) -> bool {
    event.status().is_ok_and(EventStatus::has_ended)
}

/// Waits for a command. Whether it has ended, be it with an error.
fn wait<E: Event>(event: &E) -> bool {
    event.wait().is_ok() || has_ended(event)
}
