//! Random programs on several threads: in turns, where every number is the model's; and all at once, where nothing is
//! lost, nothing races, and the device gets everything back.

use std::{
    collections::BTreeMap,
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{channel, sync_channel},
    },
    thread,
};

use binpool::{PoolOptions, PoolStatistics, Queue, QueueOrder, ReusePolicy};
use binpool_conformance::Random;
use binpool_mock::{CallKind, Completion, MockDevice, MockQueue};
use proptest::{prelude::*, sample::Index};

use crate::common::{Block, MIB, Rig, class_size, worker::Worker};

/// The pool as a table of numbers, on a device that is never full: it does not matter which thread does what.
#[derive(Debug, Default)]
struct Model {
    held: BTreeMap<usize, u64>,
    counters: PoolStatistics,
}

impl Model {
    fn allocate(&mut self, asked: usize) {
        let size = class_size(asked);
        let held = self.held.entry(size).or_default();
        let counters = &mut self.counters;
        if *held > 0 {
            *held -= 1;
            counters.held_blocks -= 1;
            counters.held_bytes -= size as u64;
            counters.hits += 1;
        } else {
            counters.misses += 1;
            counters.managed_bytes += size as u64;
            counters.peak_managed_bytes = counters.peak_managed_bytes.max(counters.managed_bytes);
        }
        counters.active_blocks += 1;
        counters.active_bytes += asked as u64;
        counters.peak_active_bytes = counters.peak_active_bytes.max(counters.active_bytes);
    }

    fn drop(&mut self, block: &Block) {
        let size = block.class_size();
        *self.held.entry(size).or_default() += 1;
        self.counters.held_blocks += 1;
        self.counters.held_bytes += size as u64;
        self.deactivate(block);
    }

    fn detach(&mut self, block: &Block) {
        self.counters.managed_bytes -= block.class_size() as u64;
        self.deactivate(block);
    }

    fn deactivate(&mut self, block: &Block) {
        self.counters.active_blocks -= 1;
        self.counters.active_bytes -= block.size() as u64;
    }

    fn free_held(&mut self) -> u64 {
        self.held.clear();
        let counters = &mut self.counters;
        counters.released_blocks += std::mem::take(&mut counters.held_blocks);
        let bytes = std::mem::take(&mut counters.held_bytes);
        counters.managed_bytes -= bytes;
        bytes
    }
}

#[derive(Clone, Debug)]
enum Operation {
    Allocate(usize),
    /// This many blocks of a size, and all but one of them go.
    Churn(usize, usize),
    Drop(Index),
    Detach(Index),
    FreeHeld,
    Statistics,
    /// The thread ends, and another takes its place.
    End,
}

fn any_operation() -> impl Strategy<Value = Operation> {
    // Few classes, so that threads get at each other's blocks.
    let any_size = || prop_oneof![1..600_usize, Just(4096_usize), Just(70_000_usize)];
    let index = any::<Index>;
    prop_oneof![
        16 => any_size().prop_map(Operation::Allocate),
        1 => (any_size(), 2..100_usize).prop_map(|(size, blocks)| Operation::Churn(size, blocks)),
        16 => index().prop_map(Operation::Drop),
        4 => index().prop_map(Operation::Detach),
        1 => Just(Operation::FreeHeld),
        2 => Just(Operation::Statistics),
        1 => Just(Operation::End),
    ]
}

