//! Queues as tracked commands know them.

use std::sync::Weak;

use binpool_allocators::{QueueId, QueueOrder};

use crate::sys::ClResult;

/// A queue that can be flushed.
pub(crate) trait Flush: Send + Sync {
    /// Flushes, unless the command of that number was flushed before.
    fn flush_up_to(&self, number: u64) -> ClResult<()>;
}

/// A queue that its own log does not keep alive. Dropping a queue flushes it.
#[derive(Clone, Debug)]
pub(crate) struct WeakQueue {
    id: QueueId,
    order: QueueOrder,
    queue: Weak<dyn Flush>,
}

impl WeakQueue {
    pub(crate) fn new(id: QueueId, order: QueueOrder, queue: Weak<dyn Flush>) -> Self {
        Self { id, order, queue }
    }

    pub(crate) const fn id(&self) -> QueueId {
        self.id
    }

    pub(crate) fn is_in_order(&self) -> bool {
        self.order == QueueOrder::InOrder
    }

    /// Flushes, unless the command of that number was flushed before.
    pub(crate) fn flush_up_to(&self, number: u64) -> ClResult<()> {
        let queue = self.queue.upgrade();
        queue.map_or(Ok(()), |queue| queue.flush_up_to(number))
    }
}
