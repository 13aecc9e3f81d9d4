//! Events: how far a command has come.

use std::{fmt, hash::Hash};

use crate::{EventId, Result};

/// How far a command has come.
///
/// ```
/// use binpool_allocators::{Backend, Event, EventStatus, Outcome, QueueOrder};
/// # use binpool_mock::MockDevice;
///
/// # let backend = MockDevice::new().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let gate = backend.create_user_event()?;
/// let behind = backend.enqueue_marker(&queue, &[gate.clone()])?;
/// assert!(!behind.status()?.has_ended()); // Its memory is still in use.
/// backend.resolve_user_event(&gate, Outcome::Failed)?;
/// assert_eq!(behind.status()?, EventStatus::Failed);
/// assert!(behind.status()?.has_ended(), "memory is free again behind what failed, too");
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventStatus {
    /// It has not ended.
    Pending,
    /// It has ended well.
    Complete,
    /// It has ended with an error, or something that it waited for has.
    Failed,
}

impl EventStatus {
    /// Whether the command touches no memory any more.
    #[must_use]
    pub const fn has_ended(self) -> bool {
        !matches!(self, Self::Pending)
    }
}

/// How the host resolves a user event.
///
/// ```
/// use binpool_allocators::{Backend, MemoryFlags, Outcome, QueueOrder, Region};
/// # use binpool_mock::MockDevice;
///
/// # let backend = MockDevice::new().backend();
/// # let queues = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
/// # let buffer = backend.create_buffer(4, MemoryFlags::empty())?;
/// # backend.write(&queues[0], &buffer, 0, &[1; 4], &[])?;
/// let file_is_read = backend.create_user_event()?;
/// let after = [file_is_read.clone()];
/// let result = backend.enqueue_read(&queues[0], &buffer, Region::first(4), &after)?;
/// // The file is not there, so what waits for it must not run, and nobody waits for ever.
/// backend.resolve_user_event(&file_is_read, Outcome::Failed)?;
/// assert!(result.wait().is_err());
///
/// let now = backend.create_user_event()?;
/// let result = backend.enqueue_read(&queues[1], &buffer, Region::first(4), &[now.clone()])?;
/// backend.resolve_user_event(&now, Outcome::Complete)?;
/// assert_eq!(result.wait()?, [1; 4]);
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// What waits for the event may run.
    Complete,
    /// What waits for the event fails.
    Failed,
}

/// The event of a command, or a user event. Clones are the same event.
///
/// ```
/// use binpool_allocators::{Backend, Event, EventStatus, Outcome, QueueOrder};
/// use binpool_mock::MockDevice;
///
/// let backend = MockDevice::new().backend();
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let gate = backend.create_user_event()?;
/// let behind = backend.enqueue_marker(&queue, &[gate.clone()])?;
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

    /// How far the command has come. Does not wait.
    ///
    /// # Errors
    ///
    /// Where the runtime cannot tell.
    fn status(&self) -> Result<EventStatus>;

    /// Waits until the command has ended.
    ///
    /// # Errors
    ///
    /// The command's own failure, or that of something it waited for: the command has ended all the same.
    fn wait(&self) -> Result<()>;
}
