//! Programs that take the same blocks period after period, on a few threads and queues, and what must hold while they run.

use std::time::Duration;

use binpool::{
    Allocator, Backend, ImmediateAllocator, Memory, QueueOrder, Region, SvmAllocator, SvmGrain,
    VirtualMemoryAllocator,
};
use binpool_allocators::PendingRead;
use binpool_conformance::Random;
use binpool_mock::{Completion, DeviceProfile, MockBackend, MockDevice, MockEvent, MockQueue};

use crate::common::{Block, MIB, Pool, worker::Worker};

/// Threads with an arena each, before two share one.
const ARENAS: usize = 16;

/// Where blocks lie. Those of buffers have no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carves {
    Buffers,
    Shared,
    Pages,
}

/// A block that a program takes once in each period.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub(crate) bytes: usize,
    /// It goes when this many more have been taken.
    pub(crate) life: usize,
    pub(crate) thread: usize,
    pub(crate) freed_by: usize,
    pub(crate) queue: usize,
}

/// A period of this many blocks of mixed sizes, of the first thread, on the first queue. None of them lives on into the next one.
pub(crate) fn mixed(seed: u64, blocks: usize) -> Vec<Taken> {
    let mut random = Random::new(seed);
    let left = (1..=blocks).rev();
    let blocks = left.map(|left| Taken {
        bytes: MIB + random.below(40 * MIB),
        life: (1 + random.below(12)).min(left),
        thread: 0,
        freed_by: 0,
        queue: 0,
    });
    blocks.collect()
}

struct Live {
    block: Block,
    address: Option<u64>,
    mark: u8,
    until: usize,
    taken: Taken,
}

/// A device, a pool over it, and threads that take turns.
pub(crate) struct Machine {
    pub(crate) device: MockDevice,
    pub(crate) backend: MockBackend,
    pub(crate) pool: Pool,
    pub(crate) queues: Vec<MockQueue>,
    threads: Vec<Worker>,
    /// Threads that have the arenas between.
    others: Vec<Worker>,
    live: Vec<Live>,
    /// Marks on their way, and what they have to be.
    reads: Vec<(PendingRead<MockEvent>, u8)>,
    taken: usize,
    /// The most bytes that were live at once.
    pub(crate) peak: u64,
}

impl Machine {
    pub(crate) fn new(carves: Carves, completion: Completion) -> Self {
        let device = MockDevice::builder()
            .profile(DeviceProfile::h200())
            .capacity_bytes((64 << 10) * MIB as u64)
            .virtual_memory(true)
            .completion(completion)
            .build();
        let backend = device.backend();
        match carves {
            Carves::Buffers => Self::over(device, ImmediateAllocator::new(&backend).unwrap()),
            Carves::Shared => Self::over(
                device,
                SvmAllocator::new(&backend, SvmGrain::Coarse).unwrap(),
            ),
            Carves::Pages => Self::over(device, VirtualMemoryAllocator::new(&backend)),
        }
    }

    /// Two queues, and a thread.
    pub(crate) fn over(
        device: MockDevice,
        allocator: impl Allocator<Backend = MockBackend>,
    ) -> Self {
        let backend = device.backend();
        let queues = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
        let pool = Pool::new(allocator, &queues[0]).unwrap();
        let mut machine = Self {
            device,
            backend,
            pool,
            queues: queues.to_vec(),
            threads: Vec::new(),
            others: Vec::new(),
            live: Vec::new(),
            reads: Vec::new(),
            taken: 0,
            peak: 0,
        };
        let first = machine.thread();
        machine.threads.push(first);
        machine
    }

    /// Adds threads until there are this many, in one arena or in one each.
    pub(crate) fn with_threads(mut self, threads: usize, share_an_arena: bool) -> Self {
        while self.threads.len() < threads {
            if share_an_arena {
                let others: Vec<_> = (1..ARENAS).map(|_| self.thread()).collect();
                self.others.extend(others);
            }
            let thread = self.thread();
            self.threads.push(thread);
        }
        self
    }

    /// A thread that has joined the pool.
    fn thread(&self) -> Worker {
        let (worker, pool) = (Worker::new(), self.pool.clone());
        worker.run(move || drop(pool.allocate(1).unwrap()));
        worker
    }

