//! The same work repeated: what a pool manages ends on a level, on one queue and on several, from one thread and from many, while the
//! device is behind.

use std::{sync::Barrier, thread, time::Duration};

use binpool::{
    Allocator, Backend, ImmediateAllocator, MemoryPool, PooledBuffer, Queue, QueueOrder,
    VirtualMemoryAllocator,
};
use binpool_conformance::Random;
use binpool_mock::{Completion, DeviceProfile, MockBackend, MockDevice, MockQueue};

use crate::common::MIB;

const ROUNDS: usize = 64;

/// A device on which each command takes a tenth of a millisecond, and a pool over it.
struct Program {
    device: MockDevice,
    queues: Vec<MockQueue>,
    pool: MemoryPool<MockBackend>,
}

impl Program {
    fn new<A: Allocator<Backend = MockBackend>>(
        queues: usize,
        allocator: impl FnOnce(&MockBackend) -> A,
    ) -> Self {
        let device = MockDevice::builder()
            .profile(DeviceProfile::h200())
            .virtual_memory(true)
            .completion(Completion::Behind {
                commands: Duration::from_micros(100),
                markers: Duration::from_micros(5),
            })
            .build();
        let backend = device.backend();
        let queue = |_| backend.create_queue(QueueOrder::InOrder).unwrap();
        let queues: Vec<MockQueue> = (0..queues).map(queue).collect();
        let pool = MemoryPool::new(allocator(&backend), &queues[0]).unwrap();
        Self {
            device,
            queues,
            pool,
        }
    }

    /// The work of one thread in one round: blocks of 64 KiB to 16 MiB, a few of them live at once, each used by a command. The threads go
    /// step by step, so that as much is live in each round.
    fn work(&self, thread: usize, step_by_step: &Barrier) {
        let mut random = Random::new(1 + thread as u64);
        let mut live: Vec<PooledBuffer<MockBackend>> = Vec::new();
        for step in 0..8 {
            let queue = &self.queues[(thread + step) % self.queues.len()];
            let bytes = (64 << 10) + random.below(16 * MIB);
            let block = self.pool.allocate_on(queue, bytes).unwrap();
            self.device.backend().enqueue_use(queue, &block).unwrap();
            self.device.pass(Duration::from_micros(12));
            live.push(block);
            if live.len() > 3 {
                drop(live.remove(random.below(live.len())));
            }
            step_by_step.wait();
        }
    }

    /// Returns how many MiB the pool manages after each round.
    fn managed_mib(&self, threads: usize, waits: bool) -> Vec<u64> {
        let step_by_step = &Barrier::new(threads);
        let rounds = |thread| {
            let round = |_| {
                self.work(thread, step_by_step);
                if step_by_step.wait().is_leader() && waits {
                    self.queues.iter().for_each(|queue| queue.finish().unwrap());
                }
                step_by_step.wait();
                self.pool.managed_bytes() >> 20
            };
            (0..ROUNDS).map(round).collect()
        };
        thread::scope(|scope| {
            let others: Vec<_> = (1..threads)
                .map(|thread| scope.spawn(move || -> Vec<u64> { rounds(thread) }))
                .collect();
            let managed = rounds(0);
            for other in others {
                other.join().unwrap();
            }
            managed
        })
    }

    /// Checks that the last 16 rounds of 64 take little more at most than the 16 before, and that all is at most 2.5 times what is live.
    fn ends_on_a_level(&self, threads: usize, waits: bool) {
        let managed = self.managed_mib(threads, waits);
        // The most of several rounds, since the order of the threads differs from round to round.
        let most = |from: usize| managed[from..][..16].iter().max().copied().unwrap();
        let (before, end) = (most(ROUNDS - 32), most(ROUNDS - 16));
        let live = self.pool.statistics().peak_active_bytes >> 20;
        let form = format!(
            "{} queues, {threads} threads, waits: {waits}",
            self.queues.len()
        );
        assert!(end * 10 <= before * 11, "{form}: {managed:?} MiB");
        assert!(
            2 * end <= 5 * live,
            "{form}: {end} MiB where {live} are live"
        );
        assert_eq!(self.device.violations(), []);
    }
}

#[test]
fn the_same_work_again_and_again_ends_on_a_level() {
    for queues in [1, 6] {
        for threads in [1, 16] {
            for waits in [false, true] {
                let segments = |backend: &_| ImmediateAllocator::new(backend).unwrap();
                Program::new(queues, segments).ends_on_a_level(threads, waits);
                Program::new(queues, VirtualMemoryAllocator::new).ends_on_a_level(threads, waits);
            }
        }
    }
}
