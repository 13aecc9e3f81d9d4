//! What a thread has cached is the pool's: others find it, it counts, and it outlives neither thread nor pool.

use std::{
    cell::{Cell, RefCell},
    sync::{Arc, Mutex},
    thread,
};

use binpool::{
    Backend, DeferredAllocator, ImmediateAllocator, MemoryId, MemoryPool, PoolOptions, Queue,
    QueueOrder, ReusePolicy, SizeClasses, SvmAllocator, SvmGrain, WatchOptions,
};
use binpool_mock::{CallKind, Completion, Fault, MockDevice, MockQueue, Persistence};

use crate::common::{Block, MIB, Pool, Rig, SMALLEST, worker::Worker};

/// Larger than half of what a segment has usually, so that it has a segment of its own.
const WHOLE_SEGMENT: usize = 32 * MIB;

fn bins_alone() -> PoolOptions {
    PoolOptions::new().segments(false)
}

fn manual(policy: ReusePolicy) -> Rig {
    Rig::with_policy(MockDevice::builder().completion(Completion::Manual), policy)
}

/// Has the thread allocate a block for this queue.
fn allocate(worker: &Worker, pool: &Pool, queue: &MockQueue, bytes: usize) -> Block {
    let (pool, queue) = (pool.clone(), queue.clone());
    worker.run(move || pool.allocate_on(&queue, bytes).unwrap())
}

/// Has the thread drop a block, and keep it in its cache if it may.
fn drop_on(worker: &Worker, block: Block) -> MemoryId {
    let memory = block.memory_id().unwrap();
    worker.run(move || drop(block));
    memory
}

/// Has the thread allocate this many blocks of these bytes for the home queue, and drop them.
fn keep(worker: &Worker, pool: &Pool, blocks: usize, bytes: usize) -> Vec<MemoryId> {
    let pool = pool.clone();
    worker.run(move || {
        let blocks: Vec<_> = (0..blocks).map(|_| pool.allocate(bytes).unwrap()).collect();
        blocks.iter().map(|it| it.memory_id().unwrap()).collect()
    })
}

/// Enqueues a fill of all of a block.
fn fill(block: &Block, queue: &MockQueue, mark: u8) {
    block.enqueue_fill(queue, 0..block.size(), &[mark]).unwrap();
}

/// Returns whether each thread that frees a block gets that very block next.
fn have_their_own(rig: &Rig, workers: &[Worker]) -> bool {
    let blocks: Vec<_> = workers
        .iter()
        .map(|worker| allocate(worker, &rig.pool, &rig.queue, 100))
        .collect();
    let dropped: Vec<_> = workers
        .iter()
        .zip(blocks)
        .map(|(worker, block)| drop_on(worker, block))
        .collect();
    workers
        .iter()
        .zip(dropped)
        .all(|(worker, memory)| keep(worker, &rig.pool, 1, 100) == [memory])
}

// Cached by a thread.

#[test]
fn a_thread_gets_its_own_block_back() {
    let rig = Rig::with_capacity(MIB);
    assert!(have_their_own(&rig, &[(); 3].map(|()| Worker::new())));
}

#[test]
fn a_block_that_another_thread_dropped_is_that_threads() {
    let rig = Rig::with_capacity(MIB);
    let worker = Worker::new();
    let (block, own) = (
        rig.pool.allocate(100).unwrap(),
        rig.pool.allocate(100).unwrap(),
    );
    drop(own);
    let memory = drop_on(&worker, block);
    assert_eq!(keep(&worker, &rig.pool, 1, 100), [memory]);
}

// Others find it.

#[test]
fn what_others_have_cached_is_found_before_the_device_is_asked() {
    for options in [bins_alone(), PoolOptions::new().segments(true)] {
        let rig = Rig::with_options(MockDevice::builder(), options);
        let worker = Worker::new();
        let memory = keep(&worker, &rig.pool, 1, WHOLE_SEGMENT)[0];
        assert_eq!(rig.blocks_on_device(), 1);
        let block = rig.pool.allocate(WHOLE_SEGMENT).unwrap();
        assert_eq!(rig.blocks_on_device(), 1);
        assert_eq!(block.memory_id(), Some(memory));
    }
}

#[test]
fn a_full_device_has_what_others_have_cached() {
    const KIB: usize = 1 << 10;
    // The same class, a class that larger blocks serve, and one that only the device could serve.
    let programs = [
        (1, 8 * KIB, 8 * KIB),
        (1, 8 * KIB, 7 * KIB),
        (8, KIB, 8 * KIB),
    ];
    for policy in ReusePolicy::ALL {
        for segments in [false, true] {
            for (blocks, kept, asked) in programs {
                let rig = Rig::with_options(
                    MockDevice::builder().capacity_bytes(8 * KIB as u64),
                    PoolOptions::new().segments(segments).reuse(policy),
                );
                let worker = Worker::new();
                keep(&worker, &rig.pool, blocks, kept);
                assert!(rig.pool.would_fit(asked));
                // What was gathered for the answer is in the thread's cache again.
                keep(&worker, &rig.pool, blocks, kept);
                let block = rig.pool.allocate(asked);
                assert!(block.is_ok(), "{policy:?} {segments} {kept} {asked}");
            }
        }
    }
}

