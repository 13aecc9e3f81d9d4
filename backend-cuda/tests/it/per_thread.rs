//! Pools whose threads have default streams of their own.

use std::thread;

use binpool::{MemoryPool, PoolOptions, VirtualMemoryAllocator};
use binpool_allocators::VirtualMemory;
use binpool_cuda::CudaBackend;

use crate::common::{Device, PAGE, queue};

const MIB: usize = 1 << 20;

type Pool = MemoryPool<CudaBackend>;

/// Calls `work` on this many threads, one after another.
fn on_threads(count: usize, work: impl Fn() + Sync) {
    for _ in 0..count {
        thread::scope(|scope| scope.spawn(&work).join().unwrap());
    }
}

/// Allocates a quarter of the device on the default stream of the calling thread, and frees it.
fn use_quarter(pool: &Pool) {
    let stream = pool.backend().per_thread_default_queue();
    let blocks: Vec<_> = (0..8)
        .map(|_| pool.allocate_on(&stream, MIB).unwrap())
        .collect();
    for block in &blocks {
        block.enqueue_fill(&stream, .., &[1]).unwrap();
    }
}

fn pool(backend: &CudaBackend) -> Pool {
    let home = queue(backend);
    PoolOptions::new()
        .build(VirtualMemoryAllocator::new(backend), &home)
        .unwrap()
}

#[test]
fn what_threads_that_have_ended_have_freed_serves_others() {
    let device = Device::new(16 * PAGE);
    let backend = device.backend();
    let pool = pool(&backend);
    // The end of a reservation asks each stream whether it is captured.
    let streams = || {
        let asked = device.calls("cuStreamIsCapturing");
        drop(backend.reserve(PAGE).unwrap());
        device.calls("cuStreamIsCapturing") - asked
    };
    let first = streams();
    on_threads(100, || use_quarter(&pool));
    let objects = device.objects();
    on_threads(100, || use_quarter(&pool));
    assert!(
        device.objects() <= objects + 64,
        "{objects}, now {}",
        device.objects()
    );
    assert_eq!(device.calls("cuCtxSynchronize"), 0);
    let are_forgotten = (0..1000).any(|_| {
        thread::yield_now();
        pool.free_held();
        streams() == first
    });
    assert!(
        are_forgotten,
        "{} queues that nothing is left of",
        streams()
    );
    assert_eq!(pool.managed_bytes(), 0);
}

#[test]
fn what_a_thread_that_lives_has_freed_serves_others() {
    let device = Device::new(16 * PAGE);
    let backend = device.backend();
    let pool = pool(&backend);
    use_quarter(&pool);
    use_quarter(&pool);
    on_threads(3, || use_quarter(&pool));
    thread::scope(|scope| {
        let trimmed = scope.spawn(|| pool.trim_to(0));
        assert!(trimmed.join().unwrap() > 0);
    });
    assert_eq!(pool.managed_bytes(), 0);
}

#[test]
fn a_driver_without_events_of_contexts_waits_before_memory_runs_out() {
    let device = Device::new(16 * PAGE);
    let backend = device.backend();
    let pool = pool(&backend);
    device.fail("cuCtxRecordEvent", 0, u64::MAX, 500);
    on_threads(10, || use_quarter(&pool));
    assert!(device.calls("cuCtxSynchronize") > 0);
    pool.trim_to(0);
    assert_eq!(pool.managed_bytes(), 0);
}
