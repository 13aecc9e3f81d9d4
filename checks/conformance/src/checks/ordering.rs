//! Checks of the order in which commands run.

use std::slice::from_ref;

use binpool_allocators::{Backend, Event, EventStatus, Queue, Region};

use crate::{
    Fixture,
    bench::{Bench, assert_stays_pending},
};

const SIZE: usize = 1024;

/// The number of commands that are to run in order.
const STEPS: usize = 32;

/// Each command sees the effect of the one before.
pub fn an_in_order_queue_keeps_its_order<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let queue = bench.another_queue();
    let (buffer, copies) = (bench.buffer(SIZE), bench.buffer(STEPS * SIZE));
    // All commands wait for one event, so that none runs before all are enqueued.
    let (gate, _) = bench.gated_fill(&queue, &buffer, 255);
    for step in 0..STEPS {
        drop(bench.fill(&queue, &buffer, byte(step), &[]));
        drop(bench.copy(&queue, &buffer, (&copies, step * SIZE), &[]));
    }
    bench.open(&gate);
    queue.finish().unwrap();
    assert_steps(&bench.read(&copies));
}

fn byte(step: usize) -> u8 {
    u8::try_from(step).expect("there are few steps")
}

/// Checks that each step's copy shows what the step's fill left.
#[track_caller]
fn assert_steps(copies: &[u8]) {
    for (step, copy) in copies.chunks(SIZE).enumerate() {
        assert_eq!(copy, [byte(step); SIZE], "step {step}");
    }
}

/// A command after a pending event does not run before the event completes, and runs afterwards.
pub fn a_gated_command_waits_for_its_gate<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let other = bench.another_queue();
    let buffer = bench.filled(SIZE, 1);
    let (gate, fill) = bench.gated_fill(&other, &buffer, 2);
    other.flush().unwrap();
    bench.completes_once_open(&gate, &fill);
    assert_eq!(fill.status().unwrap(), EventStatus::Complete);
    assert_eq!(bench.read(&buffer), [2; SIZE]);
}

/// An event of one queue orders the commands of another.
pub fn a_gate_orders_commands_of_two_queues<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let other = bench.another_queue();
    for _ in 0..10 {
        let buffer = bench.filled(SIZE, 1);
        let (gate, first) = bench.gated_fill(&bench.queue, &buffer, 2);
        let second = bench.fill(&other, &buffer, 3, from_ref(&first));
        bench.open(&gate);
        second.wait().unwrap();
        assert_eq!(first.status().unwrap(), EventStatus::Complete);
        assert_eq!(bench.read(&buffer), [3; SIZE]);
    }
}

/// On an out-of-order queue, wait lists define the order.
pub fn a_wait_list_orders_commands_of_an_out_of_order_queue<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let Some(queue) = bench.out_of_order_queue() else {
        return;
    };
    for _ in 0..10 {
        let (buffer, free) = (bench.filled(SIZE, 1), bench.buffer(SIZE));
        let (gate, first) = bench.gated_fill(&queue, &buffer, 2);
        let unrelated = bench.fill(&queue, &free, 9, &[]);
        let second = bench.fill(&queue, &buffer, 3, &[first.clone(), unrelated]);
        bench.open(&gate);
        second.wait().unwrap();
        assert_eq!(bench.read(&buffer), [3; SIZE]);
        assert_eq!(bench.read(&free), [9; SIZE]);
    }
}

/// Commands after a barrier wait for it, on an out-of-order queue as well.
pub fn a_barrier_holds_back_what_comes_after<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    for queue in bench.queues_of_both_orders() {
        // Two blocks, since a backend may order commands on the same bytes by itself.
        let (buffer, other) = (bench.filled(SIZE, 1), bench.filled(SIZE, 1));
        let (gate, before) = bench.gated_fill(&queue, &buffer, 2);
        let barrier = bench.backend.enqueue_barrier(&queue).unwrap();
        let after = bench.fill(&queue, &other, 3, &[]);
        queue.flush().unwrap();
        bench.completes_once_open(&gate, &after);
        for event in [before, barrier] {
            assert_eq!(event.status().unwrap(), EventStatus::Complete);
        }
        assert_eq!(bench.read(&buffer), [2; SIZE]);
        assert_eq!(bench.read(&other), [3; SIZE]);
    }
}

/// A marker without a wait list waits for everything before it.
pub fn a_marker_waits_for_everything_before<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    for queue in bench.queues_of_both_orders() {
        let buffer = bench.filled(SIZE, 1);
        let (gate, fill) = bench.gated_fill(&queue, &buffer, 2);
        let marker = bench.backend.enqueue_marker(&queue).unwrap();
        queue.flush().unwrap();
        bench.completes_once_open(&gate, &marker);
        assert_eq!(fill.status().unwrap(), EventStatus::Complete);
        assert_eq!(bench.read(&buffer), [2; SIZE]);
    }
}

/// A marker with a wait list waits for its events.
pub fn a_marker_waits_for_its_wait_list<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let gate = bench.gate();
    let marker = bench.marker_on(&bench.queue, from_ref(&gate));
    bench.queue.flush().unwrap();
    bench.completes_once_open(&gate, &marker);
    assert_eq!(marker.status().unwrap(), EventStatus::Complete);
}

/// A blocking transfer happens after the events in its wait list.
pub fn blocking_transfers_heed_their_wait_list<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let other = bench.another_queue();
    for _ in 0..10 {
        let buffer = bench.filled(SIZE, 1);
        let fill = bench.fill(&other, &buffer, 2, &[]);
        let mut bytes = [0_u8; SIZE];
        bench
            .backend
            .read(bench.queue.after(from_ref(&fill)), &buffer, 0, &mut bytes)
            .unwrap();
        assert_eq!(bytes, [2; SIZE]);
        let fill = bench.fill(&other, &buffer, 3, &[]);
        bench
            .backend
            .write(bench.queue.after(from_ref(&fill)), &buffer, 0, &[4_u8; 10])
            .unwrap();
        let read = bench.read(&buffer);
        assert_eq!((read[9], read[10]), (4, 3));
    }
}

