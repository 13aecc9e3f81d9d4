//! While addresses are kept, no memory leaves the pool or moves, whatever asks for it.

use binpool::{
    Backend, ImmediateAllocator, MemoryPool, PoolOptions, QueueOrder, VirtualMemoryAllocator,
};
use binpool_mock::{CallKind, MockBackend, MockDevice, MockQueue};

use crate::common::MIB;

const CAPACITY: u64 = 64 << 20;

fn device() -> (MockDevice, MockBackend, MockQueue) {
    let builder = MockDevice::builder().virtual_memory(true);
    let device = builder.capacity_bytes(CAPACITY).build();
    let backend = device.backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    (device, backend, queue)
}

/// Asks for all that gives memory back, and checks that nothing has left.
fn check_kept(device: &MockDevice, pool: &MemoryPool<MockBackend>) {
    let (managed, unmaps) = (pool.managed_bytes(), device.call_count(CallKind::Unmap));
    let kept = pool.keep_addresses();
    let second = pool.keep_addresses();
    drop(kept);
    assert_eq!(pool.free_held() + pool.trim_to(0), 0);
    assert_eq!(pool.sweep() + pool.sweep(), 0);
    pool.stop_holding();
    drop(pool.allocate(MIB).unwrap());
    pool.resume_holding();
    // There is no room for it, and no free memory may make room.
    assert!(pool.allocate(60 * MIB).unwrap_err().is_out_of_memory());
    assert!(!pool.would_fit(60 * MIB));
    assert_eq!(pool.managed_bytes(), managed);
    assert_eq!(device.statistics().committed_bytes, managed);
    assert_eq!(device.call_count(CallKind::Unmap), unmaps);
    drop(second);
    drop(pool.allocate(40 * MIB).unwrap());
}

#[test]
fn nothing_leaves_a_pool_of_bins() {
    let (device, backend, queue) = device();
    let options = PoolOptions::new().segments(false);
    let pool = options
        .build(ImmediateAllocator::new(&backend).unwrap(), &queue)
        .unwrap();
    for bytes in [MIB, 8 * MIB, 16 * MIB] {
        drop(pool.allocate(bytes).unwrap());
    }
    check_kept(&device, &pool);
}

#[test]
fn nothing_leaves_a_pool_of_segments() {
    let (device, backend, queue) = device();
    let pool = MemoryPool::new(ImmediateAllocator::new(&backend).unwrap(), &queue).unwrap();
    let blocks = [MIB, 8 * MIB, 16 * MIB].map(|bytes| pool.allocate(bytes).unwrap());
    drop(blocks);
    check_kept(&device, &pool);
}

#[test]
fn no_pages_leave_or_move() {
    let (device, backend, queue) = device();
    let pool = MemoryPool::new(VirtualMemoryAllocator::new(&backend), &queue).unwrap();
    let blocks: Vec<_> = (0..16).map(|_| pool.allocate(2 * MIB).unwrap()).collect();
    // Every other block is free: no range has room for a larger one.
    let mut number = 0;
    let kept: Vec<_> = blocks
        .into_iter()
        .filter(|_| {
            number += 1;
            number % 2 == 0
        })
        .collect();
    check_kept(&device, &pool);
    drop(kept);
}

#[test]
fn a_pool_whose_handles_are_gone_keeps_its_memory_until_it_may_go() {
    let (device, backend, queue) = device();
    let pool = MemoryPool::new(VirtualMemoryAllocator::new(&backend), &queue).unwrap();
    drop(pool.allocate(8 * MIB).unwrap());
    let kept = pool.keep_addresses();
    drop(pool);
    assert_eq!(device.statistics().committed_bytes, 8 * MIB as u64);
    drop(kept);
    assert_eq!(device.statistics().committed_bytes, 0);
}

#[test]
fn blocks_that_are_dropped_meanwhile_leave_a_pool_that_holds_nothing_afterwards() {
    let (_, backend, queue) = device();
    let pool = MemoryPool::new(ImmediateAllocator::new(&backend).unwrap(), &queue).unwrap();
    let block = pool.allocate(8 * MIB).unwrap();
    pool.stop_holding();
    let kept = pool.keep_addresses();
    drop(block);
    assert_eq!(pool.managed_bytes(), 8 * MIB as u64);
    drop(kept);
    assert_eq!(pool.managed_bytes(), 0);
}
