//! What the tests of the mock share.

pub(crate) mod program;

use binpool_allocators::{
    Backend, Error, Event, EventStatus, Memory, MemoryFlags, Queue, QueueOrder, Region,
};
use binpool_mock::{
    Completion, MockBackend, MockDevice, MockDeviceBuilder, MockEvent, MockMemory, MockQueue,
};

pub(crate) const KIB: usize = 1 << 10;
pub(crate) const MIB: usize = 1 << 20;

/// A device with one in-order queue.
pub(crate) struct Rig {
    pub(crate) device: MockDevice,
    pub(crate) backend: MockBackend,
    pub(crate) queue: MockQueue,
}

impl Rig {
    pub(crate) fn new(completion: Completion) -> Self {
        Self::on(MockDevice::builder().completion(completion))
    }

    pub(crate) fn on(builder: MockDeviceBuilder) -> Self {
        let device = builder.virtual_memory(true).build();
        let backend = device.backend();
        let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
        Self {
            device,
            backend,
            queue,
        }
    }

    pub(crate) fn queue(&self, order: QueueOrder) -> MockQueue {
        self.backend.create_queue(order).unwrap()
    }

    pub(crate) fn buffer(&self, bytes: usize) -> MockMemory {
        self.backend
            .create_buffer(bytes, MemoryFlags::empty())
            .unwrap()
    }

    pub(crate) fn gate(&self) -> MockEvent {
        self.backend.create_user_event().unwrap()
    }

    /// Fills all of `memory` on this rig's queue.
    pub(crate) fn fill(&self, memory: &MockMemory, byte: u8, wait_for: &[MockEvent]) -> MockEvent {
        self.fill_on(&self.queue, memory, byte, wait_for)
    }

    pub(crate) fn fill_on(
        &self,
        queue: &MockQueue,
        memory: &MockMemory,
        byte: u8,
        wait_for: &[MockEvent],
    ) -> MockEvent {
        let region = Region::first(memory.bytes());
        self.backend
            .enqueue_fill(queue.after(wait_for), memory, region, &[byte])
            .unwrap()
    }

    /// All of `memory`, read on a queue of its own.
    pub(crate) fn contents(&self, memory: &MockMemory) -> Vec<u8> {
        let mut bytes = vec![0_u8; memory.bytes()];
        let queue = self.queue(QueueOrder::InOrder);
        self.backend.read(&queue, memory, 0, &mut bytes).unwrap();
        bytes
    }
}

/// What the mock runtime says that went wrong.
pub(crate) fn cause(error: &Error) -> String {
    std::error::Error::source(error)
        .unwrap_or_else(|| panic!("no source of {error:?}"))
        .to_string()
}

/// The code of the error of OpenCL that the mock runtime stands for.
pub(crate) fn code(error: &Error) -> Option<i32> {
    match error {
        Error::Backend(failure) => failure.code,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn is_pending(event: &MockEvent) -> bool {
    event.status().unwrap() == EventStatus::Pending
}

pub(crate) fn is_complete(event: &MockEvent) -> bool {
    event.status().unwrap() == EventStatus::Complete
}

pub(crate) fn has_failed(event: &MockEvent) -> bool {
    event.status().unwrap() == EventStatus::Failed
}
