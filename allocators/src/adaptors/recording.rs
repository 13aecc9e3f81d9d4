//! The adaptor that records a trace of requests.

use std::{
    collections::HashMap,
    fmt,
    io::{self, Write},
    sync::Arc,
    time::Instant,
};

use parking_lot::Mutex;

use crate::{Allocator, EventOf, Memory, MemoryId, MemoryOf, Result, forward_to_inner};

/// Records the requests to an allocator as a trace that `binpool replay` reads: a line
/// `a ID BYTES STREAM TIME` for each block that is allocated and `f ID TIME` for each that is released.
///
/// - IDs count up from 1. Bytes are those requested. An allocator knows no queue, so the stream is 0. Times are
///   nanoseconds since the recording began.
/// - Failed allocations are not written. Blocks that are still live at the end, or that are dropped instead of
///   [released](Allocator::release), have no `f` line. Blocks that were allocated elsewhere or earlier are not written.
/// - With several threads, a block is written after it was allocated and before it is released, so that no line shows
///   more live bytes than there really were.
/// - Below a pool, the trace has the requests of the *pool*. To record what a program requests from a pool, with queues
///   and tags, use the pool's own `MemoryPool::record`.
///
/// Each line is one write: wrap a file in a [`BufWriter`](io::BufWriter), and call [`finish`](Self::finish) at the end.
///
/// A failed write does not fail the allocation. It ends the recording, perhaps within a line; the error is logged, and
/// [`finish`](Self::finish) returns it. The writer is called under a lock, so it must not use the allocator that it
/// records. Clones share one recording.
///
/// ```
/// use binpool_allocators::adaptors::Recording;
/// use binpool_allocators::{Allocator, ImmediateAllocator};
/// use binpool_mock::MockDevice;
///
/// let backend = MockDevice::new().backend();
/// let allocator = Recording::new(ImmediateAllocator::new(&backend)?, std::io::stdout());
/// let block = allocator.allocate(4096)?; // a 1 4096 0 1750
/// allocator.release(block, &[])?; // f 1 92310
/// allocator.finish()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Recording<A> {
    inner: A,
    recorder: Arc<Mutex<Recorder>>,
}

struct Recorder {
    /// `None` once the recording has ended.
    writer: Option<Box<dyn Write + Send>>,
    /// Why the recording ended, until [`Recording::finish`] or [`Recording::flush`] returns it.
    failure: Option<io::Error>,
    last_id: u64,
    /// The time when the recording began.
    start: Instant,
    /// The ID of each live block.
    ids: HashMap<MemoryId, u64>,
}

impl<A> Recording<A> {
    /// Records the requests to `inner` in `writer` from now on.
    pub fn new(inner: A, writer: impl Write + Send + 'static) -> Self {
        let recorder = Recorder {
            writer: Some(Box::new(writer)),
            failure: None,
            last_id: 0,
            start: Instant::now(),
            ids: HashMap::new(),
        };
        Self {
            inner,
            recorder: Arc::new(Mutex::new(recorder)),
        }
    }

    /// Flushes everything that was recorded until now.
    ///
    /// ```
    /// use std::io::{self, BufRead, BufReader, BufWriter};
    ///
    /// use binpool_allocators::adaptors::Recording;
    /// use binpool_allocators::{Allocator, ImmediateAllocator};
    /// # use binpool_mock::MockDevice;
    ///
    /// # let backend = MockDevice::new().backend();
    /// let (reader, writer) = io::pipe()?;
    /// let allocator = Recording::new(ImmediateAllocator::new(&backend)?, BufWriter::new(writer));
    /// let block = allocator.allocate(4096)?;
    /// allocator.flush()?; // A reader of the file has it now, and a crash does not lose it.
    /// let (mut reader, mut line) = (BufReader::new(reader), String::new());
    /// reader.read_line(&mut line)?;
    /// assert!(line.starts_with("a 1 4096 0 "));
    ///
    /// let unrecorded = allocator.inner().allocate(64)?; // Not in the trace,
    /// allocator.finish()?;
    /// allocator.into_inner().release(block, &[])?; // like anything after its end.
    /// # drop(unrecorded);
    /// # line.clear();
    /// assert_eq!(reader.read_line(&mut line)?, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The writer's failure, which ends the recording, or an earlier failure that
    /// [`finish`](Self::finish) has not returned yet.
    pub fn flush(&self) -> io::Result<()> {
        let mut recorder = self.recorder.lock();
        let result = recorder.write(|writer| writer.flush());
        let ended = recorder.failure.as_ref().map(|error| {
            let reason = format!("the recording has ended: {error}");
            io::Error::new(error.kind(), reason)
        });
        drop(recorder);
        log(&result);
        ended.map_or(Ok(()), Err)
    }

