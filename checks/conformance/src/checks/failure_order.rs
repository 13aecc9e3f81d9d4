//! Checks of the order after a command that fails, as the backend states it in `DeviceLimits::failure_order`.
//!
//! Each check has a command A that waits for one event, and after it a command that waits for another event, which
//! fails while A is pending.

use std::slice::from_ref;

use binpool_allocators::{Backend, Event, EventStatus, FailureOrder, Queue};

use crate::{
    Fixture,
    bench::{Bench, assert_stays_pending},
};

const SIZE: usize = 1024;

/// A pending command, and after it one that fails.
struct Failing<B: Backend> {
    /// The event that A waits for.
    gate: B::Event,
    a: B::Event,
    /// The event that the command after A waits for.
    bad_gate: B::Event,
    f: B::Event,
}

impl<B: Backend> Failing<B> {
    fn on(bench: &Bench<B>, queue: &B::Queue) -> Self {
        let (gate, a) = bench.gated_fill(queue, &bench.filled(SIZE, 1), 2);
        let (bad_gate, f) = bench.gated_fill(queue, &bench.filled(SIZE, 1), 2);
        Self {
            gate,
            a,
            bad_gate,
            f,
        }
    }

    fn fail(&self, bench: &Bench<B>) {
        bench.fail(&self.bad_gate);
    }

    /// Lets A run, and waits for everything on the queue.
    fn end(self, bench: &Bench<B>, queue: &B::Queue) {
        assert_eq!(self.a.status().unwrap(), EventStatus::Pending);
        bench.open(&self.gate);
        queue.finish().expect("the queue itself is fine");
        assert_eq!(self.a.status().unwrap(), EventStatus::Complete);
        assert_eq!(self.f.status().unwrap(), EventStatus::Failed);
    }
}

fn order<B: Backend>(bench: &Bench<B>) -> FailureOrder {
    bench.backend.limits().failure_order
}

/// Runs a check on a queue of each order, where the device keeps the places of commands that fail.
fn where_places_are_kept<B: Backend>(
    fixture: &impl Fixture<Backend = B>,
    check: impl Fn(&Bench<B>, &B::Queue),
) {
    let bench = Bench::new(fixture);
    if order(&bench).keeps_places() {
        for queue in bench.queues_of_both_orders() {
            check(&bench, &queue);
        }
    }
}

/// Checks that what is enqueued on `queue` now stays pending.
#[track_caller]
fn holds_back<B: Backend>(bench: &Bench<B>, queue: &B::Queue) {
    let after = bench.fill(queue, &bench.filled(SIZE, 1), 3, &[]);
    queue.flush().unwrap();
    assert_stays_pending(&after);
}

/// Checks that a command does not complete, however often its status is read. It may fail.
#[track_caller]
fn never_completes<E: Event>(event: &E) {
    for _ in 0..64 {
        assert_ne!(event.status().unwrap(), EventStatus::Complete, "{event:?}");
    }
}

/// Where the device keeps the order, a command that is to fail has not ended before those that it comes after.
pub fn a_command_fails_in_its_turn_where_the_order_is_kept<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let queue = bench.another_queue();
    let failing = Failing::on(&bench, &queue);
    let marker = bench.backend.enqueue_marker(&queue).unwrap();
    failing.fail(&bench);
    if order(&bench) == FailureOrder::Kept {
        assert_stays_pending(&failing.f);
        assert_stays_pending(&marker);
    }
    failing.end(&bench, &queue);
}

/// A command that waits for several events completes only if all of them do, and has touched nothing otherwise.
pub fn one_failed_event_of_a_wait_list_is_enough_to_fail<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let queue = bench.another_queue();
    for first_fails in [true, false] {
        let buffer = bench.filled(SIZE, 1);
        let gates = [bench.gate(), bench.gate()];
        let fill = bench.fill(&queue, &buffer, 2, &gates);
        let [failing, other] = if first_fails { [0, 1] } else { [1, 0] };
        bench.fail(&gates[failing]);
        never_completes(&fill);
        bench.open(&gates[other]);
        queue.finish().unwrap();
        assert_eq!(fill.status().unwrap(), EventStatus::Failed);
        assert_eq!(bench.read(&buffer), [1; SIZE]);
    }
}

/// Commands, markers and barriers that are enqueued after the failure end after everything before it.
pub fn an_in_order_queue_keeps_its_order_behind_a_failure<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    if !order(&bench).keeps_places() {
        return;
    }
    let queue = bench.another_queue();
    let failing = Failing::on(&bench, &queue);
    failing.fail(&bench);
    let other = bench.filled(SIZE, 1);
    let behind = [
        bench.fill(&queue, &other, 3, &[]),
        bench.backend.enqueue_marker(&queue).unwrap(),
        bench.backend.enqueue_barrier(&queue).unwrap(),
        bench.fill(&queue, &bench.filled(SIZE, 1), 3, &[]),
    ];
    queue.flush().unwrap();
    for event in &behind {
        assert_stays_pending(event);
    }
    failing.end(&bench, &queue);
    // It may have failed with the command before it.
    let expected = match behind[0].status().unwrap() {
        EventStatus::Complete => 3,
        EventStatus::Failed => 1,
        EventStatus::Pending => panic!("the queue has finished"),
    };
    assert_eq!(bench.read(&other), [expected; SIZE]);
}

