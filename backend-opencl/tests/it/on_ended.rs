//! Calls at the end of commands.

use std::{
    panic::panic_any,
    slice::from_ref,
    sync::mpsc::{Receiver, RecvError, TryRecvError, channel},
    thread::{self, ThreadId},
};

use binpool_allocators::{Backend, Event, Outcome, Queue};
use binpool_opencl::ClEvent;

use crate::common::Bench;

/// Has the end of `event` told. If it is told only once, the channel is closed afterwards.
fn told(event: &ClEvent) -> Receiver<(Outcome, ThreadId)> {
    let (tell, told) = channel();
    let call = move |outcome| tell.send((outcome, thread::current().id())).unwrap();
    event.on_ended(call).unwrap();
    told
}

fn told_once(told: &Receiver<(Outcome, ThreadId)>) -> Outcome {
    let (outcome, thread) = told.recv().unwrap();
    assert_ne!(thread, thread::current().id());
    assert_eq!(told.recv(), Err(RecvError));
    outcome
}

#[test]
fn the_end_of_a_command_is_told_once_on_another_thread() {
    let bench = Bench::new();
    let gate = bench.gate();
    let memory = bench.buffer(64);
    let fill = bench.fill(&bench.queue, &memory, 1, from_ref(&gate));
    let told = [&gate, &fill].map(told);
    assert_eq!(told[1].try_recv(), Err(TryRecvError::Empty));
    bench.open_gate(&gate);
    assert_eq!(told.map(|told| told_once(&told)), [Outcome::Complete; 2]);
    // Also where it has ended before.
    fill.wait().unwrap();
    assert_eq!(told_once(&self::told(&fill)), Outcome::Complete);
}

#[test]
fn a_command_that_fails_is_told_as_failed() {
    let bench = Bench::new();
    let gate = bench.gate();
    let memory = bench.buffer(64);
    let fill = bench.fill(&bench.queue, &memory, 1, from_ref(&gate));
    let told = [&gate, &fill].map(told);
    bench.fail_gate(&gate);
    assert_eq!(told.map(|told| told_once(&told)), [Outcome::Failed; 2]);
    // One that was not enqueued, because what it was to wait for had failed.
    let marker = bench
        .backend
        .enqueue_marker(bench.queue.after(from_ref(&gate)));
    // NVIDIA's runtime refuses it.
    let told = marker.map(|marker| told_once(&self::told(&marker)));
    assert!(!matches!(told, Ok(Outcome::Complete)), "{told:?}");
}

#[test]
fn a_user_event_that_is_given_up_is_told_as_failed() {
    let bench = Bench::new();
    let gate = bench.gate();
    let told = told(&gate);
    drop(gate);
    assert_eq!(told_once(&told), Outcome::Failed);
}

#[test]
fn a_call_may_resolve_what_another_one_waits_for() {
    let bench = Bench::new();
    let (first, second) = (bench.gate(), bench.gate());
    let waits = told(&second);
    let backend = bench.backend.clone();
    let resolve = move |_| {
        backend
            .resolve_user_event(&second, Outcome::Complete)
            .unwrap();
    };
    first.on_ended(resolve).unwrap();
    bench.open_gate(&first);
    assert_eq!(told_once(&waits), Outcome::Complete);
}

/// What panics again when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

#[test]
fn a_panic_in_a_call_stays_there() {
    let bench = Bench::new();
    let gate = bench.gate();
    let (tell, told_of_unwinding) = channel::<()>();
    let explode = move |_| {
        let _tell = tell;
        panic_any(Bomb);
    };
    gate.on_ended(explode).unwrap();
    let after = told(&gate);
    bench.open_gate(&gate);
    assert_eq!(told_of_unwinding.recv(), Err(RecvError));
    assert_eq!(told_once(&after), Outcome::Complete);
    bench.queue_is_alive();
}
