//! What the device says of the order of its commands after one that fails is true: `DeviceLimits::failure_order`, by the table
//! of `FailureOrder`. Every test prints what it saw; `docs/failures.md` has that of the runtimes that were tried.
//!
//! A command that is not to end before another is looked at after commands of another queue have been waited for, which is time
//! enough for a runtime that would end it at once.

use std::slice::from_ref;

use binpool_allocators::{Backend, Event, EventStatus, FailureOrder, Queue, QueueOrder};
use binpool_opencl::{ClEvent, ClMemory, ClQueue};

use crate::common::Bench;

/// How it is with a command now. On some runtimes only the wait tells of a failure.
fn now(event: &ClEvent) -> EventStatus {
    match event.status().unwrap() {
        EventStatus::Pending => EventStatus::Pending,
        _ if event.wait().is_ok() => EventStatus::Complete,
        _ => EventStatus::Failed,
    }
}

struct Failing {
    bench: Bench,
    order: FailureOrder,
    queue: ClQueue,
    /// What A and F and those after them fill, each its own.
    memory: Vec<ClMemory>,
}

impl Failing {
    fn on(order: QueueOrder) -> Self {
        let bench = Bench::new();
        Self {
            order: bench.backend.limits().failure_order,
            queue: bench.backend.create_queue(order).unwrap(),
            memory: (0..6).map(|_| bench.filled(4096, 0)).collect(),
            bench,
        }
    }

    fn fill(&self, queue: &ClQueue, index: usize, wait_for: &[ClEvent]) -> ClEvent {
        self.bench.fill(queue, &self.memory[index], 1, wait_for)
    }

    /// Gives the runtime time.
    fn settle(&self) {
        self.queue.flush().unwrap();
        for _ in 0..20 {
            self.bench.queue_is_alive();
        }
    }

    fn tell(&self, events: &[(&str, &ClEvent)]) {
        let order = (self.queue.order(), self.order);
        for (name, event) in events {
            println!("{order:?}: {name}: {:?}", now(event));
        }
    }
}

/// After A, which is pending, F fails, and then others are enqueued.
fn behind_a_failure(order: QueueOrder) {
    let test = Failing::on(order);
    let (backend, queue) = (&test.bench.backend, &test.queue);
    let (gate, doomed) = (test.bench.gate(), test.bench.gate());
    let a = test.fill(queue, 0, from_ref(&gate));
    let f = test.fill(queue, 1, from_ref(&doomed));
    let marker_before = backend.enqueue_marker(queue).unwrap();
    test.bench.fail_gate(&doomed);
    test.settle();
    let c = test.fill(queue, 2, &[]);
    let marker = backend.enqueue_marker(queue).unwrap();
    let barrier = backend.enqueue_barrier(queue).unwrap();
    let behind_barrier = test.fill(queue, 3, &[]);
    test.settle();
    let events = [
        ("A", &a),
        ("F", &f),
        ("marker, before the failure", &marker_before),
        ("C", &c),
        ("marker", &marker),
        ("barrier", &barrier),
        ("after the barrier", &behind_barrier),
    ];
    test.tell(&events);
    assert_eq!(now(&a), EventStatus::Pending);
    if test.order.keeps_places() {
        assert_ne!(now(&marker_before), EventStatus::Complete);
        for later in [&marker, &barrier, &behind_barrier] {
            assert_eq!(now(later), EventStatus::Pending);
        }
        if order == QueueOrder::InOrder {
            assert_eq!(now(&c), EventStatus::Pending);
        }
    }
    test.bench.open_gate(&gate);
    queue.finish().unwrap();
    println!("and when A has ended:");
    test.tell(&events);
    for (name, event) in events {
        assert_ne!(now(event), EventStatus::Pending, "{name}, after a finish");
    }
    assert_eq!(now(&a), EventStatus::Complete);
    assert_eq!(now(&f), EventStatus::Failed);
}

#[test]
fn an_in_order_queue_keeps_its_order_behind_a_failure_as_its_device_says() {
    behind_a_failure(QueueOrder::InOrder);
}

#[test]
fn markers_and_barriers_of_an_out_of_order_queue_keep_their_places_behind_a_failure() {
    if crate::common::open().limits().out_of_order_queues {
        behind_a_failure(QueueOrder::OutOfOrder);
    }
}

