//! A pool over a mock device, for tests of its parts.

use std::sync::Arc;

use binpool_allocators::{
    Allocator, Backend, ImmediateAllocator, QueueOrder, VirtualMemoryAllocator,
};
use binpool_mock::{Completion, MockBackend, MockDevice, MockQueue};

use crate::{
    MemoryPool, PoolOptions,
    order::queue_uses::QueueUses,
    order::timestamps::{QueueKey, Timestamp},
    shared::{BlockBox, Cached, HeldBlock, LeasedBlock, Shared},
};

#[derive(Debug)]
pub(crate) struct MockPool {
    pub(crate) device: MockDevice,
    pub(crate) backend: MockBackend,
    /// The pool's default queue.
    pub(crate) queue: MockQueue,
    pub(crate) pool: MemoryPool<MockBackend>,
    pub(crate) shared: Arc<Shared<MockBackend>>,
}

impl MockPool {
    /// Makes a pool over a device that runs commands only when the test runs them, or something waits for them.
    pub(crate) fn new(options: PoolOptions) -> Self {
        let builder = MockDevice::builder().completion(Completion::Manual);
        let device = builder.capacity_bytes(1 << 32).build();
        let allocator = ImmediateAllocator::new(&device.backend()).unwrap();
        Self::over(device, options, allocator)
    }

    /// Makes a pool that maps pages, over a device that runs commands at once.
    pub(crate) fn of_pages() -> Self {
        let device = MockDevice::builder().virtual_memory(true).build();
        let allocator = VirtualMemoryAllocator::new(&device.backend());
        Self::over(device, PoolOptions::new(), allocator)
    }

    fn over(
        device: MockDevice,
        options: PoolOptions,
        allocator: impl Allocator<Backend = MockBackend> + 'static,
    ) -> Self {
        let backend = device.backend();
        let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
        let pool = options.build(allocator, &queue).unwrap();
        let shared = pool.allocate(0).unwrap().share();
        Self {
            device,
            backend,
            queue,
            pool,
            shared,
        }
    }

    /// Makes a pool whose blocks are blocks of the allocator.
    pub(crate) fn of_blocks() -> Self {
        Self::new(PoolOptions::new().segments(false))
    }

    /// Makes a pool whose blocks are carved from segments.
    pub(crate) fn of_segments() -> Self {
        Self::new(PoolOptions::new().segments(true))
    }

    pub(crate) fn another_queue(&self) -> MockQueue {
        self.backend.create_queue(QueueOrder::InOrder).unwrap()
    }

    /// An active block for this queue, taken out of its buffer.
    pub(crate) fn block_for(&self, queue: &MockQueue, bytes: usize) -> BlockBox<MockBackend> {
        let mut buffer = self.pool.allocate_on(queue, bytes).unwrap();
        buffer.take_block().unwrap()
    }

    pub(crate) fn cached_block_for(
        &self,
        queue: &MockQueue,
        bytes: usize,
    ) -> LeasedBlock<MockBackend> {
        let mut buffer = self.pool.allocate_on(queue, bytes).unwrap();
        buffer.take_leased().unwrap()
    }

    pub(crate) fn cached(&self, bytes: usize) -> Cached<MockBackend> {
        Cached {
            block: self.cached_block_for(&self.queue, bytes),
            since: Timestamp::default(),
        }
    }

    /// A free block that no command uses.
    pub(crate) fn unused(&self, bytes: usize) -> HeldBlock<MockBackend> {
        HeldBlock::new(self.block_for(&self.queue, bytes), QueueUses::new())
    }

    /// The key of the default queue's state.
    pub(crate) fn default_key(&self) -> QueueKey {
        let state = self.shared.state.lock();
        state.queues.find(self.shared.default_queue_id).unwrap()
    }

    /// The number of blocks in the free list of the default queue.
    pub(crate) fn free_list_blocks(&self) -> usize {
        let key = self.default_key();
        let state = self.shared.state.lock();
        state.queues.get(key).unwrap().free_list.blocks()
    }
}
