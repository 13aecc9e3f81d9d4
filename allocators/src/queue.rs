//! Queues of commands.

use std::{fmt, hash::Hash};

use crate::{QueueId, Result};

/// In which order the commands of one queue run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueueOrder {
    /// Each command starts when the one before has ended.
    InOrder,
    /// Commands run as their wait lists and the barriers between them allow.
    OutOfOrder,
}

/// A queue of commands of one backend. Clones are the same queue.
///
/// The commands of different queues are ordered by events only.
pub trait Queue: Clone + Eq + Hash + fmt::Debug + Send + Sync + 'static {
    /// This queue's identity: equal for values that stand for the same queue of the runtime, and never used
    /// again for another queue.
    fn id(&self) -> QueueId;

    /// In which order its commands run.
    fn order(&self) -> QueueOrder;

    /// Sends what was enqueued to the device. Does not wait.
    ///
    /// # Errors
    ///
    /// A failure of the runtime.
    fn flush(&self) -> Result<()>;

    /// Waits until every command that was enqueued before has ended.
    ///
    /// Commands that failed have ended too: their failure shows in their events.
    ///
    /// # Errors
    ///
    /// A failure of the runtime.
    fn finish(&self) -> Result<()>;
}
