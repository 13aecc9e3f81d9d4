//! Queues, which are streams.

use std::{
    ffi::c_void,
    fmt,
    hash::{Hash, Hasher},
    sync::{Arc, Weak},
};

use binpool_allocators::{Error, Queue, QueueId, QueueOrder, Result};
use parking_lot::Mutex;

use crate::{
    sys::{Context, CudaResult, Handle, Mark, PER_THREAD, Stream},
    thread_number::ThreadNumber,
};

/// A CUDA stream. Clones are the same queue; any thread may use them.
///
/// Only its own thread can enqueue commands on a per-thread default stream. Others can wait for it, and enqueue markers and barriers that wait for
/// no events: these have ended once everything has that was enqueued before in the context, which asks for CUDA 12.5 or later. So what is free in a pool
/// goes from one thread to another, whether the thread that freed it lives or not.
///
/// However often a backend wraps one stream, the values are equal while one of them lives. Backends of other devices of the
/// [library](crate::CudaLibrary) take the queue, too.
///
/// ```no_run
/// use binpool_allocators::{Backend, Queue, QueueOrder};
/// use binpool_cuda::CudaDevice;
///
/// let backend = CudaDevice::open(0)?;
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// // SAFETY: the stream lives as long as `queue`.
/// let wrapped = unsafe { backend.wrap_raw_stream(queue.cu_stream()) }?;
/// assert_eq!(wrapped, queue);
/// // CUDA's streams are in-order; the error says to use several of them.
/// assert!(backend.create_queue(QueueOrder::OutOfOrder).is_err());
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone)]
pub struct CudaQueue {
    inner: Arc<Inner>,
}

struct Inner {
    id: QueueId,
    stream: Stream,
    /// What keeps a stream of cudarc alive. After `stream`, which it outlives.
    #[cfg(feature = "cudarc")]
    owner: std::sync::OnceLock<Arc<cudarc::driver::CudaStream>>,
    /// The thread that the per-thread default stream belongs to.
    thread: Option<ThreadNumber>,
    /// Held while a command is enqueued, so that its parts stay together and marks are in the order of their numbers.
    commands: Mutex<Commands>,
}

/// The commands of a queue.
#[derive(Default)]
pub(crate) struct Commands {
    pub(crate) count: u64,
    /// Streams of other devices, for commands that use memory there.
    side_streams: Vec<Arc<Stream>>,
}

impl Commands {
    /// Returns the queue's stream in the context of another device.
    pub(crate) fn side_stream(&mut self, context: &Arc<Context>) -> CudaResult<Arc<Stream>> {
        let mut known = self.side_streams.iter();
        if let Some(stream) = known.find(|stream| stream.context().is_same(context)) {
            return Ok(Arc::clone(stream));
        }
        let stream = Arc::new(Stream::create(context)?);
        self.side_streams.push(Arc::clone(&stream));
        Ok(stream)
    }
}

