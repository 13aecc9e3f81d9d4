//! What `PoCL` and Intel's runtime need around commands that fail.
//!
//! Nothing fails on `PoCL` by itself, but a user event that the host resolves as failed fails what waits for it,
//! and version 3.1 then
//!
//! * never ends a command that is enqueued to wait for an event that *has* failed;
//! * uses, and ends the process on, the event of a pending command that fails, where the program holds no
//!   reference to it any more, or drops it while the failure spreads;
//! * runs what stands behind a command that has failed, on an in-order queue, without waiting for what stands before it;
//! * does not call the callbacks of commands that fail. Shared virtual memory whose free waits for one is lost.
//!
//! The first two are kept from happening here, and conflicting commands wait for each other's events on one queue, too.
//!
//! Intel's runtime (2026.2) ends a command once for each event in its wait list that fails, and frees twice what belongs
//! to it. The logs put commands behind one another that fail together, so a command waits for one event there, which
//! stands for all of them. (A command that fails on an out-of-order queue has that runtime crash at the next one, which
//! nothing here helps against.)
//!
//! Other runtimes pay nothing for any of it.

use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::{
    cl_error::ClResult,
    device::limits::{INTEL, POCL},
    sys::{self, ContextHandle, EventHandle, WaitList},
};

/// What is done about commands that fail, on the runtime of one context.
#[derive(Debug)]
pub(crate) struct Failures {
    /// Whether the runtime needs any of this.
    fragile: bool,
    /// Whether commands are to wait for one event only.
    one_by_one: bool,
    /// Read while a command is enqueued, written while an event is made to fail, so that no event fails between
    /// the look at it and the command that waits for it.
    changing: RwLock<()>,
    /// Events of commands that the program has dropped while they were pending, or after they failed.
    dropped: Mutex<Dropped>,
}

#[derive(Debug, Default)]
struct Dropped {
    events: Vec<EventHandle>,
    /// How many there may be before those that have ended are looked for.
    limit: usize,
}

const FIRST_LIMIT: usize = 64;

impl Failures {
    pub(crate) fn on(platform: &str) -> Self {
        Self {
            fragile: platform == POCL,
            one_by_one: platform == INTEL,
            changing: RwLock::new(()),
            dropped: Mutex::default(),
        }
    }

    /// Whether events are to be looked at before a command waits for them.
    pub(crate) const fn are_fragile(&self) -> bool {
        self.fragile
    }

    /// The one event that a command is to wait for instead of all of `wait`; `None` where it may wait for them.
    pub(crate) fn joined(
        &self,
        context: &ContextHandle,
        wait: &WaitList<'_>,
    ) -> ClResult<Option<EventHandle>> {
        if !self.one_by_one || wait.len() < 2 {
            return Ok(None);
        }
        sys::join(context, wait).map(Some)
    }

    /// Held while a command is enqueued.
    pub(crate) fn while_enqueueing(&self) -> Option<RwLockReadGuard<'_, ()>> {
        self.fragile.then(|| self.changing.read())
    }

    /// Held while an event is made to fail.
    pub(crate) fn while_failing(&self) -> Option<RwLockWriteGuard<'_, ()>> {
        self.fragile.then(|| self.changing.write())
    }

    /// Keeps an event that the program drops, unless its command has ended well: until it has ended, and no
    /// event is just being made to fail.
    pub(crate) fn keep(&self, event: &EventHandle) {
        if !self.fragile {
            return;
        }
        // Recursive: an event may be dropped by whoever holds this already.
        let _no_failure = self.changing.read_recursive();
        if matches!(sys::execution_status(event), Ok(0)) {
            return;
        }
        let event = match event.another() {
            Ok(event) => event,
            Err(error) => {
                tracing::error!(%error, "an event was dropped that the runtime may still use");
                return;
            }
        };
        let mut dropped = self.dropped.lock();
        if dropped.events.len() >= dropped.limit.max(FIRST_LIMIT) {
            dropped
                .events
                .retain(|event| matches!(sys::execution_status(event), Ok(1..)));
            dropped.limit = dropped.events.len().saturating_mul(2);
        }
        dropped.events.push(event);
    }
}
