//! In which order commands run.

use std::slice::from_ref;

use super::{Fixture, bench::Bench};
use crate::{Backend, Event, EventStatus, Outcome, Queue, Region};

const SIZE: usize = 1024;

/// Each command sees what the one before has done.
pub fn an_in_order_queue_keeps_its_order<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let (first, second) = (bench.buffer(SIZE), bench.buffer(SIZE));
    for byte in 0..20 {
        drop(bench.fill(&bench.queue, &first, byte, &[]));
        let all = Region::first(SIZE);
        let copy = bench
            .backend
            .enqueue_copy(&bench.queue, &first, all, &second, 0, &[]);
        drop(copy.unwrap());
        drop(bench.fill(&bench.queue, &first, 255, &[]));
    }
    assert_eq!(bench.read(&second), [19; SIZE]);
    assert_eq!(bench.read(&first), [255; SIZE]);
}

/// A command behind a gate has not happened before the gate opens, and has afterwards.
pub fn a_gated_command_waits_for_its_gate<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let other = bench.another_queue();
    let buffer = bench.filled(SIZE, 1);
    let gate = bench.gate();
    let fill = bench.fill(&other, &buffer, 2, from_ref(&gate));
    other.flush().unwrap();
    assert_eq!(bench.read(&buffer), [1; SIZE]);
    assert_eq!(fill.status().unwrap(), EventStatus::Pending);
    bench.open(&gate);
    fill.wait().unwrap();
    assert_eq!(fill.status().unwrap(), EventStatus::Complete);
    assert_eq!(bench.read(&buffer), [2; SIZE]);
}

/// An event of one queue orders the commands of another.
pub fn a_gate_orders_commands_of_two_queues<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let other = bench.another_queue();
    for _ in 0..10 {
        let buffer = bench.filled(SIZE, 1);
        let gate = bench.gate();
        let first = bench.fill(&bench.queue, &buffer, 2, from_ref(&gate));
        let second = bench.fill(&other, &buffer, 3, from_ref(&first));
        bench.open(&gate);
        second.wait().unwrap();
        assert_eq!(first.status().unwrap(), EventStatus::Complete);
        assert_eq!(bench.read(&buffer), [3; SIZE]);
    }
}

/// On an out-of-order queue, wait lists are what keeps an order.
pub fn a_wait_list_orders_commands_of_an_out_of_order_queue<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let Some(queue) = bench.out_of_order_queue() else {
        return;
    };
    for _ in 0..10 {
        let (buffer, free) = (bench.filled(SIZE, 1), bench.buffer(SIZE));
        let gate = bench.gate();
        let first = bench.fill(&queue, &buffer, 2, from_ref(&gate));
        let unrelated = bench.fill(&queue, &free, 9, &[]);
        let second = bench.fill(&queue, &buffer, 3, &[first.clone(), unrelated]);
        bench.open(&gate);
        second.wait().unwrap();
        assert_eq!(bench.read(&buffer), [3; SIZE]);
        assert_eq!(bench.read(&free), [9; SIZE]);
    }
}

/// Commands after a barrier wait for it, also on an out-of-order queue.
pub fn a_barrier_holds_back_what_comes_after<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let queues = [Some(bench.another_queue()), bench.out_of_order_queue()];
    for queue in queues.into_iter().flatten() {
        let buffer = bench.filled(SIZE, 1);
        let gate = bench.gate();
        let before = bench.fill(&queue, &buffer, 2, from_ref(&gate));
        let barrier = bench.backend.enqueue_barrier(&queue, &[]).unwrap();
        let after = bench.fill(&queue, &buffer, 3, &[]);
        queue.flush().unwrap();
        assert_eq!(bench.read(&buffer), [1; SIZE]);
        assert_eq!(after.status().unwrap(), EventStatus::Pending);
        bench.open(&gate);
        after.wait().unwrap();
        for event in [before, barrier] {
            assert_eq!(event.status().unwrap(), EventStatus::Complete);
        }
        assert_eq!(bench.read(&buffer), [3; SIZE]);
    }
}

/// A marker without a wait list waits for everything before it.
pub fn a_marker_waits_for_everything_before<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let queues = [Some(bench.another_queue()), bench.out_of_order_queue()];
    for queue in queues.into_iter().flatten() {
        let buffer = bench.filled(SIZE, 1);
        let gate = bench.gate();
        let fill = bench.fill(&queue, &buffer, 2, from_ref(&gate));
        let marker = bench.backend.enqueue_marker(&queue, &[]).unwrap();
        queue.flush().unwrap();
        assert_eq!(marker.status().unwrap(), EventStatus::Pending);
        bench.open(&gate);
        marker.wait().unwrap();
        assert_eq!(fill.status().unwrap(), EventStatus::Complete);
        assert_eq!(bench.read(&buffer), [2; SIZE]);
    }
}

/// A marker with a wait list waits for that.
pub fn a_marker_waits_for_its_wait_list<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let gate = bench.gate();
    let marker = bench
        .backend
        .enqueue_marker(&bench.queue, from_ref(&gate))
        .unwrap();
    bench.queue.flush().unwrap();
    assert_eq!(marker.status().unwrap(), EventStatus::Pending);
    bench.open(&gate);
    marker.wait().unwrap();
    assert_eq!(marker.status().unwrap(), EventStatus::Complete);
}

/// What waits for a failed event does not run, and has ended all the same.
pub fn a_failed_gate_fails_what_waits_for_it<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let other = bench.another_queue();
    let buffer = bench.filled(SIZE, 1);
    let gate = bench.gate();
    let fill = bench.fill(&other, &buffer, 2, from_ref(&gate));
    bench
        .backend
        .resolve_user_event(&gate, Outcome::Failed)
        .unwrap();
    assert!(
        fill.wait().is_err(),
        "waiting for what cannot run must be an error"
    );
    assert!(fill.status().unwrap().has_ended());
    assert!(gate.wait().is_err());
    assert_eq!(gate.status().unwrap(), EventStatus::Failed);
    drop(other);
    assert_eq!(bench.read(&buffer), [1; SIZE]);
}

/// A blocking transfer happens after the events in its wait list.
pub fn blocking_transfers_heed_their_wait_list<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let other = bench.another_queue();
    for _ in 0..10 {
        let buffer = bench.filled(SIZE, 1);
        let fill = bench.fill(&other, &buffer, 2, &[]);
        let mut bytes = [0; SIZE];
        bench
            .backend
            .read(&bench.queue, &buffer, 0, &mut bytes, from_ref(&fill))
            .unwrap();
        assert_eq!(bytes, [2; SIZE]);
        let fill = bench.fill(&other, &buffer, 3, &[]);
        bench
            .backend
            .write(&bench.queue, &buffer, 0, &[4; 10], from_ref(&fill))
            .unwrap();
        let read = bench.read(&buffer);
        assert_eq!((read[9], read[10]), (4, 3));
    }
}
