//! Commands as a test sees them.

use std::{borrow::Cow, fmt};

use binpool_allocators::{EventStatus, QueueId};

/// The number of a command among all commands of its device, from 1 on, in the order of their enqueueing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommandId(pub(crate) u64);

impl CommandId {
    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for CommandId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A command that has ended, as the log has it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommandRecord {
    /// Its number.
    pub id: CommandId,
    /// Its name: a kernel's own, or the call's.
    pub name: Cow<'static, str>,
    /// Its queue.
    pub queue: QueueId,
    /// How it ended.
    pub status: EventStatus,
}
