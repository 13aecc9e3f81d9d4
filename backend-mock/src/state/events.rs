//! Events, and what waits for them.

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use binpool_allocators::{EventId, EventStatus, InvalidRequest, Outcome};
use smallvec::SmallVec;

use super::{BlockKey, Command, EventKey, State};
use crate::{CommandId, MockError, clock::Clock, table::Key};

/// How far the command of an event has come.
#[derive(Clone, Debug)]
pub(crate) enum Progress {
    Pending,
    Complete,
    Failed(MockError),
}

impl Progress {
    pub(crate) const fn status(&self) -> EventStatus {
        match self {
            Self::Pending => EventStatus::Pending,
            Self::Complete => EventStatus::Complete,
            Self::Failed(_) => EventStatus::Failed,
        }
    }
}

/// Whether a failure is passed on from an event to a command that waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edge {
    /// The queue's order: the command runs all the same.
    Order,
    /// The wait list: the command fails too.
    WaitList,
}

/// What goes on when an event has ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum Waiter {
    Command(CommandId, Edge),
    Hold(Key<Hold>),
}

/// A block that is freed when some events have ended.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(super) block: BlockKey,
    pub(super) remaining: usize,
}

#[derive(Debug)]
pub(crate) struct EventRecord {
    pub(crate) id: EventId,
    pub(crate) progress: Progress,
    /// The command that it is the event of; `None` for user events.
    pub(super) command: Option<CommandId>,
    /// Whether the host holds it.
    held: bool,
    pub(super) waiters: SmallVec<[Waiter; 2]>,
    /// What comes before whatever waits for it, once it has ended.
    pub(super) clock: Option<Arc<Clock>>,
}

/// Why a wait cannot end.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    event: EventId,
    command: Option<(CommandId, Cow<'static, str>)>,
}

impl Gate {
    pub(crate) fn into_error(self) -> MockError {
        let (command, name) = match self.command {
            Some((id, name)) => (Some(id), name),
            None => (None, Cow::Borrowed("")),
        };
        MockError::WouldWaitForever {
            command,
            name,
            event: self.event,
        }
    }
}

impl State {
    pub(crate) fn new_event(&mut self, command: Option<CommandId>) -> (EventKey, EventId) {
        let id = EventId::fresh();
        let key = self.events.insert(EventRecord {
            id,
            progress: Progress::Pending,
            command,
            held: true,
            waiters: SmallVec::new(),
            clock: None,
        });
        (key, id)
    }

    /// How far an event has come. One that is gone has ended well: nobody could ask for more.
    pub(crate) fn progress(&self, key: EventKey) -> Progress {
        self.events
            .get(key)
            .map_or(Progress::Complete, |event| event.progress.clone())
    }

    pub(crate) fn is_pending(&self, key: EventKey) -> bool {
        matches!(self.events.get(key), Some(event) if matches!(event.progress, Progress::Pending))
    }

    /// The host lets go of an event.
    pub(crate) fn let_go_of_event(&mut self, key: EventKey) {
        if let Some(event) = self.events.get_mut(key) {
            event.held = false;
        }
        self.forget_event_if_unused(key);
    }

    /// Keeps I1.
    fn forget_event_if_unused(&mut self, key: EventKey) {
        if let Some(event) = self.events.get(key)
            && !event.held
            && event.waiters.is_empty()
            && (event.command.is_none() || !matches!(event.progress, Progress::Pending))
        {
            self.events.remove(key);
        }
    }

    /// Refuses to resolve what is no user event, or was resolved before.
    pub(crate) fn check_unresolved(&self, key: EventKey) -> Result<(), InvalidRequest> {
        match self.events.get(key) {
            Some(event) if event.command.is_some() => Err(InvalidRequest::NotAUserEvent),
            Some(event) if matches!(event.progress, Progress::Pending) => Ok(()),
            _ => Err(InvalidRequest::AlreadyResolved),
        }
    }

    pub(crate) fn resolve_user_event(&mut self, key: EventKey, outcome: Outcome) {
        self.clock_user_event(key);
        if let Some(event) = self.events.get(key) {
            let result = match outcome {
                Outcome::Complete => Ok(()),
                Outcome::Failed => Err(MockError::UserEventFailed { event: event.id }),
            };
            self.end_event(key, result);
        }
    }

    /// Has the user events fail that nobody is left to resolve.
    #[cfg(feature = "conformance")]
    pub(crate) fn fail_orphaned_user_events(&mut self) {
        let orphans = self.events.iter().filter_map(|(key, event)| {
            let is_orphan = event.command.is_none() && !event.held;
            is_orphan.then_some((key, event.id))
        });
        for (key, event) in orphans.collect::<Vec<_>>() {
            self.end_event(key, Err(MockError::UserEventFailed { event }));
        }
    }

