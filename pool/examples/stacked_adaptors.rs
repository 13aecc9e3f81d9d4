//! Three kinds of adaptors on top of each other, under a pool with a budget: a program that may take 64 KiB of buffers, and goes on with
//! shared virtual memory from there.
//!
//! ```text
//! cargo run -p binpool --example stacked_adaptors                 # what happened
//! RUST_LOG=debug cargo run -p binpool --example stacked_adaptors  # with the pool's events
//! ```

use std::error::Error;

use binpool::{
    Backend, Budget, ImmediateAllocator, Memory, PoolError, PoolOptions, QueueOrder, SvmAllocator,
    SvmGrain, Verdict,
    adaptors::{Fallback, Limit, Statistics},
};
use binpool_allocators::MemoryKind;
use binpool_mock::MockDevice;
use tracing_subscriber::EnvFilter;

const KIB: usize = 1024;

fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::from_default_env())
        .init();
    stack()
}

fn stack() -> Result<(), Box<dyn Error>> {
    let device = MockDevice::new();
    let backend = device.backend();
    let queue = backend.create_queue(QueueOrder::InOrder)?;

    // From the inside out. A limit around the buffers alone is what sends the program to the second allocator, and the
    // pool's budget is what ends it.
    let buffers = Limit::new(ImmediateAllocator::new(&backend)?, 64 * KIB as u64);
    let svm = SvmAllocator::new(&backend, SvmGrain::Coarse)?;
    let counted = Statistics::new(Fallback::new(buffers, svm));
    let budget = Budget::new(96 * KIB as u64);
    budget.on_soft_limit(80 * KIB as u64, |budget| {
        println!("soft limit: {} bytes are left", budget.available_bytes);
    });
    // Without segments each block is the allocators', so that it is seen whose.
    let pool = PoolOptions::new()
        .segments(false)
        .budget(&budget)
        .build(counted.clone(), &queue)?;

    let blocks = [(); 3].map(|()| pool.allocate(32 * KIB));
    let mut kinds = Vec::new();
    for block in blocks.iter().flatten() {
        block.enqueue_fill(&queue, 0..32 * KIB, &[7_u8])?;
        kinds.extend(block.memory_on(&queue).map(Memory::kind));
    }
    println!("three blocks of 32 KiB: {kinds:?}");
    let svm = MemoryKind::Svm(SvmGrain::Coarse);
    assert_eq!(kinds, [MemoryKind::Buffer, MemoryKind::Buffer, svm]);
    assert_eq!(budget.available_bytes(), 0);

    let Err(PoolError::OutOfMemory(report)) = pool.allocate(KIB) else {
        return Err("a block beyond the limit".into());
    };
    println!("a fourth block: {report}");
    assert_eq!(report.verdict, Verdict::Limited);

    // What the pool holds is still taken; what it gives back is not.
    drop(blocks);
    assert_eq!(budget.used_bytes(), 96 * KIB as u64);
    pool.free_held();
    assert_eq!(budget.used_bytes(), 0);
    let fallback = counted.inner();
    assert_eq!(fallback.first().budget().used_bytes(), 0);
    assert_eq!(fallback.first().budget().peak_bytes(), 64 * KIB as u64);

    let reading = counted.reading();
    println!("all in all: {reading:#?}");
    assert_eq!((reading.allocations, reading.releases), (3, 3));
    // The budget refused the fourth block before the adaptors saw the request.
    assert_eq!(reading.failed_allocations, 0);
    assert_eq!(
        (reading.current_bytes, reading.peak_bytes),
        (0, 96 * KIB as u64)
    );
    drop((pool, counted, queue));
    assert!(device.leaks().is_empty() && device.violations().is_empty());
    Ok(())
}

#[test]
fn the_example_runs() {
    stack().unwrap();
}