#[test]
fn what_a_thread_drops_during_a_shortage_is_found() {
    for segments in [false, true] {
        let rig = Rig::with_options(
            MockDevice::builder().capacity_bytes(4096),
            PoolOptions::new().segments(segments),
        );
        let worker = Worker::new();
        // So that it is no newcomer when the shortage comes.
        keep(&worker, &rig.pool, 1, 4096);
        let block = allocate(&worker, &rig.pool, &rig.queue, 4096);
        let gate = rig.gate();
        block
            .enqueue_fill(
                rig.queue.after(std::slice::from_ref(&gate)),
                0..4096,
                &[1_u8],
            )
            .unwrap();
        let memory = block.memory_id();
        let block = Mutex::new(Some(block));
        rig.pool.add_reclaim_hook(move |_| {
            if let Some(block) = block.lock().unwrap().take() {
                drop_on(&worker, block);
            }
            false
        });
        // Its own queue may have it, although no thread can wait for what it does there.
        assert_eq!(rig.pool.allocate(4096).unwrap().memory_id(), memory);
        rig.open(&gate);
    }
}

#[test]
fn a_consumer_hoards_nothing_of_its_producer() {
    const IN_FLIGHT: usize = 100;
    let rig = Rig::with_capacity(64 * MIB);
    let consumer = Worker::new();
    for _ in 0..20 {
        let blocks: Vec<_> = (0..IN_FLIGHT)
            .map(|_| rig.pool.allocate(1000).unwrap())
            .collect();
        consumer.run(move || drop(blocks));
    }
    assert_eq!(
        rig.device.call_count(CallKind::CreateBuffer),
        IN_FLIGHT as u64
    );
}

// It counts.

#[test]
fn what_threads_have_cached_is_held() {
    let rig = Rig::with_capacity(MIB);
    let workers = [(); 3].map(|()| Worker::new());
    let blocks: Vec<_> = workers
        .iter()
        .map(|worker| allocate(worker, &rig.pool, &rig.queue, 1000))
        .collect();
    let statistics = rig.pool.statistics();
    assert_eq!((statistics.active_blocks, statistics.held_blocks), (3, 0));
    assert_eq!((statistics.active_bytes, statistics.held_bytes), (3000, 0));
    for (worker, block) in workers.iter().zip(blocks) {
        drop_on(worker, block);
    }
    let statistics = rig.pool.statistics();
    assert_eq!((statistics.active_blocks, statistics.held_blocks), (0, 3));
    assert_eq!((statistics.active_bytes, statistics.held_bytes), (0, 3072));
    assert_eq!(statistics.managed_bytes, 3072);
    assert_eq!((statistics.hits, statistics.misses), (0, 3));
    for worker in &workers {
        keep(worker, &rig.pool, 1, 900);
    }
    assert_eq!(rig.pool.statistics().hits, 3);
    assert_eq!(rig.pool.statistics().peak_active_bytes, 3000);
}

#[test]
fn looking_at_the_counters_takes_nothing_from_a_cache() {
    let rig = Rig::with_capacity(MIB);
    let workers = [(); 2].map(|()| Worker::new());
    let blocks = [(); 2].map(|()| rig.pool.allocate(100).unwrap());
    let memory = workers.iter().zip(blocks);
    let memory: Vec<_> = memory
        .map(|(worker, block)| drop_on(worker, block))
        .collect();
    assert_eq!(rig.pool.held_blocks(), 2);
    assert_eq!(keep(&workers[0], &rig.pool, 1, 100), memory[..1]);
}

#[test]
fn the_peak_counts_what_came_from_a_cache_before_something_left_the_pool() {
    let ways: [fn(Block, &Rig); 2] = [
        |block, _| drop(block.detach()),
        |block, rig| {
            rig.device
                .fail_nth(CallKind::Marker, 1, Fault::Backend(-1), Persistence::Once);
            assert!(block.enqueue_release(None, &[]).is_err());
        },
    ];
    for leave in ways {
        let rig = Rig::with_capacity(MIB);
        drop(rig.pool.allocate(10_000).unwrap());
        drop(rig.pool.allocate(1000).unwrap());
        let large = rig.pool.allocate(10_000).unwrap();
        // The only one that the pool did not see.
        let small = rig.pool.allocate(1000).unwrap();
        leave(large, &rig);
        assert_eq!(rig.pool.statistics().peak_active_bytes, 11_000);
        drop(small);
    }
}

#[test]
fn the_peak_of_what_threads_hand_on_is_at_most_what_the_pool_had() {
    let rig = Rig::with_capacity(MIB);
    let workers = [(); 2].map(|()| Worker::new());
    for _ in 0..4 {
        let blocks: Vec<_> = (0..200)
            .map(|_| allocate(&workers[0], &rig.pool, &rig.queue, 1000))
            .collect();
        workers[1].run(move || drop(blocks));
    }
    let statistics = rig.pool.statistics();
    let [active, managed] = [statistics.peak_active_bytes, statistics.peak_managed_bytes];
    assert!(
        (200_000..=managed).contains(&active),
        "{active} of {managed}"
    );
}

