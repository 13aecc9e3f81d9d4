//! A device on which nothing costs time.

use std::sync::Arc;

use binpool::{
    AsMemory, Backend, Event, EventStatus, Memory, MemoryFlags, MemoryId, Outcome, Queue, QueueId,
    QueueOrder, Region, Result,
};
use binpool_allocators::{Align, DeviceLimits, EventId, MemoryKind, On, Span, Work};

/// 1 TiB, so that no request runs out.
const CAPACITY: usize = 1 << 40;

/// A device of 1 TiB that does nothing: blocks are names, every command has ended when it is enqueued and has touched
/// no byte, and everything read is zeros. Blocks start on 512 bytes, and threads may share views, as on an H200 with
/// shared virtual memory.
///
/// For measuring what is above a backend. What it costs itself is an identity a block or event. It does not pass the
/// conformance suite, having no memory, and it looks at no argument but the size of a block.
#[derive(Clone, Debug)]
pub struct NullBackend {
    limits: Arc<DeviceLimits>,
}

impl NullBackend {
    /// A device.
    #[must_use]
    pub fn new() -> Self {
        let alignment = Align::new(512).unwrap_or(Align::ONE);
        let mut limits = DeviceLimits::new("null", CAPACITY as u64, CAPACITY, alignment);
        limits.out_of_order_queues = true;
        limits.buffer_views_are_addresses = true;
        Self {
            limits: Arc::new(limits),
        }
    }
}

impl Default for NullBackend {
    fn default() -> Self {
        Self::new()
    }
}

/// The name of a block.
#[derive(Debug)]
pub struct NullMemory {
    id: MemoryId,
    bytes: usize,
}

impl NullMemory {
    fn new(bytes: usize) -> Self {
        Self {
            id: MemoryId::fresh(),
            bytes,
        }
    }
}

impl Memory for NullMemory {
    fn id(&self) -> MemoryId {
        self.id
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn kind(&self) -> MemoryKind {
        MemoryKind::Buffer
    }
}

/// A queue whose commands have always ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NullQueue {
    id: QueueId,
    order: QueueOrder,
}

impl Queue for NullQueue {
    fn id(&self) -> QueueId {
        self.id
    }

    fn order(&self) -> QueueOrder {
        self.order
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn finish(&self) -> Result<()> {
        Ok(())
    }
}

/// The event of a command that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NullEvent {
    id: EventId,
}

impl NullEvent {
    fn new() -> Self {
        Self {
            id: EventId::fresh(),
        }
    }
}

impl Event for NullEvent {
    fn id(&self) -> EventId {
        self.id
    }

    fn status(&self) -> Result<EventStatus> {
        Ok(EventStatus::Complete)
    }

    fn wait(&self) -> Result<()> {
        Ok(())
    }
}

impl Backend for NullBackend {
    type Memory = NullMemory;
    type Queue = NullQueue;
    type Event = NullEvent;

    fn limits(&self) -> &DeviceLimits {
        &self.limits
    }

    fn create_queue(&self, order: QueueOrder) -> Result<NullQueue> {
        Ok(NullQueue {
            id: QueueId::fresh(),
            order,
        })
    }

    fn check_queue(&self, _: &NullQueue) -> Result<()> {
        Ok(())
    }

    fn create_buffer(&self, bytes: usize, _: MemoryFlags) -> Result<NullMemory> {
        self.limits.check_block(bytes)?;
        Ok(NullMemory::new(bytes))
    }

    fn create_sub_region(&self, _: &NullMemory, region: Region) -> Result<NullMemory> {
        Ok(NullMemory::new(region.bytes))
    }

    fn commit(&self, _: &NullQueue, _: &NullMemory) -> Result<()> {
        Ok(())
    }

    fn release(&self, _: NullMemory, _: &[NullEvent]) -> Result<()> {
        Ok(())
    }

    fn submit(
        &self,
        _: On<'_, NullQueue, NullEvent>,
        work: Work<'_, Span<'_, NullMemory>>,
    ) -> Result<NullEvent> {
        if let Work::Read(from, sink) = work {
            sink.put(move || vec![0; from.region.bytes]);
        }
        Ok(NullEvent::new())
    }

    fn create_user_event(&self) -> Result<NullEvent> {
        Ok(NullEvent::new())
    }

    fn resolve_user_event(&self, _: &NullEvent, _: Outcome) -> Result<()> {
        Ok(())
    }
}

impl AsMemory<NullBackend> for NullMemory {
    fn size(&self) -> usize {
        self.bytes()
    }

    fn memory_on(&self, _queue: &NullQueue) -> Option<&Self> {
        Some(self)
    }
}
