//! The thread that writes a recording, and how it gets what others have written down.

use std::{io, sync::atomic::AtomicU64, time::Duration};

use parking_lot::{Condvar, Mutex};

use crate::{
    sync::Ordering,
    tape::Event,
    trace_writer::{RecordingSummary, TraceWriter},
};

/// How long what happened waits at most until it is written.
const PERIOD: Duration = Duration::from_millis(100);

/// With so many events that wait to be written, they are.
const ENOUGH: usize = 1 << 16;

/// With so many, who makes more waits until some are written: 80 MB of them.
const TOO_MANY: usize = 1 << 21;

/// What all who take part in a recording share.
#[derive(Debug)]
pub(crate) struct Recorder {
    /// How many numbers of blocks have been given out.
    ids: AtomicU64,
    inbox: Mutex<Inbox>,
    /// There is enough to write, or the recording is over.
    arrived: Condvar,
    /// Some of it is being written.
    taken: Condvar,
}

#[derive(Debug, Default)]
struct Inbox {
    /// Of one thread each, in the order of their time.
    chunks: Vec<Vec<Event>>,
    events: usize,
    is_over: bool,
}

impl Recorder {
    pub(crate) fn new() -> Self {
        Self {
            ids: AtomicU64::new(0),
            inbox: Mutex::default(),
            arrived: Condvar::new(),
            taken: Condvar::new(),
        }
    }

    /// The first of so many numbers of blocks that nobody else gets.
    pub(crate) fn take_ids(&self, count: u64) -> u64 {
        self.ids.fetch_add(count, Ordering::Relaxed)
    }

    /// Takes a thread's events over, which are in the order of their time. Whether there are too many by now.
    pub(crate) fn accept(&self, chunk: Vec<Event>) -> bool {
        let mut inbox = self.inbox.lock();
        inbox.events += chunk.len();
        inbox.chunks.push(chunk);
        if inbox.events >= ENOUGH {
            self.arrived.notify_one();
        }
        inbox.events >= TOO_MANY && !inbox.is_over
    }

    /// Waits until there are no longer too many events to write. Nobody does so in a room or under a lock.
    #[cold]
    pub(crate) fn wait(&self) {
        let mut inbox = self.inbox.lock();
        while inbox.events >= TOO_MANY && !inbox.is_over {
            self.taken.wait(&mut inbox);
        }
    }

    /// Ends the recording: all that there is to come has come.
    pub(crate) fn end(&self) {
        self.inbox.lock().is_over = true;
        self.arrived.notify_one();
        self.taken.notify_all();
    }

    /// Writes until the recording is over. `collect` has all threads hand over what they have, so that afterwards nothing
    /// comes that happened before.
    ///
    /// # Errors
    ///
    /// Those of the writer, which end the recording.
    pub(crate) fn write(
        &self,
        mut writer: TraceWriter,
        mut collect: impl FnMut(),
    ) -> io::Result<RecordingSummary> {
        loop {
            let is_over = self.wait_for_enough();
            collect();
            let events = self.take();
            writer.write(events)?;
            if is_over {
                return Ok(writer.written());
            }
        }
    }

    /// Whether the recording is over.
    fn wait_for_enough(&self) -> bool {
        let mut inbox = self.inbox.lock();
        if inbox.events < ENOUGH && !inbox.is_over {
            self.arrived.wait_for(&mut inbox, PERIOD);
        }
        inbox.is_over
    }

    /// What came so far, in the order of time. Those that happened at the same time stay in the order of their thread.
    fn take(&self) -> Vec<Event> {
        let chunks = {
            let mut inbox = self.inbox.lock();
            inbox.events = 0;
            std::mem::take(&mut inbox.chunks)
        };
        self.taken.notify_all();
        let mut events = chunks.concat();
        // The runs of each thread are sorted already, which this makes use of.
        events.sort_by_key(|event| event.time);
        events
    }
}