#[test]
fn the_peak_hears_of_what_one_thread_frees_and_another_allocates() {
    const BYTES: usize = 64 * MIB + 1;
    // Blocks are twice as large as what was requested, so that the pool has more than the peak may be.
    let options = PoolOptions::new().leading_bits(0);
    let rig = Rig::with_options(MockDevice::builder().capacity_bytes(8 << 30), options);
    let workers = [(); 2].map(|()| Worker::new());
    for _ in 0..6 {
        let mut blocks: Vec<_> = (0..30)
            .map(|_| allocate(&workers[0], &rig.pool, &rig.queue, BYTES))
            .collect();
        blocks.extend((0..10).map(|_| allocate(&workers[1], &rig.pool, &rig.queue, BYTES)));
        workers[1].run(move || drop(blocks));
    }
    let statistics = rig.pool.statistics();
    let [peak, managed] =
        [statistics.peak_active_bytes, statistics.managed_bytes].map(|bytes| bytes / MIB as u64);
    // Each thread keeps 256 MiB and a block to itself at most.
    let off = 2 * (256 + 64);
    assert!(
        managed >= 5120 && (2560 - off..=2560 + off).contains(&peak),
        "{peak} MiB of {managed}"
    );
}

#[test]
fn sizes_that_lie_together_are_not_taken_for_each_other() {
    // So many classes that a cache has them lie together, and these two do.
    const SMALL: usize = (64 << 10) + SMALLEST;
    const LARGE: usize = SMALL + SMALLEST;
    let rig = Rig::with_options(MockDevice::builder(), bins_alone().leading_bits(10));
    let workers = [(); 2].map(|()| Worker::new());
    let mut blocks: Vec<_> = (0..160)
        .map(|_| rig.pool.allocate(SMALL).unwrap())
        .collect();
    let rest = blocks.split_off(100);
    workers[0].run(move || drop(blocks));
    workers[1].run(move || drop(rest));
    let large = allocate(&workers[1], &rig.pool, &rig.queue, LARGE);
    assert_eq!(large.class_size(), LARGE);
    assert_eq!(rig.pool.held_blocks(), 160);
    drop_on(&workers[1], large);
    keep(&workers[1], &rig.pool, 160, SMALL);
    assert_eq!(rig.pool.held_blocks(), 161);
    assert_eq!(rig.pool.statistics().misses, 161);
}

#[test]
fn segments_grow_with_what_is_in_use_whatever_was_cached() {
    let [without, with] = [0, 20].map(|rounds| {
        let rig = Rig::with_options(MockDevice::builder(), PoolOptions::new().segments(true));
        let worker = Worker::new();
        for _ in 0..rounds {
            keep(&worker, &rig.pool, 3, MIB);
            assert_eq!(rig.pool.active_blocks(), 0);
        }
        let blocks: Vec<_> = (0..300).map(|_| rig.pool.allocate(MIB).unwrap()).collect();
        let segments = rig.blocks_on_device();
        drop(blocks);
        segments
    });
    // Those of the first rounds were the fewest.
    assert!(
        with <= without + 2,
        "{with} segments, and {without} without"
    );
}

#[test]
fn with_one_arena_what_one_thread_freed_serves_another_before_the_pool_grows() {
    let [one, sixteen] = [1, 16].map(|arenas| {
        let options = PoolOptions::new().arenas(arenas);
        let rig = Rig::with_options(MockDevice::builder(), options);
        let mut blocks: Vec<_> = (0..100).map(|_| rig.pool.allocate(MIB).unwrap()).collect();
        blocks.drain(..10);
        let before = rig.pool.managed_bytes();
        let worker = Worker::new();
        let other = [(); 8].map(|()| allocate(&worker, &rig.pool, &rig.queue, MIB));
        let grown = rig.pool.managed_bytes() - before;
        drop((blocks, other));
        grown
    });
    // With an arena of its own, the other thread takes new memory while little is free.
    assert!(one == 0 && sixteen > 0, "{one}, {sixteen}");
}

#[test]
fn there_is_room_for_more_than_a_cache_holds() {
    const BLOCKS: usize = 200;
    for options in [bins_alone(), PoolOptions::new().segments(true)] {
        let rig = Rig::with_options(MockDevice::builder(), options);
        let worker = Worker::new();
        keep(&worker, &rig.pool, BLOCKS, 1000);
        let statistics = rig.pool.statistics();
        assert_eq!(statistics.active_blocks, 0);
        assert_eq!(statistics.held_bytes, statistics.managed_bytes);
        let on_device = rig.blocks_on_device();
        keep(&worker, &rig.pool, BLOCKS, 1000);
        let mut found: Vec<_> = (0..BLOCKS)
            .map(|_| rig.pool.allocate(1000).unwrap())
            .collect();
        assert_eq!(rig.blocks_on_device(), on_device);
        found.sort_by_key(Block::memory_id);
        found.dedup_by_key(|block| block.memory_id());
        assert_eq!(found.len(), BLOCKS, "each is one user's");
        assert_eq!(rig.pool.active_bytes(), 1000 * BLOCKS as u64);
        drop(found);
        rig.pool.free_held();
        assert_eq!(rig.blocks_on_device(), 0);
    }
}

