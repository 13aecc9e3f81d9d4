//! Commands as logs track them.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use binpool_allocators::QueueId;
use parking_lot::{Condvar, Mutex};
use smallvec::SmallVec;

use crate::{
    order::{companions::Companions, weak_queue::WeakQueue},
    sys::{self, ClResult, EventHandle},
};

/// Commands that another one has to come after.
pub(crate) type Earlier = SmallVec<[Arc<TrackedCommand>; 4]>;

/// A command that logs track. It is in the logs before it is enqueued, so two threads that enqueue conflicting commands
/// find each other's.
#[derive(Debug)]
pub(crate) struct TrackedCommand {
    /// The queue that it runs on. Weak, since the queue's log has its commands: a strong reference would be a cycle.
    queue: WeakQueue,
    /// The queue that it is a command of: the same one, but for ends of maps that run on a queue of their own.
    home: QueueId,
    state: Mutex<CommandState>,
    decided: Condvar,
    /// The commands that it comes after, for a thread that finds that it has failed early. Empty once it has completed, and
    /// on devices where commands fail in their turn.
    before: Mutex<Earlier>,
    /// The companions of the user events that it comes after.
    companions: Mutex<Companions>,
    /// The length of the longest chain of commands, each after the other, that ends with this one.
    depth: AtomicUsize,
}

/// The number of commands of a chain after which those that have completed are looked for.
const CHAIN_SWEEP_INTERVAL: usize = 64;

#[derive(Debug)]
enum CommandState {
    /// Its thread is about to enqueue it.
    Entering,
    Enqueued {
        event: EventHandle,
        /// Its number among the commands of the queue, from 1 on.
        number: u64,
        /// Set if it waits for events: then it may fail before earlier commands of its queue have ended.
        waits: bool,
    },
    /// It was never enqueued, or has completed.
    Gone,
}

/// What a later command has to wait for to come after a tracked one.
#[derive(Debug)]
pub(crate) enum Dependency {
    /// There is nothing to wait for.
    None,
    /// It waits for this event.
    Event(EventHandle),
    /// The tracked command has failed, perhaps before these commands, which it came after, had ended.
    Failed(Earlier),
}

impl TrackedCommand {
    /// Returns a command of the queue `home` that is about to be enqueued on `queue`, after `before`.
    pub(crate) fn entering(queue: WeakQueue, home: QueueId, before: Earlier) -> Self {
        // Relaxed: the depth only decides when to tidy up.
        let depths = before.iter().map(|it| it.depth.load(Ordering::Relaxed));
        let depth = depths.max().map_or(0, |longest| longest + 1);
        Self {
            queue,
            home,
            state: Mutex::new(CommandState::Entering),
            decided: Condvar::new(),
            before: Mutex::new(before),
            companions: Mutex::default(),
            depth: AtomicUsize::new(depth),
        }
    }

