//! The queue that a command runs on, with the events that it waits for.

use crate::{Event, Queue};

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