/// Neither a command nor a marker completes while a command before it is pending, even if one between them fails.
pub fn what_was_enqueued_before_the_failure_does_not_complete_early<F: Fixture>(fixture: &F) {
    where_places_are_kept(fixture, |bench, queue| {
        let failing = Failing::on(bench, queue);
        let marker = bench.backend.enqueue_marker(queue).unwrap();
        let barrier = bench.backend.enqueue_barrier(queue).unwrap();
        let fill = bench.fill(queue, &bench.filled(SIZE, 1), 3, &[]);
        queue.flush().unwrap();
        failing.fail(bench);
        for event in [&marker, &barrier, &fill] {
            never_completes(event);
        }
        failing.end(bench, queue);
    });
}

/// This holds on queues of both orders, for a barrier that is enqueued before the failure or after it.
pub fn a_barrier_behind_a_failure_holds_back_what_comes_after<F: Fixture>(fixture: &F) {
    for enqueued_before in [true, false] {
        where_places_are_kept(fixture, |bench, queue| {
            let failing = Failing::on(bench, queue);
            let barrier = || drop(bench.backend.enqueue_barrier(queue).unwrap());
            if enqueued_before {
                barrier();
                failing.fail(bench);
            } else {
                failing.fail(bench);
                barrier();
            }
            holds_back(bench, queue);
            failing.end(bench, queue);
        });
    }
}

/// One event of a barrier's wait list fails while another one is pending.
pub fn a_barrier_holds_back_for_all_of_its_wait_list_though_one_has_failed<F: Fixture>(
    fixture: &F,
) {
    where_places_are_kept(fixture, |bench, queue| {
        let other = bench.another_queue();
        let (gate, a) = bench.gated_fill(&other, &bench.filled(SIZE, 1), 2);
        let failing = bench.gate();
        let barrier = bench.barrier_on(queue, &[a.clone(), failing.clone()]);
        bench.fail(&failing);
        holds_back(bench, queue);
        bench.open(&gate);
        a.wait().unwrap();
        queue.finish().unwrap();
        assert_eq!(barrier.status().unwrap(), EventStatus::Failed);
    });
}

/// Commands after a barrier also come after everything that the events of its wait list come after, through other
/// queues as well, whether such an event fails before the barrier is enqueued or later.
pub fn a_barrier_holds_back_for_what_its_failed_event_was_to_come_after<F: Fixture>(fixture: &F) {
    for enqueued_before in [true, false] {
        where_places_are_kept(fixture, |bench, queue| {
            let other = bench.another_queue();
            let failing = Failing::on(bench, &other);
            if !enqueued_before {
                failing.fail(bench);
            }
            let barrier = bench
                .backend
                .enqueue_barrier(queue.after(from_ref(&failing.f)));
            if enqueued_before {
                barrier.expect("a barrier");
                failing.fail(bench);
            } else if barrier.is_err() {
                // The call itself may return the error, and has no effect then.
                failing.end(bench, &other);
                return;
            }
            holds_back(bench, queue);
            failing.end(bench, &other);
            queue.finish().unwrap();
        });
    }
}

/// A marker that completes proves the end of what a failed marker before it comes after, on another queue.
pub fn a_marker_comes_after_what_a_failed_one_was_to_come_after<F: Fixture>(fixture: &F) {
    where_places_are_kept(fixture, |bench, queue| {
        let other = bench.another_queue();
        let (gate, a) = bench.gated_fill(&other, &bench.filled(SIZE, 1), 2);
        let bad_gate = bench.gate();
        let both = [a.clone(), bad_gate.clone()];
        let failed = bench.backend.enqueue_marker(queue.after(&both)).unwrap();
        bench.fail(&bad_gate);
        let marker = bench.backend.enqueue_marker(queue).unwrap();
        queue.flush().unwrap();
        never_completes(&marker);
        bench.open(&gate);
        a.wait().unwrap();
        queue.finish().unwrap();
        assert_eq!(failed.status().unwrap(), EventStatus::Failed);
    });
}

/// `finish` returns once everything that was enqueued has ended, whatever has failed.
pub fn finish_waits_for_all_whatever_failed<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    for queue in bench.queues_of_both_orders() {
        let failing = Failing::on(&bench, &queue);
        failing.fail(&bench);
        let mut behind = vec![bench.backend.enqueue_marker(&queue).unwrap()];
        // Each fill has memory of its own: nothing orders two fills of an out-of-order queue.
        let buffers = [(); 16].map(|()| bench.filled(SIZE, 1));
        behind.extend(
            buffers
                .iter()
                .map(|buffer| bench.fill(&queue, buffer, 2, &[])),
        );
        failing.end(&bench, &queue);
        for event in behind {
            assert!(event.status().unwrap().has_ended(), "{event:?}");
        }
    }
}
