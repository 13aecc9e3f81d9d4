//! What happens before what, and the commands that touch the same bytes in no order.
//!
//! Every command has a clock: the commands that come before it, by its queue's order, its wait list, barriers and
//! markers, and by what the host had seen to end when it enqueued the command (or resolved a user event that the
//! command waits for). A clock is known when the command ends, since all that it waits for has ended then. So commands
//! are compared as they end: the one that ends second races with the first unless its clock has the first in it. That a
//! command merely had ended already orders nothing, so that the answer is the same whatever the completion mode.

use std::{collections::VecDeque, sync::Arc};

use binpool_allocators::{QueueOrder, Result};
use smallvec::SmallVec;

use super::{Access, Command, EventKey, Fence, QueueKey, State, Submission};
use crate::{
    CallKind, MockError, Race, Touch, Violation,
    clock::{Clock, Place},
};

/// How many of the last commands that touched a block a report names.
const TOLD: usize = 16;

/// How many commands that a later one may race with are remembered a block: enough for every program that orders its
/// commands, a bound for one that does not.
const MOST_TOUCHES: usize = 1024;

/// The commands that touched a block.
#[derive(Debug, Default)]
pub(crate) struct Touches {
    /// Those that a command which ends later may race with, in the order of their ends.
    open: VecDeque<(Place, Touch)>,
    recent: VecDeque<Touch>,
}

/// What a queue knows of the order of its commands.
#[derive(Debug, Default)]
pub(crate) struct QueueClocks {
    /// How many commands were enqueued.
    issued: u64,
    /// Every command that has ended, and what came before it.
    ended: Clock,
    /// What comes before every command that is enqueued from now on.
    order: Clock,
}

/// A command's place in its queue, and what comes before it as far as that is known yet.
#[derive(Debug)]
pub(crate) struct CommandClock {
    place: Place,
    before: Clock,
}

impl State {
    /// What is known to come before a command that is about to be enqueued, and its place.
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
        let follows_all = submission.fence != Fence::None && submission.wait_for.is_empty();
        if queue.order == QueueOrder::InOrder || follows_all {
            before.join(&clocks.ended);
        } else {
            before.join(&clocks.order);
        }
        clocks.issued += 1;
        let place = Place {
            queue: queue.id,
            index: clocks.issued,
        };
        Some(CommandClock { place, before })
    }

    /// Notes that an event that a command waits for has ended.
    pub(super) fn put_before(command: &mut Command, clock: Option<&Arc<Clock>>) {
        if let (Some(own), Some(clock)) = (&mut command.clock, clock) {
            own.before.join(clock);
        }
    }

    /// Notes that a command has ended, and reports the races that it was in.
    pub(super) fn clock_command(&mut self, command: &mut Command, result: &Result<(), MockError>) {
        let Some(CommandClock { place, before }) = command.clock.take() else {
            return;
        };
        if result.is_ok() {
            let writes = command.writes.iter().map(|access| (access, true));
            let reads = command.reads.iter().map(|access| (access, false));
            for (access, writes) in writes.chain(reads) {
                self.touch(command, *access, writes, place, &before);
            }
        }
        let mut clock = before;
        clock.add(place);
        if let Some(queue) = self.queues.get_mut(command.queue) {
            queue.clocks.ended.join(&clock);
            if command.kind == CallKind::Barrier {
                queue.clocks.order.join(&clock);
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
        place: Place,
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
                *other != place
                    && (writes || earlier.writes)
                    && earlier.region.overlaps(access.region)
                    && !before.covers(*other)
            })
            .map(|(_, earlier)| earlier.clone())
            .collect();
        // Whatever races with what this command follows and covers races with this command, too.
        open.retain(|(other, earlier)| {
            let is_covered = access.region.offset <= earlier.region.offset
                && earlier.region.end() <= access.region.end()
                && (writes || !earlier.writes)
                && before.covers(*other);
            // Every command that is enqueued later comes after what the host has seen.
            let is_seen = nothing_runs && self.host_has_seen.covers(*other);
            !(is_covered || is_seen)
        });
        open.push_back((place, touch.clone()));
        if open.len() > MOST_TOUCHES {
            open.pop_front();
        }
        let (memory, bytes) = (block.id, block.bytes);
        for first in races {
            // A command that both reads and writes the same bytes races once.
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
        if recent.len() == TOLD {
            recent.pop_front();
        }
        recent.push_back(touch);
    }

    /// The host has seen that this event has ended.
    pub(crate) fn host_sees(&mut self, event: EventKey) {
        if let Some(clock) = self
            .events
            .get(event)
            .and_then(|event| event.clock.as_ref())
        {
            self.host_has_seen.join(clock);
        }
    }

    /// The host has seen that everything on this queue has ended.
    pub(crate) fn host_sees_queue(&mut self, queue: QueueKey) {
        if let Some(queue) = self.queues.get(queue) {
            self.host_has_seen.join(&queue.clocks.ended);
        }
    }

    /// The host resolves a user event: what waits for it comes after everything that the host has seen.
    pub(super) fn clock_user_event(&mut self, event: EventKey) {
        if self.config.detect_races
            && let Some(event) = self.events.get_mut(event)
        {
            event.clock = Some(Arc::new(self.host_has_seen.clone()));
        }
    }
}