/// What a block is dropped by is seldom who allocated it: threads are picked anew for each step.
fn any_program() -> impl Strategy<Value = (usize, Vec<(usize, Operation)>)> {
    let step = (any::<usize>(), any_operation());
    (1..4_usize, prop::collection::vec(step, 1..80))
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        // What is found is written down as a test of its own.
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// One in-order queue, and one to three threads that take turns: whenever a thread asks, every number is the model's.
    /// Several threads may have had less at the same time than the peak says, one thread had just that.
    #[test]
    fn threads_in_turns_do_what_the_model_does((threads, program) in any_program()) {
        let rig = Rig::with_capacity(1024 * MIB);
        let mut workers: Vec<_> = (0..threads).map(|_| Worker::new()).collect();
        let mut model = Model::default();
        let mut live: Vec<Block> = Vec::new();
        let steps = program.into_iter().chain([(0, Operation::Statistics)]);
        for (thread, operation) in steps {
            let worker = &mut workers[thread % threads];
            let pool = rig.pool.clone();
            match operation {
                Operation::Allocate(asked) => {
                    live.push(worker.run(move || pool.allocate(asked).unwrap()));
                    model.allocate(asked);
                }
                Operation::Churn(asked, blocks) => {
                    let mut blocks: Vec<_> = (0..blocks)
                        .map(|_| {
                            let pool = pool.clone();
                            model.allocate(asked);
                            worker.run(move || pool.allocate(asked).unwrap())
                        })
                        .collect();
                    live.extend(blocks.pop());
                    for block in &blocks {
                        model.drop(block);
                    }
                    worker.run(move || drop(blocks));
                }
                Operation::Drop(index) if !live.is_empty() => {
                    let block = live.swap_remove(index.index(live.len()));
                    model.drop(&block);
                    worker.run(move || drop(block));
                }
                Operation::Detach(index) if !live.is_empty() => {
                    let block = live.swap_remove(index.index(live.len()));
                    model.detach(&block);
                    worker.run(move || drop(block.detach()));
                }
                Operation::Drop(_) | Operation::Detach(_) => {}
                Operation::FreeHeld => {
                    prop_assert_eq!(worker.run(move || pool.free_held()), model.free_held());
                }
                Operation::Statistics => {
                    let mut statistics = worker.run(move || pool.statistics());
                    if threads > 1 {
                        prop_assert!(statistics.peak_active_bytes >= statistics.active_bytes);
                        statistics.peak_active_bytes = model.counters.peak_active_bytes;
                    }
                    prop_assert_eq!(statistics, model.counters);
                    let device = rig.device.statistics();
                    prop_assert_eq!(device.committed_bytes, model.counters.managed_bytes);
                }
                Operation::End => *worker = Worker::new(),
            }
        }
        drop(live);
        drop(rig.pool);
        prop_assert_eq!(rig.device.statistics().live_blocks, 0);
        drop(workers);
        prop_assert!(rig.device.violations().is_empty());
    }
}

/// Threads in turns use blocks on queues of both kinds, move them from queue to queue, and drop what others allocated.
fn threads_and_queues(policy: ReusePolicy, segments: bool, seed: u64) {
    const STEPS: usize = 60;
    let rig = Rig::with_options(
        MockDevice::builder()
            .capacity_bytes(64 << 10)
            .completion(Completion::Seeded(seed)),
        PoolOptions::new().segments(segments).reuse(policy),
    );
    let orders = [
        QueueOrder::InOrder,
        QueueOrder::InOrder,
        QueueOrder::OutOfOrder,
    ];
    let queues = orders.map(|order| rig.another_queue(order));
    let workers = [(); 3].map(|()| Worker::new());
    let mut random = Random::new(seed);
    let mut live: Vec<Block> = Vec::new();
    for _ in 0..STEPS {
        let worker = &workers[random.below(3)];
        let queue = queues[random.below(3)].clone();
        let other = queues[random.below(3)].clone();
        let step = random.below(10);
        if live.len() < 8 && step < 5 {
            let (pool, bytes) = (rig.pool.clone(), 1000 * (1 + random.below(3)));
            live.push(worker.run(move || {
                let block = pool.allocate_on(&queue, bytes).unwrap();
                fill(&block, &queue);
                block
            }));
        } else if let Some(index) = (!live.is_empty()).then(|| random.below(live.len())) {
            let mut block = live.swap_remove(index);
            match step {
                0..8 => worker.run(move || drop(block)),
                8 => live.push(worker.run(move || {
                    block.order_before(&other).unwrap();
                    fill(&block, &other);
                    block
                })),
                _ if other.order() == QueueOrder::InOrder => live.push(worker.run(move || {
                    block.bind_to_queue(&other).unwrap();
                    fill(&block, &other);
                    block
                })),
                _ => live.push(worker.run(move || {
                    block.unbind_from_queue().unwrap();
                    block
                })),
            }
        }
        if random.below(20) == 0 {
            rig.pool.retire_queue(&queues[random.below(3)]);
        }
    }
    drop(live);
    rig.device.run();
    let violations = rig.device.violations();
    assert!(violations.is_empty(), "{policy:?} {seed}: {violations:#?}");
    let statistics = rig.pool.statistics();
    assert_eq!((statistics.active_blocks, statistics.active_bytes), (0, 0));
    rig.pool.free_held();
    rig.device.run();
    assert_eq!(rig.blocks_on_device(), 0, "{policy:?} {seed}");
}

fn fill(block: &Block, queue: &MockQueue) {
    block.enqueue_fill(queue, 0..block.size(), &[1_u8]).unwrap();
}

#[test]
fn nothing_races_where_threads_share_queues_and_blocks() {
    for policy in ReusePolicy::ALL {
        for segments in [false, true] {
            for seed in 0..40 {
                threads_and_queues(policy, segments, seed);
            }
        }
    }
}

