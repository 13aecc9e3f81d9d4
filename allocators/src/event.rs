//! Events: the state of a command.

use std::{fmt, hash::Hash};

use crate::{EventId, Result};

/// The state of a command.
///
/// ```
/// use binpool_allocators::{Queue, Backend, Event, EventStatus, Outcome, QueueOrder};
/// # use binpool_mock::MockDevice;
///
/// # let backend = MockDevice::new().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let gate = backend.create_user_event()?;
/// let behind = backend.enqueue_marker(queue.after(&[gate.clone()]))?;
/// assert!(!behind.status()?.has_ended()); // Its memory is still in use.
/// backend.resolve_user_event(&gate, Outcome::Failed)?;
/// assert_eq!(behind.status()?, EventStatus::Failed);
/// assert!(behind.status()?.has_ended(), "memory is free again behind what failed, too");
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventStatus {
    /// The command has not ended.
    Pending,
    /// The command has ended without an error.
    Complete,
    /// The command has ended with an error, or an event of its wait list has failed.
    Failed,
}

impl EventStatus {
    /// Returns whether the command has ended, so that it touches no memory any more.
    #[must_use]
    pub const fn has_ended(self) -> bool {
        !matches!(self, Self::Pending)
    }
}

/// How the host resolves a user event.
///
/// ```
/// use binpool_allocators::{Queue, Backend, MemoryFlags, Outcome, QueueOrder, Region};
/// # use binpool_mock::MockDevice;
///
/// # let backend = MockDevice::new().backend();
/// # let queues = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
/// # let buffer = backend.create_buffer(4, MemoryFlags::empty())?;
/// # backend.write(&queues[0], &buffer, 0, &[1_u8; 4])?;
/// let file_is_read = backend.create_user_event()?;
/// let after = [file_is_read.clone()];
/// let result = backend.enqueue_read(queues[0].after(&after), &buffer, Region::first(4))?;
/// // The file is missing: the commands that wait for it must neither run nor wait forever.
/// backend.resolve_user_event(&file_is_read, Outcome::Failed)?;
/// assert!(result.wait().is_err());
///
/// let now = backend.create_user_event()?;
/// let result = backend.enqueue_read(queues[1].after(&[now.clone()]), &buffer, Region::first(4))?;
/// backend.resolve_user_event(&now, Outcome::Complete)?;
/// assert_eq!(result.wait()?, [1; 4]);
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Commands that wait for the event may run.
    Complete,
    /// Commands that wait for the event fail.
    Failed,
}

/// The event of a command, or a user event. Clones are the same event.
///
/// ```
/// use binpool_allocators::{Queue, Backend, Event, EventStatus, Outcome, QueueOrder};
/// use binpool_mock::MockDevice;
///
/// let backend = MockDevice::new().backend();
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let gate = backend.create_user_event()?;
/// let behind = backend.enqueue_marker(queue.after(&[gate.clone()]))?;
/// assert_eq!(gate.clone().id(), gate.id());
/// assert_eq!(behind.status()?, EventStatus::Pending);
/// backend.resolve_user_event(&gate, Outcome::Complete)?;
/// behind.wait()?;
/// assert!(behind.status()?.has_ended());
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
pub trait Event: Clone + Eq + Hash + fmt::Debug + Send + Sync + 'static {
    /// This event's identity.
    fn id(&self) -> EventId;

    /// Returns the state of the command. Does not wait.
    ///
    /// # Errors
    ///
    /// The runtime cannot report the state.
    fn status(&self) -> Result<EventStatus>;

    /// Returns whether the command is known to have ended. One whose state cannot be read counts as pending.
    ///
    /// A command that failed has ended too: it touches no memory any more, and says nothing of other commands.
    fn has_ended(&self) -> bool {
        self.status().is_ok_and(EventStatus::has_ended)
    }

    /// Waits until the command has ended.
    ///
    /// # Errors
    ///
    /// The command's own failure, or that of an event that it waited for. The command has ended in any case.
    fn wait(&self) -> Result<()>;

    /// Waits until the command, and everything that was enqueued before it on its queue, has ended, with or without an error.
    /// This works even where an event that [failed](crate::FailureOrder::ends_all_before) says nothing about other commands. A user
    /// event has no queue: only the event itself is waited for.
    ///
    /// The provided method is correct on devices of [`FailureOrder::Kept`](crate::FailureOrder::Kept). Other backends finish the
    /// queue.
    ///
    /// ```
    /// use binpool_allocators::{Queue, Backend, Event, Outcome, QueueOrder};
    /// # use binpool_mock::MockDevice;
    ///
    /// # let backend = MockDevice::new().backend();
    /// let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let gate = backend.create_user_event()?;
    /// let marker = backend.enqueue_marker(queue.after(&[gate.clone()]))?;
    /// backend.resolve_user_event(&gate, Outcome::Failed)?;
    /// assert!(marker.wait().is_err()); // The marker's own failure.
    /// marker.wait_for_all_before()?; // No command of the queue uses memory any more.
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A failure of the runtime to wait.
    fn wait_for_all_before(&self) -> Result<()> {
        match self.wait() {
            Err(_) if self.status().is_ok_and(EventStatus::has_ended) => Ok(()),
            result => result,
        }
    }
}
