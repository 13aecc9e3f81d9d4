//! `Failing`.

use std::error::Error as _;

use binpool_allocators::{Allocator, Error, Region, Scope};
use binpool_conformance::{AllocatorCall, AllocatorFault, Failing, FaultTrigger};
use binpool_mock::{CallKind, Fault, MockDevice, Persistence};

use crate::adaptors::{Deferred, deferred, device};

const FULL: AllocatorFault = AllocatorFault::OutOfMemory(Scope::Device);

fn failing(device: &MockDevice, trigger: FaultTrigger) -> Failing<Deferred> {
    let failing = Failing::new(deferred(device));
    failing.fail(AllocatorCall::Allocate, trigger, FULL);
    failing
}

/// Which of the first ten allocations of 100, 200, ... bytes fail, counted from 1.
fn failures(allocator: &impl Allocator) -> Vec<usize> {
    let fails = |n: &usize| allocator.allocate(n * 100).is_err();
    (1..=10).filter(fails).collect()
}

#[test]
fn each_trigger_fails_the_calls_that_it_names() {
    let (probability, seed) = (0.0, 0x61c8_8646_80b5_83eb);
    let expected: [(FaultTrigger, &[usize]); 14] = [
        (FaultTrigger::Nth(1), &[1]),
        (FaultTrigger::Nth(4), &[4]),
        (FaultTrigger::Nth(0), &[]),
        (FaultTrigger::EveryNth(3), &[3, 6, 9]),
        (FaultTrigger::EveryNth(0), &[]),
        (FaultTrigger::Next(2), &[1, 2]),
        (FaultTrigger::Next(0), &[]),
        (
            FaultTrigger::Next(u64::MAX),
            &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
        ),
        (FaultTrigger::From(8), &[8, 9, 10]),
        (FaultTrigger::From(0), &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
        (FaultTrigger::From(11), &[]),
        (FaultTrigger::LargerThan(800), &[9, 10]),
        (FaultTrigger::LargerThan(usize::MAX), &[]),
        // The generator's first number is 0.
        (FaultTrigger::Randomly { probability, seed }, &[]),
    ];
    for (trigger, calls) in expected {
        let device = device();
        let allocator = failing(&device, trigger);
        assert_eq!(failures(&allocator), calls, "{trigger:?}");
        assert_eq!(allocator.failed_calls(), calls.len() as u64);
        // What was made to fail did not reach the device.
        let reached = device.call_count(CallKind::CreateBuffer);
        assert_eq!(reached, 10 - calls.len() as u64);
    }
}

#[test]
fn the_same_seed_fails_the_same_calls_about_as_often_as_was_asked() {
    let run = |probability, seed| {
        let trigger = FaultTrigger::Randomly { probability, seed };
        let allocator = failing(&device(), trigger);
        (0..100).map(|_| failures(&allocator)).collect::<Vec<_>>()
    };
    let count = |runs: Vec<Vec<usize>>| runs.iter().map(Vec::len).sum::<usize>();
    assert_eq!(run(0.3, 42), run(0.3, 42));
    assert_ne!(run(0.3, 42), run(0.3, 43));
    assert!((250..350).contains(&count(run(0.3, 42))));
    assert_eq!(count(run(0.0, 1)), 0);
    assert_eq!(count(run(1.0, 1)), 1000);
}

#[test]
fn errors_are_what_was_asked_for_and_say_that_they_were() {
    let error = |fault| {
        let allocator = Failing::new(deferred(&device()));
        allocator.fail(AllocatorCall::Allocate, FaultTrigger::Next(1), fault);
        let error = allocator.allocate(100).unwrap_err();
        let source = error.source().unwrap().to_string();
        assert_eq!(source, "an injected fault, in allocate");
        error
    };
    for scope in [Scope::Device, Scope::Host, Scope::Limit] {
        match error(AllocatorFault::OutOfMemory(scope)) {
            Error::OutOfMemory(found) => assert_eq!((found.scope, found.requested), (scope, 100)),
            other => panic!("{other:?}"),
        }
    }
    match error(AllocatorFault::Backend(-36)) {
        Error::Backend(found) => assert_eq!((found.operation, found.code), ("allocate", Some(-36))),
        other => panic!("{other:?}"),
    }
    let lost = error(AllocatorFault::DeviceLost);
    assert!(
        matches!(
            lost,
            Error::DeviceLost {
                operation: "allocate",
                ..
            }
        ),
        "{lost:?}"
    );
}

#[test]
fn a_release_that_is_made_to_fail_gives_the_block_back_all_the_same() {
    let device = device();
    let allocator = Failing::new(deferred(&device));
    let fault = AllocatorFault::Backend(-5);
    allocator.fail(AllocatorCall::Release, FaultTrigger::LargerThan(100), fault);
    let [small, large] = [100, 101].map(|bytes| allocator.allocate(bytes).unwrap());
    allocator.release(small, &[]).unwrap();
    let error = allocator.release(large, &[]).unwrap_err();
    assert_eq!(error.to_string(), "release failed with code -5");
    assert!(device.leaks().memory.is_empty());
    assert!(device.violations().is_empty());
    // A failure of the device itself is not covered up.
    let block = allocator.allocate(1000).unwrap();
    device.fail_nth(CallKind::Release, 1, Fault::DeviceLost, Persistence::Once);
    let error = allocator.release(block, &[]).unwrap_err();
    assert!(matches!(error, Error::DeviceLost { .. }), "{error:?}");
    assert_eq!(allocator.failed_calls(), 2);
}

#[test]
fn the_oldest_fault_decides_and_each_counts_every_call() {
    let allocator = Failing::new(deferred(&device()));
    let fail = |trigger, fault| allocator.fail(AllocatorCall::Allocate, trigger, fault);
    fail(FaultTrigger::Nth(2), AllocatorFault::Backend(-1));
    fail(FaultTrigger::EveryNth(2), AllocatorFault::Backend(-2));
    // Releases are none of theirs.
    let block = allocator.allocate(1).unwrap();
    allocator.release(block, &[]).unwrap();
    let codes: Vec<_> = (2..=4)
        .map(|_| match allocator.allocate(1) {
            Err(Error::Backend(failure)) => failure.code,
            _ => None,
        })
        .collect();
    assert_eq!(codes, [Some(-1), None, Some(-2)]);
}

#[test]
fn calls_of_any_kind_are_counted_and_fail_together() {
    let device = device();
    let allocator = Failing::new(deferred(&device));
    let fault = AllocatorFault::Backend(-1);
    allocator.fail(None, FaultTrigger::From(3), fault);
    let block = allocator.allocate(1024).unwrap();
    let view = allocator.create_view(&block, Region::first(256)).unwrap();
    assert_eq!(
        (allocator.calls(), allocator.first_failed_call()),
        (2, None)
    );
    assert!(allocator.create_view(&block, Region::first(256)).is_err());
    // What was made to fail did not reach the device.
    assert_eq!(device.call_count(CallKind::CreateSubRegion), 1);
    allocator.release_view(view);
    assert!(allocator.release(block, &[]).is_err());
    assert!(allocator.allocate(1).is_err());
    assert_eq!((allocator.calls(), allocator.failed_calls()), (5, 3));
    assert_eq!(
        allocator.first_failed_call(),
        Some(AllocatorCall::CreateView)
    );
    assert!(device.leaks().memory.is_empty());
}

#[test]
fn faults_are_shared_by_clones_and_can_be_cleared() {
    let allocator = failing(&device(), FaultTrigger::Nth(2));
    let clone = allocator.clone();
    assert!(clone.allocate(1).is_ok());
    assert!(allocator.allocate(1).is_err());
    assert_eq!(clone.failed_calls(), 1);
    clone.fail(AllocatorCall::Allocate, FaultTrigger::Next(u64::MAX), FULL);
    assert!(allocator.allocate(1).is_err());
    clone.clear_faults();
    assert!(allocator.allocate(1).is_ok());
    assert_eq!(allocator.failed_calls(), 2);
}
