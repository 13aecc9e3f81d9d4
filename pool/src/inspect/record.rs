//! Recording what a program requests of a pool.

use std::{
    any::type_name,
    env, fmt,
    io::{self, Write},
    path::Path,
    sync::{Arc, Weak},
    time::{SystemTime, UNIX_EPOCH},
};

use binpool_allocators::{Backend, contained::contained};
use binpool_trace::{TraceError, TraceErrorKind};

use crate::{
    MemoryPool, RecordingSummary,
    shared::Shared,
    track::{recorder::Recorder, ticks::Ticks, trace_writer::TraceWriter},
};
use binpool_lock::sync::{Builder, JoinHandle, join};

/// The version of the recordings that this crate writes.
const VERSION: u32 = 2;

/// A recording of a pool, which goes on until it is [finished](Self::finish) or dropped.
///
/// ```
/// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder, Tag};
/// # use binpool_mock::MockDevice;
/// # let backend = MockDevice::new().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
/// let file = tempfile::NamedTempFile::new()?;
/// let recording = pool.record(file.reopen()?)?;
/// let weights = Tag::new("weights").within(|| pool.allocate(1 << 20))?;
/// recording.finish()?; // What comes after this is not in it.
/// drop(weights);
///
/// let trace = std::fs::read_to_string(file.path())?;
/// let lines: Vec<_> = trace.lines().collect();
/// let find = |start| lines.iter().find(|line| line.starts_with(start)).copied();
/// assert_eq!(lines[0], "h version 2"); // The device and the settings,
/// assert!(find("g ").ok_or("no name")?.ends_with(" weights")); // a name,
/// assert!(find("s ").is_some() && find("b ").is_some()); // a segment, a place in it,
/// assert!(find("a ").ok_or("no block")?.contains(" 1048576 ")); // and a block.
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "the recording ends when this is dropped"]
pub struct PoolRecording {
    recorder: Arc<Recorder>,
    /// Has the pool hand over the rest and forget the recording.
    unregister: Box<dyn Fn() + Send + Sync>,
    thread: Option<JoinHandle<io::Result<RecordingSummary>>>,
}

/// # Recordings
impl<B: Backend + 'static> MemoryPool<B> {
    /// Records the program's requests from now on as a trace for `binpool replay`, `binpool tune` and `binpool view`:
    /// each block with its size, queue, time, and its [`Tag`](crate::Tag) or call site; and requests that fail for lack
    /// of memory, with their [reports](crate::OutOfMemoryReport). It begins with the device and the settings of the pool, and includes
    /// what the pool does: the memory that it takes from its allocator and releases, where each block lies, misses, trims, waits and
    /// hook calls. Blocks already in use are included if the pool [watches](Self::watch) them. Blocks of 0
    /// bytes are not.
    ///
    /// Cheap enough to be left on: each thread writes to memory of its own, and a thread of the recording turns that
    /// into text, ten times a second. If it falls behind by a million events, threads that allocate help it, and wait where the
    /// writer itself is too slow, so what is not written yet takes some 100 MiB at most. Each
    /// write ends with a whole line, and the writer is flushed after each round. The writer may use the pool; its own
    /// blocks are not recorded.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// use std::fs::File;
    ///
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// # let path = std::env::temp_dir().join(format!("binpool-doc-{}.trace", std::process::id()));
    /// let recording = pool.record(File::create(&path)?)?;
    /// drop(pool.allocate(4096)?);
    /// let summary = recording.finish()?;
    /// assert_eq!((summary.allocations, summary.frees), (1, 1));
    /// # std::fs::remove_file(path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`TraceError`]: the pool is being recorded already, or the operating system cannot start a thread for the writer.
    pub fn record(&self, writer: impl Write + Send + 'static) -> Result<PoolRecording, TraceError> {
        let shared = self.handle();
        let recorder = Arc::new(Recorder::new());
        let header = shared.header();
        let writer = TraceWriter::new(Box::new(writer), Ticks::new(), &header);
        let mut is_first = false;
        shared.change_watch(|watch| {
            is_first = watch.recorder.is_none();
            if is_first {
                watch.recorder = Some(Arc::clone(&recorder));
            }
        });
        if !is_first {
            return Err(TraceError::new(
                TraceErrorKind::AlreadyRecording,
                "the pool is being recorded already: finish that recording first",
            ));
        }
        let unregister = Box::new({
            let (pool, recorder) = (Arc::downgrade(shared), Arc::clone(&recorder));
            move || forget(&pool, &recorder)
        });
        let thread = Builder::new().name("binpool-recorder".into()).spawn({
            let (pool, recorder) = (Arc::downgrade(shared), Arc::clone(&recorder));
            move || {
                let write = move || {
                    let end = EndOnDrop { pool, recorder };
                    let take = || end.recorder.take();
                    end.recorder.write(writer, || match end.pool.upgrade() {
                        Some(pool) => pool.collect_events(take),
                        None => take(),
                    })
                };
                contained("the writer of a recording", write).unwrap_or_else(panicked)
            }
        });
        let thread = thread.map_err(|error| {
            unregister();
            TraceError::new(TraceErrorKind::Io, "no thread to write the recording").because(error)
        })?;
        Ok(PoolRecording {
            recorder,
            unregister,
            thread: Some(thread),
        })
    }
}

