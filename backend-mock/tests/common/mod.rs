//! What the tests of the mock share.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail as tests do"
)]

pub mod program;

use binpool_allocators::{
    Backend, Error, Event, EventStatus, Memory, MemoryFlags, QueueOrder, Region,
};
use binpool_mock::{
    Completion, MockBackend, MockDevice, MockDeviceBuilder, MockError, MockEvent, MockMemory,
    MockQueue,
};

pub const KIB: usize = 1 << 10;
pub const MIB: usize = 1 << 20;

/// A device with one in-order queue.
pub struct Rig {
    pub device: MockDevice,
    pub backend: MockBackend,
    pub queue: MockQueue,
}

impl Rig {
    pub fn new(completion: Completion) -> Self {
        Self::on(MockDevice::builder().completion(completion))
    }

    pub fn on(builder: MockDeviceBuilder) -> Self {
        let device = builder.build();
        let backend = device.backend();
        let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
        Self {
            device,
            backend,
            queue,
        }
    }

    pub fn queue(&self, order: QueueOrder) -> MockQueue {
        self.backend.create_queue(order).unwrap()
    }

    pub fn buffer(&self, bytes: usize) -> MockMemory {
        self.backend
            .create_buffer(bytes, MemoryFlags::empty())
            .unwrap()
    }

    pub fn gate(&self) -> MockEvent {
        self.backend.create_user_event().unwrap()
    }

    /// Fills all of `memory` on this rig's queue.
    pub fn fill(&self, memory: &MockMemory, byte: u8, wait_for: &[MockEvent]) -> MockEvent {
        self.fill_on(&self.queue, memory, byte, wait_for)
    }

    pub fn fill_on(
        &self,
        queue: &MockQueue,
        memory: &MockMemory,
        byte: u8,
        wait_for: &[MockEvent],
    ) -> MockEvent {
        let region = Region::first(memory.bytes());
        self.backend
            .enqueue_fill(queue, memory, region, &[byte], wait_for)
            .unwrap()
    }

    /// All of `memory`, read on a queue of its own.
    pub fn contents(&self, memory: &MockMemory) -> Vec<u8> {
        let mut bytes = vec![0; memory.bytes()];
        let queue = self.queue(QueueOrder::InOrder);
        self.backend
            .read(&queue, memory, 0, &mut bytes, &[])
            .unwrap();
        bytes
    }
}

/// What the mock runtime says that went wrong.
pub fn cause(error: &Error) -> &MockError {
    std::error::Error::source(error)
        .and_then(|source| source.downcast_ref())
        .unwrap_or_else(|| panic!("no error of the mock in {error:?}"))
}

pub fn is_pending(event: &MockEvent) -> bool {
    event.status().unwrap() == EventStatus::Pending
}

pub fn is_complete(event: &MockEvent) -> bool {
    event.status().unwrap() == EventStatus::Complete
}

pub fn has_failed(event: &MockEvent) -> bool {
    event.status().unwrap() == EventStatus::Failed
}
