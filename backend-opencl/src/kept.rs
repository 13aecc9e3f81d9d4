//! Bytes of the host that commands work on, kept until those commands have ended.
//!
//! They belong to the command's event: they are let go when somebody learns from it that the command has ended.
//! Those of events that were dropped before are looked through at the next such transfer, and when a queue is
//! finished. Callbacks of events would do it sooner, but `PoCL` 3.1 does not call those of commands that fail,
//! and NVIDIA's driver deadlocks between them and releases of buffers on other threads.

use std::{fmt, mem};

use parking_lot::Mutex;

use crate::sys::{self, EventHandle};

type Bytes = Box<dyn Send>;

/// The bytes of events that were dropped before their commands had ended.
static ABANDONED: Mutex<Vec<(EventHandle, Bytes)>> = Mutex::new(Vec::new());

/// What an event keeps.
#[derive(Default)]
pub(crate) struct Kept {
    bytes: Mutex<Option<Bytes>>,
}

impl Kept {
    /// Keeps `bytes`.
    pub(crate) fn hold(&self, bytes: impl Send + 'static) {
        drop_what_has_ended();
        *self.bytes.lock() = Some(Box::new(bytes));
    }

    /// The command has ended.
    pub(crate) fn let_go(&self) {
        let bytes = self.bytes.lock().take();
        drop(bytes);
    }

    /// The event is dropped, whose command may not have ended.
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
                tracing::error!(%error, "bytes of the host were lost: nobody can tell when their command ends");
                mem::forget(bytes);
            }
        }
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept")
            .field("any", &self.bytes.lock().is_some())
            .finish()
    }
}

/// Lets go of the bytes of dropped events whose commands have ended. The lock is not held meanwhile.
pub(crate) fn drop_what_has_ended() {
    let mut abandoned = mem::take(&mut *ABANDONED.lock());
    if abandoned.is_empty() {
        return;
    }
    abandoned.retain(|(event, _)| !has_ended(event));
    ABANDONED.lock().append(&mut abandoned);
}

/// Whether the runtime says so. One that does not know is taken to be still at it.
fn has_ended(event: &EventHandle) -> bool {
    matches!(sys::execution_status(event), Ok(..=0))
}
