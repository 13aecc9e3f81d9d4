//! What queues and events say about the order of commands.

use std::slice::from_ref;

use binpool_allocators::{
    Backend, Error, Event, EventStatus, InvalidRequest, Outcome, Queue, Region,
};

use crate::common::{Bench, refusal, step_waits_for_no_gate};

#[test]
fn a_command_waits_for_an_unflushed_command_of_another_queue() {
    let bench = Bench::new();
    let (first, second) = (bench.another_queue(), bench.another_queue());
    let memory = bench.filled(1 << 16, 0);
    let gate = bench.gate();
    let one = bench.fill(&first, &memory, 1, from_ref(&gate));
    let two = bench.fill(&second, &memory, 2, from_ref(&one));
    assert_eq!(two.status().unwrap(), EventStatus::Pending);
    bench.open_gate(&gate);
    two.wait().unwrap();
    assert_eq!(one.status().unwrap(), EventStatus::Complete);
    assert_eq!(bench.read(&memory), vec![2; 1 << 16]);
}

#[test]
fn polling_comes_to_an_end() {
    let bench = Bench::new();
    let memory = bench.buffer(64);
    let fill = bench.fill(&bench.queue, &memory, 1, &[]);
    while !fill.status().unwrap().has_ended() {
        std::thread::yield_now();
    }
    assert_eq!(fill.status().unwrap(), EventStatus::Complete);
    fill.wait().unwrap();
}

#[test]
fn an_in_order_queue_keeps_its_order() {
    let bench = Bench::new();
    let memory = bench.filled(64, 0);
    let gate = bench.gate();
    bench.fill(&bench.queue, &memory, 1, from_ref(&gate));
    let later = bench.fill(&bench.queue, &memory, 2, &[]);
    assert_eq!(later.status().unwrap(), EventStatus::Pending);
    bench.open_gate(&gate);
    bench.queue.finish().unwrap();
    assert_eq!(later.status().unwrap(), EventStatus::Complete);
    assert_eq!(bench.read(&memory), [2; 64]);
}

#[test]
fn an_out_of_order_queue_runs_what_may_run() {
    let bench = Bench::new();
    let queue = bench.out_of_order_queue();
    let (held, free) = (bench.filled(64, 0), bench.filled(64, 0));
    let gate = bench.gate();
    let waits = bench.fill(&queue, &held, 1, from_ref(&gate));
    let runs = bench.fill(&queue, &free, 2, &[]);
    if bench.overtakes() {
        runs.wait().unwrap();
    }
    assert_eq!(waits.status().unwrap(), EventStatus::Pending);
    bench.open_gate(&gate);
    waits.wait().unwrap();
    runs.wait().unwrap();
    assert_eq!(
        (bench.read(&held), bench.read(&free)),
        (vec![1; 64], vec![2; 64])
    );
}

#[test]
fn markers_wait_for_everything_or_for_their_list() {
    let bench = Bench::new();
    let queue = bench.out_of_order_queue();
    let memory = bench.filled(64, 0);
    let (first, second) = (bench.gate(), bench.gate());
    bench.fill(&queue, &memory, 1, from_ref(&first));
    let listed = bench
        .backend
        .enqueue_marker(queue.after(from_ref(&second)))
        .unwrap();
    let everything = bench.backend.enqueue_marker(&queue).unwrap();
    bench.open_gate(&first);
    assert_eq!(listed.status().unwrap(), EventStatus::Pending);
    assert_eq!(everything.status().unwrap(), EventStatus::Pending);
    bench.open_gate(&second);
    listed.wait().unwrap();
    everything.wait().unwrap();
}

#[test]
fn later_commands_wait_for_a_barrier() {
    let bench = Bench::new();
    let queue = bench.out_of_order_queue();
    let memory = bench.filled(64, 0);
    let gate = bench.gate();
    let barrier = bench
        .backend
        .enqueue_barrier(queue.after(from_ref(&gate)))
        .unwrap();
    let later = bench.fill(&queue, &memory, 1, &[]);
    queue.flush().unwrap();
    assert_eq!(later.status().unwrap(), EventStatus::Pending);
    bench.open_gate(&gate);
    later.wait().unwrap();
    assert_eq!(barrier.status().unwrap(), EventStatus::Complete);
}

