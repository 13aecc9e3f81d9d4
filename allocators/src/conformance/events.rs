//! Checks of events.

use std::collections::HashSet;

use super::{
    Fixture,
    bench::{Bench, eventually, refusal},
};
use crate::{Backend, Event, EventStatus, InvalidRequest, Outcome, Queue};

/// After a wait, the status is `Complete`, and stays so.
pub fn an_event_completes<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let buffer = bench.buffer(64);
    let fill = bench.fill(&bench.queue, &buffer, 1, &[]);
    for _ in 0..3 {
        fill.wait().unwrap();
        assert_eq!(fill.status().unwrap(), EventStatus::Complete);
    }
}

/// Equality and identity agree.
pub fn clones_of_an_event_are_equal_and_others_are_not<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let buffer = bench.buffer(64);
    let first = bench.fill(&bench.queue, &buffer, 1, &[]);
    let second = bench.fill(&bench.queue, &buffer, 1, &[]);
    let clone = first.clone();
    assert_eq!(first, clone);
    assert_eq!(first.id(), clone.id());
    assert_ne!(first, second);
    assert_ne!(first.id(), second.id());
    let events = HashSet::from([first, clone, second, bench.gate()]);
    assert_eq!(events.len(), 3, "{events:?}");
}

/// Identities of commands' events and of user events are unique, even after the events are gone.
pub fn identities_of_events_are_not_used_again<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let buffer = bench.buffer(64);
    let mut former = Vec::new();
    for _ in 0..10 {
        for event in [bench.fill(&bench.queue, &buffer, 1, &[]), bench.gate()] {
            assert!(
                !former.contains(&event.id()),
                "{} was another event's",
                event.id()
            );
            former.push(event.id());
        }
        bench.queue.finish().unwrap();
    }
}

/// A user event stays pending until the host resolves it.
pub fn a_user_event_is_pending_until_it_is_resolved<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    for (outcome, status) in [
        (Outcome::Complete, EventStatus::Complete),
        (Outcome::Failed, EventStatus::Failed),
    ] {
        let event = bench.gate();
        assert_eq!(event.status().unwrap(), EventStatus::Pending);
        bench.backend.resolve_user_event(&event, outcome).unwrap();
        assert_eq!(event.status().unwrap(), status);
        let waited = event.wait();
        assert_eq!(waited.is_ok(), outcome == Outcome::Complete, "{waited:?}");
    }
}

/// The error is `AlreadyResolved`, and the first outcome remains.
pub fn a_user_event_is_resolved_once<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let event = bench.gate();
    bench.open(&event);
    for outcome in [Outcome::Failed, Outcome::Complete] {
        let again = bench.backend.resolve_user_event(&event, outcome);
        assert_eq!(refusal(again), InvalidRequest::AlreadyResolved);
    }
    assert_eq!(event.status().unwrap(), EventStatus::Complete);
}

/// The error is `NotAUserEvent`.
pub fn only_user_events_can_be_resolved<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let buffer = bench.buffer(64);
    let fill = bench.fill(&bench.queue, &buffer, 1, &[]);
    let marker = bench.backend.enqueue_marker(&bench.queue, &[]).unwrap();
    for event in [fill, marker] {
        let resolved = bench.backend.resolve_user_event(&event, Outcome::Failed);
        assert_eq!(refusal(resolved), InvalidRequest::NotAUserEvent);
        event.wait().unwrap();
    }
}

/// Reading the status often enough is sufficient to see the end.
pub fn asking_for_the_status_comes_to_an_end<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let buffer = bench.buffer(64);
    let fill = bench.fill(&bench.queue, &buffer, 1, &[]);
    bench.queue.flush().unwrap();
    assert!(
        eventually(|| fill.status().unwrap().has_ended()),
        "a command that waits for nothing must end"
    );
    assert_eq!(fill.status().unwrap(), EventStatus::Complete);
    fill.wait().unwrap();
}
