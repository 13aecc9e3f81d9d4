//! Runs checks without a test runner.

use std::{
    any::Any,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
};

use crate::Check;

/// A check that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The promise that is broken.
    pub name: &'static str,
    /// The panic's message.
    pub message: String,
}

/// The results of some checks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "a report says whether the checks passed"]
pub struct Report {
    /// The checks that passed, in the order in which they ran.
    pub passed: Vec<&'static str>,
    /// The checks that failed, in the order in which they ran.
    pub failed: Vec<Failure>,
}

impl Report {
    /// Returns whether every check passed.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.failed.is_empty()
    }
}

impl fmt::Display for Report {
    /// A line for each failure, and a line that counts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Failure { name, message } in &self.failed {
            writeln!(f, "{name}: {message}")?;
        }
        let (passed, failed) = (self.passed.len(), self.failed.len());
        write!(f, "{passed} checks passed, {failed} failed")
    }
}

/// Runs each of `checks` in turn, also after a failure.
///
/// For programs on machines without a test runner. Where panics abort the program, so does the first failure.
///
/// ```
/// use binpool_allocators::DeferredAllocator;
/// use binpool_conformance::{allocator_checks, run_all};
/// use binpool_mock::MockDevice;
///
/// let deferred = || DeferredAllocator::new(&MockDevice::new().backend());
/// let report = run_all(&allocator_checks(), &deferred);
/// assert!(report.passed(), "{report}");
/// ```
pub fn run_all<F>(checks: &[Check<F>], fixture: &F) -> Report {
    let mut report = Report::default();
    for &Check { name, run } in checks {
        // The check shares nothing with later ones but the fixture, which makes fresh backends.
        match catch_unwind(AssertUnwindSafe(|| run(fixture))) {
            Ok(()) => report.passed.push(name),
            Err(panic) => report.failed.push(Failure {
                name,
                message: message(&*panic),
            }),
        }
    }
    report
}

pub(crate) fn message(panic: &(dyn Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text.clone()
    } else {
        "a panic without a message".to_owned()
    }
}