impl CudaQueue {
    fn new(stream: Stream, thread: Option<ThreadNumber>) -> Self {
        let inner = Inner {
            id: QueueId::fresh(),
            stream,
            #[cfg(feature = "cudarc")]
            owner: std::sync::OnceLock::new(),
            thread,
            commands: Mutex::default(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The `CUstream`, to enqueue kernels with, or to give to another library. It is valid while this value or a clone lives.
    #[must_use]
    pub fn cu_stream(&self) -> *mut c_void {
        std::ptr::without_provenance_mut(self.inner.stream.raw())
    }

    /// Keeps the stream of this queue alive as long as the queue.
    #[cfg(feature = "cudarc")]
    pub(crate) fn keep(&self, stream: &Arc<cudarc::driver::CudaStream>) {
        // One that is kept already is the same stream of the driver.
        self.inner.owner.get_or_init(|| Arc::clone(stream));
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.inner.stream
    }

    pub(crate) fn commands(&self) -> &Mutex<Commands> {
        &self.inner.commands
    }

    /// Checks that commands run, rather than go into a graph. `what` is what would be in vain.
    pub(crate) fn check_not_captured(&self, what: &str) -> Result<()> {
        if !self.stream().is_capturing()? {
            return Ok(());
        }
        Err(Error::unsupported(format!(
            "{what} while the stream of its queue is captured into a graph: do that before the capture, or after a launch of the graph"
        )))
    }

    /// Returns whether it is the per-thread default stream of another thread than the calling one, which has no handle for it.
    pub(crate) fn is_out_of_reach(&self) -> bool {
        let owner = self.inner.thread;
        owner.is_some_and(|owner| owner != ThreadNumber::own())
    }

    /// Checks that the calling thread may use the queue.
    pub(crate) fn check_thread(&self) -> Result<()> {
        if !self.is_out_of_reach() {
            return Ok(());
        }
        Err(Error::unsupported(
            "the per-thread default stream of another thread: its handle means another stream here; use a queue of \
             `create_queue` for both threads",
        ))
    }

    /// Checks that the whole context can be waited for in place of this queue, which is out of reach.
    fn check_context(&self) -> Result<()> {
        let context = self.stream().context();
        if !context.has_unresolved() && !context.has_capture() {
            return Ok(());
        }
        Err(Error::unsupported(
            "waiting for the per-thread default stream of another thread while a stream waits for a user event or is captured into a \
             graph: resolve the event, or end the capture",
        ))
    }

    /// Returns the mark of everything that was enqueued so far on this queue, which is out of reach, and on all others of its context.
    pub(crate) fn mark_out_of_reach(&self) -> Result<Mark> {
        self.check_context()?;
        let mark = Mark::new(self.stream().context())?;
        mark.record_all()?;
        Ok(mark)
    }
}

/// The queues of a backend that live.
#[derive(Default)]
pub(crate) struct Queues {
    living: Mutex<Vec<Weak<Inner>>>,
}

impl Queues {
    /// Makes a queue with a stream of its own.
    pub(crate) fn create(&self, context: &Arc<Context>) -> CudaResult<CudaQueue> {
        let queue = CudaQueue::new(Stream::create(context)?, None);
        Self::insert(&mut self.living.lock(), &queue);
        Ok(queue)
    }

    /// Returns the queue of a stream that is there already.
    pub(crate) fn adopt(&self, context: &Arc<Context>, raw: Handle) -> CudaQueue {
        let thread = (raw == PER_THREAD).then(ThreadNumber::own);
        let mut living = self.living.lock();
        let known = living.iter().filter_map(Weak::upgrade);
        // Those that are not the one may be the last of their queue, and are dropped outside the lock.
        let mut known: Vec<_> = known.collect();
        let found = known
            .iter()
            .position(|inner| inner.stream.raw() == raw && inner.thread == thread);
        let queue = match found {
            Some(at) => CudaQueue {
                inner: known.swap_remove(at),
            },
            None => CudaQueue::new(Stream::adopt(context, raw), thread),
        };
        if found.is_none() {
            Self::insert(&mut living, &queue);
        }
        drop(living);
        queue
    }

    fn insert(living: &mut Vec<Weak<Inner>>, queue: &CudaQueue) {
        living.retain(|inner| inner.strong_count() > 0);
        living.push(Arc::downgrade(&queue.inner));
    }
}

impl Queue for CudaQueue {
    fn id(&self) -> QueueId {
        self.inner.id
    }

    fn order(&self) -> QueueOrder {
        QueueOrder::InOrder
    }

    /// Does nothing: streams submit commands when they are enqueued.
    fn flush(&self) -> Result<()> {
        Ok(())
    }

    /// [`Unsupported`](Error::Unsupported) while the stream is captured into a graph. For the per-thread default stream of another thread, it
    /// waits for the whole context, and is [`Unsupported`](Error::Unsupported) while a stream waits for a user event, or any is captured.
    fn finish(&self) -> Result<()> {
        if self.is_out_of_reach() {
            self.check_context()?;
            return Ok(self.inner.stream.context().synchronize()?);
        }
        self.check_not_captured("waiting for a queue")?;
        Ok(self.inner.stream.synchronize()?)
    }
}

impl PartialEq for CudaQueue {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for CudaQueue {}

impl Hash for CudaQueue {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.id.hash(state);
    }
}

impl fmt::Debug for CudaQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaQueue")
            .field("id", &self.inner.id)
            .finish_non_exhaustive()
    }
}
