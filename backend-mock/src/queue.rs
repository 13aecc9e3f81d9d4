//! Queues of the mock device.

use std::{
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};

use binpool_allocators::{Queue, QueueId, QueueOrder, Result};

use crate::{CallKind, shared::Shared, state::QueueKey};

/// A queue of commands. Clones are the same queue.
///
/// After the last clone has been dropped, the commands that were enqueued still run.
///
/// ```
/// use binpool_allocators::{Backend, Event, EventStatus, Queue, QueueOrder};
/// use binpool_mock::{Completion, MockDevice};
///
/// let device = MockDevice::builder().completion(Completion::Manual).build();
/// let backend = device.backend();
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let [first, second] = [(); 2].map(|()| backend.enqueue_marker(&queue).unwrap());
/// assert!(device.step());
/// assert_eq!(first.status()?, EventStatus::Complete); // On an in-order queue, the first one runs first.
/// assert_eq!(second.status()?, EventStatus::Pending);
/// queue.finish()?; // Runs the others.
/// assert_eq!(second.status()?, EventStatus::Complete);
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone)]
pub struct MockQueue(Arc<Held>);

/// The host's reference to a queue.
struct Held {
    shared: Arc<Shared>,
    key: QueueKey,
    id: QueueId,
    order: QueueOrder,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shared.with(|state| state.drop_queue(self.key));
    }
}

impl MockQueue {
    pub(crate) fn new(shared: &Arc<Shared>, order: QueueOrder, key: QueueKey, id: QueueId) -> Self {
        let shared = Arc::clone(shared);
        Self(Arc::new(Held {
            shared,
            key,
            id,
            order,
        }))
    }

    pub(crate) fn key(&self) -> QueueKey {
        self.0.key
    }

    pub(crate) fn is_of(&self, shared: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.0.shared, shared)
    }
}

impl Queue for MockQueue {
    fn id(&self) -> QueueId {
        self.0.id
    }

    fn order(&self) -> QueueOrder {
        self.0.order
    }

    /// Only counts the call: the device treats every command as flushed.
    fn flush(&self) -> Result<()> {
        self.0.shared.with(|state| {
            state.charge(|costs| costs.flush);
            state.call(CallKind::Flush, 0, |_| Ok(()))
        })
    }

    fn finish(&self) -> Result<()> {
        finish(&self.0.shared, self.0.key)
    }
}

/// Waits until every command of a queue has ended.
pub(crate) fn finish(shared: &Shared, queue: QueueKey) -> Result<()> {
    let events = shared.with(|state| {
        state.charge(|costs| costs.finish);
        state.call(CallKind::Finish, 0, |state| Ok(state.unfinished(queue)))
    })?;
    shared.wait(&events, CallKind::Finish)?;
    shared.with(|state| state.host_sees_queue(queue));
    Ok(())
}

impl PartialEq for MockQueue {
    fn eq(&self, other: &Self) -> bool {
        self.0.id == other.0.id
    }
}

impl Eq for MockQueue {}

impl Hash for MockQueue {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.id.hash(state);
    }
}

impl fmt::Debug for MockQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MockQueue")
            .field("id", &self.0.id)
            .field("order", &self.0.order)
            .finish()
    }
}
