//! Sweeps of failures: a scenario is run once and its calls are counted; then it is run again with its first call failing,
//! its second, its third, and so on. After `SQLite`'s sweeps of out-of-memory and I/O errors.
//!
//! Each call fails in four ways: as out-of-memory and as another failure of the runtime, that call alone and that call
//! with all after it. After each run there must have been no panic, no hang, no misuse, and nothing left on the device.
//! A scenario itself asserts anything beyond that (counters, and that objects can be used once the faults are lifted),
//! after it has called [`FaultInjector::repair`].
//!
//! For a backend that can be made to fail, [`sweep_checks`] sweeps every check of this suite. For an allocator, or a program
//! over one, [`sweep`] does it with anything that can fail: the mock device, all of whose calls can, or
//! [`Failing`](crate::Failing) around an allocator of any device.
//!
//! ```
//! use binpool_conformance::{AllocatorCall, Failing};
//! use binpool_allocators::{Allocator, DeferredAllocator};
//! use binpool_conformance::sweep::{Ends, SweptAllocator, sweep};
//! use binpool_mock::MockDevice;
//!
//! let fresh = || SweptAllocator::new(Failing::new(DeferredAllocator::new(&MockDevice::new().backend())));
//! let report = sweep("two blocks", Ends::Always, fresh, |failing| {
//!     let blocks = [failing.allocator().allocate(100), failing.allocator().allocate(200)];
//!     for block in blocks.into_iter().flatten() {
//!         let _failed = failing.allocator().release(block, &[]);
//!     }
//! });
//! assert_eq!(report.calls, 4);
//! report.assert_no_findings();
//! ```

mod allocator;
mod panics;

use std::{
    any::Any,
    env, fmt,
    panic::{AssertUnwindSafe, Location, catch_unwind},
    sync::{
        Arc,
        mpsc::{RecvTimeoutError, channel},
    },
    thread,
    time::Duration,
};

pub use allocator::SweptAllocator;
pub(crate) use panics::on_threads;
use panics::{Collected, Collector, Panic};

use crate::Check;

/// The environment variable that makes a sweep fail every call if it is `all`. Otherwise some calls of each scenario fail.
pub const EXTENT: &str = "BINPOOL_SWEEP";

/// The number of calls of a scenario that fail in each way, unless all do.
const SAMPLE: u64 = 8;

/// The time after which a run counts as hanging. No run takes a hundredth of it.
const PATIENCE: Duration = Duration::from_secs(120);

/// The mark in the text of an injected error, by which a sweep sees that a check ended because of it.
pub const MARK: &str = "injected fault";

/// The call of a run that fails, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultPoint {
    /// The number of the call, from 1 on.
    pub call: u64,
    /// Set if it fails as out of memory; otherwise it fails with another error.
    pub is_out_of_memory: bool,
    /// Set if all calls after it fail, too.
    pub is_permanent: bool,
}

impl FaultPoint {
    /// Each way in which a call can fail.
    fn ways(call: u64) -> [Self; 4] {
        [(true, false), (true, true), (false, false), (false, true)].map(
            |(is_out_of_memory, is_permanent)| Self {
                call,
                is_out_of_memory,
                is_permanent,
            },
        )
    }
}

impl fmt::Display for FaultPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_out_of_memory {
            "out of memory"
        } else {
            "a failure of the runtime"
        };
        let span = if self.is_permanent {
            "permanent"
        } else {
            "transient"
        };
        write!(f, "{kind}, {span}")
    }
}

