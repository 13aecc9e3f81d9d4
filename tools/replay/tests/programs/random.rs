//! Random combinations of cases in one process, on several threads, which a seed decides.
//!
//! | variable | says |
//! |---|---|
//! | `BINPOOL_RANDOM_SEED` | the first seed (default 0) |
//! | `BINPOOL_RANDOM_PROGRAMS` | how many programs of each interface (default 6) |
//! | `BINPOOL_RANDOM_SECONDS` | the long form: programs for this time, instead of a number of them |

use std::{
    env,
    time::{Duration, Instant},
};

use crate::{
    agreement::{differences, is_drivers_fault, unreadable},
    compiled::{CUDA, OPENCL, Program},
    ran::{Ran, Way},
};

fn variable(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
}

/// What the bare programs do that is the driver's fault: as often as this, one of the same seed ends in another way, or sees something else.
const TRIES: usize = 3;

/// Runs the program of a seed bare and, one after the other, in the other ways. Returns what is wrong, but not if the bare program is not always the same.
fn wrong_of(program: &Program, seed: u64) -> Option<String> {
    let text = seed.to_string();
    let run = |way| Ran::new(program, &["--random", &text], way, &[]);
    let bare = run(Way::Bare);
    if bare.errors.contains("failed: ") {
        eprintln!(
            "{} {seed} is left out: the bare program ends with {}\n{}",
            program.name, bare.status, bare.errors
        );
        return None;
    }
    // Both takes in most; the other two take turns.
    let other = [Way::Recorded, Way::Pooled][usize::try_from(seed % 2).unwrap_or(0)];
    for way in [Way::Both, other] {
        let ran = run(way);
        let mut wrong = differences(&bare, &ran, way);
        if way.is_recorded() {
            wrong.extend(unreadable(&ran));
        }
        if wrong.is_empty() {
            continue;
        }
        if is_drivers_fault(&ran) {
            eprintln!("{} {seed} is left out: PoCL ends it, {way:?}", program.name);
            return None;
        }
        let is_odd = |again: &Ran| again.status != bare.status || again.output != bare.output;
        let odd = (0..TRIES).map(|_| run(Way::Bare)).find(is_odd);
        if let Some(odd) = odd {
            eprintln!(
                "{} {seed} is left out: the bare program, too, ends with {} or {}",
                program.name, bare.status, odd.status
            );
            return None;
        }
        let again = (0..TRIES)
            .filter(|_| !differences(&bare, &run(way), way).is_empty())
            .count();
        let what = wrong.join("\n");
        return Some(format!(
            "{} --random {seed}, {way:?} (and {again} of {TRIES} times again): {what}\nits cases: {}",
            program.name, ran.errors
        ));
    }
    None
}

#[test]
fn random_combinations_of_cases_see_the_same() {
    let first = variable("BINPOOL_RANDOM_SEED").unwrap_or(0);
    let count = variable("BINPOOL_RANDOM_PROGRAMS").unwrap_or(6);
    let seconds = variable("BINPOOL_RANDOM_SECONDS");
    let begin = Instant::now();
    let mut wrong = Vec::new();
    let mut seed = first;
    while seconds.map_or(seed < first + count, |seconds| {
        begin.elapsed() < Duration::from_secs(seconds)
    }) {
        for program in [OPENCL, CUDA] {
            if let Some(what) = wrong_of(program, seed) {
                eprintln!("{what}");
                wrong.push(what);
            }
        }
        seed += 1;
    }
    if seconds.is_some() {
        eprintln!(
            "{} programs of each interface, seeds {first} to {}, {} of them wrong",
            seed - first,
            seed - 1,
            wrong.len()
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