#[test]
fn a_cache_holds_blocks_of_all_sizes() {
    let rig = Rig::with_capacity(64 * MIB);
    let worker = Worker::new();
    let sizes = (1..100).map(|count| count * SMALLEST);
    let memory: Vec<_> = sizes
        .clone()
        .map(|bytes| keep(&worker, &rig.pool, 2, bytes))
        .collect();
    let (blocks, calls) = (rig.pool.held_blocks(), rig.device.statistics().calls);
    for (bytes, memory) in sizes.zip(memory) {
        let found = keep(&worker, &rig.pool, 2, bytes);
        assert!(memory.iter().all(|block| found.contains(block)), "{bytes}");
    }
    assert_eq!(rig.pool.held_blocks(), blocks);
    assert_eq!(rig.device.statistics().calls, calls);
}

// Threads end.

#[test]
fn a_thread_that_ends_leaves_its_blocks_to_the_pool() {
    // In segments, their ranges are free then.
    for (options, held_blocks) in [(bins_alone(), 3), (PoolOptions::new().segments(true), 0)] {
        let rig = Rig::with_options(MockDevice::builder(), options);
        let worker = Worker::new();
        let memory = keep(&worker, &rig.pool, 3, 1000);
        let mut expected = rig.pool.statistics();
        worker.end();
        expected.held_blocks = held_blocks;
        assert_eq!(rig.pool.statistics(), expected);
        let found = [(); 3].map(|()| rig.pool.allocate(1000).unwrap());
        assert!(
            found
                .iter()
                .all(|it| memory.contains(&it.memory_id().unwrap()))
        );
        drop(found);
        rig.pool.free_held();
        assert_eq!(rig.blocks_on_device(), 0);
    }
}

#[test]
fn what_a_thread_left_is_found_before_others_give_what_they_have() {
    let rig = Rig::with_capacity(MIB);
    let [ends, lives] = [(); 2].map(|()| Worker::new());
    let [left, kept] = [&ends, &lives].map(|it| allocate(it, &rig.pool, &rig.queue, 100));
    let left = drop_on(&ends, left);
    let kept = drop_on(&lives, kept);
    ends.end();
    let block = rig.pool.allocate(100).unwrap();
    assert_eq!(block.memory_id(), Some(left));
    assert_eq!(keep(&lives, &rig.pool, 1, 100), [kept]);
}

#[test]
fn what_a_thread_did_counts_when_it_has_ended() {
    let rig = Rig::with_capacity(MIB);
    let worker = Worker::new();
    drop(keep(&worker, &rig.pool, 1, 1000));
    let block = allocate(&worker, &rig.pool, &rig.queue, 900);
    worker.end();
    let statistics = rig.pool.statistics();
    assert_eq!(
        (statistics.active_blocks, statistics.active_bytes),
        (1, 900)
    );
    assert_eq!((statistics.hits, statistics.misses), (1, 1));
    assert_eq!(statistics.peak_active_bytes, 1000);
    drop(block);
}

#[test]
fn a_thread_that_only_drops_leaves_its_blocks_to_the_pool() {
    let rig = Rig::with_capacity(MIB);
    let block = rig.pool.allocate(100).unwrap();
    let memory = block.memory_id();
    thread::spawn(move || drop(block)).join().unwrap();
    assert_eq!((rig.pool.active_blocks(), rig.pool.held_blocks()), (0, 1));
    assert_eq!(rig.pool.allocate(100).unwrap().memory_id(), memory);
}

thread_local! {
    /// A block that its thread drops as one of the last things it does.
    static LAST: RefCell<Option<Block>> = const { RefCell::new(None) };
}

#[test]
fn a_block_that_goes_with_its_thread_comes_back() {
    // Before the thread had anything of the pool's, and after: what is made last goes first.
    for made_first in [true, false] {
        for allocates in [true, false] {
            let rig = Rig::with_capacity(MIB);
            let block = rig.pool.allocate(100).unwrap();
            let worker = Worker::new();
            if made_first {
                worker.run(|| LAST.with(|_| ()));
            }
            if allocates {
                keep(&worker, &rig.pool, 2, 5000);
            }
            worker.run(move || LAST.set(Some(block)));
            worker.end();
            let statistics = rig.pool.statistics();
            assert_eq!(statistics.active_blocks, 0);
            assert_eq!(statistics.held_bytes, statistics.managed_bytes);
            assert_eq!(rig.blocks_on_device() as u64, statistics.held_blocks);
            assert!(rig.pool.allocate(100).is_ok());
            assert_eq!(
                rig.device.call_count(CallKind::CreateBuffer),
                statistics.misses
            );
            rig.pool.free_held();
            assert_eq!(rig.blocks_on_device(), 0, "{made_first} {allocates}");
        }
    }
}

// Pools end.

#[test]
fn a_pool_that_goes_takes_what_threads_have_cached() {
    let rig = Rig::with_capacity(MIB);
    let worker = Worker::new();
    {
        let other = rig.another_queue(QueueOrder::InOrder);
        drop(allocate(&worker, &rig.pool, &other, 100));
        let block = allocate(&worker, &rig.pool, &other, 100);
        drop_on(&worker, block);
    }
    keep(&worker, &rig.pool, 3, 1000);
    drop((rig.pool, rig.queue));
    assert_eq!(rig.device.statistics().live_blocks, 0);
    assert_eq!(rig.device.live_queues(), 0);
    worker.end();
    assert_eq!(rig.device.statistics().live_blocks, 0);
}