impl<B: Backend> Shared<B> {
    /// Returns the keys and values of a recording's header.
    fn header(&self) -> Vec<(&'static str, String)> {
        let limits = self.backend.limits();
        let (device_bytes, most) = (limits.capacity_bytes, self.allocator.capacity_bytes());
        let unix_time = SystemTime::now().duration_since(UNIX_EPOCH);
        let program = env::current_exe().ok();
        let program = program.as_deref().and_then(Path::file_name);
        let threshold = self.retain.release_threshold();
        let mut header = Vec::new();
        let mut add = |key, value: &dyn ToString| header.push((key, value.to_string()));
        add("version", &VERSION);
        add("time", &unix_time.map_or(0, |time| time.as_secs()));
        add("program", &program.unwrap_or_default().display());
        add("device", &limits.device_name);
        add("backend", &type_name::<B>());
        add("allocator", &self.allocator_name);
        add("capacity", &device_bytes);
        if most < device_bytes {
            add("limit", &most);
        }
        add("blocks", &if self.carves { "segments" } else { "bins" });
        if self.carves {
            add("growth", &self.growth.name());
        }
        add("reuse", &self.policy.name());
        add("scrub", &self.scrubber.policy().name());
        add(
            "thread_caches",
            &if self.has_thread_caches { "yes" } else { "no" },
        );
        if threshold < u64::MAX {
            add("release_threshold", &threshold);
        }
        if let Some(page_bytes) = self.allocator.page_bytes() {
            add("pages", &page_bytes);
        }
        header.retain(|(_, value)| !value.is_empty());
        header
    }
}

/// Has the pool hand over its events so far, and forget this recording.
fn forget<B: Backend>(pool: &Weak<Shared<B>>, recorder: &Arc<Recorder>) {
    if let Some(pool) = pool.upgrade() {
        pool.change_watch(|watch| {
            let is_this = watch
                .recorder
                .as_ref()
                .is_some_and(|it| Arc::ptr_eq(it, recorder));
            if is_this {
                watch.recorder = None;
            }
        });
    }
}

/// Ends a recording with its thread, even if the writer fails or panics, so that no thread waits for it any more.
struct EndOnDrop<B: Backend> {
    pool: Weak<Shared<B>>,
    recorder: Arc<Recorder>,
}

impl<B: Backend> Drop for EndOnDrop<B> {
    fn drop(&mut self) {
        self.recorder.end();
        forget(&self.pool, &self.recorder);
    }
}

impl PoolRecording {
    /// Ends the recording: writes everything up to now, and drops the writer. Blocks until that is done.
    ///
    /// # Errors
    ///
    /// The first failure of the writer, with which the recording ended. [`Deadlock`](io::ErrorKind::Deadlock) if the
    /// writer itself calls this, on the recording's own thread: the recording ends, but the call cannot wait for it. The same in a child of a
    /// fork, where it has ended before: it is the parent's.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// use std::io::{Cursor, ErrorKind};
    ///
    /// // A disk that is full.
    /// let recording = pool.record(Cursor::new([0; 8]))?;
    /// drop(pool.allocate(4096)?); // Works: the recording ends, and the program goes on.
    /// assert_eq!(recording.finish().unwrap_err().kind(), ErrorKind::WriteZero);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn finish(mut self) -> io::Result<RecordingSummary> {
        self.end().unwrap_or_else(|| {
            let text =
                "a recording cannot be finished from its own writer, nor in a child of its process";
            Err(io::Error::new(io::ErrorKind::Deadlock, text))
        })
    }

    /// Ends the recording. Returns its result; `None` on its own thread and in a child of its process.
    fn end(&mut self) -> Option<io::Result<RecordingSummary>> {
        let thread = self.thread.take()?;
        (self.unregister)();
        self.recorder.end();
        Some(join(thread, self.recorder.process)?.unwrap_or_else(|_| panicked()))
    }
}

fn panicked() -> io::Result<RecordingSummary> {
    Err(io::Error::other("the writer of the recording panicked"))
}

impl Drop for PoolRecording {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.end() {
            tracing::error!(%error, "a recording of a pool ended incomplete");
        }
    }
}

impl fmt::Debug for PoolRecording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolRecording")
            .field("recorder", &self.recorder)
            .finish_non_exhaustive()
    }
}
