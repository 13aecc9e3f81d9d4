//! The commands of a thread, and how they end.

use std::{
    thread,
    time::{Duration, Instant},
};

use binpool_allocators::{Event, EventStatus};
use binpool_opencl::ClEvent;

/// A command of the thread, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct CommandId(usize);

/// User events that a command may wait for, one bit each.
pub(crate) type Gates = u64;

#[derive(Debug)]
enum End {
    /// The program still has the event.
    Held(ClEvent),
    /// The program has dropped the event, or never had one: how the command ended cannot be known.
    Dropped,
    Known(Ended),
}

/// How a command has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Complete,
    Failed,
}

#[derive(Debug)]
struct Command {
    end: End,
    /// What it may wait for, directly or not.
    gates: Gates,
}

#[derive(Debug)]
pub(crate) struct Commands {
    all: Vec<Command>,
    /// How long a command may read as pending after one that comes after it has completed.
    lag: Duration,
}

impl Commands {
    /// `lag` is how long a command may read as pending after one that comes after it has completed.
    pub(crate) const fn new(lag: Duration) -> Self {
        let all = Vec::new();
        Self { all, lag }
    }

    pub(crate) fn add(&mut self, event: ClEvent, gates: Gates) -> CommandId {
        self.push(End::Held(event), gates)
    }

    /// A command that has no event, or none yet.
    pub(crate) fn add_without_event(&mut self, gates: Gates) -> CommandId {
        self.push(End::Dropped, gates)
    }

    fn push(&mut self, end: End, gates: Gates) -> CommandId {
        self.all.push(Command { end, gates });
        CommandId(self.all.len() - 1)
    }

    pub(crate) fn set_event(&mut self, id: CommandId, event: ClEvent, gates: Gates) {
        self.all[id.0] = Command {
            end: End::Held(event),
            gates,
        };
    }

    pub(crate) fn gates(&self, id: CommandId) -> Gates {
        self.all[id.0].gates
    }

    pub(crate) fn event(&self, id: CommandId) -> Option<&ClEvent> {
        match &self.all[id.0].end {
            End::Held(event) => Some(event),
            End::Dropped | End::Known(_) => None,
        }
    }

    /// The commands whose events the program holds.
    pub(crate) fn held(&self) -> Vec<CommandId> {
        let ids = (0..self.all.len()).map(CommandId);
        ids.filter(|id| self.event(*id).is_some()).collect()
    }

    /// Drops the program's handle of the event. What the event says by now stays known.
    pub(crate) fn drop_event(&mut self, id: CommandId) {
        let ended = self.ended(id);
        self.all[id.0].end = ended.map_or(End::Dropped, End::Known);
    }

    /// How the command has ended; `None` while it is pending, and where the event was dropped before it ended.
    pub(crate) fn ended(&self, id: CommandId) -> Option<Ended> {
        match &self.all[id.0].end {
            End::Known(ended) => Some(*ended),
            End::Dropped => None,
            End::Held(event) => match event.status() {
                Ok(EventStatus::Pending) => None,
                // Of some runtimes only the wait tells of a failure.
                _ if event.wait().is_ok() => Some(Ended::Complete),
                _ => Some(Ended::Failed),
            },
        }
    }

    /// Waits for the status of a command that another one came after, which has completed.
    pub(crate) fn wait_for_status(&self, id: CommandId) {
        let start = Instant::now();
        while self.is_pending(id) && start.elapsed() < self.lag {
            thread::yield_now();
        }
    }

    /// Returns whether the event is held and says that the command is pending.
    pub(crate) fn is_pending(&self, id: CommandId) -> bool {
        let status = self.event(id).map(ClEvent::status);
        matches!(status, Some(Ok(EventStatus::Pending)))
    }
}
