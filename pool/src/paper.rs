//! A device on paper, whose objects are only names: for proofs that drive the pool's own data and make no call to a device.

use binpool_allocators::{
    AsMemory, Backend, DeviceLimits, Error, Event, EventId, EventStatus, Memory, MemoryFlags,
    MemoryId, MemoryKind, On, Queue, QueueId, QueueOrder, Region, Result, Span, Work,
};

/// A device. Every call fails.
#[derive(Clone, Debug)]
pub(crate) struct Paper;

/// A part of a block, by its place in it.
#[derive(Debug)]
pub(crate) struct PaperMemory(pub(crate) Region);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PaperQueue {
    id: QueueId,
    order: QueueOrder,
}

impl PaperQueue {
    pub(crate) fn new(order: QueueOrder) -> Self {
        let id = QueueId::fresh();
        Self { id, order }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PaperEvent(EventId);

impl PaperEvent {
    pub(crate) fn new() -> Self {
        Self(EventId::fresh())
    }
}

fn refusal<T>() -> Result<T> {
    Err(Error::unsupported("calls of a device on paper"))
}

impl Memory for PaperMemory {
    fn id(&self) -> MemoryId {
        MemoryId::fresh()
    }

    fn bytes(&self) -> usize {
        self.0.bytes
    }

    fn kind(&self) -> MemoryKind {
        MemoryKind::Buffer
    }
}

impl Queue for PaperQueue {
    fn id(&self) -> QueueId {
        self.id
    }

    fn order(&self) -> QueueOrder {
        self.order
    }

    fn flush(&self) -> Result<()> {
        refusal()
    }

    fn finish(&self) -> Result<()> {
        refusal()
    }
}

impl Event for PaperEvent {
    fn id(&self) -> EventId {
        self.0
    }

    fn status(&self) -> Result<EventStatus> {
        refusal()
    }

    fn wait(&self) -> Result<()> {
        refusal()
    }
}

impl Backend for Paper {
    type Memory = PaperMemory;
    type Queue = PaperQueue;
    type Event = PaperEvent;

    fn limits(&self) -> &DeviceLimits {
        unreachable!("a device on paper has no limits")
    }

    fn create_queue(&self, order: QueueOrder) -> Result<PaperQueue> {
        Ok(PaperQueue::new(order))
    }

    fn check_queue(&self, _: &PaperQueue) -> Result<()> {
        Ok(())
    }

    fn create_buffer(&self, _: usize, _: MemoryFlags) -> Result<PaperMemory> {
        refusal()
    }

    fn create_sub_region(&self, _: &PaperMemory, _: Region) -> Result<PaperMemory> {
        refusal()
    }

    fn commit(&self, _: &PaperQueue, _: &PaperMemory) -> Result<()> {
        refusal()
    }

    fn release(&self, _: PaperMemory, _: &[PaperEvent]) -> Result<()> {
        refusal()
    }

    fn submit(
        &self,
        _: On<'_, PaperQueue, PaperEvent>,
        _: Work<'_, Span<'_, PaperMemory>>,
    ) -> Result<PaperEvent> {
        refusal()
    }
}

impl AsMemory<Paper> for PaperMemory {
    fn size(&self) -> usize {
        self.bytes()
    }

    fn memory_on(&self, _queue: &PaperQueue) -> Option<&Self> {
        Some(self)
    }
}
