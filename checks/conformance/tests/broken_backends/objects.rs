//! Memory, queues and events of a broken backend.

use std::{
    fmt,
    hash::{Hash, Hasher},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use binpool_allocators::{
    Backend, Event, EventId, EventStatus, Memory, MemoryId, MemoryKind, Queue, QueueId, QueueOrder,
    Region, Result,
};
use binpool_mock::{MockEvent, MockMemory, MockQueue};

use crate::{backend::Broken, defect::Defect};

pub(crate) struct BrokenMemory {
    /// `Some` until it is released.
    inner: Option<MockMemory>,
    pub(crate) home: Broken,
    pub(crate) is_region: bool,
    /// Whether a commit was tried that is not to be tried again.
    pub(crate) was_committed: AtomicBool,
    /// Set if it was seen to have views.
    was_viewed: AtomicBool,
}

impl BrokenMemory {
    pub(crate) fn new(inner: MockMemory, home: &Broken, is_region: bool) -> Self {
        Self {
            inner: Some(inner),
            home: home.clone(),
            is_region,
            was_committed: AtomicBool::new(false),
            was_viewed: AtomicBool::new(false),
        }
    }

    pub(crate) fn inner(&self) -> &MockMemory {
        self.inner.as_ref().expect("it is released once")
    }

    pub(crate) fn into_inner(mut self) -> MockMemory {
        self.inner.take().expect("it is released once")
    }
}

impl Drop for BrokenMemory {
    fn drop(&mut self) {
        let Some(inner) = self.inner.take() else {
            return;
        };
        if self.home.has(Defect::ScribblesOnDrop) {
            self.home.scribble(&inner);
        }
        let _freed = self.home.free(inner, self.is_region, &[]);
    }
}

impl fmt::Debug for BrokenMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl Memory for BrokenMemory {
    fn id(&self) -> MemoryId {
        static SAME: OnceLock<MemoryId> = OnceLock::new();
        if self.home.has(Defect::MemoryIdsAreUsedAgain) {
            return *SAME.get_or_init(MemoryId::fresh);
        }
        self.inner().id()
    }

    fn bytes(&self) -> usize {
        let bytes = self.inner().bytes();
        if self.home.has(Defect::SizesAreRoundedUp) {
            return bytes.checked_next_multiple_of(64).unwrap_or(bytes);
        }
        bytes
    }

    fn kind(&self) -> MemoryKind {
        match self.inner().kind() {
            MemoryKind::Pages if self.home.has(Defect::PagesAreBuffers) => MemoryKind::Buffer,
            kind => kind,
        }
    }

    fn has_views(&self) -> bool {
        let has_views = self.inner().has_views();
        self.was_viewed.fetch_or(has_views, Ordering::Relaxed);
        match self.home.defect {
            Defect::ViewsAreNotCounted => false,
            Defect::ViewsCountForEver => self.was_viewed.load(Ordering::Relaxed),
            _ => has_views,
        }
    }
}

pub(crate) struct BrokenQueue {
    pub(crate) inner: MockQueue,
    pub(crate) home: Broken,
    pub(crate) order: QueueOrder,
    /// Of the first clone.
    pub(crate) id: QueueId,
}

impl Clone for BrokenQueue {
    fn clone(&self) -> Self {
        let inner = if self.home.has(Defect::ClonesOfQueuesAreOtherQueues) {
            self.home.mock.create_queue(self.order).unwrap()
        } else {
            self.inner.clone()
        };
        Self {
            inner,
            home: self.home.clone(),
            order: self.order,
            id: self.id,
        }
    }
}

impl Drop for BrokenQueue {
    fn drop(&mut self) {
        let panics = self.home.has(Defect::DroppedQueuesPanic) && !thread::panicking();
        assert!(!panics, "a queue was dropped");
    }
}

impl PartialEq for BrokenQueue {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id || self.home.has(Defect::QueuesAreAllEqual)
    }
}

impl Eq for BrokenQueue {}

impl Hash for BrokenQueue {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

impl fmt::Debug for BrokenQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl Queue for BrokenQueue {
    fn id(&self) -> QueueId {
        static SAME: OnceLock<QueueId> = OnceLock::new();
        if self.home.has(Defect::QueueIdsAreUsedAgain) {
            return *SAME.get_or_init(QueueId::fresh);
        }
        self.id
    }

    fn order(&self) -> QueueOrder {
        self.order
    }

    fn flush(&self) -> Result<()> {
        if self.home.has(Defect::FlushFails) {
            return Err(self.home.failure());
        }
        self.inner.flush()
    }

    fn finish(&self) -> Result<()> {
        if self.home.has(Defect::FinishDoesNotWait) {
            return Ok(());
        }
        self.inner.finish()?;
        if self.home.has(Defect::FailuresStopTheQueue) && self.home.has_failed() {
            return Err(self.home.failure());
        }
        Ok(())
    }
}

#[derive(Clone)]
pub(crate) struct BrokenEvent {
    pub(crate) inner: MockEvent,
    pub(crate) home: Broken,
    was_waited_for: Arc<AtomicBool>,
}

impl BrokenEvent {
    pub(crate) fn new(inner: MockEvent, home: &Broken) -> Self {
        Self {
            inner,
            home: home.clone(),
            was_waited_for: Arc::default(),
        }
    }
}

impl PartialEq for BrokenEvent {
    fn eq(&self, other: &Self) -> bool {
        self.inner == other.inner || self.home.has(Defect::EventsAreAllEqual)
    }
}

impl Eq for BrokenEvent {}

impl Hash for BrokenEvent {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

impl fmt::Debug for BrokenEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl Event for BrokenEvent {
    fn id(&self) -> EventId {
        static SAME: OnceLock<EventId> = OnceLock::new();
        if self.home.has(Defect::EventIdsAreUsedAgain) {
            return *SAME.get_or_init(EventId::fresh);
        }
        self.inner.id()
    }

    fn status(&self) -> Result<EventStatus> {
        let status = self.inner.status()?;
        Ok(match self.home.defect {
            Defect::EventsAreCompleteAlways => EventStatus::Complete,
            Defect::EventsArePendingAlways => EventStatus::Pending,
            Defect::FailuresAreSwallowed if status.has_ended() => EventStatus::Complete,
            _ => status,
        })
    }

    fn wait(&self) -> Result<()> {
        let was_waited_for = self.was_waited_for.swap(true, Ordering::Relaxed);
        if was_waited_for && self.home.has(Defect::EventsAreWaitedForOnce) {
            return Err(self.home.failure());
        }
        self.home.ended(self.inner.wait())
    }
}

/// Spoils some memory, unless it is disarmed before it is dropped.
pub(crate) struct Scribble {
    pub(crate) memory: Option<MockMemory>,
    pub(crate) home: Broken,
}

impl Scribble {
    pub(crate) fn disarm(mut self) {
        self.memory = None;
    }
}

impl Drop for Scribble {
    fn drop(&mut self) {
        if let Some(memory) = &self.memory {
            self.home.scribble(memory);
        }
    }
}

/// All of some memory, through a view of it.
pub(crate) fn view(home: &Broken, memory: &MockMemory) -> MockMemory {
    let all = Region::first(memory.bytes());
    home.mock.create_sub_region(memory, all).unwrap()
}