#[test]
fn a_block_that_outlives_its_pool_goes_with_any_thread() {
    for segments in [false, true] {
        let options = PoolOptions::new().segments(segments);
        let rig = Rig::with_options(MockDevice::builder(), options);
        let Rig { device, pool, .. } = rig;
        let [member, newcomer] = [(); 2].map(|()| Worker::new());
        keep(&member, &pool, 2, 1000);
        let blocks = [(); 3].map(|()| pool.allocate(1000).unwrap());
        drop(pool);
        let [first, second, third] = blocks;
        assert!(device.statistics().live_blocks > 0);
        drop_on(&member, first);
        drop_on(&newcomer, second);
        member.end();
        assert!(device.statistics().live_blocks > 0);
        drop(third);
        assert_eq!(device.statistics().live_blocks, 0, "segments: {segments}");
        newcomer.end();
    }
}

#[test]
fn a_thread_may_drop_the_last_handle_and_then_its_blocks() {
    let Rig { device, pool, .. } = Rig::with_capacity(MIB);
    let worker = Worker::new();
    keep(&worker, &pool, 3, 1000);
    worker.run(move || {
        let block = pool.allocate(1000).unwrap();
        drop(pool);
        drop(block);
    });
    assert_eq!(device.statistics().live_blocks, 0);
}

#[test]
fn a_thread_sees_many_pools_come_and_go() {
    let worker = Worker::new();
    let lasting = Rig::with_capacity(MIB);
    let memory = keep(&worker, &lasting.pool, 1, 100);
    let device = MockDevice::new();
    for round in 0..100 {
        let backend = device.backend();
        let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
        let allocator = ImmediateAllocator::new(&backend).unwrap();
        let pool = bins_alone().build(allocator, &queue).unwrap();
        drop(queue);
        keep(&worker, &pool, 2, 1000);
        let hits = pool.statistics().hits;
        keep(&worker, &pool, 2, 1000);
        assert_eq!(pool.statistics().hits, hits + 2);
        // The last handle goes where the blocks are, and elsewhere.
        if round % 2 == 0 {
            worker.run(move || drop(pool));
        } else {
            drop(pool);
        }
        assert_eq!(device.statistics().live_blocks, 0);
        assert_eq!(device.live_queues(), 0);
    }
    assert_eq!(keep(&worker, &lasting.pool, 1, 100), memory);
}

#[test]
fn a_thread_keeps_the_blocks_of_each_pool_apart() {
    let device = MockDevice::new();
    let backend = device.backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let immediate = ImmediateAllocator::new(&backend).unwrap();
    let shared = SvmAllocator::new(&backend, SvmGrain::Coarse).unwrap();
    let one = bins_alone().build(immediate, &queue).unwrap();
    let two = bins_alone().build(shared, &queue).unwrap();
    let three = MemoryPool::new(DeferredAllocator::new(&backend), &queue).unwrap();
    for round in 0..50_u64 {
        let blocks = (
            one.allocate(100).unwrap(),
            two.allocate(100).unwrap(),
            three.allocate(100).unwrap(),
        );
        assert!(blocks.1.address().is_some());
        drop(blocks);
        drop((two.allocate(100).unwrap(), one.allocate(100).unwrap()));
        for statistics in [one.statistics(), two.statistics()] {
            assert_eq!((statistics.held_blocks, statistics.misses), (1, 1));
            assert_eq!(statistics.hits, 2 * round + 1);
        }
        assert_eq!(three.statistics().hits, round);
    }
    drop(two);
    assert_eq!((one.held_blocks(), three.active_blocks()), (1, 0));
}

// Pools that hold nothing, and give back what they hold.

#[test]
fn a_pool_that_does_not_hold_empties_all_caches() {
    for segments in [false, true] {
        let options = PoolOptions::new().segments(segments);
        let rig = Rig::with_options(MockDevice::builder(), options);
        let workers = [(); 2].map(|()| Worker::new());
        for worker in &workers {
            keep(worker, &rig.pool, 3, WHOLE_SEGMENT);
        }
        let blocks = [(); 3].map(|()| allocate(&workers[0], &rig.pool, &rig.queue, WHOLE_SEGMENT));
        rig.pool.stop_holding();
        assert_eq!(rig.blocks_on_device(), blocks.len());
        let [first, second, third] = blocks;
        drop_on(&workers[0], first);
        drop_on(&workers[1], second);
        assert_eq!(rig.blocks_on_device(), 1);
        drop(third);
        assert_eq!(rig.blocks_on_device(), 0);
        keep(&workers[0], &rig.pool, 2, WHOLE_SEGMENT);
        assert_eq!((rig.blocks_on_device(), rig.pool.managed_bytes()), (0, 0));
    }
}

