//! What the pool's tests share: a mock device, a queue, and a pool over them.

#![allow(dead_code, reason = "each test binary uses its part")]

use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
use binpool_mock::{MockBackend, MockDevice, MockDeviceBuilder, MockQueue};

pub(crate) type Pool = MemoryPool<ImmediateAllocator<MockBackend>>;

/// What an alignment of 256 bytes makes of 1 byte.
pub(crate) const SMALLEST: usize = 256;

pub(crate) const MIB: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct Rig {
    pub(crate) device: MockDevice,
    pub(crate) backend: MockBackend,
    pub(crate) queue: MockQueue,
    pub(crate) pool: Pool,
}

impl Rig {
    /// A pool over a device with this much memory.
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self::on(MockDevice::builder().capacity_bytes(bytes as u64))
    }

    pub(crate) fn on(builder: MockDeviceBuilder) -> Self {
        let device = builder.build();
        let backend = device.backend();
        let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
        let allocator = ImmediateAllocator::new(&backend).unwrap();
        let pool = MemoryPool::new(allocator, &queue).unwrap();
        Self {
            device,
            backend,
            queue,
            pool,
        }
    }

    pub(crate) fn another_queue(&self, order: QueueOrder) -> MockQueue {
        self.backend.create_queue(order).unwrap()
    }

    /// Blocks that the device has now.
    pub(crate) fn blocks_on_device(&self) -> usize {
        self.device.statistics().live_blocks
    }
}