    /// Takes the blocks of a period. Returns their addresses.
    pub(crate) fn period(&mut self, blocks: &[Taken]) -> Vec<Option<u64>> {
        blocks.iter().map(|block| self.take(*block)).collect()
    }

    /// Takes a block, after those have gone whose lives are over.
    pub(crate) fn take(&mut self, taken: Taken) -> Option<u64> {
        // What a program takes on the host for an operation.
        self.device.pass(Duration::from_micros(10));
        self.taken += 1;
        let now = self.taken;
        let over: Vec<_> = self.live.extract_if(.., |live| live.until <= now).collect();
        for live in over {
            self.give(live);
        }
        let queue = &self.queues[taken.queue];
        let (pool, on) = (self.pool.clone(), queue.clone());
        let allocate = move || pool.allocate_on(&on, taken.bytes).unwrap();
        let block = self.threads[taken.thread % self.threads.len()].run(allocate);
        let mark = u8::try_from(now % 256).unwrap();
        // The device sees a race if it is still used by others.
        self.backend.enqueue_use(queue, &block).unwrap();
        for place in marked(&block) {
            block
                .enqueue_fill(queue, place..place + 1, &[mark])
                .unwrap();
        }
        let memory = block.memory_on(queue).unwrap();
        let address = memory.device_address().ok();
        self.live.push(Live {
            block,
            address,
            mark,
            until: now + taken.life,
            taken,
        });
        self.check();
        address
    }

    /// Frees a block after its last commands, which read what its first ones have written.
    fn give(&mut self, live: Live) {
        let queue = &self.queues[live.taken.queue];
        let memory = live.block.memory_on(queue).unwrap();
        for place in marked(&live.block) {
            let read = self
                .backend
                .enqueue_read(queue, memory, Region::new(place, 1));
            self.reads.push((read.unwrap(), live.mark));
        }
        let freed_by = live.taken.freed_by % self.threads.len();
        self.threads[freed_by].run(move || drop(live.block));
    }

    /// No two live blocks share a byte, and all lie in the pool's memory.
    fn check(&mut self) {
        let bytes = |live: &Live| live.block.class_size() as u64;
        let in_use = self.live.iter().map(bytes).sum();
        self.peak = self.peak.max(in_use);
        assert!(self.pool.managed_bytes() >= in_use);
        let last = self.live.last().unwrap();
        let Some(address) = last.address else { return };
        for live in &self.live[..self.live.len() - 1] {
            let other = live.address.unwrap();
            let is_apart = other + bytes(live) <= address || address + bytes(last) <= other;
            assert!(is_apart, "{:?} and {:?} overlap", live.taken, last.taken);
        }
    }

    /// What the pool has beyond the most that was live, in percent of that.
    pub(crate) fn percent_beyond(&self) -> u64 {
        self.pool.managed_bytes().saturating_sub(self.peak) * 100 / self.peak
    }

    /// Returns whether a program has had as much in use as one that is planned.
    pub(crate) fn has_enough(&self) -> bool {
        self.peak >= 64 * MIB as u64
    }

    /// Takes the blocks of two periods. Returns whether each lies in the second one where it lay in the first, with little more than is live.
    pub(crate) fn follows_a_plan(&mut self, blocks: &[Taken]) -> bool {
        self.period(blocks) == self.period(blocks) && self.percent_beyond() <= 5
    }

    /// Checks that each block kept its content, that no two commands raced, and that everything goes back.
    pub(crate) fn end(mut self) {
        for live in std::mem::take(&mut self.live) {
            self.give(live);
        }
        self.device.run();
        for (read, mark) in self.reads.drain(..) {
            assert_eq!(read.wait().unwrap(), [mark], "a block was overwritten");
        }
        self.pool.trim_to(0);
        assert_eq!(self.pool.managed_bytes(), 0);
        let Self {
            device,
            pool,
            threads,
            others,
            ..
        } = self;
        drop((threads, others, pool));
        // Markers after which shared memory goes.
        device.run();
        assert_eq!(device.statistics().live_blocks, 0);
        assert_eq!(device.violations(), []);
    }
}

/// The first byte, and the last one.
fn marked(block: &Block) -> [usize; 2] {
    [0, block.size() - 1]
}
