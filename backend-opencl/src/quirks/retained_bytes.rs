//! Bytes of the host that commands work on, kept until those commands have ended.
//!
//! They belong to the command's event, and are dropped when the program learns from it that the command has ended. If the
//! event was dropped before, they are dropped at the next such transfer or `finish` of a queue after the end. Callbacks of
//! events would do it sooner, but `PoCL` 3.1 does not call those of commands that fail, and NVIDIA's driver deadlocks
//! between them and releases of buffers on other threads.

use std::{fmt, mem};

use parking_lot::Mutex;

use crate::sys::{self, EventHandle};

type Bytes = Box<dyn Send>;

/// The bytes of events that were dropped before their commands had ended.
static ABANDONED: Mutex<Vec<(EventHandle, Bytes)>> = Mutex::new(Vec::new());

/// The bytes that an event keeps.
#[derive(Default)]
pub(crate) struct RetainedBytes {
    bytes: Mutex<Option<Bytes>>,
}

impl RetainedBytes {
    /// Keeps `bytes`.
    pub(crate) fn retain(&self, bytes: impl Send + 'static) {
        drop_what_has_ended();
        *self.bytes.lock() = Some(Box::new(bytes));
    }

    /// Drops the bytes: the command has ended.
    pub(crate) fn release(&self) {
        let bytes = self.bytes.lock().take();
        drop(bytes);
    }

    /// Keeps the bytes without the event's value, which is being dropped, until the command of `event` has ended.
    pub(crate) fn abandon(&mut self, event: &EventHandle) {
        let Some(bytes) = self.bytes.get_mut().take() else {
            return;
        };
        if has_ended(event) {
            return;
        }
        match event.another() {
            Ok(event) => ABANDONED.lock().push((event, bytes)),
            Err(error) => {
                tracing::error!(%error, "bytes of the host were leaked: the end of their command cannot be known");
                mem::forget(bytes);
            }
        }
    }
}

impl fmt::Debug for RetainedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetainedBytes")
            .field("any", &self.bytes.lock().is_some())
            .finish()
    }
}

/// Drops the bytes of dropped events whose commands have ended. The lock is not held while the runtime is called.
pub(crate) fn drop_what_has_ended() {
    let mut abandoned = mem::take(&mut *ABANDONED.lock());
    if abandoned.is_empty() {
        return;
    }
    abandoned.retain(|(event, _)| !has_ended(event));
    ABANDONED.lock().append(&mut abandoned);
}

/// Returns whether the command has ended. If the runtime does not answer, the command counts as pending.
fn has_ended(event: &EventHandle) -> bool {
    matches!(sys::execution_status(event), Ok(..=0))
}
