//! The [companions](crate::order::companions) of the user events of a context, on a runtime that needs them.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::sys::{self, ClResult, ContextHandle, EventHandle};

/// Each user event that this crate made and that has not been resolved, by its handle, with its companion. By the handle, since the
/// program may have wrapped that a second time.
#[derive(Debug, Default)]
pub(super) struct UserEvents {
    unresolved: Mutex<HashMap<usize, EventHandle>>,
}

impl UserEvents {
    /// Makes a companion for a user event that was just made, on a runtime that needs one.
    pub(super) fn made(&self, context: &ContextHandle, event: &EventHandle) -> ClResult<()> {
        let companion = sys::create_user_event(context)?;
        self.unresolved.lock().insert(key(event), companion);
        Ok(())
    }

    /// Returns the companion of a user event that has not been resolved.
    pub(super) fn companion(&self, event: &EventHandle) -> ClResult<Option<EventHandle>> {
        let unresolved = self.unresolved.lock();
        let companion = unresolved.get(&key(event));
        companion.map(EventHandle::another).transpose()
    }

    /// Completes the companion, if there is one, of a user event that has ended.
    pub(super) fn ended(&self, event: &EventHandle) {
        let companion = self.unresolved.lock().remove(&key(event));
        if let Some(companion) = companion
            && let Err(error) = sys::set_user_event_status(&companion, 0)
        {
            tracing::error!(%error, "commands that wait for an ended user event never end");
        }
    }
}

fn key(event: &EventHandle) -> usize {
    event.raw().addr()
}