#[test]
fn a_pool_that_holds_again_fills_caches_again() {
    let rig = Rig::with_capacity(MIB);
    let mut workers = vec![Worker::new(), Worker::new()];
    keep(&workers[0], &rig.pool, 1, 100);
    rig.pool.stop_holding();
    rig.pool.stop_holding();
    // Comes while there is nothing to keep.
    workers.push(Worker::new());
    keep(&workers[2], &rig.pool, 1, 100);
    assert_eq!(rig.blocks_on_device(), 0);
    rig.pool.resume_holding();
    rig.pool.resume_holding();
    assert!(have_their_own(&rig, &workers));
}

#[test]
fn giving_back_what_is_held_leaves_nothing_cached() {
    let ways: [fn(&Pool) -> u64; 3] = [
        Pool::free_held,
        |pool| pool.trim_to(0),
        |pool| pool.sweep() + pool.sweep(),
    ];
    for segments in [false, true] {
        for give_back in ways {
            let options = PoolOptions::new().segments(segments);
            let rig = Rig::with_options(MockDevice::builder(), options);
            let workers = [(); 3].map(|()| Worker::new());
            for worker in &workers {
                keep(worker, &rig.pool, 5, 1000);
            }
            drop(rig.pool.allocate(1000).unwrap());
            let managed_bytes = rig.pool.managed_bytes();
            assert_eq!(give_back(&rig.pool), managed_bytes);
            assert_eq!(rig.blocks_on_device(), 0, "segments: {segments}");
            assert_eq!(rig.pool.held_blocks(), 0);
            assert!(have_their_own(&rig, &workers));
        }
    }
}

// Queues.

#[test]
fn a_cached_block_goes_to_another_queue_by_the_policy_alone() {
    for policy in ReusePolicy::ALL {
        let rig = manual(policy);
        let other = rig.another_queue(QueueOrder::InOrder);
        let worker = Worker::new();
        let old = rig.pool.allocate(4096).unwrap();
        fill(&old, &rig.queue, 1);
        let memory = drop_on(&worker, old);
        let new = allocate(&worker, &rig.pool, &other, 4096);
        let waits = matches!(policy, ReusePolicy::InsertWait | ReusePolicy::WaitOnHost);
        assert_eq!(new.memory_id() == Some(memory), waits, "{policy:?}");
        fill(&new, &other, 2);
        let mut bytes = [0_u8; 4096];
        new.read(&other, 0, &mut bytes).unwrap();
        rig.device.run();
        assert_eq!(bytes, [2; 4096], "{policy:?}");
        assert!(rig.device.violations().is_empty(), "{policy:?}");
    }
}

#[test]
fn a_cached_block_goes_to_its_own_queue_at_once() {
    for policy in ReusePolicy::ALL {
        let rig = manual(policy);
        let worker = Worker::new();
        let old = rig.pool.allocate(4096).unwrap();
        fill(&old, &rig.queue, 1);
        let memory = drop_on(&worker, old);
        let calls = rig.device.statistics().calls;
        let new = rig.pool.allocate(4096).unwrap();
        assert_eq!(new.memory_id(), Some(memory), "{policy:?}");
        assert_eq!(rig.device.statistics().calls, calls);
    }
}

#[test]
fn a_cache_has_no_blocks_of_out_of_order_queues() {
    let rig = manual(ReusePolicy::default());
    let unordered = rig.another_queue(QueueOrder::OutOfOrder);
    let worker = Worker::new();
    let old = allocate(&worker, &rig.pool, &unordered, 100);
    fill(&old, &unordered, 1);
    let memory = drop_on(&worker, old);
    assert_eq!(rig.pool.statistics().pending_blocks, 1);
    let new = allocate(&worker, &rig.pool, &unordered, 100);
    assert_ne!(new.memory_id(), Some(memory));
    fill(&new, &unordered, 2);
    rig.device.run();
    assert!(rig.device.violations().is_empty());
}

#[test]
fn a_cache_has_no_blocks_that_a_second_queue_used() {
    for order in [QueueOrder::InOrder, QueueOrder::OutOfOrder] {
        let rig = manual(ReusePolicy::default());
        let other = rig.another_queue(order);
        let worker = Worker::new();
        let old = allocate(&worker, &rig.pool, &rig.queue, 100);
        fill(&old, &other, 1);
        let memory = drop_on(&worker, old);
        assert_eq!(rig.pool.statistics().pending_blocks, 1);
        let new = allocate(&worker, &rig.pool, &rig.queue, 100);
        assert_ne!(new.memory_id(), Some(memory), "{order:?}");
        fill(&new, &rig.queue, 2);
        rig.device.run();
        assert!(rig.device.violations().is_empty());
        // Of a second user, it is only what the first one was done with.
        let memory = drop_on(&worker, new);
        let again = allocate(&worker, &rig.pool, &rig.queue, 100);
        assert_eq!(again.memory_id(), Some(memory));
    }
}

