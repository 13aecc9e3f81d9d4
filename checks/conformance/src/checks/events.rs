//! What every backend promises for events.

use std::collections::HashSet;

use binpool_allocators::{Backend, Event, EventStatus, InvalidRequest, Outcome, Queue};

use crate::{
    Fixture,
    bench::{Bench, eventually, refusal},
};

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
    let events = HashSet::from([first, clone, second, bench.marker()]);
    assert_eq!(events.len(), 3, "{events:?}");
}

/// Identities of commands' events are unique, even after the events are gone.
pub fn identities_of_events_are_not_used_again<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let buffer = bench.buffer(64);
    identities_differ(&bench, || {
        [bench.fill(&bench.queue, &buffer, 1, &[]), bench.marker()]
    });
}

/// Identities of user events are unique, among those of commands, too.
pub fn identities_of_user_events_are_not_used_again<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let buffer = bench.buffer(64);
    identities_differ(&bench, || {
        [bench.fill(&bench.queue, &buffer, 1, &[]), bench.gate()]
    });
}

/// Checks that no event of `events` has the identity of another one, though those of former calls are gone.
fn identities_differ<B: Backend>(bench: &Bench<B>, events: impl Fn() -> [B::Event; 2]) {
    let mut former = HashSet::new();
    for _ in 0..10 {
        for event in events() {
            let id = event.id();
            assert!(former.insert(id), "{id} was another event's");
        }
        bench.queue.finish().unwrap();
    }
}

/// A user event stays pending until the host resolves it.
pub fn a_user_event_is_pending_until_it_is_resolved<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let event = bench.gate();
    assert_eq!(event.status().unwrap(), EventStatus::Pending);
    bench.open(&event);
    assert_eq!(event.status().unwrap(), EventStatus::Complete);
    event.wait().unwrap();
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

/// It fails when its last clone is dropped unresolved, or completes if user events cannot fail: commands that wait for it would wait forever.
pub fn a_user_event_that_is_dropped_holds_nothing_back<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let (buffer, gate) = (bench.buffer(64), bench.gate());
    let fill = bench.fill(&bench.queue, &buffer, 1, std::slice::from_ref(&gate));
    bench.queue.flush().unwrap();
    drop(gate.clone());
    assert_eq!(fill.status().unwrap(), EventStatus::Pending);
    drop(gate);
    assert!(eventually(|| fill.status().unwrap().has_ended()));
}

/// The error is `NotAUserEvent`.
pub fn only_user_events_can_be_resolved<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let buffer = bench.buffer(64);
    let fill = bench.fill(&bench.queue, &buffer, 1, &[]);
    let marker = bench.backend.enqueue_marker(&bench.queue).unwrap();
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
