//! Commands as access logs remember them.

use parking_lot::{Condvar, Mutex};

use crate::{
    cl_error::ClResult,
    queue::ClQueue,
    sys::{self, EventHandle},
};

/// A command in access logs. It stands there before it is enqueued, so that two threads cannot miss each other.
#[derive(Debug)]
pub(crate) struct Logged {
    queue: ClQueue,
    progress: Mutex<Progress>,
    decided: Condvar,
}

#[derive(Debug)]
enum Progress {
    /// Its thread is about to enqueue it.
    Entering,
    Enqueued {
        event: EventHandle,
        /// Which command of the queue it is.
        number: u64,
        /// Whether it waits for events, and so may fail before earlier commands of its queue have ended.
        waits: bool,
    },
    /// It was never enqueued, or has completed.
    Gone,
}

/// What a later command has to do about this one.
#[derive(Debug)]
pub(crate) enum Standing {
    /// Nothing.
    Nothing,
    /// Wait for this.
    Behind(EventHandle),
    /// It has failed, perhaps before what it waited for had ended: that is not known to have ended either.
    Failed,
}

impl Logged {
    /// A command of `queue` that is about to be enqueued.
    pub(crate) fn entering(queue: &ClQueue) -> Self {
        Self {
            queue: queue.clone(),
            progress: Mutex::new(Progress::Entering),
            decided: Condvar::new(),
        }
    }

    pub(crate) const fn queue(&self) -> &ClQueue {
        &self.queue
    }

    /// It is enqueued, with this event. Where that cannot be kept, the command is waited for.
    pub(crate) fn enqueued(&self, event: &EventHandle, number: u64, waits: bool) {
        let progress = match event.another() {
            Ok(event) => Progress::Enqueued {
                event,
                number,
                waits,
            },
            Err(error) => {
                tracing::error!(%error, "a command is waited for that cannot be remembered");
                let _ended = sys::wait_until_ended(event);
                Progress::Gone
            }
        };
        self.decide(progress);
    }

    /// It will not be enqueued, or it has completed.
    pub(crate) fn gone(&self) {
        self.decide(Progress::Gone);
    }

    fn decide(&self, progress: Progress) {
        let old = std::mem::replace(&mut *self.progress.lock(), progress);
        self.decided.notify_all();
        // After the lock: a call of the runtime.
        drop(old);
    }

    /// Waits until its thread has enqueued it, or has given up.
    pub(crate) fn wait_until_decided(&self) {
        let mut progress = self.progress.lock();
        while matches!(*progress, Progress::Entering) {
            self.decided.wait(&mut progress);
        }
    }

    /// Whether it is enqueued, or was.
    pub(crate) fn is_enqueued(&self) -> bool {
        matches!(*self.progress.lock(), Progress::Enqueued { .. })
    }

    pub(crate) fn is_gone(&self) -> bool {
        matches!(*self.progress.lock(), Progress::Gone)
    }

    /// Whether it has completed or was given up. Asks the runtime.
    pub(crate) fn has_completed(&self) -> bool {
        let mut progress = self.progress.lock();
        let completed = match &*progress {
            Progress::Entering => false,
            Progress::Enqueued { event, waits, .. } => {
                matches!(sys::execution_status(event), Ok(0)) && !has_failed(event, *waits)
            }
            Progress::Gone => return true,
        };
        if completed {
            *progress = Progress::Gone;
        }
        completed
    }

    /// What a command of `queue` that is enqueued now has to do about this one, which is decided. What has to be waited
    /// for is flushed.
    ///
    /// Its own queue's order is enough where that is in order, unless this one failed early.
    pub(crate) fn standing_before(&self, queue: Option<&ClQueue>) -> ClResult<Standing> {
        let progress = self.progress.lock();
        let Progress::Enqueued {
            event,
            number,
            waits,
        } = &*progress
        else {
            return Ok(Standing::Nothing);
        };
        let in_order = queue == Some(&self.queue) && self.queue.is_in_order();
        if in_order && !waits {
            return Ok(Standing::Nothing);
        }
        match sys::execution_status(event)? {
            0 if has_failed(event, *waits) => Ok(Standing::Failed),
            0 => Ok(Standing::Nothing),
            status if status < 0 => Ok(Standing::Failed),
            _ if in_order => Ok(Standing::Nothing),
            _ => {
                let event = event.another()?;
                let number = *number;
                drop(progress);
                self.queue.flush_up_to(number)?;
                Ok(Standing::Behind(event))
            }
        }
    }
}

/// Whether a command that reads as complete has failed, because something that it waits for has. Intel's runtime tells so
/// by a wait only, which comes back at once here.
fn has_failed(event: &EventHandle, waits: bool) -> bool {
    waits && sys::wait_for_event(event).is_err()
}
