//! Whichever call of the device fails under a pool, in whichever way: nothing panics or hangs, no memory, queue or event
//! is left, every counter is right, no failure goes unheard, and the pool serves again once the device does.
//!
//! Each program runs over buffers that are committed, over deferred ones, and over shared virtual memory, with bins and
//! with segments, and ends in two ways: the pool goes on after the failure, or it is dropped while calls still fail.
//!
//! A process of its own, since every panic in it is a finding, whichever thread it is of.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failing test panics"
)]

mod programs;
mod rig;

use std::sync::Arc;

use binpool::{
    DeferredAllocator, Error, ImmediateAllocator, PoolOptions, Retain, ReusePolicy, ScrubPolicy,
    SvmAllocator, SvmGrain,
    adaptors::{Fallback, Limit, Statistics},
};
use binpool_conformance::sweep::{Ends, SweepReport, sweep};
use binpool_mock::{Completion, Failures, MockBackend, MockDevice, SweptDevices};
use rig::{AnyAllocator, CAPACITY, Ending, Rig, Setting};

/// Sweeps a program over a pool that is made so: with each ending, and with commands that end at once, and late.
fn swept(name: &str, setting: Setting, program: fn(&mut Rig)) -> SweepReport {
    swept_with(Failures::default(), name, setting, program)
}

/// The same on a device where commands fail in this way.
fn swept_with(
    failures: Failures,
    name: &str,
    setting: Setting,
    program: fn(&mut Rig),
) -> SweepReport {
    let mut report = SweepReport::default();
    let setting = Arc::new(setting);
    for completion in [Completion::AtOnce, Completion::Seeded(3)] {
        for ending in [Ending::PoolGoesOn, Ending::PoolIsDropped] {
            let name = format!("{name} ({:?}, {completion:?}, {ending:?})", setting.options);
            let device = MockDevice::builder()
                .capacity_bytes(CAPACITY as u64)
                .completion(completion)
                .failures(failures);
            let fresh = || SweptDevices::new(device.clone());
            let setting = Arc::clone(&setting);
            let run = move |devices: &SweptDevices| Rig::run(devices, &setting, program, ending);
            report.add(sweep(&name, Ends::Always, fresh, run));
        }
    }
    report
}

fn immediate(backend: &MockBackend) -> Result<AnyAllocator, Error> {
    Ok(Arc::new(ImmediateAllocator::new(backend)?))
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "it is made as the others are, which may fail"
)]
fn deferred(backend: &MockBackend) -> Result<AnyAllocator, Error> {
    Ok(Arc::new(DeferredAllocator::new(backend)))
}

fn svm(backend: &MockBackend) -> Result<AnyAllocator, Error> {
    Ok(Arc::new(SvmAllocator::new(backend, SvmGrain::Coarse)?))
}

fn bins() -> PoolOptions {
    PoolOptions::new().segments(false)
}

fn segments() -> PoolOptions {
    PoolOptions::new().segments(true)
}

/// Sweeps a program with each of these options, over each kind of memory.
fn everywhere(name: &str, options: &[PoolOptions], program: fn(&mut Rig)) {
    let mut report = SweepReport::default();
    for options in options {
        for (memory, allocator) in MEMORY {
            let name = format!("{name} ({memory})");
            report.add(swept(&name, setting(options, allocator), program));
        }
    }
    println!("{name}: {report}");
    report.assert_no_findings();
}

type MakeAllocator = fn(&MockBackend) -> Result<AnyAllocator, Error>;

const MEMORY: [(&str, MakeAllocator); 3] = [
    ("immediate", immediate),
    ("deferred", deferred),
    ("SVM", svm),
];

fn setting(options: &PoolOptions, allocator: MakeAllocator) -> Setting {
    Setting {
        options: options.clone(),
        allocator,
    }
}

macro_rules! programs {
    ($($(#[$doc:meta])* $name:ident: $options:expr;)*) => {
        $(
            $(#[$doc])*
            #[test]
            fn $name() {
                everywhere(stringify!($name), &$options, programs::$name);
            }
        )*
    };
}

fn with(policy: ReusePolicy) -> [PoolOptions; 2] {
    [bins().reuse(policy), segments().reuse(policy)]
}

fn scrubbing(policy: ScrubPolicy) -> [PoolOptions; 2] {
    [bins().scrub(policy), segments().scrub(policy)]
}

programs! {
    blocks_come_and_go: [bins(), segments(), segments().leading_bits(3)];
    memory_runs_out: [bins(), segments()];
    blocks_cross_queues: ReusePolicy::ALL.map(with).concat();
    blocks_are_bound_and_released_by_commands: [bins(), segments()];
    blocks_are_scrubbed: [ScrubPolicy::OnFree, ScrubPolicy::OnHandOut].map(scrubbing).concat();
    memory_goes_back: [bins(), segments(), bins().retain(Retain::new().at_most(8192)), segments().retain(Retain::new().at_most(8192))];
    idle_memory_is_swept: [bins().retain(decay()), segments().retain(decay())];
    blocks_leave_the_pool: [bins(), segments()];
    threads_share_the_pool: [bins(), segments()];
}

fn decay() -> Retain {
    Retain::new().unused_for_allocations(3)
}

#[test]
fn commands_fail() {
    let mut report = SweepReport::default();
    for failures in Failures::ALL {
        let name = format!("commands fail, {failures:?}");
        for options in [
            bins().reuse(ReusePolicy::Opportunistic),
            segments().reuse(ReusePolicy::InsertWait),
        ] {
            let program = programs::commands_fail;
            let setting = setting(&options, immediate);
            report.add(swept_with(failures, &name, setting, program));
        }
    }
    println!("{report}");
    report.assert_no_findings();
}

/// A pool whose allocator gets its memory from two others.
#[test]
fn a_pool_over_stacked_adaptors() {
    fn stack(backend: &MockBackend) -> Result<AnyAllocator, Error> {
        let buffers = Limit::new(ImmediateAllocator::new(backend)?, CAPACITY as u64 / 4);
        let svm = SvmAllocator::new(backend, SvmGrain::Coarse)?;
        Ok(Arc::new(Statistics::new(Fallback::new(buffers, svm))))
    }
    let mut report = SweepReport::default();
    for program in [
        programs::blocks_come_and_go,
        programs::memory_runs_out,
        programs::blocks_cross_queues,
        programs::memory_goes_back,
    ] {
        let setting = setting(&bins(), stack);
        report.add(swept("a pool over stacked adaptors", setting, program));
    }
    println!("{report}");
    report.assert_no_findings();
}