    /// Returns what this command has to wait for so that it comes after the companions of user events: `own` are those of its wait
    /// list, and the commands that it comes after have theirs.
    pub(crate) fn companions<'e>(
        &self,
        own: impl IntoIterator<Item = &'e EventHandle>,
    ) -> ClResult<SmallVec<[EventHandle; 4]>> {
        let mut found = Companions::default();
        found.add_pending(own)?;
        for command in self.before.lock().iter() {
            found.add_pending(command.companions.lock().iter())?;
        }
        let events = found.iter().map(EventHandle::another).collect();
        *self.companions.lock() = found;
        events
    }

    /// Forgets, now and then, what commands that have completed came after. Without this, a pipeline in which a command is
    /// always pending would remember all of its commands.
    pub(crate) fn tidy_up(&self) {
        if self.depth.load(Ordering::Relaxed) % CHAIN_SWEEP_INTERVAL != CHAIN_SWEEP_INTERVAL - 1 {
            return;
        }
        let mut pending = self.before.lock().clone();
        let mut seen = HashSet::new();
        while let Some(command) = pending.pop() {
            if !seen.insert(Arc::as_ptr(&command)) {
                continue;
            }
            if command.has_completed() {
                command.forget_earlier();
            } else {
                pending.extend(command.before.lock().iter().cloned());
            }
        }
    }

    /// Forgets the commands that it comes after, and those that these come after. A loop, since a long chain would overflow
    /// the stack.
    fn forget_earlier(&self) {
        let mut gone = std::mem::take(&mut *self.before.lock());
        while let Some(command) = gone.pop() {
            if let Some(mut last) = Arc::into_inner(command) {
                gone.append(last.before.get_mut());
            }
        }
    }

    pub(crate) const fn queue(&self) -> &WeakQueue {
        &self.queue
    }

    /// Returns whether it is a command of the queue `home`, whatever queue it runs on.
    pub(crate) fn is_of(&self, home: QueueId) -> bool {
        self.home == home
    }

    /// Returns whether it runs on another queue than the one that it is a command of.
    pub(crate) fn runs_elsewhere(&self) -> bool {
        self.queue.id() != self.home
    }

    /// Notes that it is enqueued, with this event. Where no reference to the event can be had, the command is waited for.
    pub(crate) fn enqueued(&self, event: &EventHandle, number: u64, waits: bool) {
        let state = match event.another() {
            Ok(event) => CommandState::Enqueued {
                event,
                number,
                waits,
            },
            Err(error) => {
                tracing::error!(%error, "a command is waited for that cannot be remembered");
                let _ended = sys::wait_until_ended(event);
                CommandState::Gone
            }
        };
        self.decide(state);
        if !waits {
            // Nothing that it comes after was pending, except commands of its queue, whose order it keeps.
            self.forget_earlier();
        }
    }

    /// Notes that it will not be enqueued, or that it has completed.
    pub(crate) fn gone(&self) {
        self.decide(CommandState::Gone);
        self.forget_earlier();
    }

    fn decide(&self, state: CommandState) {
        let old = std::mem::replace(&mut *self.state.lock(), state);
        self.decided.notify_all();
        // Dropped after the lock, since that calls the runtime.
        drop(old);
    }

    /// Waits until its thread has enqueued it or given it up.
    pub(crate) fn wait_until_decided(&self) {
        let mut state = self.state.lock();
        while matches!(*state, CommandState::Entering) {
            self.decided.wait(&mut state);
        }
    }

    /// Returns whether it is enqueued, or was.
    pub(crate) fn is_enqueued(&self) -> bool {
        matches!(*self.state.lock(), CommandState::Enqueued { .. })
    }

    pub(crate) fn is_gone(&self) -> bool {
        matches!(*self.state.lock(), CommandState::Gone)
    }

    /// Returns its number among the commands of its queue; 0 if it was not enqueued.
    pub(crate) fn number(&self) -> u64 {
        match *self.state.lock() {
            CommandState::Enqueued { number, .. } => number,
            CommandState::Entering | CommandState::Gone => 0,
        }
    }

    /// Returns whether the order of `queue` alone puts it before later commands there: it waits for no event, so it cannot
    /// fail before its turn.
    pub(crate) fn is_put_first_by(&self, queue: QueueId) -> bool {
        let waits_for_none = matches!(
            *self.state.lock(),
            CommandState::Enqueued { waits: false, .. }
        );
        waits_for_none && self.queue.is_in_order() && self.queue.id() == queue
    }

    /// Returns whether it has completed or was given up. Asks the runtime.
    pub(crate) fn has_completed(&self) -> bool {
        let mut state = self.state.lock();
        let completed = match &*state {
            CommandState::Entering => false,
            CommandState::Enqueued { event, .. } => {
                matches!(sys::look(event), Ok(sys::Progress::Complete))
            }
            CommandState::Gone => return true,
        };
        if completed {
            *state = CommandState::Gone;
        }
        completed
    }

    /// Returns whether it has ended, well or not, or was given up. Asks the runtime.
    pub(crate) fn has_ended(&self) -> bool {
        match &*self.state.lock() {
            CommandState::Entering => false,
            CommandState::Enqueued { event, .. } => {
                !matches!(sys::look(event), Ok(sys::Progress::Pending) | Err(_))
            }
            CommandState::Gone => true,
        }
    }

    /// Returns what a command that is enqueued now has to wait for to come after this one, which is enqueued or given up. A
    /// command that has to be waited for is flushed.
    ///
    /// If `queue` is the in-order queue of this command, the queue's order puts this one first, unless it has failed early.
    pub(crate) fn dependency(&self, queue: Option<QueueId>) -> ClResult<Dependency> {
        let state = self.state.lock();
        let CommandState::Enqueued {
            event,
            number,
            waits,
        } = &*state
        else {
            return Ok(Dependency::None);
        };
        let is_own = queue == Some(self.queue.id());
        let in_order = is_own && self.queue.is_in_order();
        if in_order && !waits {
            return Ok(Dependency::None);
        }
        match sys::look(event)? {
            sys::Progress::Failed(_) => Ok(Dependency::Failed(self.before.lock().clone())),
            sys::Progress::Complete => {
                drop(state);
                self.gone();
                Ok(Dependency::None)
            }
            sys::Progress::Pending if in_order => Ok(Dependency::None),
            sys::Progress::Pending => {
                let event = event.another()?;
                let number = *number;
                drop(state);
                if !is_own {
                    self.queue.flush_up_to(number)?;
                }
                Ok(Dependency::Event(event))
            }
        }
    }
}

impl Drop for TrackedCommand {
    fn drop(&mut self) {
        self.forget_earlier();
    }
}
