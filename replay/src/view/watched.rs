//! What the allocator gives, and when.

use std::{collections::HashMap, sync::Arc};

use binpool::{Allocator, Error, EventOf, Memory, MemoryId, MemoryOf, forward_to_inner};
use parking_lot::Mutex;

use crate::view::Segment;

/// Takes note of what an allocator gives and gets back, and of the event of the trace at which it does. Clones share the
/// notes.
#[derive(Clone, Debug)]
pub(crate) struct Watched<A> {
    inner: A,
    notes: Arc<Mutex<Notes>>,
}

#[derive(Debug, Default)]
struct Notes {
    /// The event that is under way.
    event: usize,
    segments: Vec<Segment>,
    /// The place among those of each one that is out.
    out: HashMap<MemoryId, usize>,
}

impl<A> Watched<A> {
    pub(crate) fn new(inner: A) -> Self {
        Self {
            inner,
            notes: Arc::default(),
        }
    }

    /// From here on, event number `event` is under way.
    pub(crate) fn begin(&self, event: usize) {
        self.notes.lock().event = event;
    }

    /// The number of the segment with this memory, which is out.
    pub(crate) fn segment_of(&self, memory: MemoryId) -> Option<usize> {
        self.notes.lock().out.get(&memory).copied()
    }

    /// All that was given until now, in order.
    pub(crate) fn segments(&self) -> Vec<Segment> {
        self.notes.lock().segments.clone()
    }
}

impl<A: Allocator> Allocator for Watched<A> {
    forward_to_inner!();

    fn allocate(&self, bytes: usize) -> Result<MemoryOf<Self>, Error> {
        let memory = self.inner.allocate(bytes)?;
        let mut notes = self.notes.lock();
        let (place, from) = (notes.segments.len(), notes.event);
        notes.segments.push(Segment {
            bytes: memory.bytes() as u64,
            from,
            to: None,
        });
        notes.out.insert(memory.id(), place);
        drop(notes);
        Ok(memory)
    }

    fn release(&self, memory: MemoryOf<Self>, after: &[EventOf<Self>]) -> Result<(), Error> {
        let mut notes = self.notes.lock();
        let event = notes.event;
        if let Some(place) = notes.out.remove(&memory.id()) {
            notes.segments[place].to = Some(event);
        }
        drop(notes);
        self.inner.release(memory, after)
    }
}
