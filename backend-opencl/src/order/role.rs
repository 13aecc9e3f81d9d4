//! How a command takes part in the order of its queue, on runtimes that forget that order after a command that fails early.
//!
//! The log of a queue has two bytes. Every command of an in-order queue writes the first byte, and so waits for the event
//! of the one before. A command of an out-of-order queue reads the first byte, so that later markers and barriers find it.
//! A barrier also writes the second byte, which every later command reads and so waits for.

use std::sync::Arc;

use binpool_allocators::{Region, runtime::Access};

use crate::order::{
    access_log::Record,
    tracked_command::{Earlier, TrackedCommand},
};

/// How a command takes part in the order of its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OrderRole {
    /// It takes its turn, like any command.
    Command,
    /// It comes after everything that was enqueued before: a marker without a wait list.
    Marker,
    /// Everything after it waits for it, and it waits for its wait list.
    Barrier,
    /// A barrier without a wait list: it also comes after everything that was enqueued before.
    FullBarrier,
    /// The end of a map that runs on a queue of its own. It comes after the same commands as a command of the map's queue would, and
    /// everything that comes after all commands of that queue comes after it, too.
    Elsewhere,
}

const COMMANDS: Region = Region::new(0, 1);
const BARRIERS: Region = Region::new(1, 1);

impl OrderRole {
    /// Returns whether its end says that everything that was enqueued before has ended.
    pub(crate) const fn comes_after_all(self) -> bool {
        matches!(self, Self::Marker | Self::FullBarrier)
    }

    /// Adds the commands of the queue that this one comes after: to `by_event` those whose events it has to wait for, and to `by_runtime`
    /// those for which the runtime makes it wait.
    pub(crate) fn collect_conflicting(
        self,
        is_in_order: bool,
        record: &mut Record,
        by_event: &mut Earlier,
        by_runtime: &mut Earlier,
    ) {
        if is_in_order {
            record.collect_conflicting(COMMANDS, Access::Write, by_event);
            return;
        }
        match self {
            Self::Command | Self::Barrier | Self::Elsewhere => {
                record.collect_conflicting(BARRIERS, Access::Read, by_event);
            }
            // Without a wait list, the runtime waits for commands that are not in the log, too.
            Self::Marker | Self::FullBarrier => {
                record.collect_conflicting(BARRIERS, Access::Read, by_runtime);
                record.collect_conflicting(COMMANDS, Access::Write, by_runtime);
            }
        }
    }

    /// Enters `command` in the log of its queue.
    pub(crate) fn enter(
        self,
        is_in_order: bool,
        record: &mut Record,
        command: &Arc<TrackedCommand>,
    ) {
        if is_in_order && self != Self::Elsewhere {
            return record.enter(COMMANDS, Access::Write, command);
        }
        match self {
            // A command that runs elsewhere replaces no command of an in-order queue: the next one still has to see whether that failed
            // early.
            Self::Command | Self::Marker | Self::Elsewhere => {
                record.enter(COMMANDS, Access::Read, command);
            }
            Self::Barrier => {
                record.enter(COMMANDS, Access::Read, command);
                record.enter(BARRIERS, Access::Write, command);
            }
            Self::FullBarrier => {
                record.enter(COMMANDS, Access::Write, command);
                record.enter(BARRIERS, Access::Write, command);
            }
        }
    }
}
