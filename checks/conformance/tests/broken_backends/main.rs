//! The conformance suite notices broken backends: each defect by the check of the promise that it breaks, and each
//! check by some defect.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failing test panics"
)]

mod allocator;
mod backend;
mod calls;
mod defect;
mod objects;
mod svm;
mod virtual_memory;

use std::{collections::BTreeSet, fmt::Debug};

use binpool_allocators::{FailureOrder, On, SvmSupport};
use binpool_conformance::{
    Check, Fixture, backend_checks, failure_checks, pending_checks, run_all, svm_checks,
    virtual_memory_checks,
};
use binpool_mock::{Completion, Failures, MockDevice};

use backend::Broken;
use defect::Defect;
use objects::{BrokenEvent, BrokenMemory, BrokenQueue};

const CAPACITY: u64 = 1 << 24;

impl Fixture for Defect {
    type Backend = Broken;

    fn backend(&self) -> Broken {
        let mut builder = MockDevice::builder()
            .capacity_bytes(CAPACITY)
            .completion(Completion::Seeded(8))
            .virtual_memory(true);
        if *self == Self::GrainsAreNotLookedAt {
            builder = builder.svm(SvmSupport {
                coarse: true,
                ..SvmSupport::default()
            });
        }
        builder = builder.page_aliases(!matches!(
            self,
            Self::SecondMapsAreLost | Self::SecondMapsAreCopies | Self::RefusedMapsAreMade
        ));
        builder = builder.failures(Failures {
            order: match self {
                Self::FailuresAreEarly => FailureOrder::FailsEarly,
                Self::PlacesAreLost => FailureOrder::Lost,
                _ => FailureOrder::Kept,
            },
            spread: false,
        });
        Broken::new(&builder.build(), *self)
    }

    fn enforced_capacity(&self) -> Option<u64> {
        Some(CAPACITY)
    }

    fn launch_add(
        &self,
        backend: &Broken,
        on: On<'_, BrokenQueue, BrokenEvent>,
        sum: &BrokenMemory,
        operand: &BrokenMemory,
    ) -> Option<BrokenEvent> {
        let On { queue, wait_for } = on;
        Some(backend.add(queue, sum, operand, wait_for).unwrap())
    }
}

fn checks() -> Vec<Check<Defect>> {
    let each = [
        backend_checks(),
        pending_checks(),
        failure_checks(),
        svm_checks(),
        virtual_memory_checks(),
    ];
    each.into_iter().flatten().collect()
}

#[test]
fn without_a_defect_every_check_passes() {
    let report = run_all(&checks(), &Defect::None);
    assert!(report.passed(), "{report}");
    assert_eq!(report.passed.len(), checks().len());
}

#[test]
fn every_defect_is_noticed_by_the_check_of_its_promise() {
    assert_noticed(&checks(), Defect::ALL);
}

/// Checks that each defect makes the check fail that it is listed with, and that each check fails for some defect.
fn assert_noticed<F: Copy + Debug>(checks: &[Check<F>], defects: &[(F, &str)]) {
    let mut noticed = BTreeSet::new();
    let mut missed = Vec::new();
    for &(defect, check) in defects {
        let report = run_all(checks, &defect);
        let failing: Vec<_> = report.failed.iter().map(|failure| failure.name).collect();
        if !failing.contains(&check) {
            missed.push(format!("{defect:?}: {check} passes; {failing:?} fail"));
        }
        noticed.extend(failing);
    }
    let names = checks.iter().map(|check| check.name);
    let needless = names.filter(|name| !noticed.contains(name));
    missed.extend(needless.map(|name| format!("no defect makes {name} fail")));
    assert!(missed.is_empty(), "{missed:#?}");
}
