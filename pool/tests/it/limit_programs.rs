//! What is committed on the device never exceeds the pool's limit, whatever commands are pending.

use std::slice::from_ref;

use binpool::{
    Backend, GrowableBuffer, ImmediateAllocator, MemoryPool, Outcome, PoolOptions, PooledBuffer,
    Queue, QueueOrder, Region, VirtualMemoryAllocator,
};
use binpool_conformance::Random;
use binpool_mock::{Completion, MockBackend, MockDevice, MockEvent, MockMemory, MockQueue};

use crate::common::MIB;

const LIMIT: u64 = 16 << 20;

#[derive(Clone, Copy, Debug)]
enum Kind {
    Pages,
    Segments,
    Bins,
}

struct Program {
    device: MockDevice,
    backend: MockBackend,
    pool: MemoryPool<MockBackend>,
    queues: Vec<MockQueue>,
    blocks: Vec<PooledBuffer<MockBackend>>,
    growing: Vec<GrowableBuffer<MockBackend>>,
    views: Vec<MockMemory>,
    gate: MockEvent,
    granted: usize,
}

impl Program {
    fn new(kind: Kind, seed: u64) -> Self {
        let completion = [Completion::Manual, Completion::Seeded(seed)];
        let completion = completion[usize::from(seed.is_multiple_of(2))];
        let builder = MockDevice::builder().virtual_memory(true);
        let device = builder.completion(completion).build();
        let backend = device.backend();
        let orders = [
            QueueOrder::InOrder,
            QueueOrder::InOrder,
            QueueOrder::OutOfOrder,
        ];
        let queues = orders.map(|order| backend.create_queue(order).unwrap());
        let options = PoolOptions::new().limit(LIMIT);
        let pool = match kind {
            Kind::Pages => options.build(VirtualMemoryAllocator::new(&backend), &queues[0]),
            Kind::Segments | Kind::Bins => options
                .segments(matches!(kind, Kind::Segments))
                .build(ImmediateAllocator::new(&backend).unwrap(), &queues[0]),
        };
        Self {
            pool: pool.unwrap(),
            device,
            queues: queues.to_vec(),
            blocks: Vec::new(),
            growing: Vec::new(),
            views: Vec::new(),
            gate: backend.create_user_event().unwrap(),
            backend,
            granted: 0,
        }
    }

    fn open_the_gate(&mut self) {
        self.backend
            .resolve_user_event(&self.gate, Outcome::Complete)
            .unwrap();
        self.gate = self.backend.create_user_event().unwrap();
    }

    /// Has a command use a block, after all that use it already. Some commands wait for the gate.
    fn fill(&self, block: &PooledBuffer<MockBackend>, random: &mut Random) {
        let queue = &self.queues[random.below(self.queues.len())];
        let wait_for = if random.below(2) == 0 {
            from_ref(&self.gate)
        } else {
            &[]
        };
        if block.size() > 0 && block.order_before(queue).is_ok() {
            let _refused = block.enqueue_fill(queue.after(wait_for), .., &[1_u8]);
        }
    }

    fn step(&mut self, random: &mut Random) {
        let bytes = 1 + random.below(5 * MIB);
        let queue = self.queues[random.below(self.queues.len())].clone();
        match random.below(16) {
            0..=2 => {
                if let Ok(block) = self.pool.allocate_on(&queue, bytes) {
                    self.granted += 1;
                    self.fill(&block, random);
                    self.blocks.push(block);
                }
            }
            3..=5 => {
                let mut block = self.pool.growable_on(&queue, 12 * MIB).unwrap();
                if block.grow(bytes).is_ok() {
                    self.granted += 1;
                    self.fill(&block, random);
                    self.growing.push(block);
                }
            }
            6 if !self.growing.is_empty() => {
                let index = random.below(self.growing.len());
                let _refused = self.growing[index].grow(bytes);
                self.fill(&self.growing[index], random);
            }
            7 if !self.growing.is_empty() => {
                let index = random.below(self.growing.len());
                self.fill(&self.growing[index], random);
                let _failed = self.growing[index].shrink(bytes);
            }
            8 if !self.growing.is_empty() => {
                let block: &PooledBuffer<_> = &self.growing[random.below(self.growing.len())];
                if let Some(memory) = block.memory_on(&queue)
                    && block.size() >= 256
                {
                    let view = self.backend.create_sub_region(memory, Region::first(256));
                    self.views.extend(view);
                }
            }
            9 => self.views.clear(),
            10 | 11 if !self.growing.is_empty() => {
                drop(self.growing.swap_remove(random.below(self.growing.len())));
            }
            12 if !self.blocks.is_empty() => {
                drop(self.blocks.swap_remove(random.below(self.blocks.len())));
            }
            13 if !self.blocks.is_empty() => {
                let block = self.blocks.swap_remove(random.below(self.blocks.len()));
                let _failed = block.enqueue_release(Some(&queue), from_ref(&self.gate));
            }
            14 => match random.below(5) {
                0 => drop(self.pool.free_held()),
                1 => drop(self.pool.sweep()),
                2 => drop(self.pool.trim_to(LIMIT / 2)),
                3 => drop(self.pool.stop_holding()),
                _ => self.pool.resume_holding(),
            },
            _ => {
                if random.below(2) == 0 {
                    self.open_the_gate();
                }
                self.device.run();
            }
        }
    }

    fn check_end(mut self) {
        self.blocks.clear();
        self.growing.clear();
        self.views.clear();
        self.open_the_gate();
        self.device.run();
        self.pool.resume_holding();
        self.pool.free_held();
        self.device.run();
        let statistics = self.pool.statistics();
        let (managed, active) = (statistics.managed_bytes, statistics.active_blocks);
        assert_eq!((managed, active), (0, 0), "{statistics:#?}");
        assert_eq!(self.device.statistics().committed_bytes, 0);
        assert!(
            self.pool
                .allocate(usize::try_from(LIMIT).unwrap() / 2)
                .is_ok()
        );
        drop((self.pool, self.gate));
        self.device.run();
        assert_eq!(self.device.statistics().committed_bytes, 0);
        assert_eq!(self.device.violations(), []);
    }
}

#[test]
fn what_is_committed_never_exceeds_the_limit() {
    for kind in [Kind::Pages, Kind::Segments, Kind::Bins] {
        let mut granted = 0;
        for seed in 0..20 {
            let mut program = Program::new(kind, seed);
            let mut random = Random::new(seed);
            for step in 0..150 {
                program.step(&mut random);
                let committed = program.device.statistics().committed_bytes;
                assert!(
                    committed <= LIMIT,
                    "{kind:?}, seed {seed}, step {step}: {committed}"
                );
            }
            granted += program.granted;
            program.check_end();
        }
        assert!(granted > 300, "{kind:?}: {granted}");
    }
}
