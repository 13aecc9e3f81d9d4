//! Queues of commands, and what a command there waits for.

use std::{fmt, hash::Hash};

use crate::{Event, QueueId, Result};

/// The order in which the commands of one queue run.
///
/// ```
/// use binpool_allocators::{Queue, Backend, Event, EventStatus, MemoryFlags, QueueOrder, Region};
/// # use binpool_mock::MockDevice;
///
/// # let backend = MockDevice::new().backend();
/// # let [one, two] = [(); 2].map(|()| backend.create_buffer(64, MemoryFlags::empty()).unwrap());
/// // The status of the second of two fills while the first waits for the host.
/// let second = |order| {
///     let queue = backend.create_queue(order)?;
///     let gate = [backend.create_user_event()?];
///     backend.enqueue_fill(queue.after(&gate), &one, Region::first(64), &[1_u8])?;
///     backend.enqueue_fill(&queue, &two, Region::first(64), &[2_u8])?.status()
/// };
/// assert_eq!(second(QueueOrder::InOrder)?, EventStatus::Pending);
/// assert_eq!(second(QueueOrder::OutOfOrder)?, EventStatus::Complete);
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueueOrder {
    /// Each command starts when the one before has ended.
    InOrder,
    /// Commands run as their wait lists and the barriers between them allow.
    OutOfOrder,
}

/// A queue of commands of one backend. Clones are the same queue.
///
/// Commands of different queues are ordered by events only.
///
/// ```
/// use binpool_allocators::{Backend, Event, EventStatus, MemoryFlags, Queue, QueueOrder, Region};
/// use binpool_mock::{Completion, MockDevice};
///
/// # let backend = MockDevice::builder().completion(Completion::Manual).build().backend();
/// # let buffer = backend.create_buffer(64, MemoryFlags::empty())?;
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let clone = queue.clone();
/// assert_eq!((clone.id(), clone.order()), (queue.id(), QueueOrder::InOrder));
/// let filled = backend.enqueue_fill(&queue, &buffer, Region::first(64), &[1_u8])?;
/// clone.flush()?; // Submits the commands, even if the runtime collects them.
/// assert_eq!(filled.status()?, EventStatus::Pending);
/// clone.finish()?;
/// assert_eq!(filled.status()?, EventStatus::Complete);
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
pub trait Queue: Clone + Eq + Hash + fmt::Debug + Send + Sync + 'static {
    /// This queue's identity: equal for values that stand for the same queue of the runtime, and never used
    /// again for another queue.
    fn id(&self) -> QueueId;

    /// The order in which its commands run.
    fn order(&self) -> QueueOrder;

    /// Returns this queue with `events` to wait for, as calls that enqueue a command take it. A reference to the queue alone
    /// stands for a command that waits for nothing else.
    ///
    /// ```
    /// use binpool_allocators::{Backend, Event, EventStatus, MemoryFlags, Outcome, Queue, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let memory = backend.create_buffer(4, MemoryFlags::empty())?;
    /// let count = |_: &[&[u8]], writes: &mut [&mut [u8]]| writes[0].copy_from_slice(&[1, 2, 3, 4]);
    /// let gate = backend.create_user_event()?;
    /// let first = backend.launch(queue.after(&[gate.clone()]), "count", &[], &[&memory], count)?;
    /// let second = backend.launch(&queue, "count", &[], &[&memory], count)?;
    /// assert_eq!(first.status()?, EventStatus::Pending);
    /// backend.resolve_user_event(&gate, Outcome::Complete)?;
    /// second.wait()?;
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    fn after<'a, E: Event>(&'a self, events: &'a [E]) -> On<'a, Self, E> {
        On {
            queue: self,
            wait_for: events,
        }
    }

    /// Submits the enqueued commands to the device. Does not wait.
    ///
    /// # Errors
    ///
    /// A failure of the runtime.
    fn flush(&self) -> Result<()>;

    /// Waits until every command that was enqueued before has ended.
    ///
    /// Commands that failed have ended, too: their events have the error.
    ///
    /// # Errors
    ///
    /// A failure of the runtime.
    fn finish(&self) -> Result<()>;
}

/// The queue that a command runs on, and the events that it waits for.
///
/// Calls that enqueue a command take `impl Into<On<..>>`. A reference to a queue is enough for a command that waits for
/// nothing beyond the queue's own order; [`queue.after(&events)`](Queue::after) adds events.
///
/// ```
/// use binpool_allocators::{Backend, Event, EventStatus, On, Outcome, Queue, QueueOrder, Result};
/// # use binpool_mock::{MockDevice, MockEvent, MockQueue};
///
/// /// A call of the program's own that takes both forms.
/// fn mark<'a, B: Backend>(backend: &B, on: impl Into<On<'a, B::Queue, B::Event>>) -> Result<B::Event> {
///     let On { queue, wait_for } = on.into();
///     backend.enqueue_marker(queue.after(wait_for))
/// }
///
/// # let backend = MockDevice::new().backend();
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// mark(&backend, &queue)?.wait()?;
///
/// let gate = backend.create_user_event()?;
/// let marker = mark(&backend, queue.after(&[gate.clone()]))?;
/// assert_eq!(marker.status()?, EventStatus::Pending);
/// backend.resolve_user_event(&gate, Outcome::Complete)?;
/// marker.wait()?;
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Debug)]
pub struct On<'a, Q, E> {
    /// The queue that the command runs on.
    pub queue: &'a Q,
    /// The events that it waits for, beyond the queue's own order.
    pub wait_for: &'a [E],
}

impl<Q, E> Clone for On<'_, Q, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<Q, E> Copy for On<'_, Q, E> {}

/// On the queue, without events to wait for.
impl<'a, Q: Queue, E: Event> From<&'a Q> for On<'a, Q, E> {
    fn from(queue: &'a Q) -> Self {
        let wait_for = &[];
        Self { queue, wait_for }
    }
}

/// On the queue, from a reference to a reference.
impl<'a, Q: Queue, E: Event> From<&'a &Q> for On<'a, Q, E> {
    fn from(queue: &'a &Q) -> Self {
        Self::from(*queue)
    }
}
