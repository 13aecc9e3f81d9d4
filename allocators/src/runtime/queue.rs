//! Queues.

use std::{
    fmt,
    hash::{Hash, Hasher},
    ops::Deref,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;

use super::Runtime;
use crate::{Queue, QueueId, QueueOrder, Result};

/// A queue of a [`Runtime`], which it derefs to the runtime's own type of.
pub struct CoreQueue<R: Runtime> {
    inner: Arc<Inner<R>>,
}

struct Inner<R: Runtime> {
    id: QueueId,
    backend: R,
    order: QueueOrder,
    stream: R::Stream,
    /// How many commands were enqueued. Locked while one is, so that the numbers have the order of the queue.
    commands: Mutex<u64>,
}

impl<R: Runtime> CoreQueue<R> {
    pub(super) fn new(backend: &R, stream: R::Stream, order: QueueOrder) -> Self {
        Self {
            inner: Arc::new(Inner {
                id: QueueId::fresh(),
                backend: backend.clone(),
                order,
                stream,
                commands: Mutex::new(0),
            }),
        }
    }

    /// The backend that the queue belongs to.
    #[must_use]
    pub fn backend(&self) -> &R {
        &self.inner.backend
    }

    /// The runtime's queue.
    #[must_use]
    pub fn stream(&self) -> &R::Stream {
        &self.inner.stream
    }

    pub(super) fn commands(&self) -> &Mutex<u64> {
        &self.inner.commands
    }
}

/// The queues of a backend that are still used.
pub(super) struct Queues<R: Runtime> {
    living: Mutex<Vec<Weak<Inner<R>>>>,
}

impl<R: Runtime> Default for Queues<R> {
    fn default() -> Self {
        Self {
            living: Mutex::default(),
        }
    }
}

impl<R: Runtime> Queues<R> {
    pub(super) fn add(&self, queue: &CoreQueue<R>) {
        let mut living = self.living.lock();
        living.retain(|queue| queue.strong_count() > 0);
        living.push(Arc::downgrade(&queue.inner));
    }

    /// Returns the queue whose stream is the wanted one, or adds that which `make` returns.
    pub(super) fn find_or_add(
        &self,
        is_wanted: impl Fn(&R::Stream) -> bool,
        make: impl FnOnce() -> CoreQueue<R>,
    ) -> CoreQueue<R> {
        let mut living = self.living.lock();
        let known = living.iter().filter_map(Weak::upgrade);
        // Those that are not wanted may be the last of their queue, and are dropped outside the lock.
        let known: Vec<_> = known.map(|inner| CoreQueue { inner }).collect();
        let found = known.iter().find(|queue| is_wanted(queue.stream()));
        let queue = found.cloned().unwrap_or_else(|| {
            let queue = make();
            living.push(Arc::downgrade(&queue.inner));
            queue
        });
        living.retain(|queue| queue.strong_count() > 0);
        drop(living);
        queue
    }
}

impl<R: Runtime> Deref for CoreQueue<R> {
    type Target = R::Stream;

    fn deref(&self) -> &R::Stream {
        self.stream()
    }
}

impl<R: Runtime> Queue for CoreQueue<R> {
    #[inline]
    fn id(&self) -> QueueId {
        self.inner.id
    }

    #[inline]
    fn order(&self) -> QueueOrder {
        self.inner.order
    }

    fn flush(&self) -> Result<()> {
        self.inner.backend.flush(&self.inner.stream)
    }

    fn finish(&self) -> Result<()> {
        self.inner.backend.finish(&self.inner.stream)
    }
}

impl<R: Runtime> Clone for CoreQueue<R> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
        }
    }
}

impl<R: Runtime> PartialEq for CoreQueue<R> {
    fn eq(&self, other: &Self) -> bool {
        self.inner.id == other.inner.id
    }
}

impl<R: Runtime> Eq for CoreQueue<R> {}

impl<R: Runtime> Hash for CoreQueue<R> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.id.hash(state);
    }
}

impl<R: Runtime> fmt::Debug for CoreQueue<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("id", &self.inner.id)
            .field("order", &self.inner.order)
            .finish_non_exhaustive()
    }
}