#[test]
fn a_consumer_at_work_hoards_nothing_of_its_producer() {
    const IN_CHANNEL: usize = 6;
    // One at the producer's end, one at the consumer's, one that is on its way to the consumer's cache; what a cache holds of
    // a kind, and the half of that which it leaves for others: taking all of it each time would cost more than it saves.
    const ELSEWHERE: usize = 3 + 65 + 32;
    let rig = Rig::with_capacity(64 * MIB);
    let (send, receive) = sync_channel::<Block>(IN_CHANNEL);
    let consumer = thread::spawn(move || receive.into_iter().for_each(drop));
    for _ in 0..5000 {
        send.send(rig.pool.allocate(1000).unwrap()).unwrap();
    }
    drop(send);
    consumer.join().unwrap();
    let made = rig.device.call_count(CallKind::CreateBuffer);
    assert!(made <= (IN_CHANNEL + ELSEWHERE) as u64, "{made} blocks");
    let statistics = rig.pool.statistics();
    assert_eq!(
        (statistics.active_blocks, statistics.held_blocks),
        (0, made)
    );
    assert_eq!(statistics.hits + statistics.misses, 5000);
}

/// Eight threads allocate, hold, drop, and send each other blocks, on a device that is too small for them, while one more
/// looks at the counters, and takes from the pool whatever it has.
fn stress(options: PoolOptions) {
    const THREADS: usize = 8;
    const STEPS: usize = 2000;
    const MOST_HELD: usize = 6;
    const CAPACITY: usize = 1 << 20;
    let builder = MockDevice::builder()
        .capacity_bytes(CAPACITY as u64)
        .detect_races(false);
    let rig = Rig::with_options(builder, options);
    let (allocated, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    let is_over = AtomicBool::new(false);
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| channel::<Block>()).unzip();
    thread::scope(|scope| {
        let observer = scope.spawn(|| {
            for round in 0.. {
                let statistics = rig.pool.statistics();
                assert!(statistics.managed_bytes <= CAPACITY as u64);
                assert!(statistics.held_bytes <= statistics.managed_bytes);
                match round % 8 {
                    0 => assert!(rig.pool.free_held() <= CAPACITY as u64),
                    // It gives back twice where the first time was not enough, and others may have filled the device again
                    // by then.
                    2 => assert!(rig.pool.trim_to(CAPACITY as u64 / 2) <= 2 * CAPACITY as u64),
                    4 => assert!(rig.pool.sweep() <= CAPACITY as u64),
                    6 => assert!(!rig.pool.would_fit(CAPACITY + 1)),
                    _ => thread::yield_now(),
                }
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let workers: Vec<_> = (0_u64..)
            .zip(receivers)
            .map(|(seed, receive)| {
                let (rig, senders) = (&rig, senders.clone());
                let (allocated, refused) = (&allocated, &refused);
                scope.spawn(move || {
                    let mut random = Random::new(seed);
                    let mut held: Vec<Block> = Vec::new();
                    for _ in 0..STEPS {
                        let bytes = 256 << random.below(9);
                        match rig.pool.allocate(bytes - random.below(256)) {
                            Ok(block) => {
                                allocated.fetch_add(1, Ordering::Relaxed);
                                held.push(block);
                            }
                            Err(error) => {
                                assert!(error.is_out_of_memory(), "{error}");
                                refused.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                        // A thread that has ended already drops it at once.
                        if random.below(4) == 0
                            && let Some(block) = held.pop()
                        {
                            let _ended = senders[random.below(THREADS)].send(block);
                        }
                        drop(receive.try_iter().take(2).collect::<Vec<_>>());
                        while held.len() > random.below(MOST_HELD) {
                            drop(held.swap_remove(random.below(held.len())));
                        }
                    }
                })
            })
            .collect();
        drop(senders);
        let ended: Vec<_> = workers
            .into_iter()
            .map(thread::ScopedJoinHandle::join)
            .collect();
        is_over.store(true, Ordering::Relaxed);
        observer.join().unwrap();
        for end in ended {
            end.unwrap();
        }
    });
    let (allocated, refused) = (allocated.into_inner(), refused.into_inner());
    assert_eq!(allocated + refused, (THREADS * STEPS) as u64);
    let statistics = rig.pool.statistics();
    assert_eq!((statistics.active_blocks, statistics.active_bytes), (0, 0));
    assert_eq!(statistics.hits + statistics.misses, allocated);
    assert_eq!(statistics.out_of_memory, refused);
    assert_eq!(statistics.held_bytes, statistics.managed_bytes);
    assert_eq!(
        rig.device.statistics().committed_bytes,
        statistics.managed_bytes
    );
    rig.pool.free_held();
    assert_eq!(rig.blocks_on_device(), 0);
    assert_eq!(rig.pool.managed_bytes(), 0);
    assert!(rig.device.violations().is_empty());
}

#[test]
fn eight_threads_lose_nothing_on_a_device_that_is_too_small() {
    stress(PoolOptions::new().segments(false));
}

#[test]
fn eight_threads_lose_nothing_of_segments_that_are_too_small() {
    stress(PoolOptions::new().segments(true));
}
