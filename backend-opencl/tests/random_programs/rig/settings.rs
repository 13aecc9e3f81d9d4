//! What the environment says.

use std::{env, ops::Range, time::Duration};

/// See the table of the test.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) first_seed: u64,
    pub(crate) programs: u64,
    pub(crate) time: Option<Duration>,
    /// The longest time that a program may take.
    pub(crate) limit: Option<Duration>,
    pub(crate) steps: usize,
    pub(crate) threads: Option<usize>,
    pub(crate) failing: Option<bool>,
    pub(crate) keep: Option<Vec<usize>>,
    pub(crate) trace: bool,
    /// The seeds of the programs that this process runs as the child of another.
    pub(crate) child: Option<Range<u64>>,
}

pub(crate) const KEEP: &str = "BINPOOL_RANDOM_KEEP";
pub(crate) const TRACE: &str = "BINPOOL_RANDOM_TRACE";
pub(crate) const CHILD: &str = "BINPOOL_RANDOM_CHILD";

const HANG: Duration = Duration::from_secs(120);

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

fn number(name: &str) -> Option<u64> {
    variable(name).map(|value| value.parse().expect(name))
}

fn count(name: &str) -> Option<usize> {
    number(name).map(|number| usize::try_from(number).expect(name))
}

impl Settings {
    pub(crate) fn from_environment() -> Self {
        let failing = variable("BINPOOL_RANDOM_FAILING").map(|value| match value.as_str() {
            "yes" => true,
            "no" => false,
            other => panic!("BINPOOL_RANDOM_FAILING is yes or no, not {other}"),
        });
        let keep = variable(KEEP).map(|steps| {
            let steps = steps.split(',').map(|step| step.parse().expect(KEEP));
            steps.collect()
        });
        let child = variable(CHILD).map(|seeds| {
            let (first, end) = seeds.split_once("..").expect(CHILD);
            first.parse().expect(CHILD)..end.parse().expect(CHILD)
        });
        let time = number("BINPOOL_RANDOM_SECONDS").map(Duration::from_secs);
        let limit = number("BINPOOL_RANDOM_HANG").map(Duration::from_secs);
        Self {
            first_seed: number("BINPOOL_RANDOM_SEED").unwrap_or(0),
            programs: number("BINPOOL_RANDOM_PROGRAMS").unwrap_or(48),
            time,
            // The short form has no limit: a slow machine is not a failure.
            limit: limit.or(time.map(|_| HANG)),
            steps: count("BINPOOL_RANDOM_STEPS").unwrap_or(120),
            threads: count("BINPOOL_RANDOM_THREADS"),
            failing,
            keep,
            trace: variable(TRACE).is_some(),
            child,
        }
    }
}
