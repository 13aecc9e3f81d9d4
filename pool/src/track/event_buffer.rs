//! The events of one thread: blocks that it got and freed.

use std::sync::Arc;

use binpool_allocators::QueueId;
use binpool_trace::{PoolEvent, ShortageReport};

use crate::track::{
    allocation_record::{AllocationRecord, Ownership},
    caller::Caller,
    recorder::Recorder,
    ticks::Ticks,
    trace_event::{EVENTS_PER_CHUNK, QueueAndGroup, TraceEvent},
};

/// The events of blocks that are handed out and freed. Each thread has a buffer in its cache, and one lies under the
/// pool's lock.
#[derive(Debug)]
pub(crate) struct EventBuffer {
    ticks: Ticks,
    /// `None` if the pool watches without a recording.
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
    /// All bits are set if call sites are stacks, and none otherwise.
    stack_mask: u32,
}

impl EventBuffer {
    pub(crate) fn new(ticks: Ticks, recorder: Option<&Arc<Recorder>>, has_stacks: bool) -> Self {
        let pending = recorder.map(|recorder| PendingEvents {
            recorder: Arc::clone(recorder),
            number: recorder.next_buffer_number(),
            events: Vec::with_capacity(EVENTS_PER_CHUNK),
            source: None,
            stack_mask: if has_stacks { u32::MAX } else { 0 },
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
        record.begin(Ownership {
            asked,
            since,
            caller,
            queue,
        });
        let pending = self.pending.as_mut()?;
        let event = TraceEvent::allocated(since, record.next_use(), asked);
        pending.push_for(event, queue, caller)
    }

    /// Notes that a block is freed. A recorder that is returned has too many events, and should be [waited
    /// for](Recorder::wait).
    #[inline]
    pub(crate) fn end(&mut self, record: &AllocationRecord) -> Option<Arc<Recorder>> {
        let (id, since) = record.end()?;
        let pending = self.pending.as_mut()?;
        // The counters of two processors may differ by a tick.
        let time = self.ticks.now().max(since);
        pending.push(TraceEvent::freed(time, id))
    }

    /// Notes that a request failed for lack of memory, with its report.
    pub(crate) fn refuse(
        &mut self,
        asked: usize,
        report: ShortageReport,
        queue: QueueId,
        caller: Caller,
    ) {
        let time = self.ticks.now();
        if let Some(pending) = &mut self.pending {
            let event = TraceEvent::refused(time, asked as u64);
            pending.push_for(event, queue.get(), caller);
        }
        self.note(|| PoolEvent::Report(Box::new(report)));
    }

    /// Adds a block to the recording that was handed out before it began.
    pub(crate) fn adopt(&mut self, record: &AllocationRecord, ownership: Ownership) {
        let time = self.ticks.now();
        if let Some(pending) = &mut self.pending {
            let event = TraceEvent::allocated(time, record.id(), ownership.asked);
            pending.push_for(event, ownership.queue, ownership.caller);
        }
    }

    /// Writes what the pool did into the recording, if there is one.
    pub(crate) fn note(&mut self, event: impl FnOnce() -> PoolEvent) {
        if let Some(pending) = &mut self.pending {
            let number = pending.recorder.keep(event());
            pending.push(TraceEvent::of_pool(self.ticks.now(), number));
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
    /// Writes an event of a block that was requested for this queue and group.
    #[inline]
    fn push_for(&mut self, event: TraceEvent, queue: u64, caller: Caller) -> Option<Arc<Recorder>> {
        let source = QueueAndGroup::new(queue, caller, self.stack_mask);
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
