//! Queues as tracked commands refer to them.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicU64, Ordering},
};

use binpool_allocators::{QueueId, QueueOrder};

use crate::sys::{ClResult, EventHandle};

/// The calls to a queue that its commands make.
pub(crate) trait QueueCalls: Send + Sync {
    /// Flushes, unless the command with that number was flushed before.
    fn flush_up_to(&self, number: u64) -> ClResult<()>;

    /// Returns the event of a marker, on a queue of its own, that waits for `event`.
    fn stand_in(&self, event: &EventHandle) -> ClResult<EventHandle>;
}

/// A queue that its own log does not keep alive. Dropping a queue flushes it.
#[derive(Clone, Debug)]
pub(crate) struct WeakQueue(Arc<Known>);

#[derive(Debug)]
struct Known {
    id: QueueId,
    order: QueueOrder,
    queue: Weak<dyn QueueCalls>,
    /// The number of the last command that was found to have failed.
    failed: AtomicU64,
}

impl WeakQueue {
    pub(crate) fn new(id: QueueId, order: QueueOrder, queue: Weak<dyn QueueCalls>) -> Self {
        Self(Arc::new(Known {
            id,
            order,
            queue,
            failed: AtomicU64::new(0),
        }))
    }

    pub(crate) fn id(&self) -> QueueId {
        self.0.id
    }

    pub(crate) fn is_in_order(&self) -> bool {
        self.0.order == QueueOrder::InOrder
    }

    /// Flushes, unless the command with that number was flushed before.
    pub(crate) fn flush_up_to(&self, number: u64) -> ClResult<()> {
        let queue = self.0.queue.upgrade();
        queue.map_or(Ok(()), |queue| queue.flush_up_to(number))
    }

    /// Returns an event that stands for the event of a command of the queue; `None` if the queue is gone.
    pub(crate) fn stand_in(&self, event: &EventHandle) -> ClResult<Option<EventHandle>> {
        let queue = self.0.queue.upgrade();
        queue.map(|queue| queue.stand_in(event)).transpose()
    }

    /// Records that the command with this number has failed, perhaps early.
    pub(crate) fn note_failure(&self, number: u64) {
        self.0.failed.fetch_max(number, Ordering::Relaxed);
    }

    /// Returns the number of the last command that was found to have failed; 0 if none was.
    pub(crate) fn last_failure(&self) -> u64 {
        self.0.failed.load(Ordering::Relaxed)
    }
}