#[test]
fn user_events_are_resolved_once_and_events_of_commands_never() {
    let bench = Bench::new();
    let gate = bench.gate();
    assert_eq!(gate.status().unwrap(), EventStatus::Pending);
    bench.open_gate(&gate);
    assert_eq!(gate.status().unwrap(), EventStatus::Complete);
    gate.wait().unwrap();
    let again = bench.backend.resolve_user_event(&gate, Outcome::Failed);
    assert_eq!(refusal(again), InvalidRequest::AlreadyResolved);

    let memory = bench.buffer(64);
    let command = bench.fill(&bench.queue, &memory, 1, &[]);
    let resolved = bench
        .backend
        .resolve_user_event(&command, Outcome::Complete);
    assert_eq!(refusal(resolved), InvalidRequest::NotAUserEvent);
}

#[test]
fn what_waits_for_a_failed_event_fails_and_touches_nothing() {
    let bench = Bench::new();
    let memory = bench.filled(64, 1);
    let gate = bench.gate();
    let queue = bench.another_queue();
    let fill = bench.fill(&queue, &memory, 2, from_ref(&gate));
    bench.fail_gate(&gate);
    let error = fill.wait().unwrap_err();
    assert!(matches!(error, Error::Backend(_)), "{error}");
    assert_eq!(fill.status().unwrap(), EventStatus::Failed);
    assert!(fill.wait().is_err(), "the failure is kept");
    assert_eq!(gate.status().unwrap(), EventStatus::Failed);
    assert!(gate.wait().is_err());
    assert_eq!(bench.read(&memory), [1; 64]);
}

#[test]
fn a_command_on_an_event_that_has_failed_already_fails_too() {
    let bench = Bench::new();
    let memory = bench.filled(64, 1);
    let gate = bench.gate();
    bench.fail_gate(&gate);
    let queue = bench.another_queue();
    let all = Region::first(64);
    let fill = bench
        .backend
        .enqueue_fill(queue.after(from_ref(&gate)), &memory, all, &[2_u8]);
    // The runtime may say so at once, or when it is waited for.
    let failed = fill.and_then(|event| event.wait());
    assert!(failed.is_err());
    let wait = [gate];
    assert!(
        bench
            .backend
            .write(queue.after(&wait), &memory, 0, &[3_u8; 64])
            .is_err()
    );
    let mut data = [9_u8; 64];
    assert!(
        bench
            .backend
            .read(queue.after(&wait), &memory, 0, &mut data)
            .is_err()
    );
    assert_eq!(bench.read(&memory), [1; 64]);
}

#[test]
fn commands_whose_events_were_dropped_may_fail_too() {
    let bench = Bench::new();
    let memory = bench.filled(64, 1);
    let queue = bench.another_queue();
    let gate = bench.gate();
    for _ in 0..200 {
        bench.fill(&queue, &memory, 2, from_ref(&gate));
    }
    let last = bench.fill(&queue, &memory, 2, &[]);
    bench.fail_gate(&gate);
    // Whether the queue goes on after a failure is the runtime's own affair.
    let _ = last.wait();
    queue.finish().unwrap();
}

#[test]
fn a_gate_may_fail_while_other_threads_enqueue_what_waits_for_it() {
    let bench = Bench::new();
    let memory = bench.filled(64, 1);
    for _ in 0..50 {
        let gate = bench.gate();
        let queue = bench.another_queue();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let wait = [gate.clone()];
                    let all = Region::first(64);
                    let fill =
                        bench
                            .backend
                            .enqueue_fill(queue.after(&wait), &memory, all, &[2_u8]);
                    assert!(fill.and_then(|event| event.wait()).is_err());
                });
            }
            bench.fail_gate(&gate);
        });
    }
    assert_eq!(bench.read(&memory), [1; 64]);
}

