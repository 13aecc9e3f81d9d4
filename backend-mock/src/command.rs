//! Identities and records of commands.

use std::{borrow::Cow, fmt};

use binpool_allocators::{EventStatus, QueueId};

/// The number of a command among all commands of its device, from 1 on, in the order in which they were enqueued.
///
/// ```
/// use binpool_allocators::{Backend, QueueOrder};
/// use binpool_mock::{Completion, MockDevice};
///
/// let device = MockDevice::builder().completion(Completion::Manual).build();
/// let backend = device.backend();
/// let queues = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
/// for queue in [&queues[0], &queues[0], &queues[1]] {
///     backend.enqueue_marker(queue)?;
/// }
/// // The second command is behind the first. Tests that replay an order name commands by these numbers.
/// let numbers: Vec<_> = device.runnable().iter().map(|id| id.get()).collect();
/// assert_eq!(numbers, [1, 3]);
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
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

/// An entry of the log of commands that have ended.
///
/// ```
/// use binpool_allocators::{Backend, EventStatus, Outcome, Queue, QueueOrder};
/// use binpool_mock::MockDevice;
///
/// let device = MockDevice::builder().log_calls(true).build();
/// let backend = device.backend();
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let input = backend.create_user_event()?;
/// backend.launch(queue.after(&[input.clone()]), "sum", &[], &[], |_, _| {})?;
/// backend.resolve_user_event(&input, Outcome::Failed)?;
///
/// let records = device.ended_commands();
/// assert_eq!((records.len(), records[0].name.as_ref()), (1, "sum"));
/// assert_eq!((records[0].id.get(), records[0].queue), (1, queue.id()));
/// assert_eq!(records[0].status, EventStatus::Failed); // Like the event that it waited for.
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommandRecord {
    /// Its number.
    pub id: CommandId,
    /// Its name: a kernel's own, or the call's.
    pub name: Cow<'static, str>,
    /// The queue that it ran on.
    pub queue: QueueId,
    /// How it ended.
    pub status: EventStatus,
}