/// A device or an allocator with injected faults that counts its calls, made for one run.
///
/// The source of its injected errors has a text that contains its [`mark`](Self::mark).
pub trait FaultInjector: Send + Sync + 'static {
    /// The text in its injected errors: [`MARK`], unless a runtime has only codes of its own.
    fn mark(&self) -> &'static str {
        MARK
    }

    /// Makes a call fail. Called before the run, at most once.
    fn inject(&self, point: FaultPoint);

    /// Lets all calls succeed again, and ends the counting. A scenario calls this before it checks what is left; the sweep
    /// calls it after each run.
    fn repair(&self);

    /// Returns the number of calls before [`repair`](Self::repair).
    fn calls(&self) -> u64;

    /// Returns the name of the first call that failed; `None` if the run had fewer calls.
    fn first_failed_call(&self) -> Option<String>;

    /// Returns what is wrong after the scenario has dropped everything that it made: what is left on the device, and misuse
    /// of it.
    fn violations(&self) -> Vec<String>;
}

/// How a run of a scenario may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// Only by returning: the scenario handles every error.
    Always,
    /// Also by a panic of a [check](super) that unwraps the injected error, since the check cannot go on without the result.
    /// The panic drops everything that the check has, and the device is inspected as after any other end. The panic must carry
    /// the injected error, and come from a check or from the file that called the sweep, whose fixture may unwrap as well. Any
    /// other panic is a finding.
    EarlyByPanic,
}

/// The results of sweeps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "the findings are in it"]
pub struct SweepReport {
    /// The scenarios.
    pub scenarios: u64,
    /// The calls that they made, each run once without a failure.
    pub calls: u64,
    /// The runs in which a call was made to fail.
    pub failures: u64,
    /// The findings, with scenario, call and failure.
    pub findings: Vec<String>,
}

impl SweepReport {
    /// Adds the results of another sweep.
    pub fn add(&mut self, other: Self) {
        self.scenarios += other.scenarios;
        self.calls += other.calls;
        self.failures += other.failures;
        self.findings.extend(other.findings);
    }

    /// Prints the results, and panics if there is a finding.
    ///
    /// # Panics
    ///
    /// With the first findings, each with scenario, call and failure.
    pub fn assert_no_findings(&self) {
        const SHOWN: usize = 20;
        let first = &self.findings[..self.findings.len().min(SHOWN)];
        assert!(first.is_empty(), "{self}\n{}", first.join("\n"));
    }
}

impl fmt::Display for SweepReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            scenarios,
            calls,
            failures,
            findings,
        } = self;
        let findings = findings.len();
        write!(
            f,
            "{scenarios} scenarios, {calls} calls, {failures} runs with a failure, {findings} findings"
        )
    }
}

/// Runs `scenario` with the result of `fresh`: once without a failure, then with each of its calls failing in each way
/// (some of its calls, unless [`EXTENT`] says all).
///
/// Each run has a thread of its own, so that thread caches are given back before the device is inspected, and so that a run
/// that hangs is detected.
#[track_caller]
pub fn sweep<S: FaultInjector>(
    name: &str,
    ends: Ends,
    fresh: impl Fn() -> S,
    scenario: impl Fn(&S) + Send + Sync + 'static,
) -> SweepReport {
    let scenario: Arc<Scenario<S>> = Arc::new(scenario);
    let plan = Plan {
        name,
        ends,
        caller: Location::caller().file(),
        scenario,
    };
    let run = |point| plan.run(&Arc::new(fresh()), point);
    let sound = run(None);
    let mut report = SweepReport {
        scenarios: 1,
        calls: sound.calls,
        ..SweepReport::default()
    };
    report.findings.extend(sound.finding);
    let step = match env::var(EXTENT).as_deref() {
        Ok("all") => 1,
        _ => sound.calls.div_ceil(SAMPLE).max(1),
    };
    for (call, way) in (1..=sound.calls).zip((0..step).cycle()) {
        for (offset, point) in (0..).zip(FaultPoint::ways(call)) {
            // Each way of failing takes other calls of the scenario.
            if (way + offset) % step == 0 {
                let run = run(Some(point));
                report.failures += u64::from(run.has_failed);
                report.findings.extend(run.finding);
            }
        }
    }
    report
}

