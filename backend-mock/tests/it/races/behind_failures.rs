//! What a command that fails still puts before others, by what the device promises.

use std::slice::from_ref;

use binpool_allocators::{Backend, Event, FailureOrder, Outcome, Queue};
use binpool_mock::{Failures, MockEvent, MockQueue};

use crate::races::planted::{COMPLETIONS, Rig};

/// Runs a program under every completion mode and every order of failures: it races where it should.
fn check(races: impl Fn(FailureOrder) -> bool, program: impl Fn(&Rig)) {
    for order in FailureOrder::ALL {
        for completion in COMPLETIONS {
            let failures = Failures {
                order,
                spread: false,
            };
            let rig = Rig::new(completion, failures);
            program(&rig);
            let found = rig.races();
            let expected = usize::from(races(order));
            assert_eq!(
                found.len(),
                expected,
                "{order:?}, {completion:?}: {found:#?}"
            );
        }
    }
}

impl Rig {
    fn marker(&self, queue: &MockQueue, wait_for: &[MockEvent]) -> MockEvent {
        self.backend.enqueue_marker(queue.after(wait_for)).unwrap()
    }

    fn barrier(&self, queue: &MockQueue, wait_for: &[MockEvent]) {
        self.backend.enqueue_barrier(queue.after(wait_for)).unwrap();
    }

    /// An event that has failed.
    fn failed(&self) -> MockEvent {
        let event = self.backend.create_user_event().unwrap();
        let failed = self.backend.resolve_user_event(&event, Outcome::Failed);
        failed.unwrap();
        event
    }
}

#[test]
fn the_host_learns_from_a_failed_event_only_where_it_came_in_its_turn() {
    check(
        |order| order != FailureOrder::Kept,
        |rig| {
            rig.fill(&rig.one, &[]);
            rig.marker(&rig.one, from_ref(&rig.failed()))
                .wait()
                .unwrap_err();
            rig.fill(&rig.two, &[]);
        },
    );
}

#[test]
fn an_in_order_queue_orders_behind_a_failure_unless_its_place_is_lost() {
    let is_lost = |order| order == FailureOrder::Lost;
    check(is_lost, |rig| {
        rig.fill(&rig.one, &[]);
        rig.marker(&rig.one, from_ref(&rig.failed()));
        rig.fill(&rig.one, &[]);
    });
    // Though the failure is yet to come when the second command is enqueued.
    check(is_lost, |rig| {
        let gate = rig.backend.create_user_event().unwrap();
        rig.fill(&rig.one, &[]);
        rig.marker(&rig.one, from_ref(&gate));
        rig.fill(&rig.one, &[]);
        let failed = rig.backend.resolve_user_event(&gate, Outcome::Failed);
        failed.unwrap();
    });
    // A command between that completes comes after the failed one alone.
    check(is_lost, |rig| {
        rig.fill(&rig.one, &[]);
        rig.marker(&rig.one, from_ref(&rig.failed()));
        rig.marker(&rig.one, &[]);
        rig.device.run();
        rig.fill(&rig.one, &[]);
    });
}

#[test]
fn a_marker_that_completes_behind_a_failure_tells_of_all_before_unless_the_place_is_lost() {
    check(
        |order| order == FailureOrder::Lost,
        |rig| {
            rig.fill(&rig.one, &[]);
            rig.marker(&rig.one, from_ref(&rig.failed()));
            rig.marker(&rig.one, &[]).wait().unwrap();
            rig.fill(&rig.two, &[]);
        },
    );
    // What the failed command waited for is among that.
    check(
        |order| order == FailureOrder::Lost,
        |rig| {
            let filled = rig.fill(&rig.one, &[]);
            rig.marker(&rig.unordered, &[filled, rig.failed()]);
            rig.marker(&rig.unordered, &[]).wait().unwrap();
            rig.fill(&rig.two, &[]);
        },
    );
}

#[test]
fn a_barrier_that_fails_holds_back_unless_its_place_is_lost() {
    let is_lost = |order| order == FailureOrder::Lost;
    // What its event was to come after, on another queue.
    check(is_lost, |rig| {
        rig.fill(&rig.one, &[]);
        let failed = rig.marker(&rig.one, from_ref(&rig.failed()));
        rig.barrier(&rig.unordered, from_ref(&failed));
        rig.fill(&rig.unordered, &[]);
    });
    // What the barrier before it was to come after.
    check(is_lost, |rig| {
        rig.fill(&rig.unordered, &[]);
        rig.barrier(&rig.unordered, &[]);
        rig.barrier(&rig.unordered, from_ref(&rig.failed()));
        rig.fill(&rig.unordered, &[]);
    });
}

#[test]
fn finishing_a_queue_tells_of_its_commands_on_every_device() {
    check(
        |_| false,
        |rig| {
            rig.fill(&rig.one, &[]);
            rig.marker(&rig.one, from_ref(&rig.failed()));
            rig.one.finish().unwrap();
            rig.fill(&rig.two, &[]);
        },
    );
}

#[test]
fn finishing_a_queue_tells_nothing_of_what_a_failed_command_waited_for_on_another() {
    check(
        |order| order != FailureOrder::Kept,
        |rig| {
            let filled = rig.fill(&rig.one, &[]);
            rig.marker(&rig.two, &[filled, rig.failed()]);
            rig.two.finish().unwrap();
            rig.fill(&rig.unordered, &[]);
        },
    );
}

#[test]
fn what_failed_while_it_ran_had_its_turn() {
    check(
        |_| false,
        |rig| {
            rig.fill(&rig.one, &[]);
            let panics = |_: &[&[u8]], _: &mut [&mut [u8]]| panic!("as a fault of the device");
            let launched = rig.backend.launch(&rig.one, "k", &[], &[], panics);
            drop(launched.unwrap());
            rig.fill(&rig.one, &[]);
        },
    );
}
