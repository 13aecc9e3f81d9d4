//! Checks of commands that wait for an event that fails.

use std::{fmt::Debug, slice::from_ref};

use binpool_allocators::{Backend, Event, EventStatus, Queue, Result};

use crate::{Fixture, bench::Bench};

const SIZE: usize = 1024;

/// A command that waits for a failed event does not run, and counts as ended.
pub fn a_failed_gate_fails_what_waits_for_it<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let other = bench.another_queue();
    let buffer = bench.filled(SIZE, 1);
    let (gate, fill) = bench.gated_fill(&other, &buffer, 2);
    bench.fail(&gate);
    failed(fill.wait());
    assert_eq!(fill.status().unwrap(), EventStatus::Failed);
    failed(gate.wait());
    assert_eq!(gate.status().unwrap(), EventStatus::Failed);
    drop(other);
    assert_eq!(bench.read(&buffer), [1; SIZE]);
}

/// The failure passes on through queues and all kinds of commands.
pub fn a_failure_passes_on_along_wait_lists<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let queues = [(); 4].map(|()| bench.another_queue());
    let (buffer, other) = (bench.filled(SIZE, 1), bench.filled(SIZE, 1));
    let (gate, fill) = bench.gated_fill(&queues[0], &buffer, 2);
    let copy = bench.copy(&queues[1], &buffer, (&other, 0), from_ref(&fill));
    let marker = bench.marker_on(&queues[2], from_ref(&copy));
    let read = bench.read_later(&queues[3], &other, from_ref(&marker));
    bench.fail(&gate);
    failed(read.wait());
    for event in [marker, copy, fill] {
        failed(event.wait());
        assert_eq!(event.status().unwrap(), EventStatus::Failed);
    }
    assert_eq!(bench.read(&buffer), [1; SIZE]);
    assert_eq!(bench.read(&other), [1; SIZE]);
}

/// The command may be enqueued before or after the failure.
pub fn a_command_that_waits_for_what_has_failed_fails<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let buffer = bench.filled(SIZE, 1);
    let gate = bench.gate();
    bench.fail(&gate);
    let queue = bench.another_queue();
    let on = queue.after(from_ref(&gate));
    let fill = bench.backend.enqueue_fill(on, &buffer, .., &[2_u8]);
    // The runtime may return the error from the call.
    failed(fill.and_then(|fill| fill.wait()));
    assert_eq!(bench.read(&buffer), [1; SIZE]);
}

/// Blocking transfers return with an error, and nothing is written.
pub fn blocking_transfers_fail_with_what_they_wait_for<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let buffer = bench.filled(SIZE, 1);
    let gate = bench.gate();
    bench.fail(&gate);
    let (backend, gate) = (&bench.backend, from_ref(&gate));
    let queues = [(); 2].map(|()| bench.another_queue());
    let [write_on, read_on] = queues.each_ref().map(|queue| queue.after(gate));
    failed(backend.write(write_on, &buffer, 0, &[2_u8; SIZE]));
    failed(backend.read(read_on, &buffer, 0, &mut [0_u8; SIZE]));
    assert_eq!(bench.read(&buffer), [1; SIZE]);
}

/// A command over no bytes fails like any other.
pub fn a_command_over_no_bytes_fails_with_what_it_waits_for<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let (buffer, queue) = (bench.filled(SIZE, 1), bench.another_queue());
    let gate = bench.gate();
    let on = queue.after(from_ref(&gate));
    let fill = bench.backend.enqueue_fill(on, &buffer, ..0, &[2_u8]);
    bench.fail(&gate);
    failed(fill.and_then(|fill| fill.wait()));
}

/// Commands that failed have ended: their events have the error.
pub fn a_queue_finishes_though_commands_failed<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let queue = bench.another_queue();
    let buffer = bench.filled(SIZE, 1);
    let (gate, fill) = bench.gated_fill(&queue, &buffer, 2);
    bench.fail(&gate);
    queue.finish().expect("the queue itself is fine");
    assert!(fill.status().unwrap().has_ended());
    failed(fill.wait());
    failed(fill.wait());
}

/// Commands that wait for nothing that failed run as usual.
pub fn other_commands_are_none_the_worse_for_a_failure<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let (failing, other) = (bench.another_queue(), bench.another_queue());
    let (buffer, untouched) = (bench.filled(SIZE, 1), bench.filled(SIZE, 1));
    let (gate, fill) = bench.gated_fill(&failing, &buffer, 2);
    let unrelated = bench.fill(&other, &untouched, 3, &[]);
    bench.fail(&gate);
    failed(fill.wait());
    unrelated.wait().unwrap();
    assert_eq!(bench.read(&untouched), [3; SIZE]);
    bench.fill(&other, &buffer, 4, &[]).wait().unwrap();
    assert_eq!(bench.read(&buffer), [4; SIZE]);
}

#[track_caller]
fn failed<T: Debug>(result: Result<T>) {
    let error = result.expect_err("what waits for something that failed must fail");
    assert!(
        !error.is_out_of_memory(),
        "a failure of what was waited for is no lack of memory: {error:?}"
    );
}
