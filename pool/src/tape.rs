//! What a thread writes down of the blocks that it gets and gives back.

use std::sync::Arc;

use binpool_allocators::{Allocator, QueueId};

use crate::{
    asker::Asker,
    bins::Block,
    life::{Life, Ownership},
    recorder::Recorder,
    ticks::Ticks,
};

/// How many events a thread writes before it hands them over.
const CHUNK: usize = 2048;

/// How many numbers of blocks a thread takes at once.
const NUMBERS: u64 = 4096;

/// What happened to a block, and when in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) time: u64,
    pub(crate) kind: EventKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventKind {
    Allocated {
        id: u64,
        bytes: u64,
        queue: u64,
        group: u32,
    },
    Freed {
        id: u64,
    },
    /// For lack of memory.
    Refused {
        bytes: u64,
        queue: u64,
        group: u32,
    },
}

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
    events: Vec<Event>,
    /// Numbers of blocks that nobody else uses.
    next_id: u64,
    last_id: u64,
}

impl Tape {
    pub(crate) fn new(ticks: Ticks, recorder: Option<&Arc<Recorder>>) -> Self {
        let reel = recorder.map(|recorder| Reel {
            recorder: Arc::clone(recorder),
            events: Vec::with_capacity(CHUNK),
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
        let kind = EventKind::Allocated {
            id,
            bytes: asked,
            queue,
            group: asker.group(),
        };
        self.reel.as_mut()?.push(since, kind)
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
        reel.push(time, EventKind::Freed { id })
    }

    /// A request failed for lack of memory.
    pub(crate) fn refuse(&mut self, asked: usize, queue: QueueId, asker: Asker) {
        let time = self.ticks.now();
        if let Some(reel) = &mut self.reel {
            let kind = EventKind::Refused {
                bytes: asked as u64,
                queue: queue.get(),
                group: asker.group(),
            };
            reel.push(time, kind);
        }
    }

    /// A block that was handed out before the recording began is a part of it from now on.
    pub(crate) fn adopt(&mut self, life: &Life, ownership: Ownership) {
        let time = self.ticks.now();
        if let Some(reel) = &mut self.reel {
            let id = reel.next_id();
            life.begin(Ownership { id, ..ownership });
            let kind = EventKind::Allocated {
                id,
                bytes: ownership.asked,
                queue: ownership.queue,
                group: ownership.asker.group(),
            };
            reel.push(time, kind);
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

    #[inline]
    fn push(&mut self, time: u64, kind: EventKind) -> Option<Arc<Recorder>> {
        self.events.push(Event { time, kind });
        if self.events.len() < CHUNK {
            return None;
        }
        self.hand_over()
    }

    #[cold]
    fn hand_over(&mut self) -> Option<Arc<Recorder>> {
        if self.events.is_empty() {
            return None;
        }
        let empty = Vec::with_capacity(CHUNK);
        let full = std::mem::replace(&mut self.events, empty);
        let is_behind = self.recorder.accept(full);
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
) -> Noted {
    match (tape, &block.life) {
        (None, _) => Noted::Yes(None),
        (Some(_), None) => Noted::NeedsLife,
        (Some(tape), Some(life)) => Noted::Yes(tape.begin(life, asked, block.tenure.queue, asker)),
    }
}

/// Whether something was taken note of.
#[derive(Debug)]
pub(crate) enum Noted {
    /// Yes, and this recorder should be [waited for](Recorder::wait), if any.
    Yes(Option<Arc<Recorder>>),
    /// No: the block has to get a [life](Life) first, under the pool's lock.
    NeedsLife,
}
