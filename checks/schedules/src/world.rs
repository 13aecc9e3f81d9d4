//! A mock device with a pool, as threads share them, and what must hold when all of them are done.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering},
};

use binpool::{
    Backend, ImmediateAllocator, MemoryPool, PoolError, PoolOptions, PooledBuffer, QueueOrder,
};
use binpool_mock::{MockBackend, MockDevice, MockDeviceBuilder, MockQueue};

use crate::program::library::{
    sync::mpsc::channel,
    thread::{self, JoinHandle},
};

pub(crate) type Allocator = ImmediateAllocator<MockBackend>;
pub(crate) type Pool = MemoryPool<MockBackend>;
pub(crate) type Block = PooledBuffer<MockBackend>;

/// The class of the blocks that programs ask for, in bytes.
pub(crate) const BYTES: usize = 1024;

#[derive(Clone)]
pub(crate) struct World {
    pub(crate) device: MockDevice,
    pub(crate) backend: MockBackend,
    pub(crate) queue: MockQueue,
    pub(crate) pool: Pool,
    /// The mark of the next block. Not on the scheduler: who gets which does not matter.
    next_mark: Arc<AtomicU8>,
}

impl World {
    /// Bins alone, on a device with room for this many blocks.
    pub(crate) fn of_bins(blocks: usize) -> Self {
        Self::new(blocks, PoolOptions::new().segments(false))
    }

    /// Segments, on a device with room for this many blocks.
    pub(crate) fn of_segments(blocks: usize) -> Self {
        Self::new(blocks, PoolOptions::new().segments(true))
    }

    pub(crate) fn new(blocks: usize, options: PoolOptions) -> Self {
        Self::on(MockDevice::builder(), blocks, options)
    }

    pub(crate) fn on(builder: MockDeviceBuilder, blocks: usize, options: PoolOptions) -> Self {
        let device = builder.capacity_bytes((blocks * BYTES) as u64).build();
        let backend = device.backend();
        let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
        let allocator = ImmediateAllocator::new(&backend).unwrap();
        let pool = options.build(allocator, &queue).unwrap();
        Self {
            device,
            backend,
            queue,
            pool,
            next_mark: Arc::default(),
        }
    }

    /// The same device with another pool.
    pub(crate) fn with_pool(&self, pool: Pool) -> Self {
        Self {
            pool,
            ..self.clone()
        }
    }

    pub(crate) fn another_queue(&self, order: QueueOrder) -> MockQueue {
        self.backend.create_queue(order).unwrap()
    }

    /// A block with one owner.
    pub(crate) fn allocate(&self) -> Marked {
        self.try_allocate(BYTES).unwrap()
    }

    pub(crate) fn try_allocate(&self, bytes: usize) -> Result<Marked, PoolError> {
        let block = self.pool.allocate(bytes)?;
        Ok(self.mark(block, &self.queue))
    }

    /// Writes a mark into a block that was allocated for this queue.
    pub(crate) fn mark(&self, block: Block, queue: &MockQueue) -> Marked {
        let mark = self.next_mark.fetch_add(1, Ordering::Relaxed);
        block.write(queue, 0, &[mark]).unwrap();
        Marked {
            block,
            queue: queue.clone(),
            mark,
        }
    }

    /// A block, for a moment.
    pub(crate) fn allocate_and_drop(&self) {
        self.allocate().check();
    }

    /// The same while another block is kept.
    pub(crate) fn keep_and_drop(&self) {
        let kept = self.allocate();
        self.allocate_and_drop();
        kept.check();
    }

    /// Blocks of this many bytes that are there at the same time, for a moment.
    pub(crate) fn allocate_and_drop_all<const COUNT: usize>(&self, bytes: usize) {
        let blocks = [(); COUNT].map(|()| self.try_allocate(bytes).unwrap());
        blocks.into_iter().for_each(Marked::check);
    }

    /// A block for a moment, if there is room for one. Whether there was.
    pub(crate) fn is_served(&self) -> bool {
        match self.try_allocate(BYTES) {
            Ok(block) => {
                block.check();
                true
            }
            Err(error) => {
                assert!(error.is_out_of_memory(), "{error}");
                false
            }
        }
    }

    /// Has one thread allocate this many blocks of this many bytes, and another one drop them.
    pub(crate) fn pass_on(&self, blocks: usize, bytes: usize) -> [JoinHandle<()>; 2] {
        let (send, receive) = channel::<Marked>();
        let producer = self.spawn(move |world| {
            for _ in 0..blocks {
                send.send(world.try_allocate(bytes).unwrap()).unwrap();
            }
        });
        let consumer = self.spawn(move |_| receive.into_iter().for_each(Marked::check));
        [producer, consumer]
    }

    /// Has a thread do something with this world.
    pub(crate) fn spawn<R: Send + 'static>(
        &self,
        run: impl FnOnce(&Self) -> R + Send + 'static,
    ) -> JoinHandle<R> {
        let world = self.clone();
        thread::spawn(move || run(&world))
    }

    /// Has two threads do the same with this world.
    pub(crate) fn spawn_two<R: Send + 'static>(
        &self,
        run: impl Fn(&Self) -> R + Clone + Send + 'static,
    ) -> [JoinHandle<R>; 2] {
        [(); 2].map(|()| self.spawn(run.clone()))
    }

    /// What must hold when no block is in use any more and `allocations` blocks were.
    pub(crate) fn check_counters(&self, allocations: u64) {
        let statistics = self.pool.statistics();
        assert_eq!((statistics.active_blocks, statistics.active_bytes), (0, 0));
        assert_eq!(statistics.hits + statistics.misses, allocations);
        assert_eq!(statistics.held_bytes, statistics.managed_bytes);
        let device = self.device.statistics();
        assert_eq!(device.committed_bytes, statistics.managed_bytes);
    }

    /// The same, and that all of it goes back to the device.
    pub(crate) fn end(self, allocations: u64) {
        self.check_counters(allocations);
        self.pool.free_held();
        assert_eq!(self.device.statistics().live_blocks, 0);
        assert_eq!(self.pool.managed_bytes(), 0);
        self.end_of_pool();
    }

    /// What must hold when the pool has gone, without having been asked to give anything back.
    pub(crate) fn end_of_pool(self) {
        let Self {
            device,
            backend,
            queue,
            pool,
            ..
        } = self;
        drop(pool);
        // Markers, on a device that runs nothing by itself.
        device.run();
        assert_eq!(device.statistics().committed_bytes, 0);
        drop((queue, backend));
        assert_eq!(device.live_queues(), 0);
        has_nothing_left(&device);
    }
}

/// A block with a mark that no other thread may write over while its user has it.
pub(crate) struct Marked {
    pub(crate) block: Block,
    queue: MockQueue,
    mark: u8,
}

impl Marked {
    /// Checks that no other thread was given this memory, and drops the block.
    pub(crate) fn check(self) {
        let mut mark = [0_u8];
        self.block.read(&self.queue, 0, &mut mark).unwrap();
        assert_eq!(mark, [self.mark], "the block was handed out twice");
    }
}

/// Checks that no memory of the device is left, and that no program misused it.
pub(crate) fn has_nothing_left(device: &MockDevice) {
    assert_eq!(device.statistics().live_blocks, 0);
    assert_eq!(device.violations(), []);
}

/// Waits for threads, whose failures are this one's.
pub(crate) fn join<R>(threads: impl IntoIterator<Item = JoinHandle<R>>) -> Vec<R> {
    threads.into_iter().map(|it| it.join().unwrap()).collect()
}
