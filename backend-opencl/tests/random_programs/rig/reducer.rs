//! Shortens a program that fails to the steps that it needs.

use std::time::{Duration, Instant};

use super::process::{self, Job, Outcome};

/// How long it may take.
const TIME: Duration = Duration::from_secs(90);

/// How often a shorter program is run: what fails may depend on the threads of the runtime.
const TRIES: usize = 3;

fn fails((seed, outcome): (u64, &Outcome), keep: &[usize], limit: Option<Duration>) -> bool {
    let job = Job {
        seeds: seed..seed + 1,
        keep: Some(keep),
        trace: false,
        limit,
    };
    (0..TRIES).any(|_| process::run(&job).outcome.kind() == outcome.kind())
}

/// The steps of a program, which has this many, that are enough for it to fail as it did.
pub(crate) fn reduce(
    program: (u64, &Outcome),
    steps: usize,
    limit: Option<Duration>,
) -> Vec<usize> {
    let mut keep: Vec<usize> = (0..steps).collect();
    let end = Instant::now() + TIME;
    let mut chunk = keep.len().div_ceil(2);
    while chunk > 0 {
        let mut start = 0;
        while start < keep.len() && Instant::now() < end {
            let mut fewer = keep.clone();
            fewer.drain(start..keep.len().min(start + chunk));
            if fails(program, &fewer, limit) {
                keep = fewer;
            } else {
                start += chunk;
            }
        }
        chunk /= 2;
    }
    keep
}
