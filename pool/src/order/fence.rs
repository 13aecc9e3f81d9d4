//! Fences: markers on queues that show when the commands before them have ended.

use binpool_allocators::{Backend, Error, Event, EventStatus, FailureOrder, Queue, QueueOrder};
use smallvec::SmallVec;

use crate::order::timestamps::{QueueKey, QueueUse, Timestamp};

/// A marker on a queue. When its event has ended, so has every use of this queue up to `timestamp`.
#[derive(Debug)]
pub(crate) struct Fence<B: Backend> {
    pub(crate) key: QueueKey,
    pub(crate) timestamp: Timestamp,
    pub(crate) event: B::Event,
}

impl<B: Backend> Clone for Fence<B> {
    fn clone(&self) -> Self {
        Self {
            event: self.event.clone(),
            ..*self
        }
    }
}

impl<B: Backend> Fence<B> {
    pub(crate) fn at(&self) -> QueueUse {
        QueueUse {
            key: self.key,
            timestamp: self.timestamp,
        }
    }
}

/// Fences of a few queues.
pub(crate) type Fences<B> = SmallVec<[Fence<B>; 2]>;

/// A fence that the caller is about to enqueue, without the lock.
#[derive(Debug)]
pub(crate) struct NewFence<B: Backend> {
    pub(crate) queue: B::Queue,
    pub(crate) at: QueueUse,
}

/// Returns whether the order of a queue makes the commands of a block's next user run after those of its former one, even if commands fail.
pub(crate) fn is_ordered<Q: Queue>(queue: &Q, failures: FailureOrder) -> bool {
    queue.order() == QueueOrder::InOrder && failures.keeps_places()
}

/// Waits until a command has completed or failed.
pub(crate) fn wait_for_event<E: Event>(event: &E) -> Result<(), Error> {
    wait_for_status(event).map(drop)
}

/// Waits until a command has ended, and returns how it ended.
///
/// # Errors
///
/// If it cannot be waited for.
pub(crate) fn wait_for_status<E: Event>(event: &E) -> Result<EventStatus, Error> {
    let Err(error) = event.wait() else {
        return Ok(EventStatus::Complete);
    };
    match event.status() {
        Ok(status) if status.has_ended() => Ok(status),
        _ => Err(error),
    }
}
