//! A failing device loses the pool nothing, and stops no thread.

use binpool::{
    Backend, Budget, Error, MemoryPool, PoolError, PoolOptions, QueueOrder, ScrubPolicy,
    SvmAllocator, SvmGrain,
};
use binpool_mock::{CallKind, Fault, MockDevice, Persistence};

use crate::common::{MIB, Rig, every_call_fails_once};

#[test]
fn a_commit_that_fails_leaks_no_buffer() {
    let rig = Rig::with_capacity(MIB);
    rig.device.fail_nth(
        CallKind::Commit,
        1,
        Fault::Backend(-5555),
        Persistence::Once,
    );
    let error = rig.pool.allocate(100).unwrap_err();
    assert!(
        matches!(error, PoolError::Allocator(Error::Backend(_))),
        "{error:?}"
    );
    assert_eq!(rig.blocks_on_device(), 0);
    assert_eq!(rig.pool.statistics(), binpool::PoolStatistics::default());
    assert!(rig.pool.allocate(100).is_ok());
}

#[test]
fn a_passing_shortage_is_got_over_by_reclaiming() {
    let rig = Rig::with_capacity(MIB);
    drop(rig.pool.allocate(5000).unwrap());
    rig.device
        .fail_nth(CallKind::Commit, 1, Fault::OutOfMemory, Persistence::Once);
    assert!(rig.pool.allocate(100).is_ok());
}

#[test]
fn svm_that_the_runtime_refuses_is_out_of_memory_and_reclaims() {
    let device = MockDevice::builder().capacity_bytes(MIB as u64).build();
    let backend = device.backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let allocator = SvmAllocator::new(&backend, SvmGrain::Coarse).unwrap();
    let pool = MemoryPool::new(allocator, &queue).unwrap();
    drop(pool.allocate(MIB / 2).unwrap());
    let block = pool.allocate(MIB).unwrap();
    assert!(block.address().is_some());
    assert!(pool.allocate(MIB).unwrap_err().is_out_of_memory());
}

#[test]
fn a_release_that_fails_ends_nothing_and_loses_no_count() {
    let rig = Rig::with_capacity(MIB);
    rig.pool.stop_holding();
    let block = rig.pool.allocate(100).unwrap();
    rig.device
        .fail_nth(CallKind::Release, 1, Fault::Backend(-1), Persistence::Once);
    assert!(block.release().is_err());
    let block = rig.pool.allocate(100).unwrap();
    rig.device
        .fail_nth(CallKind::Release, 1, Fault::Backend(-1), Persistence::Once);
    drop(block);
    assert_eq!(rig.pool.managed_bytes(), 0);
    assert_eq!(rig.pool.active_blocks(), 0);
    rig.pool.resume_holding();
    drop(rig.pool.allocate(100).unwrap());
    rig.device
        .fail_nth(CallKind::Release, 1, Fault::Backend(-1), Persistence::Once);
    assert_eq!(rig.pool.free_held(), 256);
    assert_eq!(rig.pool.managed_bytes(), 0);
}

#[test]
fn a_block_whose_commands_cannot_be_followed_is_not_handed_out() {
    let rig = Rig::with_capacity(MIB);
    let other = rig.another_queue(QueueOrder::InOrder);
    let block = rig.pool.allocate(100).unwrap();
    block.record_use(&other).unwrap();
    let memory = block.memory_id();
    rig.device.fail_nth(
        CallKind::Marker,
        1,
        Fault::Backend(-1),
        Persistence::Forever,
    );
    block.release().unwrap();
    let fresh = rig.pool.allocate(100).unwrap();
    assert_ne!(fresh.memory_id(), memory);
    assert_eq!(rig.pool.statistics().pending_blocks, 1);
    rig.device.clear_faults();
    // It was not lost: the next one who asks gets it.
    assert_eq!(rig.pool.allocate(100).unwrap().memory_id(), memory);
}

