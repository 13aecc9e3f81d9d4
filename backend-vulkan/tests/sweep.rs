//! Any call of Vulkan may fail, in any way, under a check of the conformance suite or under a pool: nothing of Vulkan is left, nothing is
//! against the specification, and nothing panics but the check that did not get what it needs.
//!
//! A process of its own, since every panic in it, on any thread, is a finding.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

#[allow(dead_code, reason = "it uses a part of it")]
#[path = "it/common/mod.rs"]
mod common;

use binpool::{Budget, ImmediateAllocator, PoolOptions, PooledBuffer, Queue, QueueOrder};
use binpool_allocators::Backend;
use binpool_conformance::{
    Fixture, backend_checks, pending_checks,
    sweep::{Ends, FaultInjector, SweepReport, sweep, sweep_checks},
};
use binpool_vulkan::VulkanBackend;

use common::faults::Faulty;

struct Fails(Faulty);

impl Fixture for Fails {
    type Backend = VulkanBackend;

    fn backend(&self) -> VulkanBackend {
        self.0.backend()
    }
}

#[test]
fn every_check_of_a_backend() {
    let _alone = Faulty::alone();
    let checks = [backend_checks(), pending_checks()].into_iter().flatten();
    let report = sweep_checks(checks.collect(), Faulty::fresh, Fails);
    println!("{report}");
    assert!(report.failures > 0);
    report.assert_no_findings();
}

/// A pool on two queues that runs into its limit.
fn pool_program(failing: Faulty, options: &PoolOptions) {
    const LIMIT: usize = 1 << 20;
    let backend = failing.backend();
    let allocator = ImmediateAllocator::new(&backend);
    let queues = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder));
    let (Ok(allocator), [Ok(home), Ok(other)]) = (allocator, queues) else {
        return;
    };
    let budget = Budget::new(LIMIT as u64);
    let Ok(pool) = options.clone().budget(&budget).build(allocator, &home) else {
        return;
    };
    let mut live: Vec<PooledBuffer<_>> = Vec::new();
    for (step, bytes) in [
        100,
        5000,
        70_000,
        100,
        LIMIT / 2,
        5000,
        LIMIT / 3,
        LIMIT / 2,
    ]
    .into_iter()
    .enumerate()
    {
        let queue = if step % 2 == 0 { &home } else { &other };
        if let Ok(block) = pool.allocate_on(queue, bytes) {
            let _failed = block.enqueue_fill(queue, 0..block.size(), &[1_u8, 2, 3, 4]);
            live.push(block);
        }
        if step % 3 == 2 && !live.is_empty() {
            // It is back though the call fails.
            let _failed = live.swap_remove(0).release();
        }
    }
    if let Some(block) = live.pop() {
        let _failed = block.enqueue_release(Some(&other), &[]);
    }
    pool.trim_to(LIMIT as u64 / 2);
    drop(live);
    failing.repair();
    assert_eq!(pool.active_blocks(), 0);
    assert!(budget.used_bytes() >= pool.managed_bytes());
    assert!(!backend.is_lost());
    for queue in [&home, &other] {
        queue.finish().unwrap();
        let block = pool.allocate_on(queue, 1000).unwrap();
        block.enqueue_fill(queue, 0..1000, &[7_u8]).unwrap();
        let mut bytes = [0_u8; 1000];
        block.read(queue, 0, &mut bytes).unwrap();
        assert_eq!(bytes, [7; 1000]);
    }
}

#[test]
fn every_pool() {
    let _alone = Faulty::alone();
    let mut report = SweepReport::default();
    for segments in [true, false] {
        let options = PoolOptions::new().segments(segments);
        let name = format!("a pool, segments: {segments}");
        report.add(sweep(&name, Ends::Always, Faulty::fresh, move |failing| {
            pool_program(*failing, &options);
        }));
    }
    println!("{report}");
    report.assert_no_findings();
}

#[test]
fn no_call_is_against_the_specification() {
    common::again_one_by_one("no_call_is_against_the_specification", &[]);
}