#[test]
fn a_cache_has_no_room_for_all_queues_but_the_pool_has() {
    let rig = manual(ReusePolicy::SameQueue);
    let worker = Worker::new();
    let queues = [(); 12].map(|()| rig.another_queue(QueueOrder::InOrder));
    let mut memory: Vec<Vec<MemoryId>> = Vec::new();
    for queue in &queues {
        let blocks = [(); 3].map(|()| allocate(&worker, &rig.pool, queue, 100));
        for block in &blocks {
            fill(block, queue, 1);
        }
        memory.push(blocks.into_iter().map(|it| drop_on(&worker, it)).collect());
    }
    let statistics = rig.pool.statistics();
    assert_eq!((statistics.held_blocks, statistics.active_blocks), (36, 0));
    for (queue, memory) in queues.iter().zip(&memory) {
        let found = [(); 3].map(|()| allocate(&worker, &rig.pool, queue, 100));
        assert!(
            found
                .iter()
                .all(|it| memory.contains(&it.memory_id().unwrap()))
        );
        for block in found {
            fill(&block, queue, 2);
            drop_on(&worker, block);
        }
    }
    let statistics = rig.pool.statistics();
    assert_eq!((statistics.hits, statistics.misses), (36, 36));
    rig.device.run();
    assert!(rig.device.violations().is_empty());
}

#[test]
fn a_retired_queues_blocks_leave_all_caches() {
    // Dropped before its queue is retired, and after.
    for is_dropped_first in [true, false] {
        let rig = Rig::with_policy(MockDevice::builder(), ReusePolicy::SameQueue);
        let other = rig.another_queue(QueueOrder::InOrder);
        let worker = Worker::new();
        let block = allocate(&worker, &rig.pool, &other, 100);
        fill(&block, &other, 1);
        let memory = if is_dropped_first {
            let memory = drop_on(&worker, block);
            rig.pool.retire_queue(&other);
            memory
        } else {
            rig.pool.retire_queue(&other);
            drop_on(&worker, block)
        };
        let block = rig.pool.allocate(100).unwrap();
        assert_eq!(block.memory_id(), Some(memory), "{is_dropped_first}");
    }
}

#[test]
fn a_queue_is_let_go_of_although_its_blocks_were_cached() {
    let rig = Rig::with_capacity(MIB);
    let queues = rig.device.live_queues();
    let worker = Worker::new();
    let other = rig.another_queue(QueueOrder::InOrder);
    let block = allocate(&worker, &rig.pool, &other, 100);
    drop_on(&worker, block);
    rig.pool.retire_queue(&other);
    drop(other);
    assert_eq!(rig.device.live_queues(), queues);
}

#[test]
fn a_retired_queue_that_a_cache_serves_is_in_use_again() {
    let rig = Rig::with_policy(MockDevice::builder(), ReusePolicy::SameQueue);
    let other = rig.another_queue(QueueOrder::InOrder);
    let block = rig.pool.allocate_on(&other, 100).unwrap();
    let memory = block.memory_id();
    rig.pool.retire_queue(&other);
    drop(block);
    // Which takes the retirement back.
    drop(rig.pool.allocate_on(&other, 100).unwrap());
    assert_ne!(rig.pool.allocate(100).unwrap().memory_id(), memory);
}

#[test]
fn a_bound_block_is_cached_for_its_new_queue_only() {
    let rig = manual(ReusePolicy::SameQueue);
    let other = rig.another_queue(QueueOrder::InOrder);
    let worker = Worker::new();
    let mut block = allocate(&worker, &rig.pool, &rig.queue, 100);
    fill(&block, &rig.queue, 1);
    block.bind_to_queue(&other).unwrap();
    assert_eq!(block.queue_id(), Some(other.id()));
    let memory = drop_on(&worker, block);
    let own = allocate(&worker, &rig.pool, &rig.queue, 100);
    assert_ne!(own.memory_id(), Some(memory));
    let bound = allocate(&worker, &rig.pool, &other, 100);
    assert_eq!(bound.memory_id(), Some(memory));
    fill(&bound, &other, 2);
    rig.device.run();
    assert!(rig.device.violations().is_empty());
}

#[test]
fn an_unbound_block_is_in_no_cache() {
    for policy in ReusePolicy::ALL {
        let rig = manual(policy);
        let other = rig.another_queue(QueueOrder::InOrder);
        let worker = Worker::new();
        let mut block = allocate(&worker, &rig.pool, &rig.queue, 100);
        fill(&block, &rig.queue, 1);
        block.unbind_from_queue().unwrap();
        let memory = drop_on(&worker, block);
        let calls = rig.device.statistics().calls;
        let block = rig.pool.allocate_on(&other, 100).unwrap();
        assert_eq!(block.memory_id(), Some(memory), "{policy:?}");
        assert_eq!(rig.device.statistics().calls, calls);
    }
}

// Size classes of the program's own.

thread_local! {
    static IS_SORTING: Cell<bool> = const { Cell::new(false) };
}

/// Each multiple of 256 bytes is a class. Uses the pool itself to find out which.
#[derive(Debug, Default)]
struct SelfServing {
    pool: Arc<Mutex<Option<Pool>>>,
}

impl SizeClasses for SelfServing {
    fn bin_count(&self) -> usize {
        1 << 20
    }

    fn bin_number(&self, bytes: usize) -> usize {
        if !IS_SORTING.replace(true) {
            let pool = self.pool.lock().unwrap().clone();
            if let Some(pool) = pool {
                // What it has cached, and what is under the pool's lock.
                drop(pool.allocate(SMALLEST));
                assert!(pool.managed_bytes() > 0);
            }
            IS_SORTING.set(false);
        }
        (bytes / SMALLEST).saturating_sub(1)
    }

