//! What a thread writes down of the blocks that it gets and gives back.

use std::sync::Arc;

use binpool_allocators::{Allocator, QueueId};

use crate::{
    seeing::{
        asker::Asker,
        life::{Life, Ownership},
        note::{Asked, CHUNK, Note},
        recorder::Recorder,
        ticks::Ticks,
    },
    state::bins::Block,
};

/// How many numbers of blocks a thread takes at once.
const NUMBERS: u64 = 4096;

/// What takes note of blocks that are handed out and taken back: one for each thread, in its room, and one under the pool's
/// lock.
#[derive(Debug)]
pub(crate) struct Tape {
    ticks: Ticks,
    /// `None` where the pool watches without recording.
    reel: Option<Reel>,
}

/// The part of a recording that its owner has not handed over yet.
#[derive(Debug)]
struct Reel {
    recorder: Arc<Recorder>,
    /// Tells whose it is.
    number: u64,
    notes: Vec<Note>,
    /// What the last notes of blocks were asked for.
    asked: Option<Asked>,
    /// Numbers of blocks that nobody else uses.
    next_id: u64,
    last_id: u64,
}

impl Tape {
    pub(crate) fn new(ticks: Ticks, recorder: Option<&Arc<Recorder>>) -> Self {
        let reel = recorder.map(|recorder| Reel {
            recorder: Arc::clone(recorder),
            number: recorder.take_reel(),
            notes: Vec::with_capacity(CHUNK),
            asked: None,
            next_id: 0,
            last_id: 0,
        });
        Self { ticks, reel }
    }

    pub(crate) fn ticks(&self) -> &Ticks {
        &self.ticks
    }

    /// A block is handed out. What is returned is behind, and should be [waited for](Recorder::wait).
    #[inline]
    pub(crate) fn begin(
        &mut self,
        life: &Life,
        asked: usize,
        queue: Option<QueueId>,
        asker: Asker,
    ) -> Option<Arc<Recorder>> {
        let (since, asked) = (self.ticks.now(), asked as u64);
        let queue = queue.map_or(0, QueueId::get);
        let id = self.reel.as_mut().map_or(0, Reel::next_id);
        life.begin(Ownership {
            asked,
            since,
            asker,
            queue,
            id,
        });
        let by = Asked::new(queue, asker);
        let note = Note::allocated(since, id, asked);
        self.reel.as_mut()?.push_asked(note, by)
    }

    /// A block is taken back. What is returned is behind, and should be [waited for](Recorder::wait).
    #[inline]
    pub(crate) fn end(&mut self, life: &Life) -> Option<Arc<Recorder>> {
        let (id, since) = life.end()?;
        let reel = self.reel.as_mut()?;
        if id == 0 {
            // It was handed out before the recording began.
            return None;
        }
        // Two processors may disagree by a tick.
        let time = self.ticks.now().max(since);
        reel.push(Note::freed(time, id))
    }

    /// A request failed for lack of memory.
    pub(crate) fn refuse(&mut self, asked: usize, queue: QueueId, asker: Asker) {
        let time = self.ticks.now();
        if let Some(reel) = &mut self.reel {
            let by = Asked::new(queue.get(), asker);
            reel.push_asked(Note::refused(time, asked as u64), by);
        }
    }

    /// A block that was handed out before the recording began is a part of it from now on.
    pub(crate) fn adopt(&mut self, life: &Life, ownership: Ownership) {
        let time = self.ticks.now();
        if let Some(reel) = &mut self.reel {
            let id = reel.next_id();
            life.begin(Ownership { id, ..ownership });
            let by = Asked::new(ownership.queue, ownership.asker);
            reel.push_asked(Note::allocated(time, id, ownership.asked), by);
        }
    }

    /// Hands over what has been written so far.
    pub(crate) fn hand_over(&mut self) {
        if let Some(reel) = &mut self.reel {
            reel.hand_over();
        }
    }
}

impl Reel {
    #[inline]
    fn next_id(&mut self) -> u64 {
        if self.next_id == self.last_id {
            self.next_id = self.recorder.take_ids(NUMBERS);
            self.last_id = self.next_id + NUMBERS;
        }
        self.next_id += 1;
        // So that none is 0.
        self.next_id
    }

    /// Writes a note of a block that was asked for so.
    #[inline]
    fn push_asked(&mut self, note: Note, asked: Asked) -> Option<Arc<Recorder>> {
        if self.asked != Some(asked) {
            self.asked = Some(asked);
            // There is room for one more than a chunk has.
            self.notes.push(Note::asked(note.time, asked));
        }
        self.push(note)
    }

    #[inline]
    fn push(&mut self, note: Note) -> Option<Arc<Recorder>> {
        self.notes.push(note);
        if self.notes.len() < CHUNK - 1 {
            return None;
        }
        self.hand_over()
    }

    #[cold]
    fn hand_over(&mut self) -> Option<Arc<Recorder>> {
        if self.notes.is_empty() {
            return None;
        }
        let full = std::mem::take(&mut self.notes);
        let (empty, is_behind) = self.recorder.accept(self.number, full);
        self.notes = empty;
        // So that a chunk says everything by itself.
        self.asked = None;
        is_behind.then(|| Arc::clone(&self.recorder))
    }
}

impl Drop for Reel {
    fn drop(&mut self) {
        self.hand_over();
    }
}

/// Takes note of a block that is handed out, if it has a life to write in.
#[inline]
pub(crate) fn begin<A: Allocator>(
    tape: Option<&mut Tape>,
    block: &Block<A>,
    asked: usize,
    asker: Asker,
) -> Taken {
    match (tape, &block.life) {
        (None, _) => Taken::Yes(None),
        (Some(_), None) => Taken::NeedsLife,
        (Some(tape), Some(life)) => Taken::Yes(tape.begin(life, asked, block.tenure.queue, asker)),
    }
}

/// Whether something was taken note of.
#[derive(Debug)]
pub(crate) enum Taken {
    /// Yes, and this recorder should be [waited for](Recorder::wait), if any.
    Yes(Option<Arc<Recorder>>),
    /// No: the block has to get a [life](Life) first, under the pool's lock.
    NeedsLife,
}
