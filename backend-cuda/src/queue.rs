//! Streams of the driver as queues.

use std::{ffi::c_void, sync::Arc};

use binpool_allocators::{Error, Result, debug_by};
use parking_lot::Mutex;

use crate::{
    mark::{CudaMark, Kind},
    sys::{Context, CudaResult, Handle, Mark, PER_THREAD, Stream},
    thread_number::ThreadNumber,
};

/// The stream of a queue.
///
/// ```no_run
/// use binpool_allocators::{Backend, QueueOrder};
/// use binpool_cuda::{CudaBackend, QueueStream};
///
/// let backend = CudaBackend::open(0)?;
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let stream: &QueueStream = queue.stream();
/// // What another library enqueues on this runs in turn with the queue's own commands.
/// let handle = stream.raw();
/// assert_eq!(handle, queue.raw()); // A queue has the methods of its stream.
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
pub struct QueueStream {
    stream: Arc<Stream>,
    /// The thread whose per-thread default stream this is.
    thread: Option<ThreadNumber>,
    /// Streams of other devices, for commands on their memory.
    side_streams: Mutex<Vec<Arc<Stream>>>,
    /// What the stream was taken from.
    #[cfg(feature = "cudarc")]
    owner: std::sync::OnceLock<Arc<cudarc::driver::CudaStream>>,
}

impl QueueStream {
    pub(crate) fn create(context: &Arc<Context>) -> CudaResult<Self> {
        Ok(Self::new(Stream::create(context)?, None))
    }

    /// A stream that the program has made. Its per-thread default stream is that of the calling thread.
    pub(crate) fn adopt(context: &Arc<Context>, raw: Handle) -> Self {
        Self::new(Stream::adopt(context, raw), Self::thread_of(raw))
    }

    fn thread_of(raw: Handle) -> Option<ThreadNumber> {
        (raw == PER_THREAD).then(ThreadNumber::own)
    }

    /// Returns whether this is the stream that the calling thread knows by a handle.
    pub(crate) fn is(&self, raw: Handle) -> bool {
        self.stream.raw() == raw && self.thread == Self::thread_of(raw)
    }

    fn new(stream: Stream, thread: Option<ThreadNumber>) -> Self {
        Self {
            stream: Arc::new(stream),
            thread,
            side_streams: Mutex::default(),
            #[cfg(feature = "cudarc")]
            owner: std::sync::OnceLock::new(),
        }
    }

    /// The driver's handle, a `CUstream`, for calls of other libraries. It is valid as long as the queue lives.
    #[must_use]
    pub fn raw(&self) -> *mut c_void {
        std::ptr::without_provenance_mut(self.stream.raw())
    }

    /// Keeps a stream of cudarc as long as the queue.
    #[cfg(feature = "cudarc")]
    pub(crate) fn keep(&self, stream: &Arc<cudarc::driver::CudaStream>) {
        // One that is kept already is the same stream of the driver.
        self.owner.get_or_init(|| Arc::clone(stream));
    }

    pub(crate) fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        self.stream.context()
    }

    /// The stream of another device that stands in for this one.
    pub(crate) fn side_stream(&self, context: &Arc<Context>) -> CudaResult<Arc<Stream>> {
        let mut streams = self.side_streams.lock();
        let mut known = streams.iter();
        if let Some(stream) = known.find(|stream| stream.context().is_same(context)) {
            return Ok(Arc::clone(stream));
        }
        let stream = Arc::new(Stream::create(context)?);
        streams.push(Arc::clone(&stream));
        Ok(stream)
    }

    pub(crate) fn check_not_captured(&self, what: &str) -> Result<()> {
        if !self.stream.is_capturing()? {
            return Ok(());
        }
        Err(Error::unsupported(format!(
            "{what} while the stream of its queue is captured into a graph: do that before the capture, or after a launch of the graph"
        )))
    }

    /// Returns whether this is the default stream of another thread, whose handle means another stream here.
    pub(crate) fn is_out_of_reach(&self) -> bool {
        self.thread
            .is_some_and(|owner| owner != ThreadNumber::own())
    }

    pub(crate) fn check_thread(&self) -> Result<()> {
        if !self.is_out_of_reach() {
            return Ok(());
        }
        Err(Error::unsupported(
            "the per-thread default stream of another thread: its handle means another stream here; use a queue of \
             `create_queue` for both threads",
        ))
    }

    fn check_context(&self) -> Result<()> {
        let context = self.context();
        if !context.has_unresolved() && !context.has_capture() {
            return Ok(());
        }
        Err(Error::unsupported(
            "waiting for the per-thread default stream of another thread while a stream waits for a user event or is captured into a \
             graph: resolve the event, or end the capture",
        ))
    }

    /// A mark after all commands of a stream out of reach: of its whole context.
    pub(crate) fn mark_out_of_reach(&self) -> Result<CudaMark> {
        self.check_context()?;
        let mark = Mark::new(self.context())?;
        mark.record_all()?;
        Ok(CudaMark(Kind::Command(Arc::new(mark))))
    }

    pub(crate) fn finish(&self) -> Result<()> {
        if self.is_out_of_reach() {
            self.check_context()?;
            return Ok(self.context().synchronize()?);
        }
        self.check_not_captured("waiting for a queue")?;
        Ok(self.stream.synchronize()?)
    }
}

debug_by!(QueueStream);
