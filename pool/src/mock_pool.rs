//! A pool over a mock device, opened up, for the tests of its parts.

use std::sync::Arc;

use binpool_allocators::{Backend, ImmediateAllocator, QueueOrder};
use binpool_mock::{Completion, MockBackend, MockDevice, MockQueue};

use crate::{
    MemoryPool, PoolOptions,
    at_hand::thread_cache::{Cached, Grant},
    shared::Shared,
    state::{
        bins::{Block, HeldBlock},
        lane::{LaneKey, Stamp, Uses},
    },
};

pub(crate) type Immediate = ImmediateAllocator<MockBackend>;

#[derive(Debug)]
pub(crate) struct MockPool {
    pub(crate) device: MockDevice,
    pub(crate) backend: MockBackend,
    /// Its home.
    pub(crate) queue: MockQueue,
    pub(crate) pool: MemoryPool<Immediate>,
    pub(crate) shared: Arc<Shared<Immediate>>,
}

impl MockPool {
    /// Commands run only when the test, or a wait, has them run.
    pub(crate) fn new(options: PoolOptions) -> Self {
        let builder = MockDevice::builder().completion(Completion::Manual);
        let device = builder.capacity_bytes(1 << 32).build();
        let backend = device.backend();
        let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
        let allocator = ImmediateAllocator::new(&backend).unwrap();
        let pool = options.build(allocator, &queue).unwrap();
        let shared = Arc::clone(&pool.allocate(0).unwrap().shared);
        Self {
            device,
            backend,
            queue,
            pool,
            shared,
        }
    }

    /// One whose blocks are blocks of the allocator's.
    pub(crate) fn of_blocks() -> Self {
        Self::new(PoolOptions::new().segments(false))
    }

    /// One whose blocks are carved from segments.
    pub(crate) fn of_segments() -> Self {
        Self::new(PoolOptions::new().segments(true))
    }

    pub(crate) fn another_queue(&self) -> MockQueue {
        self.backend.create_queue(QueueOrder::InOrder).unwrap()
    }

    /// A block for this queue, in the hands of a user who is about to give it back.
    pub(crate) fn block_for(&self, queue: &MockQueue, bytes: usize) -> Box<Block<Immediate>> {
        let mut buffer = self.pool.allocate_on(queue, bytes).unwrap();
        buffer.take_block().unwrap()
    }

    pub(crate) fn grant_for(&self, queue: &MockQueue, bytes: usize) -> Grant<Immediate> {
        Grant {
            shared: Arc::clone(&self.shared),
            block: self.block_for(queue, bytes),
        }
    }

    pub(crate) fn cached(&self, bytes: usize) -> Cached<Immediate> {
        Cached {
            grant: self.grant_for(&self.queue, bytes),
            since: Stamp::default(),
        }
    }

    /// A free block that no command uses.
    pub(crate) fn unused(&self, bytes: usize) -> HeldBlock<Immediate> {
        HeldBlock::new(self.block_for(&self.queue, bytes), Uses::new())
    }

    /// The key of the home queue's lane.
    pub(crate) fn home(&self) -> LaneKey {
        let state = self.shared.state.lock();
        state.lanes.find(self.shared.home_id).unwrap()
    }

    /// How many free blocks lie ready for the home queue.
    pub(crate) fn stocked(&self) -> usize {
        let home = self.home();
        let state = self.shared.state.lock();
        state.lanes.get(home).unwrap().stock.blocks()
    }
}
