//! What a program asks for, written down.

use std::{
    collections::HashMap,
    fmt,
    io::{self, Write},
    sync::Arc,
    time::Instant,
};

use parking_lot::Mutex;

use crate::{Allocator, EventOf, Memory, MemoryId, MemoryOf, Result, forward_to_inner};

/// Writes down what goes through an allocator, as a trace that `binpool replay` reads: a line
/// `a ID BYTES STREAM TIME` for each block that is given and `f ID TIME` for each that comes back.
///
/// - IDs count up from 1. Bytes are those that were asked for. An allocator knows no queue, so the stream is 0. Times are
///   nanoseconds since the recording began.
/// - What fails to be allocated is not written. Blocks that live at the end, or that are dropped instead of
///   [released](Allocator::release), have no `f`. Blocks that came from elsewhere, or before, are not written either.
/// - With several threads, a block is written after it was given and before it goes back, so that at no line more is
///   live than really was.
/// - Under a pool, what is written is what the *pool* asks for. To record what a program asks a pool for, with queues
///   and tags, use the pool's own `MemoryPool::record`.
///
/// Each line is one write: wrap a file in a [`BufWriter`](io::BufWriter), and call [`finish`](Self::finish) at the end.
///
/// A write that fails does not fail the allocation. It ends the recording, perhaps within a line; it is logged, and
/// [`finish`](Self::finish) tells of it. The writer is called behind a lock, so it must not use the allocator that it
/// writes for. Clones share one recording.
///
/// ```
/// use binpool_allocators::{Allocator, ImmediateAllocator, Recording};
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
    tape: Arc<Mutex<Tape>>,
}

struct Tape {
    /// `None` once the recording has ended.
    writer: Option<Box<dyn Write + Send>>,
    /// Why it ended, until somebody is told.
    failure: Option<io::Error>,
    last_id: u64,
    /// When it began.
    start: Instant,
    /// The ID of each block that is out.
    ids: HashMap<MemoryId, u64>,
}

impl<A> Recording<A> {
    /// Writes what goes through `inner` to `writer`, from now on.
    pub fn new(inner: A, writer: impl Write + Send + 'static) -> Self {
        let tape = Tape {
            writer: Some(Box::new(writer)),
            failure: None,
            last_id: 0,
            start: Instant::now(),
            ids: HashMap::new(),
        };
        Self {
            inner,
            tape: Arc::new(Mutex::new(tape)),
        }
    }

    /// Has everything written that was recorded until now.
    ///
    /// ```
    /// use std::io::{self, BufRead, BufReader, BufWriter};
    ///
    /// use binpool_allocators::{Allocator, ImmediateAllocator, Recording};
    /// # use binpool_mock::MockDevice;
    ///
    /// # let backend = MockDevice::new().backend();
    /// let (reader, writer) = io::pipe()?;
    /// let allocator = Recording::new(ImmediateAllocator::new(&backend)?, BufWriter::new(writer));
    /// let block = allocator.allocate(4096)?;
    /// allocator.flush()?; // So that whoever reads along has it, or a crash does not lose it.
    /// let (mut reader, mut line) = (BufReader::new(reader), String::new());
    /// reader.read_line(&mut line)?;
    /// assert!(line.starts_with("a 1 4096 0 "));
    ///
    /// let unrecorded = allocator.inner().allocate(64)?; // This one is not in the trace,
    /// allocator.finish()?;
    /// allocator.into_inner().release(block, &[])?; // nor is what comes after its end.
    /// # drop(unrecorded);
    /// # line.clear();
    /// assert_eq!(reader.read_line(&mut line)?, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Where that fails, which ends the recording, or where the recording has ended with an error that
    /// [`finish`](Self::finish) has not told of yet.
    pub fn flush(&self) -> io::Result<()> {
        let mut tape = self.tape.lock();
        let result = tape.write(|writer| writer.flush());
        let ended = tape.failure.as_ref().map(|error| {
            let reason = format!("the recording has ended: {error}");
            io::Error::new(error.kind(), reason)
        });
        drop(tape);
        log(&result);
        ended.map_or(Ok(()), Err)
    }

    /// Ends the recording: has everything written, and lets go of the writer. Nothing is recorded from here on, by
    /// clones neither.
    ///
    /// # Errors
    ///
    /// The first failure of the writer, told once.
    pub fn finish(&self) -> io::Result<()> {
        let (result, writer, failure) = {
            let mut tape = self.tape.lock();
            let result = tape.write(|writer| writer.flush());
            tape.ids = HashMap::new();
            (result, tape.writer.take(), tape.failure.take())
        };
        // What the writer does when it is dropped is the program's, and needs no lock.
        drop(writer);
        log(&result);
        failure.map_or(Ok(()), Err)
    }

    /// The allocator that is recorded. Blocks that go to or from it directly are not.
    pub const fn inner(&self) -> &A {
        &self.inner
    }

    /// The allocator, no longer recorded.
    pub fn into_inner(self) -> A {
        self.inner
    }
}

/// Says, outside of the lock, why the recording has ended.
fn log(result: &Result<(), Ended>) {
    if let Err(Ended { reason, .. }) = result {
        tracing::error!(%reason, "a recording of allocations has ended, and is not whole");
    }
}

/// The recording ended just now. Dropping this drops the writer, which needs no lock.
struct Ended {
    reason: String,
    _writer: Box<dyn Write + Send>,
}

impl Tape {
    /// Has the writer do something, where there is one.
    ///
    /// # Errors
    ///
    /// Where that fails, once: there is no writer afterwards.
    fn write(
        &mut self,
        action: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), Ended> {
        // Taken out meanwhile: a writer that panics is not used again.
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
        let written = self.tape.lock().allocated(memory.id(), bytes);
        log(&written);
        Ok(memory)
    }

    fn release(&self, memory: MemoryOf<Self>, after: &[EventOf<Self>]) -> Result<()> {
        let written = self.tape.lock().released(memory.id());
        log(&written);
        self.inner.release(memory, after)
    }
}

impl fmt::Debug for Tape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tape")
            .field("recording", &self.writer.is_some())
            .field("failure", &self.failure)
            .field("last_id", &self.last_id)
            .field("live", &self.ids.len())
            .finish_non_exhaustive()
    }
}