/// Sweeps each of `checks`, with the fixture that `fixture` makes from the result of `fresh`.
#[track_caller]
pub fn sweep_checks<S: FaultInjector + Clone, F: 'static>(
    checks: Vec<Check<F>>,
    fresh: impl Fn() -> S,
    fixture: fn(S) -> F,
) -> SweepReport {
    let mut report = SweepReport::default();
    for Check { name, run } in checks {
        report.add(sweep(name, Ends::EarlyByPanic, &fresh, move |failing| {
            run(&fixture(failing.clone()));
        }));
    }
    report
}

type Scenario<S> = dyn Fn(&S) + Send + Sync;

/// The result of one run.
struct Run {
    calls: u64,
    has_failed: bool,
    finding: Option<String>,
}

/// What a sweep runs.
struct Plan<'a, S> {
    name: &'a str,
    ends: Ends,
    /// The file that called the sweep.
    caller: &'static str,
    scenario: Arc<Scenario<S>>,
}

impl<S: FaultInjector> Plan<'_, S> {
    fn run(&self, failing: &Arc<S>, point: Option<FaultPoint>) -> Run {
        if let Some(point) = point {
            failing.inject(point);
        }
        let what = match point {
            Some(point) => format!("{}, call {}", self.name, point.call),
            None => format!("{}, without a failure", self.name),
        };
        let collector = Collector::new(what.clone());
        let ended = on_a_thread(&collector, Arc::clone(failing), Arc::clone(&self.scenario));
        failing.repair();
        let failed_call = failing.first_failed_call();
        let problem = ended.and_then(|()| {
            let has_failed = failed_call.is_some();
            self.check_end(&collector.take(), has_failed.then(|| failing.mark()))?;
            let violations = failing.violations();
            if violations.is_empty() {
                Ok(())
            } else {
                Err(violations.join("; "))
            }
        });
        let finding = problem.err().map(|problem| match (point, &failed_call) {
            (Some(point), Some(call)) => format!("{what} ({call}; {point}): {problem}"),
            _ => format!("{what}: {problem}"),
        });
        Run {
            calls: failing.calls(),
            has_failed: failed_call.is_some(),
            finding,
        }
    }

    /// Returns an error where a run panicked in a way in which it must not end.
    fn check_end(&self, collected: &Collected, mark: Option<&'static str>) -> Result<(), String> {
        if let Some(stray) = &collected.stray {
            return Err(format!("another thread panicked: {stray}"));
        }
        let mark = mark.filter(|_| self.ends == Ends::EarlyByPanic);
        let is_its_end =
            |panic: &Panic| mark.is_some_and(|mark| panic.is_an_end(self.caller, mark));
        match collected.panics.iter().find(|panic| !is_its_end(panic)) {
            Some(panic) => Err(format!("it panicked: {panic}")),
            None => Ok(()),
        }
    }
}

/// Runs a scenario on a thread of its own, and waits until the thread has ended.
fn on_a_thread<S: FaultInjector>(
    collector: &Collector,
    failing: Arc<S>,
    scenario: Arc<Scenario<S>>,
) -> Result<(), String> {
    let (end, ended) = channel::<()>();
    let collector = collector.clone();
    let thread = thread::Builder::new().spawn(move || {
        // The collector has the panic, so its payload is not needed.
        let _panicked: Result<(), Box<dyn Any + Send>> =
            collector.within(|| catch_unwind(AssertUnwindSafe(|| scenario(&failing))));
        drop((scenario, failing, end));
    });
    let thread = thread.map_err(|error| format!("no thread for it: {error}"))?;
    match ended.recv_timeout(PATIENCE) {
        Err(RecvTimeoutError::Timeout) => {
            let seconds = PATIENCE.as_secs();
            Err(format!("it hangs: no end after {seconds} seconds"))
        }
        // The thread gives back its caches when it ends.
        _ => thread
            .join()
            .map_err(|_| "its thread panicked while it ended".to_owned()),
    }
}