    /// Ends the recording of all clones: flushes the writer and drops it.
    ///
    /// # Errors
    ///
    /// The first failure of the writer, which is returned once.
    pub fn finish(&self) -> io::Result<()> {
        let (result, writer, failure) = {
            let mut recorder = self.recorder.lock();
            let result = recorder.write(|writer| writer.flush());
            recorder.ids = HashMap::new();
            (result, recorder.writer.take(), recorder.failure.take())
        };
        // The writer's `drop` is the program's code, so it runs without the lock.
        drop(writer);
        log(&result);
        failure.map_or(Ok(()), Err)
    }

    /// The inner allocator. Blocks allocated or released through it directly are not recorded.
    pub const fn inner(&self) -> &A {
        &self.inner
    }

    /// Returns the inner allocator, no longer recorded.
    pub fn into_inner(self) -> A {
        self.inner
    }
}

/// Logs, without the lock, why the recording has ended.
fn log(result: &Result<(), Ended>) {
    if let Err(Ended { reason, .. }) = result {
        tracing::error!(%reason, "a recording of allocations has ended, and is not whole");
    }
}

/// What is left of a recording that has just ended. Dropping this drops the writer, without the lock.
struct Ended {
    reason: String,
    _writer: Box<dyn Write + Send>,
}

impl Recorder {
    /// Calls `body` with the writer, where there is one.
    ///
    /// # Errors
    ///
    /// The writer's failure, which is returned once: the writer is gone afterwards.
    fn write(
        &mut self,
        action: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), Ended> {
        // Taken out during the call, so that a writer that panics is not used again.
        let Some(mut writer) = self.writer.take() else {
            return Ok(());
        };
        match action(&mut *writer) {
            Ok(()) => {
                self.writer = Some(writer);
                Ok(())
            }
            Err(error) => {
                let reason = error.to_string();
                self.failure = Some(error);
                self.ids = HashMap::new();
                Err(Ended {
                    reason,
                    _writer: writer,
                })
            }
        }
    }

    fn allocated(&mut self, memory: MemoryId, bytes: usize) -> Result<(), Ended> {
        if self.writer.is_none() {
            return Ok(());
        }
        self.last_id += 1;
        let id = self.last_id;
        self.ids.insert(memory, id);
        let line = format!("a {id} {bytes} 0 {}\n", self.start.elapsed().as_nanos());
        self.write(|writer| writer.write_all(line.as_bytes()))
    }

    fn released(&mut self, memory: MemoryId) -> Result<(), Ended> {
        let Some(id) = self.ids.remove(&memory) else {
            return Ok(());
        };
        let line = format!("f {id} {}\n", self.start.elapsed().as_nanos());
        self.write(|writer| writer.write_all(line.as_bytes()))
    }
}

impl<A: Allocator> Allocator for Recording<A> {
    forward_to_inner!();

    fn allocate(&self, bytes: usize) -> Result<MemoryOf<Self>> {
        let memory = self.inner.allocate(bytes)?;
        let written = self.recorder.lock().allocated(memory.id(), bytes);
        log(&written);
        Ok(memory)
    }

    fn release(&self, memory: MemoryOf<Self>, after: &[EventOf<Self>]) -> Result<()> {
        let written = self.recorder.lock().released(memory.id());
        log(&written);
        self.inner.release(memory, after)
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder")
            .field("recording", &self.writer.is_some())
            .field("failure", &self.failure)
            .field("last_id", &self.last_id)
            .field("live", &self.ids.len())
            .finish_non_exhaustive()
    }
}
