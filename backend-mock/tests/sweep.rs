//! Whichever call of the mock fails under a check of the conformance suite, in whichever way: nothing is left on the
//! device, nothing is misused, and nothing panics but the check that did not get what it needs.
//!
//! A process of its own, since every panic in it is a finding, whichever thread it is of.

#![allow(clippy::unwrap_used, reason = "a failing test panics")]

use binpool_allocators::{
    Allocator, DeferredAllocator, ImmediateAllocator, SvmAllocator, SvmGrain,
    adaptors::{Fallback, Limit, Statistics},
};
use binpool_conformance::{
    AllocatorFixture, Check, Fixture, allocator_checks, backend_checks, failure_checks,
    pending_checks, svm_checks,
    sweep::{SweepReport, sweep_checks},
    virtual_memory_checks,
};
use binpool_mock::{Completion, MockBackend, MockDevice, MockDeviceBuilder, SweptDevices};

const CAPACITY: u64 = 1 << 24;

fn builder() -> MockDeviceBuilder {
    MockDevice::builder()
        .capacity_bytes(CAPACITY)
        .virtual_memory(true)
}

/// Backends of the devices of a run.
struct Mock(SweptDevices);

impl Fixture for Mock {
    type Backend = MockBackend;

    fn backend(&self) -> MockBackend {
        self.0.device().backend()
    }

    fn enforced_capacity(&self) -> Option<u64> {
        Some(CAPACITY)
    }
}

/// What is put around a backend of a run's.
struct Around<A> {
    devices: SweptDevices,
    allocator: fn(&MockBackend) -> A,
}

impl<A: Allocator> AllocatorFixture for Around<A> {
    type Allocator = A;

    fn allocator(&self) -> A {
        (self.allocator)(&self.devices.device().backend())
    }

    fn enforced_capacity(&self) -> Option<u64> {
        Some(CAPACITY)
    }
}

fn swept<F: 'static>(
    checks: Vec<Check<F>>,
    fresh: impl Fn() -> SweptDevices,
    fixture: fn(SweptDevices) -> F,
) {
    let report: SweepReport = sweep_checks(checks, fresh, fixture);
    println!("{report}");
    assert!(report.calls > 0, "no call failed, so nothing was checked");
    report.assert_no_findings();
}

/// The checks of a backend, whatever user events it has.
fn all_of_a_backend() -> Vec<Check<Mock>> {
    let each = [backend_checks(), pending_checks(), failure_checks()];
    each.into_iter().flatten().collect()
}

/// The checks of virtual memory, but for the one that unmaps pages under commands, which the mock reports as a misuse.
fn all_of_virtual_memory() -> Vec<Check<Mock>> {
    let mut checks = virtual_memory_checks();
    let all = checks.len();
    checks.retain(|check| check.name != "pages_that_a_command_uses_are_not_unmapped");
    assert_eq!(checks.len(), all - 1);
    checks
}

#[test]
fn every_check_of_a_backend() {
    swept(all_of_a_backend(), || SweptDevices::new(builder()), Mock);
}

#[test]
fn every_check_of_shared_virtual_memory() {
    swept(svm_checks(), || SweptDevices::new(builder()), Mock);
}

#[test]
fn every_check_of_virtual_memory() {
    for page_aliases in [true, false] {
        let fresh = || SweptDevices::new(builder().page_aliases(page_aliases));
        swept(all_of_virtual_memory(), fresh, Mock);
    }
}

#[test]
fn every_check_where_commands_run_late() {
    let seeded = || builder().completion(Completion::Seeded(7));
    swept(all_of_a_backend(), || SweptDevices::new(seeded()), Mock);
    swept(svm_checks(), || SweptDevices::new(seeded()), Mock);
    swept(
        all_of_virtual_memory(),
        || SweptDevices::new(seeded()),
        Mock,
    );
}

/// The checks with objects of another backend, where the calls of that other one fail.
#[test]
fn every_check_with_the_other_device_failing() {
    let fresh = || SweptDevices::with_another_failing(builder(), 1);
    swept(all_of_a_backend(), fresh, Mock);
    swept(svm_checks(), fresh, Mock);
    swept(all_of_virtual_memory(), fresh, Mock);
}

/// Sweeps the checks of an allocator. A check in which not even the allocator could be made ends there.
macro_rules! allocators {
    ($($name:ident => $allocator:expr,)*) => {
        $(
            #[test]
            fn $name() {
                swept(allocator_checks(), || SweptDevices::new(builder()), |devices| Around {
                    devices,
                    allocator: $allocator,
                });
            }
        )*
    };
}

fn immediate(backend: &MockBackend) -> ImmediateAllocator<MockBackend> {
    ImmediateAllocator::new(backend).unwrap()
}

fn svm(backend: &MockBackend) -> SvmAllocator<MockBackend> {
    SvmAllocator::new(backend, SvmGrain::Coarse).unwrap()
}

allocators! {
    every_check_of_the_immediate_allocator => immediate,
    every_check_of_the_deferred_allocator => DeferredAllocator::new,
    every_check_of_the_svm_allocator => svm,
    every_check_of_a_limit => |backend| Limit::new(immediate(backend), CAPACITY),
    every_check_of_a_fallback => |backend| {
        Fallback::new(svm(backend), Statistics::new(immediate(backend)))
    },
}
