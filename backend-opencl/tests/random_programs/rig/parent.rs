//! Runs programs in children, one after another, and tells of those that fail.

use std::{
    collections::BTreeSet,
    fmt::Write,
    ops::Range,
    time::{Duration, Instant},
};

use super::{
    counts::Counts,
    process::{self, Job, Outcome, Report},
    reducer,
    settings::Settings,
};

/// How many programs a child runs: they share a context, as the parts of a long program do.
const PROGRAMS: u64 = 16;

/// This many failures are looked into.
const EXPLAINED: usize = 6;

/// Beyond these the rest are not worth the time.
const MOST_FAILURES: usize = 40;

pub(crate) fn run(settings: &Settings) {
    let start = Instant::now();
    let mut counts = Counts::default();
    let mut failures = 0;
    let mut seen = BTreeSet::new();
    let mut next = settings.first_seed;
    let is_over = |next: u64| match settings.time {
        Some(time) => start.elapsed() >= time,
        None => next >= settings.first_seed + settings.programs,
    };
    while !is_over(next) && failures < MOST_FAILURES {
        let end = match settings.time {
            Some(_) => next + PROGRAMS,
            None => (next + PROGRAMS).min(settings.first_seed + settings.programs),
        };
        let job = Job {
            seeds: next..end,
            keep: settings.keep.as_deref(),
            trace: settings.trace,
            limit: settings.limit,
        };
        let report = process::run(&job);
        counts.merge(&report.counts);
        if settings.trace {
            eprintln!("{}", report.errors);
        }
        if report.outcome == Outcome::Passed {
            next = end;
            continue;
        }
        let seed = report.seed.unwrap_or(next);
        let is_new = seen.insert(report.outcome.kind()) && seen.len() <= EXPLAINED;
        println!("program {seed}: {}", report.outcome);
        if is_new && settings.keep.is_none() {
            println!("{}", explain(settings, &job, &report, seed));
        }
        failures += 1;
        next = seed + 1;
    }
    println!("{counts}");
    assert_eq!(failures, 0, "programs failed, see above");
    let refused: u64 = counts.refused.values().sum();
    assert!(
        settings.keep.is_some() || counts.calls() > refused && counts.compared > 10_000,
        "too little was done to have tried anything: {counts}"
    );
}

/// What can be found out about a program that has failed.
fn explain(settings: &Settings, job: &Job<'_>, report: &Report, seed: u64) -> String {
    let mut text = String::new();
    // What hangs once does so at once.
    let is_hang = matches!(report.outcome, Outcome::Hang(_));
    let limit = job
        .limit
        .map(|limit| if is_hang { limit / 10 } else { limit });
    let _ = write!(
        text,
        "standard error ends with:\n{}",
        tail(&report.errors, 12)
    );
    if let Some(alone) = fails_alone(seed, limit) {
        let all = settings.steps * settings.threads.unwrap_or(4);
        let keep = reducer::reduce((seed, &alone), all, limit);
        let job = Job {
            seeds: seed..seed + 1,
            keep: Some(&keep),
            trace: true,
            limit,
        };
        let reports = (0..5).map(|_| process::run(&job));
        let mut reports = reports.filter(|report| report.outcome.kind() == alone.kind());
        let reduced = reports.next();
        let (outcome, steps) = match &reduced {
            Some(report) => (&report.outcome, tail(&report.errors, 300)),
            None => (
                &alone,
                String::from("(the shortened program did not fail again)"),
            ),
        };
        let keep: Vec<_> = keep.iter().map(usize::to_string).collect();
        let _ = write!(
            text,
            "\nit fails alone: {outcome}\nBINPOOL_RANDOM_SEED={seed} BINPOOL_RANDOM_PROGRAMS=1 \
             BINPOOL_RANDOM_KEEP={}\n{steps}",
            keep.join(",")
        );
    } else {
        let range = shortest_range(job.seeds.start, seed, limit);
        let _ = match range {
            Some(range) => write!(text, "\nit fails after others only: programs {range:?}"),
            None => write!(text, "\nit did not fail again"),
        };
    }
    text
}

fn tail(text: &str, lines: usize) -> String {
    let all: Vec<_> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

fn fails_alone(seed: u64, limit: Option<Duration>) -> Option<Outcome> {
    (0..3).find_map(|_| fails(seed..seed + 1, limit))
}

fn fails(seeds: Range<u64>, limit: Option<Duration>) -> Option<Outcome> {
    let job = Job {
        seeds,
        keep: None,
        trace: false,
        limit,
    };
    let outcome = process::run(&job).outcome;
    (outcome != Outcome::Passed).then_some(outcome)
}

/// The fewest programs before `seed`, of those from `first` on, with which it fails.
fn shortest_range(first: u64, seed: u64, limit: Option<Duration>) -> Option<Range<u64>> {
    let mut before = 1;
    loop {
        let start = seed.saturating_sub(before).max(first);
        if (0..2).any(|_| fails(start..seed + 1, limit).is_some()) {
            return Some(start..seed + 1);
        }
        if start == first {
            return None;
        }
        before *= 2;
    }
}
