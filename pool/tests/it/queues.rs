//! No block is handed out while a command of its former owner may still run against one of its new owner.

use binpool::{
    Backend, DeferredAllocator, Event, EventStatus, MemoryPool, Outcome, PoolOptions, Queue,
    QueueOrder, SvmAllocator, SvmGrain,
};
use binpool_mock::{CallKind, Completion, MockDevice};

use crate::common::{MIB, Rig};

/// Fill with 1 after a gate on one queue, release, allocate again, fill with 2 on another queue, open the
/// gate: the new owner reads 2.
fn new_owner_keeps_its_bytes(
    rig: &Rig,
    first: &binpool_mock::MockQueue,
    second: &binpool_mock::MockQueue,
) {
    const SIZE: usize = 4096;
    let gate = rig.backend.create_user_event().unwrap();
    let old = rig.pool.allocate_on(first, SIZE).unwrap();
    old.enqueue_fill(first.after(std::slice::from_ref(&gate)), 0..SIZE, &[1_u8])
        .unwrap();
    drop(old);
    let new = rig.pool.allocate_on(second, SIZE).unwrap();
    let filled = new.enqueue_fill(second, 0..SIZE, &[2_u8]).unwrap();
    rig.backend
        .resolve_user_event(&gate, Outcome::Complete)
        .unwrap();
    first.finish().unwrap();
    filled.wait().unwrap();
    let mut bytes = [0_u8; SIZE];
    new.read(second, 0, &mut bytes).unwrap();
    assert_eq!(bytes, [2; SIZE]);
}

#[test]
fn a_block_of_one_queue_is_not_overwritten_by_another() {
    let rig = Rig::with_capacity(MIB);
    let other = rig.another_queue(QueueOrder::InOrder);
    new_owner_keeps_its_bytes(&rig, &rig.queue, &other);
    new_owner_keeps_its_bytes(&rig, &other, &rig.queue);
}

#[test]
fn an_out_of_order_queue_is_not_taken_for_ordered() {
    for seed in 0..20 {
        let builder = MockDevice::builder()
            .capacity_bytes(MIB as u64)
            .completion(Completion::Seeded(seed));
        let rig = Rig::on(builder);
        let unordered = rig.another_queue(QueueOrder::OutOfOrder);
        new_owner_keeps_its_bytes(&rig, &unordered, &unordered);
        new_owner_keeps_its_bytes(&rig, &rig.queue, &unordered);
        new_owner_keeps_its_bytes(&rig, &unordered, &rig.queue);
    }
}

#[test]
fn the_same_queue_may_have_a_block_at_once() {
    let rig = Rig::on(MockDevice::builder().completion(Completion::Manual));
    let block = rig.pool.allocate(100).unwrap();
    block.enqueue_fill(&rig.queue, 0..100, &[1_u8]).unwrap();
    drop(block);
    let (markers, commands) = (
        rig.device.call_count(CallKind::Marker),
        rig.device.pending_commands(),
    );
    let block = rig.pool.allocate(100).unwrap();
    assert_eq!(rig.pool.statistics().hits, 1);
    assert_eq!(rig.device.call_count(CallKind::Marker), markers);
    assert_eq!(rig.device.pending_commands(), commands);
    block.enqueue_fill(&rig.queue, 0..100, &[2_u8]).unwrap();
    let mut bytes = [0_u8; 100];
    block.read(&rig.queue, 0, &mut bytes).unwrap();
    assert_eq!(bytes, [2; 100]);
}

#[test]
fn a_block_used_elsewhere_waits_for_that_queue() {
    let rig = Rig::with_capacity(MIB);
    let other = rig.another_queue(QueueOrder::InOrder);
    let gate = rig.backend.create_user_event().unwrap();
    let block = rig.pool.allocate(100).unwrap();
    block
        .enqueue_fill(other.after(std::slice::from_ref(&gate)), 0..100, &[1_u8])
        .unwrap();
    drop(block);
    assert_eq!(rig.pool.statistics().pending_blocks, 1);
    // Fresh memory meanwhile, on every queue but that one.
    let third = rig.another_queue(QueueOrder::InOrder);
    let fresh = [
        rig.pool.allocate(100).unwrap(),
        rig.pool.allocate_on(&third, 100).unwrap(),
    ];
    assert_eq!(rig.pool.statistics().hits, 0);
    drop(rig.pool.allocate_on(&other, 100).unwrap());
    assert_eq!(rig.pool.statistics().hits, 1);
    rig.backend
        .resolve_user_event(&gate, Outcome::Complete)
        .unwrap();
    // The commands have ended: now every queue may have it.
    let block = rig.pool.allocate_on(&third, 100).unwrap();
    let statistics = rig.pool.statistics();
    assert_eq!((statistics.hits, statistics.pending_blocks), (2, 0));
    drop((fresh, block));
}

#[test]
fn events_do_not_pile_up() {
    let rig = Rig::with_capacity(MIB);
    let other = rig.another_queue(QueueOrder::OutOfOrder);
    for _ in 0..100 {
        let block = rig.pool.allocate_on(&other, 100).unwrap();
        block.enqueue_fill(&other, 0..100, &[1_u8]).unwrap();
        block.record_use(&rig.queue).unwrap();
        drop(block);
    }
    assert!(
        rig.device.live_events() <= 2,
        "{} events",
        rig.device.live_events()
    );
    rig.pool.free_held();
    assert_eq!(rig.device.live_events(), 0);
}

