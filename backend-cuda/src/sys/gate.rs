//! Words in pinned memory that streams wait for, and the host writes.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use super::{
    context::Context, driver::Address, slot::Slot, staging::allocate_host, status::CudaResult,
};

/// Slots lie so far apart, in bytes.
const STEP: usize = 64;
const PAGE: usize = 4096;

/// An event that the host resolves. Dropping it resolves it, so that no stream waits forever.
///
/// # Invariants
///
/// I1: `slot` is a word of a page of `context` that no other value has. `target` is one more than its value.
pub(crate) struct Gate {
    context: Arc<Context>,
    slot: Slot,
    target: u32,
    state: Mutex<State>,
    opened: Condvar,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// No stream waits for it.
    Closed,
    /// Counted among the unresolved ones.
    HoldsStreams,
    Open,
}

impl Gate {
    pub(crate) fn new(context: &Arc<Context>) -> CudaResult<Self> {
        let idle = context.slots.lock().pop();
        let slot = match idle {
            Some(slot) => slot,
            None => Self::more_slots(context)?,
        };
        Ok(Self {
            context: Arc::clone(context),
            slot,
            target: slot.value().wrapping_add(1),
            state: Mutex::new(State::Closed),
            opened: Condvar::new(),
        })
    }

    /// Allocates a page of slots, and returns one of them.
    fn more_slots(context: &Arc<Context>) -> CudaResult<Slot> {
        let page = allocate_host(context, PAGE)?;
        context.slot_pages.lock().push(page);
        let places = (0..PAGE).step_by(STEP).map(|offset| page + offset);
        let mut slots: Vec<_> = places.map(Slot::first_of).collect();
        let first = slots.swap_remove(0);
        context.slots.lock().extend(slots);
        Ok(first)
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Where a stream that is about to wait finds the word, and the value that it waits for; `None` if the gate is open.
    pub(super) fn word_to_wait_for(&self) -> Option<(Address, u32)> {
        let mut state = self.state.lock();
        match *state {
            State::Open => return None,
            State::Closed => self.context.count_unresolved(),
            State::HoldsStreams => {}
        }
        *state = State::HoldsStreams;
        Some((self.slot.address(), self.target))
    }

    pub(crate) fn is_open(&self) -> bool {
        *self.state.lock() == State::Open
    }

    /// Returns whether it was closed until now.
    pub(crate) fn open(&self) -> bool {
        let mut state = self.state.lock();
        let before = std::mem::replace(&mut *state, State::Open);
        if before == State::Open {
            return false;
        }
        self.slot.store(self.target);
        if before == State::HoldsStreams {
            self.context.count_resolved();
        }
        self.opened.notify_all();
        true
    }

    pub(crate) fn wait(&self) {
        let mut state = self.state.lock();
        while *state != State::Open {
            self.opened.wait(&mut state);
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
        self.context.slots.lock().push(self.slot.with(self.target));
    }
}
