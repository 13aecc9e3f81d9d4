//! Random programs, which a seed decides: what they read is what a model says, and they see the same bare and over a pool.
//!
//! | variable | says |
//! |---|---|
//! | `BINPOOL_RANDOM_SEED` | the first seed (default 0) |
//! | `BINPOOL_RANDOM_PROGRAMS` | how many programs (default 60) |
//! | `BINPOOL_RANDOM_SECONDS` | the long form: programs for this time, instead of a number of them |

mod model;
mod program;

use std::{
    env,
    time::{Duration, Instant},
};

use crate::{
    cl::cl,
    runs::{rule_with, run_named},
};

fn variable(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
}

/// Where PoCL 3.1 counts the commands that use a kernel's code (`lib/CL/devices/common.c`), a command that ends counts for any that have its
/// kernel and local size, also if they have code of their own, for another global size. Two of them at a time can end the process.
const DEFECT_OF_POCL: &str = "pocl_release_dlhandle_cache: Assertion `found->ref_count > 0' failed";

const SEED: &str = "BINPOOL_RANDOM_SEED";
const PROGRAMS: &str = "BINPOOL_RANDOM_PROGRAMS";

#[test]
fn random_programs_see_what_the_model_says_bare_and_over_a_pool() {
    let runs = rule_with(&[], |rig| {
        // The programs have queues of their own, and often only one.
        cl!(clReleaseCommandQueue(rig.queue));
        let first = variable(SEED).unwrap_or(0);
        for seed in first..first + variable(PROGRAMS).unwrap_or(60) {
            program::run(rig, seed);
        }
    });
    let Some(runs) = runs else {
        return;
    };
    assert!(
        !runs.pooled.transcript.contains("wrong"),
        "{}",
        runs.pooled.transcript
    );
    runs.reuse();
    let Some(seconds) = variable("BINPOOL_RANDOM_SECONDS") else {
        return;
    };
    let name = "random::random_programs_see_what_the_model_says_bare_and_over_a_pool";
    let (begin, programs) = (Instant::now(), variable(PROGRAMS).unwrap_or(60));
    let mut seed = variable(SEED).unwrap_or(0) + programs;
    let mut left_out = 0;
    while begin.elapsed() < Duration::from_secs(seconds) {
        let text = seed.to_string();
        let run = run_named(name, true, &[(SEED, &text)]);
        if run.errors.contains(DEFECT_OF_POCL) {
            let bare = run_named(name, false, &[(SEED, &text)]);
            assert!(bare.errors.contains(DEFECT_OF_POCL), "{}", run.errors);
            eprintln!("PoCL ends the programs from seed {seed} on, bare and over a pool");
            left_out += programs;
            seed += programs;
            continue;
        }
        let is_right = run.status == "Some(0)" && !run.transcript.contains("wrong");
        assert!(
            is_right,
            "programs from seed {seed} on: {}, {}\n{}",
            run.status, run.errors, run.transcript
        );
        seed += programs;
    }
    eprintln!("programs up to seed {seed} were right, but for {left_out} that were left out");
}