/// Y waits for W of another queue and for an event that fails. X stood after Y when it failed.
#[test]
fn what_stands_behind_a_failed_command_does_not_complete_before_what_that_waits_for() {
    let test = Failing::on(QueueOrder::InOrder);
    let (gate, doomed) = (test.bench.gate(), test.bench.gate());
    let w = test.fill(&test.bench.queue, 0, from_ref(&gate));
    test.bench.queue.flush().unwrap();
    let y = test.fill(&test.queue, 1, &[w.clone(), doomed.clone()]);
    let x = test.fill(&test.queue, 2, &[]);
    test.bench.fail_gate(&doomed);
    test.queue.flush().unwrap();
    let other = test.bench.another_queue();
    for _ in 0..20 {
        test.fill(&other, 3, &[]).wait().unwrap();
    }
    test.tell(&[("W", &w), ("Y", &y), ("X", &x)]);
    assert_eq!(now(&w), EventStatus::Pending);
    assert_ne!(now(&x), EventStatus::Complete);
    test.bench.open_gate(&gate);
    test.queue.finish().unwrap();
    println!("and when W has ended:");
    test.tell(&[("W", &w), ("Y", &y), ("X", &x)]);
    w.wait().unwrap();
    assert_eq!(now(&y), EventStatus::Failed);
    assert_ne!(now(&x), EventStatus::Pending, "after a finish");
}

/// A gate that the program makes by its own call: nothing but the command that waits for it is known to be pending.
fn gate_of_the_program(test: &Failing) -> ClEvent {
    let backend = &test.bench.backend;
    let raw = cl3::event::create_user_event(backend.raw_context()).unwrap();
    // SAFETY: the event lives.
    let gate = unsafe { backend.wrap_raw_event(raw) }.unwrap();
    // SAFETY: the reference is this test's own.
    unsafe { cl3::event::release_event(raw) }.unwrap();
    gate
}

/// A command of another queue is pending, and many of this one that were to come after it have failed.
#[test]
fn markers_of_an_out_of_order_queue_come_after_what_its_failed_commands_were_to_come_after() {
    if !crate::common::open().limits().out_of_order_queues {
        return;
    }
    let cases = [(1, 0), (40, 0), (40, 200)];
    let cases = cases.map(|(failures, others)| [false, true].map(|it| (failures, others, it)));
    for (failures, others, is_barrier) in cases.into_iter().flatten() {
        let test = Failing::on(QueueOrder::OutOfOrder);
        let (backend, queue) = (&test.bench.backend, &test.queue);
        let (gate, doomed) = (gate_of_the_program(&test), test.bench.gate());
        let w = test.fill(&test.bench.queue, 0, from_ref(&gate));
        test.bench.queue.flush().unwrap();
        for _ in 0..failures {
            test.fill(queue, 1, &[w.clone(), doomed.clone()]);
        }
        test.bench.fail_gate(&doomed);
        queue.flush().unwrap();
        // They also have it that way, once the first ones are forgotten.
        for _ in 0..failures {
            let doomed = test.bench.gate();
            test.fill(queue, 2, &[w.clone(), doomed.clone()]);
            test.bench.fail_gate(&doomed);
        }
        // This many that the log has nothing of those that failed but what they were to come after. Where the queue runs in order, they
        // would wait.
        let others = if test.bench.overtakes() { others } else { 0 };
        for _ in 0..others {
            test.fill(queue, 4, &[]).wait().unwrap();
        }
        let marker = if is_barrier {
            backend.enqueue_barrier(queue).unwrap()
        } else {
            backend.enqueue_marker(queue).unwrap()
        };
        queue.flush().unwrap();
        let other = test.bench.another_queue();
        for _ in 0..20 {
            test.fill(&other, 3, &[]).wait().unwrap();
        }
        assert_eq!(now(&w), EventStatus::Pending);
        if test.order.keeps_places() {
            assert_eq!(now(&marker), EventStatus::Pending, "{failures}, {others}");
        }
        test.bench.open_gate(&gate);
        queue.finish().unwrap();
        assert_ne!(now(&marker), EventStatus::Pending);
    }
}

/// A command that has completed says so of all that it waited for.
#[test]
fn a_command_does_not_complete_unless_all_that_it_waited_for_have_completed() {
    for failed in 0..3 {
        let test = Failing::on(QueueOrder::InOrder);
        let gates = [(); 3].map(|()| test.bench.gate());
        let list = [0, 1, 2].map(|index| test.fill(&test.queue, index, from_ref(&gates[index])));
        let other = test.bench.another_queue();
        let last = test.fill(&other, 3, &list);
        test.queue.flush().unwrap();
        for (index, gate) in gates.iter().enumerate() {
            if index == failed {
                test.bench.fail_gate(gate);
            } else {
                test.bench.open_gate(gate);
            }
        }
        other.finish().unwrap();
        assert_eq!(now(&last), EventStatus::Failed);
        assert_eq!(test.bench.read(&test.memory[3]), [0; 4096]);
    }
}
