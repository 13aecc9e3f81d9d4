//! A block's way from the pool to its user and back.

use std::thread;

use binpool::{
    Allocator, Backend, DeferredAllocator, ImmediateAllocator, Memory, MemoryPool, PoolError,
    PoolOptions, QueueOrder, ReusePolicy, SizeClasses, WatchOptions,
};
use binpool_allocators::Align;
use binpool_mock::{CallKind, Completion, MockBackend, MockDevice};

use crate::common::{MIB, Rig, SMALLEST};

#[test]
fn a_freed_block_is_handed_out_again_without_a_call_to_the_device() {
    let rig = Rig::with_capacity(MIB);
    let block = rig.pool.allocate(5000).unwrap();
    let memory = block.memory_id();
    drop(block);
    let calls = rig.device.statistics().calls;
    let again = rig.pool.allocate(5000).unwrap();
    assert_eq!(again.memory_id(), memory);
    assert_eq!(rig.device.statistics().calls, calls);
    let statistics = rig.pool.statistics();
    assert_eq!((statistics.hits, statistics.misses), (1, 1));
}

#[test]
fn sizes_of_one_class_share_blocks() {
    let rig = Rig::with_capacity(MIB);
    // Both in the class that ends on 8192 + 512.
    drop(rig.pool.allocate(8193).unwrap());
    let block = rig.pool.allocate(8704).unwrap();
    assert_eq!(block.size(), 8704);
    assert_eq!(block.class_size(), 8704);
    assert_eq!(rig.pool.statistics().hits, 1);
}

#[test]
fn small_blocks_share_the_class_of_the_alignment() {
    let rig = Rig::with_capacity(MIB);
    drop(rig.pool.allocate(1).unwrap());
    let block = rig.pool.allocate(SMALLEST).unwrap();
    assert_eq!(block.class_size(), SMALLEST);
    assert_eq!(rig.pool.statistics().hits, 1);
}

#[test]
fn the_block_freed_last_is_handed_out_first() {
    let rig = Rig::with_capacity(MIB);
    let blocks: Vec<_> = (0..3).map(|_| rig.pool.allocate(100).unwrap()).collect();
    let last = blocks[2].memory_id();
    drop(blocks);
    assert_eq!(rig.pool.allocate(100).unwrap().memory_id(), last);
}

#[test]
fn the_block_of_no_bytes_takes_nothing() {
    let rig = Rig::with_capacity(MIB);
    let calls = rig.device.statistics().calls;
    let block = rig.pool.allocate(0).unwrap();
    assert!(block.is_empty());
    assert_eq!((block.size(), block.class_size()), (0, 0));
    assert!(block.memory_on(&rig.queue).is_none());
    assert!(block.memory_id().is_none());
    block.release().unwrap();
    assert_eq!(rig.device.statistics().calls, calls);
    let statistics = rig.pool.statistics();
    assert_eq!(statistics.empty_allocations, 1);
    assert_eq!(statistics.active_blocks + statistics.held_blocks, 0);
}

#[test]
fn a_request_for_no_bytes_gets_no_cached_block_however_small() {
    for segments in [false, true] {
        // On a device that aligns to single bytes, 0 bytes and 1 byte are of the same class.
        let device = MockDevice::builder().alignment(Align::new(1).unwrap());
        let rig = Rig::with_options(device, PoolOptions::new().segments(segments));
        drop([(); 3].map(|()| rig.pool.allocate(1).unwrap()));
        assert!(rig.pool.allocate_cached(&rig.queue, 0).is_none());
        assert!(rig.pool.allocate(0).unwrap().memory_id().is_none());
        assert_eq!(rig.pool.statistics().empty_allocations, 1);
        rig.pool.watch(WatchOptions::new());
        drop([(); 3].map(|()| rig.pool.allocate(1).unwrap()));
        assert!(rig.pool.allocate(0).unwrap().memory_id().is_none());
        assert_eq!(rig.pool.statistics().empty_allocations, 2);
    }
}

#[test]
fn counters_follow_every_step() {
    let rig = Rig::with_capacity(MIB);
    let pool = &rig.pool;
    let block = pool.allocate(1000).unwrap();
    let large = pool.allocate(10_000).unwrap();
    assert_eq!((pool.active_blocks(), pool.held_blocks()), (2, 0));
    assert_eq!(pool.active_bytes(), 11_000);
    assert_eq!(pool.managed_bytes(), 1024 + 10_240);
    drop(large);
    assert_eq!((pool.active_blocks(), pool.held_blocks()), (1, 1));
    assert_eq!(pool.active_bytes(), 1000);
    let statistics = pool.statistics();
    assert_eq!(statistics.held_bytes, 10_240);
    assert_eq!(statistics.peak_active_bytes, 11_000);
    assert_eq!(pool.free_held(), 10_240);
    assert_eq!(pool.managed_bytes(), 1024);
    let statistics = pool.statistics();
    assert_eq!(statistics.peak_managed_bytes, 1024 + 10_240);
    assert_eq!(statistics.released_blocks, 1);
    drop(block);
    assert!((pool.statistics().hit_rate() - 0.0).abs() < f64::EPSILON);
}

