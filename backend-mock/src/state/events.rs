//! Events, and the commands and frees that wait for them.

use std::collections::{BTreeSet, HashSet};

use binpool_allocators::{EventId, FailureOrder, InvalidRequest, Outcome};
use smallvec::SmallVec;

use super::{
    State,
    records::{BlockKey, Command, Edge, EventKey, EventRecord, PendingFree, Progress, Waiter},
};
use crate::{CommandId, cause::Cause, table::Key};

/// An event that is about to end.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) event: EventKey,
    pub(super) result: Result<(), Cause>,
    /// Set if its command fails early: commands that come after it by order keep waiting.
    pub(super) keeps_place: bool,
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

    /// Returns the state of an event. One that is gone has completed: otherwise something would still hold it.
    pub(crate) fn progress(&self, key: EventKey) -> Progress {
        self.events
            .get(key)
            .map_or(Progress::Complete, |event| event.progress.clone())
    }

    pub(crate) fn is_pending(&self, key: EventKey) -> bool {
        matches!(self.events.get(key), Some(event) if matches!(event.progress, Progress::Pending))
    }

    /// Returns whether commands that come after this event by order still have to wait: for its command, or for those that a
    /// command which failed early comes after.
    pub(super) fn is_in_place(&self, key: EventKey) -> bool {
        self.events.get(key).is_some_and(|event| {
            event.command.map_or_else(
                || matches!(event.progress, Progress::Pending),
                |command| self.commands.contains_key(&command),
            )
        })
    }

    /// Drops the host's reference to an event. A user event fails then, if the host has not resolved it: no later call could.
    pub(crate) fn drop_event(&mut self, key: EventKey) {
        if let Some(event) = self.events.get_mut(key) {
            event.held = false;
            if event.command.is_none() {
                let result = Err(Cause::UserEventFailed { event: event.id });
                self.end_user_event(key, result);
            }
        }
        self.forget_event_if_unused(key);
    }

    /// Removes an event that I1 no longer requires.
    fn forget_event_if_unused(&mut self, key: EventKey) {
        if let Some(event) = self.events.get(key)
            && !event.held
            && event.waiters.is_empty()
            && event
                .command
                .is_none_or(|command| !self.commands.contains_key(&command))
        {
            self.events.remove(key);
        }
    }

    /// Refuses to resolve an event that is not a user event, or was resolved before.
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
                Outcome::Failed => Err(Cause::UserEventFailed { event: event.id }),
            };
            self.end_user_event(key, result);
        }
    }

    /// Ends a user event, and everything that fails with it.
    fn end_user_event(&mut self, event: EventKey, result: Result<(), Cause>) {
        self.end(Ending {
            event,
            result,
            keeps_place: false,
        });
    }

    /// Ends an event, and everything that fails with it.
    pub(super) fn end(&mut self, ending: Ending) {
        let mut open: SmallVec<[Ending; 2]> = SmallVec::new();
        open.push(ending);
        // A loop, not a recursion, since a chain of failing commands may be long.
        while let Some(ending) = open.pop() {
            let Some(event) = self.events.get_mut(ending.event) else {
                continue;
            };
            // An early failure was already passed on when the event failed.
            let fails = ending.result.is_err() && matches!(event.progress, Progress::Pending);
            if matches!(event.progress, Progress::Pending) {
                event.progress = match ending.result {
                    Ok(()) => Progress::Complete,
                    Err(error) => Progress::Failed(error),
                };
            }
            let id = event.id;
            let clock = event.clock.clone();
            let waiters = std::mem::take(&mut event.waiters);
            if ending.keeps_place {
                let commands = waiters.iter().copied();
                event.waiters = commands
                    .filter(|waiter| matches!(waiter, Waiter::Command(..)))
                    .collect();
            }
            self.forget_event_if_unused(ending.event);
            for waiter in waiters {
                match waiter {
                    Waiter::PendingFree(free) => self.count_down(free),
                    Waiter::Command(id_of_command, edge) => {
                        let Some(command) = self.commands.get_mut(&id_of_command) else {
                            continue;
                        };
                        if fails && (edge == Edge::WaitList || self.config.failures_spread) {
                            command.poison = command.poison.or(Some(id));
                        }
                        if !ending.keeps_place {
                            Self::put_before(command, clock.as_ref());
                            command.blocked_by = command.blocked_by.saturating_sub(1);
                        }
                        open.extend(self.advance(id_of_command));
                    }
                }
            }
        }
    }

    /// Makes a command ready that has nothing left to wait for, or lets it fail in its turn. The caller must end what this
    /// returns.
    pub(super) fn advance(&mut self, id: CommandId) -> Option<Ending> {
        let command = self.commands.get(&id)?;
        let is_blocked = command.blocked_by > 0;
        let Some(event) = command.poison else {
            if !is_blocked {
                self.ready.insert(id);
            }
            return None;
        };
        let failure = Cause::DependencyFailed {
            command: id,
            name: command.name.clone(),
            event,
        };
        match self.config.limits.failure_order {
            FailureOrder::Kept if is_blocked => None,
            FailureOrder::FailsEarly if is_blocked => self.fail_early(id, failure),
            FailureOrder::Kept | FailureOrder::FailsEarly | FailureOrder::Lost => {
                self.retire(id, Err(failure))
            }
        }
    }

    /// Removes a command from the waiters of the events that have not ended.
    pub(super) fn stop_waiting(&mut self, command: &Command) {
        for key in &command.waits_for {
            if let Some(event) = self.events.get_mut(*key) {
                event.waiters.retain(
                    |waiter| !matches!(waiter, Waiter::Command(id, _) if *id == command.id),
                );
            }
            self.forget_event_if_unused(*key);
        }
    }

    /// Frees `block` (one reference to it) when all of these events have ended.
    pub(super) fn free_after(&mut self, block: BlockKey, events: &[EventKey]) {
        let pending = self.pending_frees.insert(PendingFree {
            block,
            // One more than the events, until all of them are registered.
            remaining: 1,
        });
        for key in events {
            if let Some(event) = self.events.get_mut(*key)
                && matches!(event.progress, Progress::Pending)
            {
                event.waiters.push(Waiter::PendingFree(pending));
                if let Some(pending) = self.pending_frees.get_mut(pending) {
                    pending.remaining += 1;
                }
            }
        }
        self.count_down(pending);
    }

    fn count_down(&mut self, key: Key<PendingFree>) {
        if let Some(pending) = self.pending_frees.get_mut(key) {
            pending.remaining -= 1;
            if pending.remaining == 0 {
                let block = pending.block;
                self.pending_frees.remove(key);
                self.drop_block_reference(block);
            }
        }
    }

    /// The commands that must end before these events can.
    pub(crate) fn ancestors(&self, events: &[EventKey]) -> BTreeSet<CommandId> {
        let mut found = BTreeSet::new();
        let mut open: Vec<EventKey> = events.to_vec();
        while let Some(key) = open.pop() {
            if let Some(command) = self.command_in_place(key)
                && found.insert(command.id)
            {
                open.extend_from_slice(&command.waits_for);
            }
        }
        found
    }

    /// The error of a wait for these events, if a user event that has not been resolved keeps one of them from ending.
    pub(crate) fn endless_wait(&self, events: &[EventKey]) -> Option<Cause> {
        let mut seen = HashSet::new();
        let mut open: Vec<(EventKey, Option<CommandId>)> =
            events.iter().map(|event| (*event, None)).collect();
        while let Some((key, waiting)) = open.pop() {
            if let Some(command) = self.command_in_place(key) {
                if seen.insert(command.id) {
                    let next = command.waits_for.iter();
                    open.extend(next.map(|event| (*event, Some(command.id))));
                }
            } else if self.is_pending(key) {
                let command = waiting.and_then(|id| self.commands.get(&id));
                return Some(Cause::WouldWaitForever {
                    command: command.map(|command| command.id),
                    name: command.map_or("".into(), |command| command.name.clone()),
                    event: self.events.get(key)?.id,
                });
            }
        }
        None
    }

    /// The command of an event, while it keeps its place; `None` for user events.
    fn command_in_place(&self, key: EventKey) -> Option<&Command> {
        self.commands.get(&self.events.get(key)?.command?)
    }
}
