//! Commands as access logs remember them.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::{Condvar, Mutex};
use smallvec::SmallVec;

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
    /// The commands that it has replaced, which it comes after: whoever finds that it has failed looks at those. Empty
    /// once it has completed, or where it cannot fail early.
    replaced: Mutex<Replaced>,
    /// How many commands have replaced one another up to this one.
    depth: AtomicUsize,
}

/// Commands that another one has replaced.
pub(crate) type Replaced = SmallVec<[Arc<Logged>; 2]>;

/// After how many replacements those that have completed are looked for.
const LOOK_EVERY: usize = 64;

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
    /// It has failed, perhaps before these had ended, which it came after.
    Failed(Replaced),
}

impl Logged {
    /// A command of `queue` that is about to be enqueued.
    pub(crate) fn entering(queue: &ClQueue) -> Self {
        Self {
            queue: queue.clone(),
            progress: Mutex::new(Progress::Entering),
            decided: Condvar::new(),
            replaced: Mutex::default(),
            depth: AtomicUsize::new(0),
        }
    }

    /// It comes after `earlier`, and stands for it from now on.
    pub(crate) fn replaces(&self, earlier: &Arc<Self>) {
        let mut replaced = self.replaced.lock();
        // Most commands find the same one in all pieces that they use.
        if replaced
            .last()
            .is_some_and(|last| Arc::ptr_eq(last, earlier))
        {
            return;
        }
        // Relaxed: it only says when to tidy up.
        let depth = earlier.depth.load(Ordering::Relaxed) + 1;
        self.depth.fetch_max(depth, Ordering::Relaxed);
        replaced.push(Arc::clone(earlier));
    }

    /// Lets go of what was replaced before commands that have completed, now and then: a pipeline that never runs dry
    /// would remember all of it.
    pub(crate) fn tidy_up(&self) {
        if self.depth.load(Ordering::Relaxed) % LOOK_EVERY != LOOK_EVERY - 1 {
            return;
        }
        let mut pending = self.replaced.lock().clone();
        let mut seen = HashSet::new();
        while let Some(command) = pending.pop() {
            if !seen.insert(Arc::as_ptr(&command)) {
                continue;
            }
            if command.has_completed() {
                command.let_go();
            } else {
                pending.extend(command.replaced.lock().iter().cloned());
            }
        }
    }

    /// Lets go of the commands that it has replaced, and of what goes with them, however many replaced one another.
    fn let_go(&self) {
        let mut gone = std::mem::take(&mut *self.replaced.lock());
        while let Some(command) = gone.pop() {
            if let Some(mut last) = Arc::into_inner(command) {
                gone.append(last.replaced.get_mut());
            }
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
        if !waits {
            // Its queue has it end after all of them.
            self.let_go();
        }
    }

    /// It will not be enqueued, or it has completed.
    pub(crate) fn gone(&self) {
        self.decide(Progress::Gone);
        self.let_go();
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
        let in_order = queue == Some(&self.queue) && self.queue.keeps_its_order();
        if in_order && !waits {
            return Ok(Standing::Nothing);
        }
        let status = sys::execution_status(event)?;
        if status < 0 || (status == 0 && has_failed(event, *waits)) {
            let replaced = self.replaced.lock().clone();
            return Ok(Standing::Failed(replaced));
        }
        if status == 0 {
            drop(progress);
            self.gone();
            return Ok(Standing::Nothing);
        }
        if in_order {
            return Ok(Standing::Nothing);
        }
        let event = event.another()?;
        let number = *number;
        drop(progress);
        if queue != Some(&self.queue) {
            self.queue.flush_up_to(number)?;
        }
        Ok(Standing::Behind(event))
    }
}

impl Drop for Logged {
    fn drop(&mut self) {
        self.let_go();
    }
}

/// Whether a command that reads as complete has failed, because something that it waits for has. Intel's runtime tells so
/// by a wait only, which comes back at once here.
fn has_failed(event: &EventHandle, waits: bool) -> bool {
    waits && sys::wait_for_event(event).is_err()
}