#[test]
fn memory_that_needs_events_and_gets_none_is_waited_for() {
    let device = MockDevice::new();
    let backend = device.backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let allocator = SvmAllocator::new(&backend, SvmGrain::Coarse).unwrap();
    let pool = PoolOptions::new()
        .segments(false)
        .build(allocator, &queue)
        .unwrap();
    let block = pool.allocate(100).unwrap();
    block.enqueue_fill(&queue, 0..100, &[1_u8]).unwrap();
    pool.stop_holding();
    device.fail_nth(
        CallKind::Marker,
        1,
        Fault::Backend(-1),
        Persistence::Forever,
    );
    assert!(block.release().is_err());
    assert_eq!(pool.managed_bytes(), 0);
    assert_eq!(device.call_count(CallKind::Finish), 1);
    assert_eq!(device.statistics().live_blocks, 0);
}

/// Until then it is the limit's: the device may still use it.
#[test]
fn memory_that_can_be_neither_marked_nor_waited_for_goes_back_later() {
    let device = MockDevice::new();
    let backend = device.backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let svm = SvmAllocator::new(&backend, SvmGrain::Coarse).unwrap();
    let budget = Budget::new(MIB as u64);
    let options = PoolOptions::new().segments(false).budget(&budget);
    let pool = options.build(svm, &queue).unwrap();
    let block = pool.allocate(100).unwrap();
    block.enqueue_fill(&queue, 0..100, &[1_u8]).unwrap();
    pool.stop_holding();
    for kind in [CallKind::Marker, CallKind::Finish] {
        device.fail_nth(kind, 1, Fault::Backend(-1), Persistence::Forever);
    }
    assert!(block.release().is_err());
    assert_eq!((pool.managed_bytes(), budget.used_bytes()), (0, 256));
    pool.free_held();
    assert_eq!(budget.used_bytes(), 256);
    device.clear_faults();
    pool.free_held();
    assert_eq!(budget.used_bytes(), 0);
    assert_eq!(device.statistics().live_blocks, 0);
}

/// Until then it counts as held, and no other request gets it.
#[test]
fn a_part_of_a_segment_that_cannot_be_waited_for_comes_back_later() {
    for scrub in [ScrubPolicy::Never, ScrubPolicy::OnFree] {
        let options = PoolOptions::new().segments(true).scrub(scrub);
        let builder = MockDevice::builder().capacity_bytes(MIB as u64);
        let rig = Rig::with_options(builder, options);
        let other = rig.another_queue(QueueOrder::InOrder);
        let gate = rig.gate();
        let block = rig.gated(&rig.queue, &gate);
        rig.device
            .fail_nth(CallKind::Marker, 1, Fault::Backend(-1), Persistence::Once);
        let released = block.enqueue_release(Some(&other), std::slice::from_ref(&gate));
        assert!(released.is_err());
        let statistics = rig.pool.statistics();
        assert_eq!(statistics.active_blocks, 0);
        assert_eq!(statistics.held_bytes, statistics.managed_bytes);
        rig.pool.free_held();
        assert!(rig.pool.managed_bytes() > 0, "a command may still use it");
        rig.open(&gate);
        // A fill of what is unscrubbed is waited for, and only then the segment is free.
        rig.pool.free_held();
        rig.pool.free_held();
        assert_eq!(rig.pool.managed_bytes(), 0, "{scrub:?}");
        assert_eq!(rig.blocks_on_device(), 0);
    }
}

#[test]
fn every_call_may_fail_once() {
    let rig = || Rig::with_capacity(MIB);
    every_call_fails_once(rig, MIB, |rig, other| {
        let first = rig.pool.allocate(MIB / 2)?;
        first.write(&rig.queue, 0, &[1_u8; 64])?;
        let second = rig.pool.allocate_on(other, 1000)?;
        second.enqueue_fill(other, 0..1000, &[2_u8])?;
        drop((first, second));
        let third = rig.pool.allocate(MIB / 2 + 1)?;
        third.record_use(other)?;
        drop(third);
        drop(rig.pool.allocate_on(other, 1000)?);
        Ok(())
    });
}