    fn alloc_size(&self, bin: usize) -> usize {
        (bin + 1) * SMALLEST
    }
}

#[test]
fn size_classes_may_use_the_pool() {
    const CAPACITY: usize = 16 * SMALLEST;
    for segments in [false, true] {
        let classes = SelfServing::default();
        let own = Arc::clone(&classes.pool);
        let options = PoolOptions::new().segments(segments).size_classes(classes);
        let builder = MockDevice::builder().capacity_bytes(CAPACITY as u64);
        let rig = Rig::with_options(builder, options);
        *own.lock().unwrap() = Some(rig.pool.clone());
        let workers = [(); 2].map(|()| Worker::new());
        for round in 0..40 {
            let worker = &workers[round % 2];
            keep(worker, &rig.pool, 1, (1 + round % 5) * SMALLEST);
            // Runs short, and reclaims, for good or in vain.
            let large = rig.pool.allocate(CAPACITY / 2);
            assert_ne!(
                large.is_ok(),
                rig.pool.allocate(CAPACITY - SMALLEST).is_ok()
            );
        }
        *own.lock().unwrap() = None;
        let statistics = rig.pool.statistics();
        assert_eq!((statistics.active_blocks, statistics.active_bytes), (0, 0));
        assert_eq!(statistics.held_bytes, statistics.managed_bytes);
        drop(rig.pool);
        assert_eq!(rig.device.statistics().live_blocks, 0);
    }
}

// After a shortage.

#[test]
fn caches_are_filled_again_when_a_shortage_is_over() {
    let rig = Rig::with_capacity(MIB);
    let workers = [(); 3].map(|()| Worker::new());
    assert!(have_their_own(&rig, &workers));
    let block = rig.pool.allocate(1000).unwrap();
    assert!(rig.pool.allocate(MIB).is_err());
    assert!(have_their_own(&rig, &workers));
    drop(block);
    assert!(rig.pool.allocate(MIB).is_ok());
    assert!(have_their_own(&rig, &workers));
}

#[test]
fn what_others_have_cached_is_carved_without_a_marker() {
    let builder = MockDevice::builder().completion(Completion::Manual);
    let rig = Rig::with_options(builder, PoolOptions::new().segments(true));
    let worker = Worker::new();
    let block = allocate(&worker, &rig.pool, &rig.queue, WHOLE_SEGMENT);
    fill(&block, &rig.queue, 1);
    let memory = drop_on(&worker, block);
    let before = rig.device.call_count(CallKind::Marker);
    let block = rig.pool.allocate(WHOLE_SEGMENT).unwrap();
    assert_eq!(block.memory_id(), Some(memory));
    assert_eq!(rig.device.call_count(CallKind::Marker), before);
}

#[test]
fn a_cached_request_is_served_by_the_cache_of_its_thread_or_by_nothing() {
    let rig = manual(ReusePolicy::Opportunistic);
    let [queue, other] = [(); 2].map(|()| rig.backend.create_queue(QueueOrder::InOrder).unwrap());
    assert!(rig.pool.allocate_cached(&queue, 4096).is_none());
    let memory = {
        let block = rig.pool.allocate_on(&queue, 4096).unwrap();
        fill(&block, &queue, 1);
        block.memory_id()
    };
    let foreign = MockDevice::new().backend();
    let foreign = foreign.create_queue(QueueOrder::InOrder).unwrap();
    for queue in [&other, &foreign] {
        assert!(rig.pool.allocate_cached(queue, 4096).is_none());
    }
    assert!(rig.pool.allocate_cached(&queue, 0).is_none());
    // It tracks no blocks.
    rig.pool.watch(WatchOptions::new());
    assert!(rig.pool.allocate_cached(&queue, 4096).is_none());
    rig.pool.stop_watching();
    let block = rig.pool.allocate_cached(&queue, 4000).unwrap();
    assert_eq!((block.memory_id(), block.size()), (memory, 4000));
    assert_eq!(block.queue_id(), Some(queue.id()));
    assert_eq!(rig.pool.statistics().hits, 1);
    assert!(rig.pool.allocate_cached(&queue, 1 << 30).is_none());
}

#[test]
fn peaks_begin_again_at_what_all_threads_have_in_use() {
    for segments in [false, true] {
        let rig = Rig::with_options(MockDevice::builder(), PoolOptions::new().segments(segments));
        let kept = thread::scope(|scope| {
            let here = rig.pool.allocate(MIB).unwrap();
            drop(rig.pool.allocate(5 * MIB).unwrap());
            let there = scope.spawn(|| {
                drop(rig.pool.allocate(3 * MIB).unwrap());
                rig.pool.allocate(MIB).unwrap()
            });
            [here, there.join().unwrap()]
        });
        let before = rig.pool.statistics();
        assert!(before.peak_active_bytes >= 6 << 20, "{before}");
        rig.pool.reset_peaks();
        let after = rig.pool.statistics();
        assert_eq!(after.peak_active_bytes, 2 << 20);
        assert_eq!(after.peak_managed_bytes, after.managed_bytes);
        drop(rig.pool.allocate(MIB).unwrap());
        assert_eq!(rig.pool.statistics().peak_active_bytes, 3 << 20);
        drop(kept);
    }
}