#[test]
fn a_command_that_failed_has_ended() {
    let rig = Rig::with_capacity(MIB);
    let unordered = rig.another_queue(QueueOrder::OutOfOrder);
    let gate = rig.backend.create_user_event().unwrap();
    let block = rig.pool.allocate_on(&unordered, 100).unwrap();
    let fill = block
        .enqueue_fill(
            unordered.after(std::slice::from_ref(&gate)),
            0..100,
            &[1_u8],
        )
        .unwrap();
    drop(block);
    rig.backend
        .resolve_user_event(&gate, Outcome::Failed)
        .unwrap();
    assert_eq!(fill.status().unwrap(), EventStatus::Failed);
    drop(rig.pool.allocate_on(&unordered, 100).unwrap());
    assert_eq!(rig.pool.statistics().hits, 1);
}

#[test]
fn freeing_what_is_held_lets_go_of_queues() {
    let rig = Rig::with_capacity(MIB);
    let queues = rig.device.live_queues();
    let block = {
        let other = rig.another_queue(QueueOrder::InOrder);
        rig.pool.allocate_on(&other, 100).unwrap()
    };
    rig.pool.free_held();
    // Its block is still in use, and has to find its free list when it comes back.
    assert_eq!(rig.device.live_queues(), queues + 1);
    drop(block);
    rig.pool.free_held();
    assert_eq!(rig.device.live_queues(), queues);
    assert_eq!(rig.blocks_on_device(), 0);
}

#[test]
fn shared_virtual_memory_waits_for_its_queues_too() {
    let device = MockDevice::new();
    let backend = device.backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let other = backend.create_queue(QueueOrder::InOrder).unwrap();
    let allocator = SvmAllocator::new(&backend, SvmGrain::Coarse)
        .unwrap()
        .with_queue(&queue)
        .unwrap();
    let pool = PoolOptions::new()
        .segments(false)
        .build(allocator, &queue)
        .unwrap();
    let gate = backend.create_user_event().unwrap();
    let old = pool.allocate_on(&other, 100).unwrap();
    old.enqueue_fill(other.after(std::slice::from_ref(&gate)), 0..100, &[1_u8])
        .unwrap();
    let address = old.address();
    drop(old);
    let new = pool.allocate(100).unwrap();
    assert_ne!(new.address(), address);
    // Freed, but only after the gated fill: nothing runs on memory that is gone.
    assert_eq!(pool.free_held(), 256);
    assert_eq!(device.statistics().live_blocks, 2);
    backend
        .resolve_user_event(&gate, Outcome::Complete)
        .unwrap();
    other.finish().unwrap();
    queue.finish().unwrap();
    assert_eq!(device.statistics().live_blocks, 1);
    assert!(device.violations().is_empty(), "{:?}", device.violations());
}

#[test]
fn a_pool_over_a_deferred_allocator_is_as_careful() {
    let device = MockDevice::new();
    let backend = device.backend();
    let queue = backend.create_queue(QueueOrder::OutOfOrder).unwrap();
    let pool = MemoryPool::new(DeferredAllocator::new(&backend), &queue).unwrap();
    let gate = backend.create_user_event().unwrap();
    let block = pool.allocate(100).unwrap();
    block
        .enqueue_fill(queue.after(std::slice::from_ref(&gate)), 0..100, &[1_u8])
        .unwrap();
    let memory = block.memory_id();
    drop(block);
    assert_ne!(pool.allocate(100).unwrap().memory_id(), memory);
}

#[test]
fn queues_that_programs_are_done_with_do_not_pile_up_though_nothing_is_missed() {
    let rig = Rig::with_capacity(64 * MIB);
    drop(rig.pool.allocate(MIB).unwrap());
    let misses = rig.pool.statistics().misses;
    for _ in 0..500 {
        let queue = rig.another_queue(QueueOrder::InOrder);
        let block = rig.pool.allocate_on(&queue, 4096).unwrap();
        block.enqueue_fill(&queue, .., &[1_u8]).unwrap();
    }
    assert!(
        rig.device.live_queues() < 200,
        "{}",
        rig.device.live_queues()
    );
    assert!(
        rig.pool.statistics().misses < misses + 10,
        "{}",
        rig.pool.statistics()
    );
}

#[test]
fn each_queue_tells_how_much_free_memory_waits_for_it() {
    for segments in [false, true] {
        let builder = MockDevice::builder().completion(Completion::Manual);
        let rig = Rig::with_options(builder, PoolOptions::new().segments(segments));
        let [one, other] = [(); 2].map(|()| rig.another_queue(QueueOrder::InOrder));
        assert_eq!(rig.pool.held_back(), []);
        let blocks = [(&one, 1), (&other, 3), (&one, 1), (&other, 4)].map(|(queue, mebibytes)| {
            let block = rig.pool.allocate_on(queue, mebibytes * MIB).unwrap();
            block.enqueue_fill(queue, .., &[1_u8]).unwrap();
            block
        });
        let unused = rig.pool.allocate(MIB).unwrap();
        drop((blocks, unused));
        let told: Vec<_> = rig.pool.held_back();
        let told: Vec<_> = told.iter().map(|it| (it.queue, it.bytes)).collect();
        let (one, other) = (one.id(), other.id());
        let home = (rig.queue.id(), MIB as u64);
        let expected = [(other, 7 << 20), (one, 2 << 20)];
        assert!(told.starts_with(&expected), "{told:?}");
        assert!(told[2..].iter().all(|it| *it == home), "{told:?}");
        rig.device.run();
        rig.pool.free_held();
        assert_eq!(rig.pool.held_back(), []);
    }
}
