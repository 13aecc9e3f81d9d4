//! Detection of races: which commands come before which, and which touch the same bytes without an order.
//!
//! Every command has a clock: the commands that come before it, by its queue's order, its wait list, barriers and
//! markers, and those that the host had seen to end when it enqueued the command (or resolved a user event that the
//! command waits for). A clock is complete when the command ends, since everything that it waits for has ended then.
//! Commands are therefore compared when they end: the one that ends second races with the first unless its clock contains
//! the first. A mere end in time orders nothing, so that the result is the same in every completion mode.
//!
//! A command that fails comes before others only as far as the device promises ([`FailureOrder`]), whatever
//! happened: where it may fail early, its event proves nothing to the host; where its place is lost, it proves nothing to
//! the commands after it either.

use std::sync::Arc;

use binpool_allocators::{FailureOrder, QueueOrder};
use smallvec::SmallVec;

use super::{
    State,
    records::{Access, Command, CommandClock, EventKey, Progress, QueueKey, Touches},
    submission::Submission,
};
use crate::{
    Race, Touch, Violation,
    cause::Cause,
    clock::{Clock, Position},
};

/// The number of last commands of a block that a report names.
const HISTORY: usize = 16;

/// The most commands per block that are remembered because a later one may race with them: enough for every program that
/// orders its commands, and a bound for the rest.
const MOST_TOUCHES: usize = 1024;

impl State {
    /// Returns the position of a command that is about to be enqueued, and the commands that are known to come before it.
    pub(super) fn command_clock(&mut self, submission: &Submission<'_>) -> Option<CommandClock> {
        if !self.config.detect_races {
            return None;
        }
        let mut before = self.host_has_seen.clone();
        for key in submission.wait_for {
            if let Some(clock) = self.events.get(*key).and_then(|event| event.clock.as_ref()) {
                before.join(clock);
            }
        }
        let queue = self.queues.get_mut(submission.queue)?;
        let clocks = &mut queue.clocks;
        let is_ordered = queue.order == QueueOrder::InOrder;
        if !is_ordered && submission.waits_for_all() {
            before.join(&clocks.ended);
        }
        if is_ordered || submission.is_barrier() {
            // Later commands come after this one, and through it after everything that comes before it.
            before.join(&std::mem::take(&mut clocks.order));
        } else {
            before.join(&clocks.order);
        }
        clocks.issued += 1;
        let position = Position {
            queue: queue.id,
            index: clocks.issued,
        };
        Some(CommandClock { position, before })
    }

    /// Records that an event that a command waits for has ended.
    pub(super) fn put_before(command: &mut Command, clock: Option<&Arc<Clock>>) {
        if let (Some(own), Some(clock)) = (&mut command.clock, clock) {
            own.before.join(clock);
        }
    }

    /// Records that a command has ended, and reports its races.
    pub(super) fn clock_command(&mut self, command: &mut Command, result: &Result<(), Cause>) {
        let Some(CommandClock { position, before }) = command.clock.take() else {
            return;
        };
        if result.is_ok() {
            let writes = command.writes.iter().map(|access| (access, true));
            let reads = command.reads.iter().map(|access| (access, false));
            for (access, writes) in writes.chain(reads) {
                for part in self.parts_of(*access) {
                    self.touch(command, part, writes, position, &before);
                }
            }
        }
        let order = self.config.limits.failure_order;
        if command.poison.is_some() && !order.keeps_places() {
            return;
        }
        let mut clock = before;
        clock.add(position);
        if let Some(queue) = self.queues.get_mut(command.queue) {
            queue.clocks.ended.join(&clock);
            if result.is_ok() || order == FailureOrder::Kept {
                queue.clocks.finished.join(&clock);
            }
            if queue.last == Some(command.event) {
                queue.clocks.order = clock.clone();
            }
        }
        if let Some(event) = self.events.get_mut(command.event) {
            event.clock = Some(Arc::new(clock));
        }
    }

    fn touch(
        &mut self,
        command: &Command,
        access: Access,
        writes: bool,
        position: Position,
        before: &Clock,
    ) {
        let nothing_runs = self.commands.is_empty();
        let Some(block) = self.blocks.get_mut(access.block) else {
            return;
        };
        let touch = Touch {
            command: command.id,
            name: command.name.clone(),
            queue: command.queue_id,
            writes,
            region: access.region,
            memory: access.memory,
        };
        let Touches { open, recent } = &mut block.touches;
        let races: SmallVec<[Touch; 2]> = open
            .iter()
            .filter(|(other, earlier)| {
                *other != position
                    && (writes || earlier.writes)
                    && earlier.region.overlaps(access.region)
                    && !before.covers(*other)
            })
            .map(|(_, earlier)| earlier.clone())
            .collect();
        // A command that races with one that this command covers and comes after also races with this command.
        open.retain(|(other, earlier)| {
            let is_covered = access.region.offset <= earlier.region.offset
                && earlier.region.end() <= access.region.end()
                && (writes || !earlier.writes)
                && before.covers(*other);
            // Every command that is enqueued later comes after the commands that the host has seen to end.
            let is_seen = nothing_runs && self.host_has_seen.covers(*other);
            !(is_covered || is_seen)
        });
        open.push_back((position, touch.clone()));
        if open.len() > MOST_TOUCHES {
            open.pop_front();
        }
        let (memory, bytes) = (block.id, block.bytes);
        for first in races {
            // A command that both reads and writes the same bytes is reported once.
            let is_known = self.violations.iter().rev().any(|violation| {
                matches!(violation, Violation::Race(race) if race.memory == memory
                    && race.first.command == first.command && race.second.command == touch.command)
            });
            if !is_known {
                let race = Race {
                    memory,
                    bytes,
                    first,
                    second: touch.clone(),
                    history: recent.iter().cloned().collect(),
                };
                self.violations.push(Violation::Race(Box::new(race)));
            }
        }
        if recent.len() == HISTORY {
            recent.pop_front();
        }
        recent.push_back(touch);
    }

    /// Records that the host has seen the end of this event.
    pub(crate) fn host_sees(&mut self, event: EventKey) {
        let order = self.config.limits.failure_order;
        if let Some(event) = self.events.get(event)
            && let Some(clock) = &event.clock
            && (order == FailureOrder::Kept || !matches!(event.progress, Progress::Failed(_)))
        {
            self.host_has_seen.join(clock);
        }
    }

    /// Records that the host has seen the end of everything on this queue.
    pub(crate) fn host_sees_queue(&mut self, queue: QueueKey) {
        if let Some(queue) = self.queues.get(queue) {
            self.host_has_seen.join(&queue.clocks.finished);
        }
    }

    /// Records that the host resolves a user event: what waits for it comes after everything that the host has seen.
    pub(super) fn clock_user_event(&mut self, event: EventKey) {
        if self.config.detect_races
            && let Some(event) = self.events.get_mut(event)
        {
            event.clock = Some(Arc::new(self.host_has_seen.clone()));
        }
    }
}