#[test]
fn blocking_calls_fail_with_what_they_wait_for_and_return() {
    let bench = Bench::new();
    let memory = bench.filled(64, 1);
    let gate = bench.gate();
    let wait = [gate.clone()];
    std::thread::scope(|scope| {
        let read = scope.spawn(|| {
            let mut data = [9_u8; 64];
            let queue = bench.another_queue();
            bench
                .backend
                .read(queue.after(&wait), &memory, 0, &mut data)
        });
        let write = scope.spawn(|| {
            let queue = bench.another_queue();
            bench
                .backend
                .write(queue.after(&wait), &memory, 0, &[2_u8; 64])
        });
        bench.fail_gate(&gate);
        assert!(read.join().unwrap().is_err());
        assert!(write.join().unwrap().is_err());
    });
    assert_eq!(bench.read(&memory), [1; 64]);
}

#[test]
fn a_user_event_that_was_dropped_unresolved_fails() {
    let bench = Bench::new();
    let memory = bench.filled(64, 1);
    let queue = bench.another_queue();
    let gate = bench.gate();
    let clone = gate.clone();
    let fill = bench.fill(&queue, &memory, 2, &[gate]);
    assert_eq!(fill.status().unwrap(), EventStatus::Pending);
    drop(clone);
    assert!(fill.wait().is_err());
    assert_eq!(bench.read(&memory), [1; 64]);
}

#[test]
fn a_queue_may_be_dropped_with_commands_in_it() {
    let bench = Bench::new();
    let memory = bench.filled(64, 0);
    let gate = bench.gate();
    let queue = bench.another_queue();
    let fill = bench.fill(&queue, &memory, 1, from_ref(&gate));
    drop(queue);
    bench.open_gate(&gate);
    fill.wait().unwrap();
    assert_eq!(bench.read(&memory), [1; 64]);
}

/// On Intel's runtime the release of memory has a marker stand for each pending command.
#[test]
fn after_a_release_a_command_waits_for_no_later_command_of_the_queue_of_another() {
    let bench = Bench::new();
    let (first, later) = (bench.gate(), bench.gate());
    let (used, unused) = (bench.filled(64, 0), bench.buffer(64));
    let queue = bench.another_queue();
    let fill = bench.fill(&queue, &used, 1, from_ref(&first));
    let last = bench.fill(&queue, &bench.buffer(64), 2, from_ref(&later));
    drop(unused);
    bench.open_gate(&first);
    step_waits_for_no_gate(&bench, &later, || {
        assert_eq!(bench.read(&used), [1; 64]);
    });
    fill.wait().unwrap();
    last.wait().unwrap();
}

/// Intel's runtime ends a command once for each failed entry of its list. What it frees twice shows later, if at all.
#[test]
fn a_command_that_waits_for_one_event_twice_fails_once() {
    let bench = Bench::new();
    let memory = bench.filled(4096, 0);
    for _ in 0..20 {
        let gate = bench.gate();
        let twice = [gate.clone(), gate.clone()];
        let fill = bench.fill(&bench.queue, &memory, 1, &twice);
        // This one comes after the fill by the memory that they use, too.
        let other = bench.another_queue();
        let again = bench.fill(&other, &memory, 2, from_ref(&fill));
        bench.queue.flush().unwrap();
        other.flush().unwrap();
        bench.fail_gate(&gate);
        fill.wait().unwrap_err();
        again.wait().unwrap_err();
    }
    assert_eq!(bench.read(&memory), [0; 4096]);
}

#[test]
fn clones_are_the_same_event_and_others_are_not() {
    let bench = Bench::new();
    let (one, two) = (bench.gate(), bench.gate());
    assert_eq!(one, one.clone());
    assert_eq!(one.id(), one.clone().id());
    assert_ne!(one, two);
}
