//! The events of one thread: the blocks that it got and freed.

use std::sync::Arc;

use binpool_allocators::QueueId;
use binpool_trace::{PoolEvent, ShortageReport};

use crate::track::{
    allocation_record::{AllocationRecord, Ownership},
    caller::Caller,
    recorder::Recorder,
    ticks::Ticks,
    trace_event::{
        Chunk, EVENTS_PER_CHUNK, POOL_EVENTS_PER_CHUNK, QueueAndGroup, Source, TraceEvent,
    },
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
    chunk: Chunk,
    /// The time of the last event.
    last: u64,
    /// The queue and group of the last request in the chunk.
    caller: Option<QueueAndGroup>,
    /// Set if too many events waited to be written when the last chunk was handed over. The next allocation waits. A free need not, since
    /// there are no more frees than allocations.
    is_behind: bool,
    /// All bits are set if call sites are stacks, and none otherwise.
    stack_mask: u32,
}

impl EventBuffer {
    pub(crate) fn new(ticks: Ticks, recorder: Option<&Arc<Recorder>>, has_stacks: bool) -> Self {
        let pending = recorder.map(|recorder| PendingEvents {
            recorder: Arc::clone(recorder),
            chunk: recorder.first_chunk(),
            last: 0,
            caller: None,
            is_behind: false,
            stack_mask: if has_stacks { u32::MAX } else { 0 },
        });
        Self { ticks, pending }
    }

    pub(crate) fn ticks(&self) -> &Ticks {
        &self.ticks
    }

    /// Returns the time for the next event: in a recording, the times of a buffer never fall, though those of two processors may.
    #[inline]
    fn now(&self) -> u64 {
        let last = self.pending.as_ref().map_or(0, |pending| pending.last);
        self.ticks.now().max(last)
    }

    /// Records that a block is handed out. Returns whether the recorder has too many events, and should be [waited for](Recorder::wait).
    #[inline]
    pub(crate) fn begin(
        &mut self,
        record: &AllocationRecord,
        asked: usize,
        queue: Option<QueueId>,
        caller: Caller,
    ) -> bool {
        let (asked, since) = (asked as u64, self.ticks.now());
        let queue = queue.map_or(0, QueueId::get);
        match &mut self.pending {
            None => {
                record.begin(Ownership {
                    asked,
                    since,
                    caller,
                    queue,
                });
                false
            }
            Some(pending) => pending.begin(record, asked, since, caller, queue),
        }
    }

    /// Records that a block is freed.
    #[inline]
    pub(crate) fn end(&mut self, record: &AllocationRecord) {
        if let Some((id, since)) = record.end()
            && let Some(pending) = &mut self.pending
        {
            pending.end(&self.ticks, id, since);
        }
    }

    /// Records that a request failed for lack of memory, with its report. Returns whether the recorder should be waited for, as
    /// [`begin`](Self::begin) does.
    #[must_use]
    pub(crate) fn refuse(
        &mut self,
        asked: usize,
        report: ShortageReport,
        queue: QueueId,
        caller: Caller,
    ) -> bool {
        let time = self.now();
        if let Some(pending) = &mut self.pending {
            let event = TraceEvent::refused(time, asked as u64);
            pending.push_for(event, queue.get(), caller);
        }
        self.note(|| PoolEvent::Report(Box::new(report)));
        let pending = self.pending.as_mut();
        pending.is_some_and(|pending| std::mem::take(&mut pending.is_behind))
    }

    /// Adds a block to the recording that was handed out before it began.
    pub(crate) fn adopt(&mut self, record: &AllocationRecord, ownership: Ownership) {
        let time = self.now();
        if let Some(pending) = &mut self.pending {
            let event = TraceEvent::allocated(time, record.id(), ownership.asked);
            pending.push_for(event, ownership.queue, ownership.caller);
        }
    }

    /// Writes what the pool did into the recording, if there is one.
    pub(crate) fn note(&mut self, event: impl FnOnce() -> PoolEvent) {
        let time = self.now();
        if let Some(pending) = &mut self.pending {
            let number = pending.chunk.of_pool.len();
            pending.chunk.of_pool.push(event());
            pending.push(TraceEvent::of_pool(time, number));
            if pending.chunk.of_pool.len() == POOL_EVENTS_PER_CHUNK {
                pending.hand_over();
            }
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
    /// Out of line, like [`end`](Self::end), so that watching without a recording saves fewer registers.
    #[inline(never)]
    fn begin(
        &mut self,
        record: &AllocationRecord,
        asked: u64,
        since: u64,
        caller: Caller,
        queue: u64,
    ) -> bool {
        let since = since.max(self.last);
        record.begin(Ownership {
            asked,
            since,
            caller,
            queue,
        });
        let event = TraceEvent::allocated(since, record.next_use(), asked);
        self.push_for(event, queue, caller);
        std::mem::take(&mut self.is_behind)
    }

    #[inline(never)]
    fn end(&mut self, ticks: &Ticks, id: u64, since: u64) {
        let time = ticks.now().max(self.last).max(since);
        self.push(TraceEvent::freed(time, id));
    }

    /// Writes an event of a block that was requested for this queue and group.
    #[inline]
    fn push_for(&mut self, event: TraceEvent, queue: u64, caller: Caller) {
        let caller = QueueAndGroup::new(queue, caller, self.stack_mask);
        if self.caller != Some(caller) {
            self.caller = Some(caller);
            self.chunk.sources.push(Source {
                from: self.chunk.events.len(),
                caller,
                stream: 0,
            });
        }
        self.push(event);
    }

    #[inline]
    fn push(&mut self, event: TraceEvent) {
        self.last = event.time;
        self.chunk.events.push(event);
        if self.chunk.events.len() == EVENTS_PER_CHUNK {
            self.hand_over();
        }
    }

    #[cold]
    fn hand_over(&mut self) {
        if self.chunk.events.is_empty() {
            return;
        }
        self.is_behind = self.recorder.accept(&mut self.chunk);
        // Each chunk contains the numbers of its own queues and groups.
        self.caller = None;
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
        (None, _) => Tracked::Yes,
        (Some(_), None) => Tracked::NeedsRecord,
        (Some(event_buffer), Some(record)) => {
            if event_buffer.begin(record, asked, queue, caller) {
                Tracked::IsBehind
            } else {
                Tracked::Yes
            }
        }
    }
}

/// The result of tracking a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tracked {
    /// The block is tracked.
    Yes,
    /// The block is tracked, and the recorder should be [waited for](Recorder::wait).
    IsBehind,
    /// The block needs an [allocation record](AllocationRecord) first, under the pool's lock.
    NeedsRecord,
}
