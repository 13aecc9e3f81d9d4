//! A program of some threads, and how schedules of it are tried.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

use shuttle::{
    Config, MaxSteps, Runner,
    scheduler::{DfsScheduler, PctScheduler, RandomScheduler, ReplayScheduler, Scheduler},
};

// By this name the programs know threads and channels; under Miri those are the standard library's (`pool/tests/schedules.rs`).
pub(crate) use shuttle as library;

/// Schedules of each program, by each scheduler, in the short form.
const SCHEDULES: usize = 1000;

/// How often priorities change in a schedule of the PCT scheduler: bugs that take this many threads' steps in one order are
/// found with a probability that its authors give.
const CHANGES: [usize; 2] = [3, 6];

/// The same schedules each time; `SHUTTLE_RANDOM_SEED` asks for others.
const SEED: u64 = 0x5eed;

/// More steps than any program takes: one that gets there goes round in circles.
const MOST_STEPS: usize = 200_000;

/// The pool's frames are larger than `shuttle` reckons with.
const STACK_BYTES: usize = 256 << 10;

#[derive(Clone, Copy)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    /// The one that starts the others among them.
    pub(crate) threads: usize,
    /// Whether it has no waiting loop, so that its schedules can be listed, up to the time limit.
    pub(crate) can_be_listed: bool,
    /// Panics where a rule is broken.
    pub(crate) run: fn(),
}

impl Program {
    pub(crate) const fn new(name: &'static str, threads: usize, run: fn()) -> Self {
        Self {
            name,
            threads,
            can_be_listed: false,
            run,
        }
    }

    /// The same for one that waits in no loop.
    pub(crate) const fn listed(name: &'static str, threads: usize, run: fn()) -> Self {
        Self {
            can_be_listed: true,
            ..Self::new(name, threads, run)
        }
    }

    /// This many times as many schedules as in the short form.
    pub(crate) fn try_schedules(&self, times: usize) -> Outcome {
        let start = Instant::now();
        let most = SCHEDULES * times;
        let tried = catch_unwind(AssertUnwindSafe(|| {
            let mut schedules = self.run_by(RandomScheduler::new_from_seed(SEED, most));
            for changes in CHANGES {
                schedules += self.run_by(PctScheduler::new_from_seed(SEED, changes, most));
            }
            if !self.can_be_listed {
                return (schedules, false);
            }
            let listed = self.run_by(DfsScheduler::new(Some(most), false));
            (schedules + listed, listed < most)
        }));
        let (schedules, are_all) = tried.as_ref().map_or((0, false), |tried| *tried);
        Outcome {
            schedules,
            are_all,
            has_failed: tried.is_err(),
            time: start.elapsed(),
        }
    }

    /// Runs the one schedule that was printed where it failed.
    pub(crate) fn replay(&self, schedule: &str) {
        self.run_by(ReplayScheduler::new_from_encoded(schedule));
    }

    fn run_by(&self, scheduler: impl Scheduler + 'static) -> usize {
        let mut config = Config::new();
        config.stack_size = STACK_BYTES;
        config.max_steps = MaxSteps::FailAfter(MOST_STEPS);
        // Weaker orderings than `SeqCst` are what `loom` is for.
        config.silence_warnings = true;
        let run = self.run;
        Runner::new(scheduler, config).run(run)
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<44} {} threads", self.name, self.threads)
    }
}

pub(crate) struct Outcome {
    pub(crate) schedules: usize,
    /// Whether there are no others.
    are_all: bool,
    pub(crate) has_failed: bool,
    time: Duration,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.has_failed {
            return f.write_str("FAILED");
        }
        let all = if self.are_all { ", which are all" } else { "" };
        write!(
            f,
            "{} schedules{all}, {:.1} s",
            self.schedules,
            self.time.as_secs_f64()
        )
    }
}
