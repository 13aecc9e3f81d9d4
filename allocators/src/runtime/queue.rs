//! The queues of backends over `Runtime`: how many commands each has, and which have ended.

use std::{
    any::Any,
    fmt,
    hash::{Hash, Hasher},
    ops::Deref,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;

use super::Runtime;
use crate::{Queue, QueueId, QueueOrder, Result};

/// A queue of a [`Runtime`]. It derefs to the runtime's own queue.
///
/// ```
/// use binpool_allocators::{Result, runtime::{CoreQueue, Runtime}};
///
/// fn begin<R: Runtime>(queue: &CoreQueue<R>) -> Result<()> {
///     // SAFETY: the stream is of this backend.
///     unsafe { queue.backend().flush(queue.stream()) }
/// }
/// ```
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

/// Notes a queue that was made, so that [`adopt_queue`] finds it.
pub(super) fn note<R: Runtime>(queue: &CoreQueue<R>) {
    let mut living = queue.backend().core().queues.lock();
    living.retain(|queue| queue.strong_count() > 0);
    living.push(weak(queue));
}

fn weak<R: Runtime>(queue: &CoreQueue<R>) -> Weak<dyn Any + Send + Sync> {
    let inner: Arc<dyn Any + Send + Sync> = Arc::clone(&queue.inner) as _;
    Arc::downgrade(&inner)
}

/// Returns the queue for a stream that the program has made: the known one, if a queue of `backend` already has that stream, or a
/// new one. So one stream is always one queue.
///
/// # Safety
///
/// The stream that `make` returns is of this backend, lives as long as the value, and has the order that is returned with it.
pub unsafe fn adopt_queue<R: Runtime>(
    backend: &R,
    is_wanted: impl Fn(&R::Stream) -> bool,
    make: impl FnOnce() -> (R::Stream, QueueOrder),
) -> CoreQueue<R> {
    let mut living = backend.core().queues.lock();
    let known = living.iter().filter_map(Weak::upgrade);
    let known = known.filter_map(|inner| inner.downcast().ok());
    // Those that are not wanted may be the last of their queue, and are dropped outside the lock.
    let known: Vec<CoreQueue<R>> = known.map(|inner| CoreQueue { inner }).collect();
    let found = known.iter().find(|queue| is_wanted(queue.stream()));
    let queue = found.cloned().unwrap_or_else(|| {
        let (stream, order) = make();
        let queue = CoreQueue::new(backend, stream, order);
        living.push(weak(&queue));
        queue
    });
    living.retain(|queue| queue.strong_count() > 0);
    drop(living);
    queue
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
        // SAFETY: the stream is of this backend.
        unsafe { self.inner.backend.flush(&self.inner.stream) }
    }

    fn finish(&self) -> Result<()> {
        // SAFETY: the stream is of this backend.
        unsafe { self.inner.backend.finish(&self.inner.stream) }
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