    /// Ends an event, and everything that fails with it.
    pub(super) fn end_event(&mut self, key: EventKey, result: Result<(), MockError>) {
        let mut ending: SmallVec<[_; 2]> = SmallVec::new();
        ending.push((key, result));
        // A list, not a recursion: a chain of failing commands may be long.
        while let Some((key, result)) = ending.pop() {
            let Some(event) = self.events.get_mut(key) else {
                continue;
            };
            let failed = result.is_err();
            event.progress = match result {
                Ok(()) => Progress::Complete,
                Err(error) => Progress::Failed(error),
            };
            let id = event.id;
            let waiters = std::mem::take(&mut event.waiters);
            let clock = event.clock.clone();
            self.forget_event_if_unused(key);
            for waiter in waiters {
                match waiter {
                    Waiter::Hold(hold) => self.hold_one_less(hold),
                    Waiter::Command(command, edge) => {
                        if let Some(command) = self.commands.get_mut(&command) {
                            Self::put_before(command, clock.as_ref());
                        }
                        let poison = (failed && edge == Edge::WaitList).then_some(id);
                        if let Some(failure) = self.blocked_by_one_less(command, poison) {
                            ending.extend(self.retire(command, Err(failure)));
                        }
                    }
                }
            }
        }
    }

    /// A command has one event less to wait for. Answers why it fails, where it has none left and does.
    fn blocked_by_one_less(&mut self, id: CommandId, poison: Option<EventId>) -> Option<MockError> {
        let command = self.commands.get_mut(&id)?;
        command.poison = command.poison.or(poison);
        command.blocked_by = command.blocked_by.saturating_sub(1);
        if command.blocked_by > 0 {
            return None;
        }
        if let Some(event) = command.poison {
            return Some(MockError::DependencyFailed {
                command: id,
                name: command.name.clone(),
                event,
            });
        }
        self.ready.insert(id);
        None
    }

    /// Frees `block` (one reference of it) when all of these events have ended.
    pub(super) fn hold(&mut self, block: BlockKey, events: &[EventKey]) {
        let hold = self.holds.insert(Hold {
            block,
            // One more than there are, until all are in place.
            remaining: 1,
        });
        for key in events {
            if let Some(event) = self.events.get_mut(*key)
                && matches!(event.progress, Progress::Pending)
            {
                event.waiters.push(Waiter::Hold(hold));
                if let Some(hold) = self.holds.get_mut(hold) {
                    hold.remaining += 1;
                }
            }
        }
        self.hold_one_less(hold);
    }

    fn hold_one_less(&mut self, key: Key<Hold>) {
        if let Some(hold) = self.holds.get_mut(key) {
            hold.remaining -= 1;
            if hold.remaining == 0 {
                let block = hold.block;
                self.holds.remove(key);
                self.let_go_of_block(block);
            }
        }
    }

    /// The commands that must have ended before these events can.
    pub(crate) fn ancestors(&self, events: &[EventKey]) -> BTreeSet<CommandId> {
        let mut found = BTreeSet::new();
        let mut open: Vec<EventKey> = events.to_vec();
        while let Some(key) = open.pop() {
            if let Some(command) = self.pending_command(key)
                && found.insert(command.id)
            {
                open.extend_from_slice(&command.waits_for);
            }
        }
        found
    }

    /// What keeps these events from ever ending, unless the host resolves a user event.
    pub(crate) fn gate(&self, events: &[EventKey]) -> Option<Gate> {
        let mut seen = HashSet::new();
        let mut open: Vec<(EventKey, Option<CommandId>)> =
            events.iter().map(|event| (*event, None)).collect();
        while let Some((key, waiting)) = open.pop() {
            if let Some(command) = self.pending_command(key) {
                if seen.insert(command.id) {
                    let next = command.waits_for.iter();
                    open.extend(next.map(|event| (*event, Some(command.id))));
                }
            } else if self.is_pending(key) {
                let command = waiting.and_then(|id| self.commands.get(&id));
                return Some(Gate {
                    event: self.events.get(key)?.id,
                    command: command.map(|command| (command.id, command.name.clone())),
                });
            }
        }
        None
    }

    /// The command that ends a pending event; `None` also for user events.
    fn pending_command(&self, key: EventKey) -> Option<&Command> {
        self.commands.get(&self.events.get(key)?.command?)
    }
}
