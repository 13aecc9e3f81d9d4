//! The thread that writes a recording, and how it gets the events of other threads.

use std::{cell::Cell, collections::VecDeque, io, process, sync::Arc, time::Duration};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::track::{
    batch::{Batch, WindowLines},
    recording_summary::RecordingSummary,
    trace_event::{Chunk, EVENTS_PER_CHUNK},
    trace_writer::TraceWriter,
};
use binpool_lock::sync::{AtomicU64, Ordering, thread_local};
use binpool_lock::transit;

thread_local! {
    /// True on a thread that writes a recording.
    static WRITES: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether this thread writes a recording. Requests of the writer are not recorded, or each round would have more to write than the
/// last. The writer also waits for no recording, which may be its own, or one whose writer waits for this one.
pub(crate) fn is_on_this_thread() -> bool {
    WRITES.try_with(Cell::get).unwrap_or(false)
}

/// The longest time until an event is written.
const MAX_WRITE_DELAY: Duration = Duration::from_millis(100);

/// At this many chunks (1.5 MiB) the writer does not wait any longer.
const CHUNKS_PER_WRITE: usize = 32;

/// At this many waiting chunks (24 MiB, a million events; twice as much if each request has another queue or tag than the one before)
/// threads that allocate help the writer, or wait for it. The same amount is then being written. Fewer under `shuttle`, whose programs are short.
const MAX_WAITING_CHUNKS: usize = if cfg!(shuttle) { 2 } else { 512 };

/// The most windows with lines that are not written yet (some 250 KiB each).
const MAX_UNWRITTEN_WINDOWS: usize = if cfg!(shuttle) { 1 } else { 64 };

/// The shared state of a recording.
#[derive(Debug)]
pub(crate) struct Recorder {
    /// The number of the process whose thread writes.
    pub(crate) process: u32,
    /// The event buffers so far.
    buffers: AtomicU64,
    inbox: Mutex<Inbox>,
    /// Signals to the writer that there is enough to write, that lines are ready, or that the recording is over.
    arrived: Condvar,
    /// Signals that chunks were taken to be written, and that there are windows to help with.
    taken: Condvar,
}

#[derive(Debug, Default)]
struct Inbox {
    /// The chunks of one thread are in the order of time.
    chunks: Vec<Chunk>,
    /// Empty memory for more events.
    empty: Vec<Chunk>,
    /// What is being written.
    work: Option<Work>,
    is_over: bool,
}

/// A batch whose windows become lines.
#[derive(Debug)]
struct Work {
    batch: Arc<Batch>,
    /// The next window that no thread has begun.
    next: usize,
    /// The lines of earlier windows that are not written yet; `None` for those that a thread is working on.
    unwritten: VecDeque<Option<WindowLines>>,
    /// Empty memory for more lines.
    empty: Vec<Vec<u8>>,
}

/// A window that a thread turns into lines.
struct Task {
    batch: Arc<Batch>,
    window: usize,
    /// Memory for the lines.
    text: Vec<u8>,
}

impl Work {
    fn new(batch: Arc<Batch>, empty: Vec<Vec<u8>>) -> Self {
        Self {
            batch,
            next: 0,
            unwritten: VecDeque::new(),
            empty,
        }
    }

    fn is_full(&self) -> bool {
        self.unwritten.len() >= MAX_UNWRITTEN_WINDOWS
    }

    fn start_task(&mut self) -> Option<Task> {
        if self.is_full() || self.next == self.batch.windows() {
            return None;
        }
        self.next += 1;
        self.unwritten.push_back(None);
        Some(Task {
            batch: Arc::clone(&self.batch),
            window: self.next - 1,
            text: self.empty.pop().unwrap_or_default(),
        })
    }

    fn put(&mut self, window: usize, lines: WindowLines) {
        let first = self.next - self.unwritten.len();
        if let Some(place) = self.unwritten.get_mut(window - first) {
            *place = Some(lines);
        }
    }

    /// Returns the lines to be written next, if they are ready.
    fn take_lines(&mut self) -> Option<WindowLines> {
        let lines = self.unwritten.front_mut()?.take()?;
        self.unwritten.pop_front();
        Some(lines)
    }
}

impl Inbox {
    fn is_behind(&self) -> bool {
        self.chunks.len() >= MAX_WAITING_CHUNKS && !self.is_over
    }

    /// Turns a window into lines, without the lock. Returns false if there is no window left.
    fn help(inbox: &mut MutexGuard<'_, Self>) -> bool {
        let Some(task) = inbox.work.as_mut().and_then(Work::start_task) else {
            return false;
        };
        let Task {
            batch,
            window,
            text,
        } = task;
        let lines = MutexGuard::unlocked(inbox, || {
            let lines = batch.lines_of(window, text);
            // The writer reuses the batch's memory once it is the only one that has it.
            drop(batch);
            lines
        });
        // A writer that fails gives up its work, and begins nothing more.
        if let Some(work) = &mut inbox.work {
            work.put(window, lines);
        }
        true
    }
}

impl Recorder {
    pub(crate) fn new() -> Self {
        Self {
            process: process::id(),
            buffers: AtomicU64::new(0),
            inbox: Mutex::default(),
            arrived: Condvar::new(),
            taken: Condvar::new(),
        }
    }

    /// Returns false in a child of a fork. There events are dropped, since no thread would ever take them, and nothing touches the inbox, since
    /// another thread may have had its lock.
    fn has_writer(&self) -> bool {
        self.process == process::id()
    }

    /// Returns memory for the first events of an event buffer, with its number.
    pub(crate) fn first_chunk(&self) -> Chunk {
        Chunk {
            buffer: self.buffers.fetch_add(1, Ordering::Relaxed),
            events: Vec::with_capacity(EVENTS_PER_CHUNK),
            ..Chunk::default()
        }
    }

    /// Takes the events of an event buffer, and leaves memory for its next ones. Returns whether too many wait to be written.
    pub(crate) fn accept(&self, chunk: &mut Chunk) -> bool {
        if !self.has_writer() {
            *chunk = Chunk::default();
            return false;
        }
        let mut inbox = self.inbox.lock();
        let empty = inbox.empty.pop();
        let empty = empty.unwrap_or_else(|| Chunk {
            events: Vec::with_capacity(EVENTS_PER_CHUNK),
            ..Chunk::default()
        });
        let buffer = chunk.buffer;
        inbox
            .chunks
            .push(std::mem::replace(chunk, Chunk { buffer, ..empty }));
        if inbox.chunks.len() == CHUNKS_PER_WRITE {
            self.arrived.notify_one();
        }
        inbox.is_behind()
    }

    /// Helps the writer until fewer than [`MAX_WAITING_CHUNKS`] chunks wait, and waits where that is not possible. Must not be called
    /// in a gate or under a lock.
    #[cold]
    pub(crate) fn wait(&self) {
        if is_on_this_thread() || transit::is_any_of_this_thread() || !self.has_writer() {
            return;
        }
        let mut inbox = self.inbox.lock();
        while inbox.is_behind() {
            if Inbox::help(&mut inbox) {
                self.arrived.notify_one();
            } else {
                self.taken.wait(&mut inbox);
            }
        }
    }

    /// Ends the recording: no more events will come.
    pub(crate) fn end(&self) {
        if !self.has_writer() {
            return;
        }
        self.inbox.lock().is_over = true;
        self.arrived.notify_one();
        self.taken.notify_all();
    }

    /// Writes until the recording is over. `collect` has all threads hand over their events and [takes](Self::take)
    /// them, so that no earlier event comes afterwards.
    ///
    /// # Errors
    ///
    /// Those of the writer, which end the recording.
    pub(crate) fn write(
        &self,
        mut writer: TraceWriter,
        collect: impl Fn() -> Vec<Chunk>,
    ) -> io::Result<RecordingSummary> {
        WRITES.with(|writes| writes.set(true));
        let mut empty = Vec::new();
        loop {
            let is_over = self.wait_for_enough();
            let batch = Arc::new(writer.begin(collect()));
            let work = Work::new(Arc::clone(&batch), empty);
            self.inbox.lock().work = Some(work);
            self.taken.notify_all();
            let written = (0..batch.windows()).try_for_each(|_| self.write_window(&mut writer));
            let work = self.inbox.lock().work.take();
            empty = work.map(|work| work.empty).unwrap_or_default();
            written?;
            writer.flush()?;
            self.reuse_memory(batch);
            if is_over {
                return Ok(writer.written());
            }
        }
    }

    /// Writes the lines of the next window.
    fn write_window(&self, writer: &mut TraceWriter) -> io::Result<()> {
        let mut inbox = self.inbox.lock();
        let lines = loop {
            let lines = inbox.work.as_mut().and_then(Work::take_lines);
            if let Some(lines) = lines {
                break lines;
            }
            if !Inbox::help(&mut inbox) {
                self.arrived.wait(&mut inbox);
            }
        };
        drop(inbox);
        // There is room for the lines of one more.
        self.taken.notify_all();
        writer.write(&lines)?;
        if let Some(work) = &mut self.inbox.lock().work {
            work.empty.push(lines.text);
        }
        Ok(())
    }

    /// Waits for [`CHUNKS_PER_WRITE`] chunks, the end, or a timeout. Returns whether the recording is over.
    fn wait_for_enough(&self) -> bool {
        let mut inbox = self.inbox.lock();
        if inbox.chunks.len() < CHUNKS_PER_WRITE && !inbox.is_over {
            self.arrived.wait_for(&mut inbox, MAX_WRITE_DELAY);
        }
        inbox.is_over
    }

    /// Returns the chunks so far.
    pub(crate) fn take(&self) -> Vec<Chunk> {
        let chunks = std::mem::take(&mut self.inbox.lock().chunks);
        self.taken.notify_all();
        chunks
    }

    /// Keeps the emptied memory of a batch, as much as the next events are likely to take.
    fn reuse_memory(&self, batch: Arc<Batch>) {
        if let Ok(batch) = Arc::try_unwrap(batch) {
            self.inbox.lock().empty = batch.into_memory().collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use binpool_allocators::QueueId;
    use binpool_trace::{ShortageReport, Verdict};

    use super::*;
    use crate::track::{
        batch::{EVENTS_PER_WINDOW, TraceClock},
        caller::Caller,
        event_buffer::EventBuffer,
        ticks::Ticks,
        trace_event::{POOL_EVENTS_PER_CHUNK, TraceEvent},
    };

    fn writer_to(writer: impl io::Write + Send + 'static) -> TraceWriter {
        TraceWriter::new(Box::new(writer), Ticks::new(), &[])
    }

    /// Has a recorder write, and returns its thread.
    fn write(
        recorder: &Arc<Recorder>,
        writer: impl io::Write + Send + 'static,
    ) -> thread::JoinHandle<io::Result<RecordingSummary>> {
        let (recorder, writer) = (Arc::clone(recorder), writer_to(writer));
        thread::spawn(move || recorder.write(writer, || recorder.take()))
    }

    fn of_one_event(buffer: u64) -> Chunk {
        Chunk {
            buffer,
            events: vec![TraceEvent::allocated(0, 1, 8)],
            ..Chunk::default()
        }
    }

    /// A writer that fills the recording and waits for it, as a thread does that uses the pool.
    struct Waits(Arc<Recorder>);

    impl io::Write for Waits {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            for _ in 0..MAX_WAITING_CHUNKS {
                self.0.accept(&mut of_one_event(1));
            }
            self.0.wait();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            self.0.end();
            Ok(())
        }
    }

    #[test]
    fn the_writing_thread_does_not_wait_for_itself() {
        let recorder = Arc::new(Recorder::new());
        recorder.accept(&mut of_one_event(0));
        let writing = write(&recorder, Waits(Arc::clone(&recorder)));
        assert!(writing.join().unwrap().unwrap().allocations > 1);
        assert!(!is_on_this_thread());
    }

    /// A writer that tells of each write, and waits until it may go on.
    struct Slow(mpsc::Sender<()>, mpsc::Receiver<()>);

    impl io::Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.send(()).unwrap();
            self.1.recv().map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Fills the recorder with whole chunks, an event a tick.
    fn fill(recorder: &Recorder, chunk: &mut Chunk) {
        let mut time = 0;
        loop {
            let events = (time..).take(EVENTS_PER_CHUNK);
            let events = events.map(|time| TraceEvent::freed(time, 1));
            chunk.events.extend(events);
            time += EVENTS_PER_CHUNK as u64;
            if recorder.accept(chunk) {
                return;
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes, for thousands of lines")]
    fn a_thread_waits_while_the_writer_is_behind_and_helps_it_with_what_may_be_unwritten() {
        let recorder = Arc::new(Recorder::new());
        let mut chunk = recorder.first_chunk();
        fill(&recorder, &mut chunk);
        let (began, begins) = mpsc::channel();
        let (go_on, goes_on) = mpsc::channel();
        let writing = write(&recorder, Slow(began, goes_on));
        // The writer has taken everything, and is stuck with the first lines.
        begins.recv().unwrap();
        fill(&recorder, &mut chunk);
        let waiting = {
            let recorder = Arc::clone(&recorder);
            thread::spawn(move || recorder.wait())
        };
        let unwritten = || {
            let inbox = recorder.inbox.lock();
            let work = inbox.work.as_ref().unwrap();
            work.unwritten.iter().flatten().count()
        };
        while unwritten() < MAX_UNWRITTEN_WINDOWS {
            thread::yield_now();
        }
        assert!(!waiting.is_finished());
        assert_eq!(recorder.inbox.lock().chunks.len(), MAX_WAITING_CHUNKS);
        // What is written in the second round ends the recording.
        recorder.end();
        waiting.join().unwrap();
        drop(go_on);
        assert!(writing.join().unwrap().is_err());
        assert!(recorder.inbox.lock().work.is_none());
    }

    #[test]
    fn requests_that_fail_wait_for_the_writer_before_their_reports_take_much_memory() {
        let recorder = Arc::new(Recorder::new());
        let mut event_buffer = EventBuffer::new(Ticks::new(), Some(&recorder), false);
        let queue = QueueId::fresh();
        let mut refuse = || {
            let report = ShortageReport::new(Verdict::DeviceFull);
            event_buffer.refuse(1, report, queue, Caller::default())
        };
        let most = MAX_WAITING_CHUNKS * POOL_EVENTS_PER_CHUNK;
        assert_eq!((0..most).position(|_| refuse()), Some(most - 1));
        let inbox = recorder.inbox.lock();
        assert!(
            inbox
                .chunks
                .iter()
                .all(|chunk| chunk.of_pool.len() == POOL_EVENTS_PER_CHUNK)
        );
    }

    #[test]
    fn what_threads_hand_over_while_they_help_is_written_whole() {
        const THREADS: u64 = 4;
        const CHUNKS: u64 = 400;
        let recorder = Arc::new(Recorder::new());
        let writing = write(&recorder, io::sink());
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let mut chunk = recorder.first_chunk();
                    for round in 0..CHUNKS {
                        let events = 0..EVENTS_PER_CHUNK as u64;
                        let events = events.map(|event| TraceEvent::freed(round, event));
                        chunk.events.extend(events);
                        if recorder.accept(&mut chunk) {
                            recorder.wait();
                        }
                        assert!(chunk.events.is_empty());
                    }
                });
            }
        });
        recorder.end();
        let summary = writing.join().unwrap().unwrap();
        assert_eq!(summary.frees, THREADS * CHUNKS * EVENTS_PER_CHUNK as u64);
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes, for thousands of events")]
    fn threads_take_windows_as_long_as_lines_may_wait_and_no_more_than_there_are() {
        let mut clock = TraceClock::start(Ticks::new());
        let mut work = |windows: usize| {
            let events = (0..windows * EVENTS_PER_WINDOW).map(|tick| {
                let time = u64::try_from(tick).unwrap();
                TraceEvent::freed(time, 1)
            });
            let chunk = Chunk {
                events: events.collect(),
                ..Chunk::default()
            };
            let batch = Arc::new(Batch::new(vec![chunk], &mut clock));
            assert_eq!(batch.windows(), windows);
            Work::new(batch, Vec::new())
        };
        let taken = |work: &mut Work| std::iter::from_fn(|| work.start_task()).take(100).count();
        assert_eq!(taken(&mut work(3)), 3);
        let mut work = work(MAX_UNWRITTEN_WINDOWS + 2);
        assert_eq!(taken(&mut work), MAX_UNWRITTEN_WINDOWS);
        work.put(0, WindowLines::default());
        assert_eq!(taken(&mut work), 0, "the first lines are not written yet");
        assert!(work.take_lines().is_some() && work.take_lines().is_none());
        assert_eq!(taken(&mut work), 1);
    }

    #[test]
    fn the_memory_of_events_that_are_written_is_for_later_ones() {
        let recorder = Recorder::new();
        recorder.accept(&mut of_one_event(0));
        recorder.end();
        let written = thread::scope(|scope| {
            let write = || recorder.write(writer_to(io::sink()), || recorder.take());
            scope.spawn(write).join().unwrap()
        });
        assert_eq!(written.unwrap().allocations, 1);
        let inbox = recorder.inbox.lock();
        assert_eq!((inbox.empty.len(), inbox.empty[0].events.len()), (1, 0));
    }
}
