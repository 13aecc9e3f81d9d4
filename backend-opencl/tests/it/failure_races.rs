//! Events that fail while the runtime ends other commands.

use binpool_allocators::{Event, Queue};

use crate::common::Bench;

/// What waits for two events, one of which fails while a thread of the runtime completes the other.
#[test]
fn an_event_may_fail_while_a_command_ends_that_the_same_command_waits_for() {
    let bench = Bench::new();
    let other = bench.another_queue();
    let (first, second) = (bench.filled(4096, 0), bench.filled(4096, 0));
    let rounds = std::env::var("ROUNDS").map_or(2000, |it| it.parse().unwrap());
    for round in 0..rounds {
        let gate = bench.gate();
        let filled = bench.fill(&other, &first, 1, &[]);
        let waiting = bench.fill(&bench.queue, &second, 2, &[filled.clone(), gate.clone()]);
        let behind = bench.fill(&bench.queue, &second, 3, &[waiting.clone()]);
        for _ in 0..round % 64 {
            std::hint::spin_loop();
        }
        bench.fail_gate(&gate);
        assert!(waiting.wait().is_err());
        let _ended = behind.wait();
        filled.wait().unwrap();
    }
    bench.queue.finish().unwrap();
}
