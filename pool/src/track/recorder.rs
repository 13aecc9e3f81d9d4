//! The thread that writes a recording, and how it gets the events of other threads.

use std::{cell::Cell, collections::HashMap, io, sync::atomic::AtomicU64, time::Duration};

use parking_lot::{Condvar, Mutex};

use crate::{
    lock::transit,
    sync::{Ordering, thread_local},
    track::{
        merge::{Chunk, in_order},
        pool_event::PoolEvent,
        trace_event::{DecodedEvent, EVENTS_PER_CHUNK, TraceEvent},
        trace_writer::{RecordingSummary, TraceWriter},
    },
};

thread_local! {
    /// True on a thread that writes a recording.
    static WRITES: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether this thread writes a recording. Requests of the writer are not recorded, or each round would have
/// more to write than the last. And the writer does not wait for a recording, which may be its own, or one whose writer
/// waits for this one.
pub(crate) fn is_on_this_thread() -> bool {
    WRITES.try_with(Cell::get).unwrap_or(false)
}

/// The longest time until an event is written.
const MAX_WRITE_DELAY: Duration = Duration::from_millis(100);

/// At this many chunks (1.5 MiB) the writer does not wait any longer.
const CHUNKS_PER_WRITE: usize = 32;

/// At this many waiting chunks (48 MiB, two million events) threads that allocate wait until some are written.
const MAX_WAITING_CHUNKS: usize = 1024;

/// The shared state of a recording.
#[derive(Debug)]
pub(crate) struct Recorder {
    /// The event buffers so far.
    buffers: AtomicU64,
    /// What the pool did that is not written yet, by number.
    of_pool: Mutex<HashMap<u64, PoolEvent>>,
    /// The number of the next such event.
    next_of_pool: AtomicU64,
    inbox: Mutex<Inbox>,
    /// Signals that there is enough to write, or that the recording is over.
    arrived: Condvar,
    /// Signals that chunks were taken to be written.
    taken: Condvar,
}

#[derive(Debug, Default)]
struct Inbox {
    /// The chunks of one thread are in the order of time.
    chunks: Vec<Chunk>,
    /// Empty memory for more events.
    empty: Vec<Vec<TraceEvent>>,
    is_over: bool,
}

impl Recorder {
    pub(crate) fn new() -> Self {
        Self {
            buffers: AtomicU64::new(0),
            of_pool: Mutex::default(),
            next_of_pool: AtomicU64::new(0),
            inbox: Mutex::default(),
            arrived: Condvar::new(),
            taken: Condvar::new(),
        }
    }

    /// Keeps an event of the pool until it is written, and returns its number.
    pub(crate) fn keep(&self, event: PoolEvent) -> u64 {
        let number = self.next_of_pool.fetch_add(1, Ordering::Relaxed);
        self.of_pool.lock().insert(number, event);
        number
    }

    /// Returns a number for the next event buffer.
    pub(crate) fn next_buffer_number(&self) -> u64 {
        self.buffers.fetch_add(1, Ordering::Relaxed)
    }

    /// Takes the events of an event buffer, in the order of time. Returns memory for the next events, and whether too
    /// many wait to be written.
    pub(crate) fn accept(&self, buffer: u64, events: Vec<TraceEvent>) -> (Vec<TraceEvent>, bool) {
        let mut inbox = self.inbox.lock();
        let empty = inbox.empty.pop();
        inbox.chunks.push(Chunk { buffer, events });
        if inbox.chunks.len() >= CHUNKS_PER_WRITE {
            self.arrived.notify_one();
        }
        let is_behind = inbox.chunks.len() >= MAX_WAITING_CHUNKS && !inbox.is_over;
        drop(inbox);
        (
            empty.unwrap_or_else(|| Vec::with_capacity(EVENTS_PER_CHUNK)),
            is_behind,
        )
    }

    /// Waits until fewer than [`MAX_WAITING_CHUNKS`] chunks wait. Must not be called in a gate or under a lock.
    #[cold]
    pub(crate) fn wait(&self) {
        if is_on_this_thread() || transit::is_any_of_this_thread() {
            return;
        }
        let mut inbox = self.inbox.lock();
        while inbox.chunks.len() >= MAX_WAITING_CHUNKS && !inbox.is_over {
            self.taken.wait(&mut inbox);
        }
    }

    /// Ends the recording: no more events will come.
    pub(crate) fn end(&self) {
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
        loop {
            let is_over = self.wait_for_enough();
            let empty = in_order(collect(), |event, source| {
                let DecodedEvent::OfPool { number } = event.decode() else {
                    return writer.write(event, source);
                };
                // The writer may use the pool, which keeps events, so the lock ends here.
                let done = self.of_pool.lock().remove(&number);
                done.map_or(Ok(()), |done| writer.write_of_pool(event.time, &done))
            })?;
            writer.flush()?;
            self.reuse_memory(empty);
            if is_over {
                return Ok(writer.written());
            }
        }
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

    /// Keeps emptied memory for the next events.
    fn reuse_memory(&self, emptied: Vec<Vec<TraceEvent>>) {
        let mut inbox = self.inbox.lock();
        for mut events in emptied {
            if inbox.empty.len() < 2 * CHUNKS_PER_WRITE {
                events.clear();
                inbox.empty.push(events);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::track::ticks::Ticks;

    /// A writer that fills the recording and waits for it, as a thread does that uses the pool.
    struct Waits(Arc<Recorder>);

    impl io::Write for Waits {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            for _ in 0..MAX_WAITING_CHUNKS {
                self.0.accept(1, Vec::new());
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
        let writer = TraceWriter::new(Box::new(Waits(Arc::clone(&recorder))), Ticks::new(), &[]);
        recorder.accept(0, vec![TraceEvent::allocated(0, 1, 8)]);
        let writing = std::thread::spawn(move || recorder.write(writer, || recorder.take()));
        assert_eq!(writing.join().unwrap().unwrap().allocations, 1);
        assert!(!is_on_this_thread());
    }

    /// A writer that finds out whether the pool could keep an event now.
    struct LooksAt(Arc<Recorder>);

    impl io::Write for LooksAt {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            assert!(self.0.of_pool.try_lock().is_some());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_writer_may_use_the_pool_while_what_that_did_is_written() {
        let recorder = Arc::new(Recorder::new());
        let writer = Box::new(LooksAt(Arc::clone(&recorder)));
        let writer = TraceWriter::new(writer, Ticks::new(), &[]);
        // More lines than are written at once.
        let events = (0..20_000)
            .map(|memory| TraceEvent::of_pool(0, recorder.keep(PoolEvent::GivenBack { memory })));
        recorder.accept(0, events.collect());
        recorder.end();
        let writing = Arc::clone(&recorder);
        let write = move || writing.write(writer, || writing.take());
        std::thread::spawn(write).join().unwrap().unwrap();
        assert!(recorder.of_pool.lock().is_empty());
    }
}