#[test]
fn a_released_block_goes_back_early() {
    let rig = Rig::with_capacity(MIB);
    rig.pool.allocate(100).unwrap().release().unwrap();
    assert_eq!(rig.pool.held_blocks(), 1);
}

#[test]
fn a_detached_block_is_the_users_alone() {
    let rig = Rig::with_capacity(MIB);
    let memory = rig.pool.allocate(100).unwrap().detach().unwrap();
    assert_eq!(memory.bytes(), SMALLEST);
    assert_eq!(rig.pool.managed_bytes(), 0);
    assert_eq!(rig.pool.active_blocks(), 0);
    drop(memory);
    assert_eq!(rig.blocks_on_device(), 0);
    assert_eq!(rig.pool.held_blocks(), 0);
    assert!(rig.pool.allocate(0).unwrap().detach().is_none());
}

#[test]
fn a_pool_that_does_not_hold_frees_at_once() {
    let rig = Rig::with_capacity(MIB);
    let block = rig.pool.allocate(100).unwrap();
    drop(rig.pool.allocate(5000).unwrap());
    rig.pool.stop_holding();
    assert!(!rig.pool.is_holding());
    assert_eq!(rig.blocks_on_device(), 1);
    drop(block);
    assert_eq!(rig.blocks_on_device(), 0);
    assert_eq!(rig.pool.managed_bytes(), 0);
    rig.pool.resume_holding();
    drop(rig.pool.allocate(100).unwrap());
    assert_eq!(rig.pool.held_blocks(), 1);
}

#[test]
fn blocks_outlive_their_pool() {
    let rig = Rig::with_capacity(MIB);
    let Rig {
        device,
        queue,
        pool,
        ..
    } = rig;
    let (block, other) = (pool.allocate(100).unwrap(), pool.allocate(5000).unwrap());
    drop(other);
    drop(pool);
    assert_eq!(device.statistics().live_blocks, 1);
    block.write(&queue, 0, &[1_u8; 100]).unwrap();
    let mut read = [0_u8; 100];
    block.read(&queue, 0, &mut read).unwrap();
    assert_eq!(read, [1; 100]);
    drop(block);
    assert_eq!(device.statistics().live_blocks, 0);
}

#[test]
fn a_clone_is_the_same_pool() {
    let rig = Rig::with_capacity(MIB);
    let clone = rig.pool.clone();
    drop(rig.pool.allocate(100).unwrap());
    drop(rig.pool);
    assert_eq!(clone.held_blocks(), 1);
    drop(clone);
    assert_eq!(rig.device.statistics().live_blocks, 0);
}

#[test]
fn threads_share_a_pool_and_lose_nothing() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 500;
    let rig = Rig::with_capacity(64 * MIB);
    thread::scope(|scope| {
        let (send, receive) = std::sync::mpsc::channel();
        for thread in 0..THREADS {
            let (pool, send) = (rig.pool.clone(), send.clone());
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let size =
                        1 + usize::try_from((thread * 7919 + round * 104_729) % 9000).unwrap();
                    let block = pool.allocate(size).unwrap();
                    if round % 2 == 0 {
                        // Dropped on another thread.
                        send.send(block).unwrap();
                    }
                }
            });
        }
        drop(send);
        scope.spawn(move || receive.into_iter().for_each(drop));
    });
    let statistics = rig.pool.statistics();
    assert_eq!(statistics.active_blocks, 0);
    assert_eq!(statistics.active_bytes, 0);
    assert_eq!(statistics.hits + statistics.misses, THREADS * ROUNDS);
    assert_eq!(statistics.held_bytes, statistics.managed_bytes);
    assert_eq!(
        rig.device.statistics().committed_bytes,
        statistics.managed_bytes
    );
    assert_eq!(rig.blocks_on_device() as u64, statistics.held_blocks);
}

#[test]
fn pools_and_blocks_can_be_sent_and_shared() {
    fn sendable_and_sharable<T: Send + Sync>(_: &T) {}
    let rig = Rig::with_capacity(MIB);
    sendable_and_sharable(&rig.pool);
    sendable_and_sharable(&rig.pool.allocate(1).unwrap());
    sendable_and_sharable(&PoolError::from(binpool::InvalidRequest::ZeroSize));
}

