//! Records the segments that an allocator gives, and when.

use std::{collections::HashMap, sync::Arc};

use binpool::{Allocator, Error, Memory, MemoryId};
use binpool_allocators::forward_to_inner;
use binpool_allocators::{EventOf, MemoryOf};
use binpool_recordings::view::Segment;
use parking_lot::Mutex;

/// Records the memory that an allocator gives and takes back, with the event of the trace at which it does. Clones share the
/// record.
#[derive(Clone, Debug)]
pub(crate) struct SegmentRecord<A> {
    inner: A,
    recorded: Arc<Mutex<Recorded>>,
}

#[derive(Debug, Default)]
struct Recorded {
    /// The current event.
    event: usize,
    segments: Vec<Segment>,
    /// The index among the segments of each one that is live.
    live: HashMap<MemoryId, usize>,
}

impl<A> SegmentRecord<A> {
    pub(crate) fn new(inner: A) -> Self {
        Self {
            inner,
            recorded: Arc::default(),
        }
    }

    /// Begins event number `event`.
    pub(crate) fn begin(&self, event: usize) {
        self.recorded.lock().event = event;
    }

    /// Returns the index of the live segment with this memory.
    pub(crate) fn segment_of(&self, memory: MemoryId) -> Option<usize> {
        self.recorded.lock().live.get(&memory).copied()
    }

    /// All segments so far, in order.
    pub(crate) fn segments(&self) -> Vec<Segment> {
        self.recorded.lock().segments.clone()
    }
}

impl<A: Allocator> Allocator for SegmentRecord<A> {
    forward_to_inner!();

    fn allocate(&self, bytes: usize) -> Result<MemoryOf<Self>, Error> {
        let memory = self.inner.allocate(bytes)?;
        let mut recorded = self.recorded.lock();
        let (index, from) = (recorded.segments.len(), recorded.event);
        let segment = Segment::new(memory.bytes() as u64, from);
        recorded.segments.push(segment);
        recorded.live.insert(memory.id(), index);
        drop(recorded);
        Ok(memory)
    }

    fn release(&self, memory: MemoryOf<Self>, after: &[EventOf<Self>]) -> Result<(), Error> {
        let mut recorded = self.recorded.lock();
        let event = recorded.event;
        if let Some(index) = recorded.live.remove(&memory.id()) {
            recorded.segments[index].to = Some(event);
        }
        drop(recorded);
        self.inner.release(memory, after)
    }
}
