//! Hours in minutes: eight threads, four queues and four pools under one budget, on a device that fails at random and whose
//! limit changes. Threads end and others take their place, blocks are dropped by threads that did not allocate them, queues
//! are bound and released, and memory runs out again and again.
//!
//! At each checkpoint all threads have paused, and the books are looked at: every counter is that of the blocks in hand, the
//! budget is what the pools manage, and what the device and the process have alive is no more than it was. Every few
//! checkpoints everything goes back, and nothing is left.
//!
//! `BINPOOL_SOAK_OPERATIONS` says how many operations there are, `BINPOOL_SOAK_SEED` which. `scripts/soak` runs the long form.
//! The seed gives each thread the same program; how the threads interleave is the machine's affair.
//!
//! A process of its own, since it counts the memory of the process, with an allocator of its own.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failing test panics"
)]

mod books;
mod process;
mod rig;
mod worker;

use std::{env, mem, sync::atomic::Ordering, thread, time::Instant};

use binpool_conformance::Random;
use books::Tally;
use rig::{Held, Rig, THREADS};
use worker::Worker;

/// What a debug build does in a few seconds.
const OPERATIONS: u64 = 1_000_000;

const CHECKPOINTS: u64 = 50;

/// All memory is released after a number of checkpoints.
const DRAIN_EVERY: u64 = 5;

/// This many checkpoints are gone before memory has to stay what it is.
const WARM_UP: u64 = 10;

/// What the process may have grown by since, in bytes: its heap is in fragments.
const MOST_RESIDENT_GROWTH: u64 = 64 << 20;

/// What the heap may have grown by since, in bytes, where everything has gone back.
const MOST_HEAP_GROWTH: u64 = 1 << 20;

/// The most operations of one thread.
const LONGEST_LIFE: u64 = 50_000;

/// The most events that may be alive while blocks are: 64 for each queue of each pool, and a few in hand.
const MOST_EVENTS: usize = 4 * 5 * 64 + 256;

/// What the process takes, in bytes.
#[derive(Clone, Copy)]
struct Size {
    resident: u64,
    heap: u64,
}

impl Size {
    fn now() -> Self {
        Self {
            resident: process::resident_bytes().unwrap_or(0),
            heap: process::heap_bytes(),
        }
    }

    fn check_growth(self, since: Self, is_drained: bool) {
        let Self { resident, heap } = self;
        let (before, most) = (since.resident, since.resident + MOST_RESIDENT_GROWTH);
        assert!(
            resident <= most,
            "{resident} bytes are resident, {before} when it was warm"
        );
        let (before, most) = (since.heap, since.heap + MOST_HEAP_GROWTH);
        assert!(
            !is_drained || heap <= most,
            "{heap} bytes of the heap, {before} when it was warm"
        );
    }
}

fn number(variable: &str, default: u64) -> u64 {
    env::var(variable).map_or(default, |value| value.parse().expect(variable))
}

#[test]
fn nothing_is_lost_and_nothing_grows() {
    let operations = number("BINPOOL_SOAK_OPERATIONS", OPERATIONS);
    let seed = number("BINPOOL_SOAK_SEED", 1);
    println!("{operations} operations, seed {seed}, {THREADS} threads");
    let rig = Rig::new();
    let mut random = Random::new(seed);
    let mut hands: Vec<Vec<Held>> = (0..THREADS).map(|_| Vec::new()).collect();
    let mut tally = Tally::default();
    let queues = rig.device.live_queues();
    let started = Instant::now();
    let mut warm = None;
    for checkpoint in 1..=CHECKPOINTS {
        rig.inject_faults(random.next());
        let steps = operations / CHECKPOINTS / THREADS as u64;
        tally += run_threads(&rig, &mut hands, steps, &mut random);
        rig.settle();
        books::check(&rig, &hands, &tally);
        assert!(
            rig.device.live_events() <= MOST_EVENTS,
            "{} events",
            rig.device.live_events()
        );
        if checkpoint % DRAIN_EVERY == 0 {
            rig.drain(&mut hands, &mut tally);
            books::check(&rig, &hands, &tally);
            books::check_empty(&rig, queues);
        }
        let size = Size::now();
        if checkpoint == WARM_UP {
            warm = Some(size);
        }
        if let Some(warm) = warm {
            size.check_growth(warm, checkpoint % DRAIN_EVERY == 0);
        }
        println!(
            "{:6.1} s  {}",
            started.elapsed().as_secs_f64(),
            books::line(&rig, &tally)
        );
    }
    rig.drain(&mut hands, &mut tally);
    books::check(&rig, &hands, &tally);
    if operations >= OPERATIONS {
        tally.check_that_everything_happened(operations);
    }
    println!("{tally:#?}");
    rig.end();
}

/// One thread after the other in each of the places, all places at once.
fn run_threads(rig: &Rig, hands: &mut [Vec<Held>], steps: u64, random: &mut Random) -> Tally {
    thread::scope(|scope| {
        let places: Vec<_> = hands
            .iter_mut()
            .enumerate()
            .map(|(place, hand)| {
                let mut random = Random::new(random.next());
                scope.spawn(move || {
                    let mut tally = Tally::default();
                    let mut left = steps;
                    while left > 0 {
                        let steps = (1 + random.next() % steps.clamp(1, LONGEST_LIFE)).min(left);
                        left -= steps;
                        let mut worker = Worker::new(rig, place, random.next(), mem::take(hand));
                        let life = thread::scope(|scope| scope.spawn(|| worker.live(steps)).join());
                        life.expect("a failing thread fails the test");
                        rig.lives.fetch_add(1, Ordering::Relaxed);
                        (*hand, tally) = worker.leave(tally);
                    }
                    tally
                })
            })
            .collect();
        let tallies = places
            .into_iter()
            .map(|place| place.join().expect("a failing thread"));
        tallies.fold(Tally::default(), |mut all, tally| {
            all += tally;
            all
        })
    })
}
