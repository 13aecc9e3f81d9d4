//! A companion of each user event: a second event, which completes when the first has completed or failed.
//!
//! `PoCL` (3.1 to 5.0) makes a command fail in two steps: it takes the failed event out of the list that the command waits for, and
//! then marks the command. A thread of `PoCL`'s that takes the last other event out in between finds the list empty, and runs a
//! command that has failed (`pocl_pthread_notify`, `pocl_broadcast`). So a command that waits for a user event, or comes after a
//! command that does, also waits for the companion there. While an event fails, no list is empty then.

use smallvec::SmallVec;

use crate::sys::{self, ClResult, EventHandle, Progress};

/// The companions of the user events that a command comes after, each once.
#[derive(Debug, Default)]
pub(crate) struct Companions {
    events: SmallVec<[EventHandle; 1]>,
}

impl Companions {
    /// Adds those of `companions` that have not completed.
    pub(crate) fn add_pending<'e>(
        &mut self,
        companions: impl IntoIterator<Item = &'e EventHandle>,
    ) -> ClResult<()> {
        for companion in companions {
            if !self.has(companion) && matches!(sys::look(companion)?, Progress::Pending) {
                self.events.push(companion.another()?);
            }
        }
        Ok(())
    }

    pub(crate) fn has(&self, companion: &EventHandle) -> bool {
        self.iter().any(|one| one.raw() == companion.raw())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &EventHandle> {
        self.events.iter()
    }
}
