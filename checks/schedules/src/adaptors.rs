//! The adaptors that share something between threads.

use std::sync::{Arc, Mutex};

use binpool::{
    MemoryPool, PoolOptions, QueueOrder,
    adaptors::{Budget, Fallback, Limit, Statistics},
};
use binpool_allocators::Scope;
use binpool_conformance::{AllocatorCall, AllocatorFault, Failing, FaultTrigger};
use binpool_mock::MockDevice;

use crate::{
    program::{Program, library::thread},
    world::{Allocator, BYTES, has_nothing_left, join},
};

pub(crate) const PROGRAMS: &[Program] = &[
    Program::listed("a-budget-for-two", 2, a_budget_for_two),
    Program::new(
        "a-budget-that-is-just-enough",
        4,
        a_budget_that_is_just_enough,
    ),
    Program::listed("statistics-of-two", 2, statistics_of_two),
    Program::new(
        "a-second-allocator-for-three",
        4,
        a_second_allocator_for_three,
    ),
    Program::listed("failures-of-two", 2, failures_of_two),
    Program::new("a-pool-over-all-adaptors", 3, a_pool_over_all_adaptors),
];

fn allocator() -> (MockDevice, Allocator) {
    let device = MockDevice::builder()
        .capacity_bytes(64 * BYTES as u64)
        .build();
    let allocator = Allocator::new(&device.backend()).unwrap();
    (device, allocator)
}

/// Allocates a block and gives it back. Whether there was one.
fn allocate_and_release<A: binpool::Allocator>(allocator: &A) -> bool {
    match allocator.allocate(BYTES) {
        Ok(block) => {
            allocator.release(block, &[]).unwrap();
            true
        }
        Err(error) => {
            assert!(error.is_out_of_memory(), "{error}");
            false
        }
    }
}

/// Each of three threads gets a block twice.
fn three_threads_are_served<A: binpool::Allocator + Clone + 'static>(allocator: &A) {
    let threads = [(); 3].map(|()| {
        let allocator = allocator.clone();
        thread::spawn(move || {
            assert!(allocate_and_release(&allocator));
            assert!(allocate_and_release(&allocator));
        })
    });
    join(threads);
}

/// The budget never lets more through than it has, and at the end all of it is back.
fn a_budget_for_two() {
    let (device, inner) = allocator();
    let budget = Budget::new(BYTES as u64);
    let limit = Limit::shared(inner, &budget);
    let other = thread::spawn({
        let limit = limit.clone();
        move || allocate_and_release(&limit)
    });
    let one = allocate_and_release(&limit);
    let both = [one, other.join().unwrap()];
    assert!(both.contains(&true), "the first one to ask gets it");
    let usage = budget.usage();
    assert_eq!((usage.used_bytes, usage.available_bytes), (0, BYTES as u64));
    assert_eq!(usage.peak_bytes, BYTES as u64);
    has_nothing_left(&device);
}

/// No thread is refused what another one was promised for a moment only.
fn a_budget_that_is_just_enough() {
    let (device, inner) = allocator();
    let budget = Budget::new(3 * BYTES as u64);
    let crossings = Arc::new(Mutex::new(0_u32));
    let counted = Arc::clone(&crossings);
    budget.on_soft_limit(2 * BYTES as u64, move |usage| {
        assert!(usage.used_bytes > 2 * BYTES as u64);
        *counted.lock().unwrap() += 1;
    });
    let limit = Limit::shared(inner, &budget);
    three_threads_are_served(&limit);
    assert_eq!(budget.used_bytes(), 0);
    let has_crossed = budget.peak_bytes() > 2 * BYTES as u64;
    assert_eq!(*crossings.lock().unwrap() > 0, has_crossed);
    has_nothing_left(&device);
}

fn statistics_of_two() {
    let (device, inner) = allocator();
    let statistics = Statistics::new(inner);
    let other = thread::spawn({
        let statistics = statistics.clone();
        move || allocate_and_release(&statistics)
    });
    allocate_and_release(&statistics);
    other.join().unwrap();
    let reading = statistics.reading();
    assert_eq!((reading.allocations, reading.releases), (2, 2));
    assert_eq!(reading.current_bytes, 0);
    assert!((BYTES as u64..=2 * BYTES as u64).contains(&reading.peak_bytes));
    has_nothing_left(&device);
}

/// Each block goes back to where it came from.
fn a_second_allocator_for_three() {
    let (device, inner) = allocator();
    let budgets = [1, 2].map(|blocks| Budget::new(blocks * BYTES as u64));
    let [first, second] = budgets
        .each_ref()
        .map(|it| Limit::shared(inner.clone(), it));
    let both = Fallback::new(first, second);
    three_threads_are_served(&both);
    assert_eq!(budgets.map(|it| it.used_bytes()), [0, 0]);
    has_nothing_left(&device);
}

/// Each failure that was asked for happens once.
fn failures_of_two() {
    let (device, inner) = allocator();
    let failing = Failing::new(inner);
    let fault = AllocatorFault::OutOfMemory(Scope::Device);
    failing.fail(AllocatorCall::Allocate, FaultTrigger::Nth(2), fault);
    let other = thread::spawn({
        let failing = failing.clone();
        move || allocate_and_release(&failing)
    });
    let one = allocate_and_release(&failing);
    let both = [one, other.join().unwrap()];
    assert_eq!(both.iter().filter(|it| **it).count(), 1);
    assert_eq!(failing.failed_calls(), 1);
    has_nothing_left(&device);
}

/// Two threads share a pool over all of them, with a failure that the pool makes up for.
fn a_pool_over_all_adaptors() {
    let (device, inner) = allocator();
    let budget = Budget::new(2 * BYTES as u64);
    let failing = Failing::new(Limit::shared(inner.clone(), &budget));
    let fault = AllocatorFault::OutOfMemory(Scope::Device);
    failing.fail(AllocatorCall::Allocate, FaultTrigger::Nth(1), fault);
    let second = Limit::new(inner, BYTES as u64);
    let statistics = Statistics::new(Fallback::new(failing, second));
    let queue = device.backend();
    let queue = binpool::Backend::create_queue(&queue, QueueOrder::InOrder).unwrap();
    let options = PoolOptions::new().segments(false);
    let pool: MemoryPool<_> = options.build(statistics.clone(), &queue).unwrap();
    let others = [(); 2].map(|()| {
        let pool = pool.clone();
        thread::spawn(move || {
            let kept = pool.allocate(BYTES).unwrap();
            drop(pool.allocate(BYTES / 2));
            drop(kept);
        })
    });
    join(others);
    pool.free_held();
    let reading = statistics.reading();
    assert_eq!((reading.current_bytes, budget.used_bytes()), (0, 0));
    assert_eq!(pool.managed_bytes(), 0);
    drop(pool);
    has_nothing_left(&device);
}
