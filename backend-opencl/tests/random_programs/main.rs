//! Random programs of safe calls on a real runtime: buffers, views, pooled blocks, shared virtual memory, images, maps,
//! kernels, and user events that are resolved, failed or dropped, by one to four threads on in-order and out-of-order
//! queues. Every byte that no failure touches is compared with a model, which runs the commands one after another.
//!
//! A program is a list of steps that a seed decides. Programs run in child processes of this one, so that a crash or a
//! hang has a name: the seed. A program that fails alone is shortened to the steps that it needs, and those are printed.
//!
//! | variable | says |
//! |---|---|
//! | `BINPOOL_TEST_DEVICE` | the device |
//! | `BINPOOL_RANDOM_SEED` | the first seed (default 0); with nothing else given, the seeds of the tests |
//! | `BINPOOL_RANDOM_PROGRAMS` | how many programs (default 48) |
//! | `BINPOOL_RANDOM_SECONDS` | the long form: programs for this many seconds, instead of a number of them |
//! | `BINPOOL_RANDOM_HANG` | a program that takes more seconds counts as one that hangs (default 120 in the long form; the short form waits forever) |
//! | `BINPOOL_RANDOM_STEPS` | the steps of each thread of a program (default 120) |
//! | `BINPOOL_RANDOM_THREADS` | programs of this many threads only |
//! | `BINPOOL_RANDOM_FAILING` | `yes` or `no`: only programs whose user events fail, or only those in which nothing fails |
//! | `BINPOOL_RANDOM_KEEP` | the steps of a program that are run, by their numbers, as the shortened program is printed |
//! | `BINPOOL_RANDOM_TRACE` | `1`: every step is written to standard error before it is taken |
//!
//! A process of its own, since it is its own child. The binary needs nothing but an OpenCL runtime: `scripts/random-programs build` copies it, to be run elsewhere.
//!
//! *Not in it*: kernels on images, pipes, samplers, arrays, memory of another process or library, and maps that are
//! forgotten.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]
#![allow(
    clippy::match_same_arms,
    reason = "a table of what each choice does reads best in one order"
)]

#[allow(dead_code, reason = "it uses a part of it")]
#[path = "../it/common/mod.rs"]
mod common;
mod model;
mod rig;
mod steps;

use rig::settings::Settings;

#[test]
fn random_programs_do_what_the_model_says() {
    let settings = Settings::from_environment();
    match settings.child.clone() {
        Some(seeds) => rig::child::run(&settings, seeds),
        None => rig::parent::run(&settings),
    }
}
