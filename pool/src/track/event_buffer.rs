//! The events of one thread: blocks that it got and freed.

use std::sync::Arc;

use binpool_allocators::QueueId;

use crate::track::{
    allocation_record::{AllocationRecord, Ownership},
    caller::Caller,
    recorder::Recorder,
    ticks::Ticks,
    trace_event::{EVENTS_PER_CHUNK, QueueAndGroup, TraceEvent},
};

/// The block numbers that a thread reserves at once.
const IDS_PER_BATCH: u64 = 4096;

/// The events of blocks that are handed out and freed. Each thread has a buffer in its cache, and one lies under the
/// pool's lock.
#[derive(Debug)]
pub(crate) struct EventBuffer {
    ticks: Ticks,
    /// `None` where the pool watches without a recording.
    pending: Option<PendingEvents>,
}

/// The events of a recording that their thread has not handed over yet.
#[derive(Debug)]
struct PendingEvents {
    recorder: Arc<Recorder>,
    /// The number of this event buffer in the recording.
    number: u64,
    events: Vec<TraceEvent>,
    /// The queue and group of the last events.
    source: Option<QueueAndGroup>,
    /// The next number that is reserved for this buffer, and the end of the reserved numbers.
    next_id: u64,
    last_id: u64,
}

impl EventBuffer {
    pub(crate) fn new(ticks: Ticks, recorder: Option<&Arc<Recorder>>) -> Self {
        let pending = recorder.map(|recorder| PendingEvents {
            recorder: Arc::clone(recorder),
            number: recorder.next_buffer_number(),
            events: Vec::with_capacity(EVENTS_PER_CHUNK),
            source: None,
            next_id: 0,
            last_id: 0,
        });
        Self { ticks, pending }
    }

    pub(crate) fn ticks(&self) -> &Ticks {
        &self.ticks
    }

    /// Notes that a block is handed out. A recorder that is returned has too many events, and should be [waited
    /// for](Recorder::wait).
    #[inline]
    pub(crate) fn begin(
        &mut self,
        record: &AllocationRecord,
        asked: usize,
        queue: Option<QueueId>,
        caller: Caller,
    ) -> Option<Arc<Recorder>> {
        let (since, asked) = (self.ticks.now(), asked as u64);
        let queue = queue.map_or(0, QueueId::get);
        let id = self.pending.as_mut().map_or(0, PendingEvents::next_id);
        record.begin(Ownership {
            asked,
            since,
            caller,
            queue,
            id,
        });
        let source = QueueAndGroup::new(queue, caller);
        let event = TraceEvent::allocated(since, id, asked);
        self.pending.as_mut()?.push_for(event, source)
    }

    /// Notes that a block is freed. A recorder that is returned has too many events, and should be [waited
    /// for](Recorder::wait).
    #[inline]
    pub(crate) fn end(&mut self, record: &AllocationRecord) -> Option<Arc<Recorder>> {
        let (id, since) = record.end()?;
        let pending = self.pending.as_mut()?;
        if id == 0 {
            // The block was handed out before the recording began.
            return None;
        }
        // The counters of two processors may differ by a tick.
        let time = self.ticks.now().max(since);
        pending.push(TraceEvent::freed(time, id))
    }

    /// Notes that a request failed for lack of memory.
    pub(crate) fn refuse(&mut self, asked: usize, queue: QueueId, caller: Caller) {
        let time = self.ticks.now();
        if let Some(pending) = &mut self.pending {
            let source = QueueAndGroup::new(queue.get(), caller);
            pending.push_for(TraceEvent::refused(time, asked as u64), source);
        }
    }

    /// Adds a block to the recording that was handed out before it began.
    pub(crate) fn adopt(&mut self, record: &AllocationRecord, ownership: Ownership) {
        let time = self.ticks.now();
        if let Some(pending) = &mut self.pending {
            let id = pending.next_id();
            record.begin(Ownership { id, ..ownership });
            let source = QueueAndGroup::new(ownership.queue, ownership.caller);
            pending.push_for(TraceEvent::allocated(time, id, ownership.asked), source);
        }
    }

    /// Hands over the events so far.
    pub(crate) fn hand_over(&mut self) {
        if let Some(pending) = &mut self.pending {
            pending.hand_over();
        }
    }
}

impl PendingEvents {
    #[inline]
    fn next_id(&mut self) -> u64 {
        if self.next_id == self.last_id {
            self.next_id = self.recorder.take_ids(IDS_PER_BATCH);
            self.last_id = self.next_id + IDS_PER_BATCH;
        }
        self.next_id += 1;
        // 0 stands for no number.
        self.next_id
    }

    /// Writes an event of a block that was requested for this queue and group.
    #[inline]
    fn push_for(&mut self, event: TraceEvent, source: QueueAndGroup) -> Option<Arc<Recorder>> {
        if self.source != Some(source) {
            self.source = Some(source);
            // There is room: chunks are handed over one event before they are full.
            self.events.push(TraceEvent::source(event.time, source));
        }
        self.push(event)
    }

    #[inline]
    fn push(&mut self, event: TraceEvent) -> Option<Arc<Recorder>> {
        self.events.push(event);
        if self.events.len() < EVENTS_PER_CHUNK - 1 {
            return None;
        }
        self.hand_over()
    }

    #[cold]
    fn hand_over(&mut self) -> Option<Arc<Recorder>> {
        if self.events.is_empty() {
            return None;
        }
        let full = std::mem::take(&mut self.events);
        let (empty, is_behind) = self.recorder.accept(self.number, full);
        self.events = empty;
        // Each chunk names its queue and group itself.
        self.source = None;
        is_behind.then(|| Arc::clone(&self.recorder))
    }
}

impl Drop for PendingEvents {
    fn drop(&mut self) {
        self.hand_over();
    }
}

/// Tracks a block that is handed out, if it has an allocation record.
#[inline]
pub(crate) fn begin(
    event_buffer: Option<&mut EventBuffer>,
    record: Option<&AllocationRecord>,
    asked: usize,
    queue: Option<QueueId>,
    caller: Caller,
) -> Tracked {
    match (event_buffer, record) {
        (None, _) => Tracked::Yes(None),
        (Some(_), None) => Tracked::NeedsRecord,
        (Some(event_buffer), Some(record)) => {
            Tracked::Yes(event_buffer.begin(record, asked, queue, caller))
        }
    }
}

/// The result of tracking a block.
#[derive(Debug)]
pub(crate) enum Tracked {
    /// The block is tracked, and this recorder, if any, should be [waited for](Recorder::wait).
    Yes(Option<Arc<Recorder>>),
    /// The block needs an [allocation record](AllocationRecord) first, under the pool's lock.
    NeedsRecord,
}