#[test]
fn a_pool_works_over_an_allocator_that_is_chosen_at_run_time() {
    let device = MockDevice::new();
    let backend = device.backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let allocator: Box<dyn Allocator<Backend = MockBackend>> =
        Box::new(ImmediateAllocator::new(&backend).unwrap());
    let pool = MemoryPool::new(allocator, &queue).unwrap();
    drop(pool.allocate(100).unwrap());
    let block = pool.allocate(100).unwrap();
    block.write(&queue, 0, &[3_u8; 100]).unwrap();
    assert_eq!(pool.statistics().hits, 1);
}

#[test]
fn a_queue_of_another_device_is_refused() {
    let rig = Rig::with_capacity(MIB);
    let foreign = Rig::with_capacity(MIB).queue;
    assert!(rig.pool.allocate_on(&foreign, 100).is_err());
    assert!(rig.pool.allocate_on(&foreign, 0).is_err());
    let block = rig.pool.allocate(100).unwrap();
    assert!(block.record_use(&foreign).is_err());
    assert!(block.write(&foreign, 0, &[1_u8]).is_err());
    block.release().unwrap();
    assert_eq!(rig.pool.held_blocks(), 1);
    let allocator = ImmediateAllocator::new(&rig.backend).unwrap();
    assert!(MemoryPool::new(allocator, &foreign).is_err());
}

#[test]
fn leading_bits_choose_the_waste() {
    let rig = Rig::with_capacity(MIB);
    let build = |bits| {
        let allocator = DeferredAllocator::new(&rig.backend);
        PoolOptions::new()
            .leading_bits(bits)
            .build(allocator, &rig.queue)
    };
    let pool = build(0).unwrap();
    assert_eq!(pool.allocate(4097).unwrap().class_size(), 8192);
    let pool = build(1).unwrap();
    assert_eq!(pool.allocate(4097).unwrap().class_size(), 6144);
    assert!(matches!(
        build(11),
        Err(PoolError::LeadingBits {
            requested: 11,
            largest: 10
        })
    ));
}

/// One bin of blocks of 64 KiB.
#[derive(Debug)]
struct OneClass;

impl SizeClasses for OneClass {
    fn bin_count(&self) -> usize {
        1
    }

    fn bin_number(&self, _bytes: usize) -> usize {
        0
    }

    fn alloc_size(&self, _bin: usize) -> usize {
        65_536
    }
}

#[test]
fn size_classes_can_be_replaced_but_not_break_their_law() {
    let rig = Rig::with_capacity(MIB);
    let allocator = ImmediateAllocator::new(&rig.backend).unwrap();
    let pool = PoolOptions::new()
        .size_classes(OneClass)
        .build(allocator, &rig.queue)
        .unwrap();
    assert_eq!(pool.allocate(1).unwrap().class_size(), 65_536);
    assert!(matches!(
        pool.allocate(65_537),
        Err(PoolError::SizeClassTooSmall {
            class_bytes: 65_536,
            ..
        })
    ));
}

#[test]
fn a_pool_of_a_few_blocks_makes_a_few_calls() {
    let rig = Rig::with_capacity(MIB);
    for _ in 0..1000 {
        let blocks = [1, 300, 5000].map(|size| rig.pool.allocate(size).unwrap());
        drop(blocks);
    }
    assert_eq!(rig.device.call_count(CallKind::CreateBuffer), 3);
    assert_eq!(rig.device.call_count(CallKind::Commit), 3);
}

#[test]
fn a_block_of_0_bytes_is_empty() {
    let rig = Rig::with_capacity(MIB);
    assert!(rig.pool.allocate(0).unwrap().is_empty());
    assert!(!rig.pool.allocate(1).unwrap().is_empty());
}

#[test]
fn a_pool_tells_what_it_was_told() {
    for policy in ReusePolicy::ALL {
        let rig = Rig::with_policy(MockDevice::builder(), policy);
        assert_eq!(rig.pool.reuse_policy(), policy);
        assert!(rig.pool.is_holding());
        rig.pool.stop_holding();
        assert!(!rig.pool.is_holding());
        rig.pool.resume_holding();
        assert!(rig.pool.is_holding());
    }
}

#[test]
fn a_pool_that_goes_lets_go_of_queues_that_none_of_its_memory_needs() {
    // With a block in use, of queues that have caught up; without, of all.
    for (kept, completion) in [(100, Completion::AtOnce), (0, Completion::Manual)] {
        let rig = Rig::on(MockDevice::builder().completion(completion));
        let queues = rig.device.live_queues();
        let other = rig.another_queue(QueueOrder::InOrder);
        let kept = rig.pool.allocate(kept).unwrap();
        let block = rig.pool.allocate_on(&other, 1000).unwrap();
        block.enqueue_fill(&other, 0..1000, &[1_u8]).unwrap();
        drop((block, other));
        rig.pool.sweep();
        assert_eq!(rig.device.live_queues(), queues + 1, "{completion:?}");
        drop(rig.pool);
        rig.device.run();
        assert_eq!(rig.device.live_queues(), queues, "{completion:?}");
        drop(kept);
    }
}