/// This holds for writes, reads, copies, fills, markers and barriers, and over no bytes.
pub fn every_kind_of_command_waits_for_its_wait_list<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let [written, copied, filled] = &[(); 3].map(|()| bench.filled(SIZE, 1));
    let read = &bench.filled(SIZE, 3);
    let gate = bench.gate();
    let wait_for = from_ref(&gate);
    let (all, none) = (Region::first(SIZE), Region::first(0));
    let backend = &bench.backend;
    // A queue for each, so that none waits for another.
    let queues = [(); 7].map(|()| bench.another_queue());
    let data = vec![2; SIZE].into();
    let bytes = bench.read_later(&queues[0], read, wait_for);
    let mut events = vec![
        backend.enqueue_write(queues[1].after(wait_for), written, 0, data),
        backend.enqueue_copy(queues[2].after(wait_for), read, all, copied, 0),
        backend.enqueue_fill(queues[3].after(wait_for), filled, all, &[2_u8]),
        backend.enqueue_marker(queues[4].after(wait_for)),
        backend.enqueue_barrier(queues[5].after(wait_for)),
        backend.enqueue_fill(queues[6].after(wait_for), filled, none, &[2_u8]),
    ];
    let events: Vec<_> = events.drain(..).map(|result| result.unwrap()).collect();
    for queue in &queues {
        queue.flush().unwrap();
    }
    for event in events.iter().chain([bytes.event()]) {
        assert_stays_pending(event);
    }
    bench.open(&gate);
    for event in &events {
        event.wait().unwrap();
    }
    assert_eq!(bytes.wait().unwrap(), [3; SIZE]);
    for (buffer, byte) in [(written, 2), (copied, 3), (filled, 2)] {
        assert_eq!(bench.read(buffer), [byte; SIZE], "after the gate opened");
    }
}

/// It waits for all of them, not only for one.
pub fn a_command_waits_for_all_of_its_wait_list<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let other = bench.another_queue();
    for last in 0..3 {
        let buffer = bench.filled(SIZE, 1);
        let gates = [(); 3].map(|()| bench.gate());
        let fill = bench.fill(&other, &buffer, 2, &gates);
        for (_, gate) in gates.iter().enumerate().filter(|(index, _)| *index != last) {
            bench.open(gate);
        }
        bench.completes_once_open(&gates[last], &fill);
        assert_eq!(bench.read(&buffer), [2; SIZE]);
    }
}

/// This includes commands that wait for another event, or that touch no bytes.
pub fn an_in_order_queue_holds_everything_behind_a_gate<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let queue = bench.another_queue();
    let (first, second) = (bench.filled(SIZE, 1), bench.filled(SIZE, 1));
    let (gate, gated) = bench.gated_fill(&queue, &first, 2);
    let unrelated = bench.fill(&queue, &second, 2, &[]);
    let empty = bench
        .backend
        .enqueue_fill(&queue, &second, Region::first(0), &[2_u8])
        .unwrap();
    queue.flush().unwrap();
    for event in [&gated, &unrelated, &empty] {
        assert_stays_pending(event);
    }
    bench.open(&gate);
    queue.finish().unwrap();
    assert_eq!(bench.read(&second), [2; SIZE]);
    for event in [&gated, &unrelated, &empty] {
        assert_eq!(event.status().unwrap(), EventStatus::Complete, "{event:?}");
    }
}

/// A barrier with a wait list holds back later commands until its events have ended.
pub fn a_barrier_waits_for_its_wait_list<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    for queue in bench.queues_of_both_orders() {
        let buffer = bench.filled(SIZE, 1);
        let gate = bench.gate();
        let barrier = bench.barrier_on(&queue, from_ref(&gate));
        let after = bench.fill(&queue, &buffer, 2, &[]);
        queue.flush().unwrap();
        bench.completes_once_open(&gate, &after);
        assert_eq!(barrier.status().unwrap(), EventStatus::Complete);
        assert_eq!(bench.read(&buffer), [2; SIZE]);
    }
}

/// Commands after two barriers come after both, though the second one has less to wait for.
pub fn a_barrier_comes_after_the_one_before<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    for queue in bench.queues_of_both_orders() {
        let buffer = bench.filled(SIZE, 1);
        let (gate, open) = (bench.gate(), bench.gate());
        bench.open(&open);
        for event in [&gate, &open] {
            drop(bench.barrier_on(&queue, from_ref(event)));
        }
        let after = bench.fill(&queue, &buffer, 2, &[]);
        queue.flush().unwrap();
        bench.completes_once_open(&gate, &after);
        assert_eq!(bench.read(&buffer), [2; SIZE]);
    }
}

/// A chain of commands that each undo the one before, on an out-of-order queue.
pub fn a_chain_of_wait_lists_is_followed_in_order<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let Some(queue) = bench.out_of_order_queue() else {
        return;
    };
    let (buffer, copies) = (bench.buffer(SIZE), bench.buffer(STEPS * SIZE));
    let gate = bench.gate();
    let mut last = gate.clone();
    for step in 0..STEPS {
        let fill = bench.fill(&queue, &buffer, byte(step), from_ref(&last));
        last = bench.copy(&queue, &buffer, (&copies, step * SIZE), &[fill]);
    }
    bench.open(&gate);
    last.wait().unwrap();
    assert_steps(&bench.read(&copies));
}
