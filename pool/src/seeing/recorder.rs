//! The thread that writes a recording, and how it gets what others have written down.

use std::{io, sync::atomic::AtomicU64, time::Duration};

use parking_lot::{Condvar, Mutex};

use crate::{
    seeing::{
        merge::{Chunk, in_order},
        note::{CHUNK, Note},
        trace_writer::{RecordingSummary, TraceWriter},
    },
    sync::Ordering,
};

/// How long what happened waits at most until it is written.
const PERIOD: Duration = Duration::from_millis(100);

/// With so many chunks that wait to be written, they are: 1.5 MiB.
const ENOUGH: usize = 32;

/// With so many, who makes more waits until some are written: 48 MiB, two million notes.
const TOO_MANY: usize = 1024;

/// What all who take part in a recording share.
#[derive(Debug)]
pub(crate) struct Recorder {
    /// How many numbers of blocks have been given out.
    ids: AtomicU64,
    /// How many threads have taken part so far.
    reels: AtomicU64,
    inbox: Mutex<Inbox>,
    /// There is enough to write, or the recording is over.
    arrived: Condvar,
    /// Some of it is being written.
    taken: Condvar,
}

#[derive(Debug, Default)]
struct Inbox {
    /// Those of one thread in the order of their time.
    chunks: Vec<Chunk>,
    /// Memory for more.
    empty: Vec<Vec<Note>>,
    is_over: bool,
}

impl Recorder {
    pub(crate) fn new() -> Self {
        Self {
            ids: AtomicU64::new(0),
            reels: AtomicU64::new(0),
            inbox: Mutex::default(),
            arrived: Condvar::new(),
            taken: Condvar::new(),
        }
    }

    /// The first of so many numbers of blocks that nobody else gets.
    pub(crate) fn take_ids(&self, count: u64) -> u64 {
        self.ids.fetch_add(count, Ordering::Relaxed)
    }

    /// A number for what one thread writes.
    pub(crate) fn take_reel(&self) -> u64 {
        self.reels.fetch_add(1, Ordering::Relaxed)
    }

    /// Takes a thread's notes over, which are in the order of their time. Room for the next ones, and whether there are too
    /// many by now.
    pub(crate) fn accept(&self, reel: u64, notes: Vec<Note>) -> (Vec<Note>, bool) {
        let mut inbox = self.inbox.lock();
        let empty = inbox.empty.pop();
        inbox.chunks.push(Chunk { reel, notes });
        if inbox.chunks.len() >= ENOUGH {
            self.arrived.notify_one();
        }
        let is_behind = inbox.chunks.len() >= TOO_MANY && !inbox.is_over;
        drop(inbox);
        (
            empty.unwrap_or_else(|| Vec::with_capacity(CHUNK)),
            is_behind,
        )
    }

    /// Waits until there are no longer too many notes to write. Nobody does so in a room or under a lock.
    #[cold]
    pub(crate) fn wait(&self) {
        let mut inbox = self.inbox.lock();
        while inbox.chunks.len() >= TOO_MANY && !inbox.is_over {
            self.taken.wait(&mut inbox);
        }
    }

    /// Ends the recording: all that there is to come has come.
    pub(crate) fn end(&self) {
        self.inbox.lock().is_over = true;
        self.arrived.notify_one();
        self.taken.notify_all();
    }

    /// Writes until the recording is over. `collect` has all threads hand over what they have, and [takes](Self::take) it, so
    /// that afterwards nothing comes that happened before.
    ///
    /// # Errors
    ///
    /// Those of the writer, which end the recording.
    pub(crate) fn write(
        &self,
        mut writer: TraceWriter,
        collect: impl Fn() -> Vec<Chunk>,
    ) -> io::Result<RecordingSummary> {
        loop {
            let is_over = self.wait_for_enough();
            let empty = in_order(collect(), |note, asked| writer.write(note, asked))?;
            writer.flush()?;
            self.give_back(empty);
            if is_over {
                return Ok(writer.written());
            }
        }
    }

    /// Whether the recording is over.
    fn wait_for_enough(&self) -> bool {
        let mut inbox = self.inbox.lock();
        if inbox.chunks.len() < ENOUGH && !inbox.is_over {
            self.arrived.wait_for(&mut inbox, PERIOD);
        }
        inbox.is_over
    }

    /// What came so far.
    pub(crate) fn take(&self) -> Vec<Chunk> {
        let chunks = std::mem::take(&mut self.inbox.lock().chunks);
        self.taken.notify_all();
        chunks
    }

    /// Keeps memory for the next notes.
    fn give_back(&self, emptied: Vec<Vec<Note>>) {
        let mut inbox = self.inbox.lock();
        for mut notes in emptied {
            if inbox.empty.len() < 2 * ENOUGH {
                notes.clear();
                inbox.empty.push(notes);
            }
        }
    }
}
