//! Words in pinned memory that streams wait for, and the host writes.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use super::{
    context::Context, driver::Address, slot::Slot, staging::allocate_host, status::CudaResult,
};

/// Slots lie so far apart, in bytes.
const STEP: usize = 64;
const PAGE: usize = 4096;

/// An event that the host resolves. Dropping it resolves it, so that no stream waits for ever.
///
/// # Invariants
///
/// I1: `slot` is a word of a page of `context` that no other value has. `target` is one more than its value.
pub(crate) struct Gate {
    context: Arc<Context>,
    slot: Slot,
    target: u32,
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    pub(crate) fn new(context: &Arc<Context>) -> CudaResult<Self> {
        let idle = context.slots().lock().pop();
        let slot = match idle {
            Some(slot) => slot,
            None => Self::more_slots(context)?,
        };
        context.count_unresolved();
        Ok(Self {
            context: Arc::clone(context),
            slot,
            target: slot.value().wrapping_add(1),
            is_open: Mutex::new(false),
            opened: Condvar::new(),
        })
    }

    /// Allocates a page of slots, and returns one of them.
    fn more_slots(context: &Arc<Context>) -> CudaResult<Slot> {
        let page = allocate_host(context, PAGE)?;
        context.slot_pages().lock().push(page);
        let places = (0..PAGE).step_by(STEP).map(|offset| page + offset);
        let mut slots: Vec<_> = places.map(Slot::first_of).collect();
        let first = slots.swap_remove(0);
        context.slots().lock().extend(slots);
        Ok(first)
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Where a stream finds the word, and the value that it waits for.
    pub(super) fn word(&self) -> (Address, u32) {
        (self.slot.address(), self.target)
    }

    pub(crate) fn is_open(&self) -> bool {
        *self.is_open.lock()
    }

    /// Returns whether it was closed until now.
    pub(crate) fn open(&self) -> bool {
        let mut is_open = self.is_open.lock();
        if *is_open {
            return false;
        }
        *is_open = true;
        self.slot.store(self.target);
        self.context.count_resolved();
        self.opened.notify_all();
        true
    }

    pub(crate) fn wait(&self) {
        let mut is_open = self.is_open.lock();
        while !*is_open {
            self.opened.wait(&mut is_open);
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
        self.context
            .slots()
            .lock()
            .push(self.slot.with(self.target));
    }
}
