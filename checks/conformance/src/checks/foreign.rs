//! Objects of another backend are refused by every method, before anything happens.

use std::slice::from_ref;

use binpool_allocators::{Backend, Event, ObjectKind, Outcome, Queue, Region};

use crate::{
    Fixture,
    bench::{Bench, is_foreign, refused_as_foreign, transfers_refused},
};

/// A queue of another backend.
pub fn a_foreign_queue_is_refused<F: Fixture>(fixture: &F) {
    let (bench, other) = (Bench::new(fixture), Bench::new(fixture));
    let kind = ObjectKind::Queue;
    let (backend, queue) = (&bench.backend, &other.queue);
    let (buffer, target) = (bench.filled(64, 1), bench.filled(64, 2));
    let all = Region::first(64);
    refused_as_foreign(kind, backend.check_queue(queue));
    refused_as_foreign(kind, backend.check_use(queue));
    refused_as_foreign(kind, backend.commit(queue, &buffer));
    transfers_refused(backend, queue, (&buffer, all), &target, is_foreign(kind));
    refused_as_foreign(kind, backend.enqueue_marker(queue));
    refused_as_foreign(kind, backend.enqueue_barrier(queue));
    queue.finish().unwrap();
    assert_eq!(bench.read(&buffer), [1; 64]);
    assert_eq!(bench.read(&target), [2; 64]);
}

/// Memory of another backend.
pub fn foreign_memory_is_refused<F: Fixture>(fixture: &F) {
    let (bench, other) = (Bench::new(fixture), Bench::new(fixture));
    let kind = ObjectKind::Memory;
    let (backend, queue) = (&bench.backend, &bench.queue);
    let (own, foreign) = (bench.filled(64, 1), other.filled(64, 2));
    let all = Region::first(64);
    refused_as_foreign(kind, backend.create_sub_region(&foreign, all));
    refused_as_foreign(kind, backend.commit(queue, &foreign));
    transfers_refused(backend, queue, (&foreign, all), &own, is_foreign(kind));
    queue.finish().unwrap();
    assert_eq!(bench.read(&own), [1; 64]);
    assert_eq!(other.read(&foreign), [2; 64]);
}

/// An event of another backend.
pub fn a_foreign_event_is_refused<F: Fixture>(fixture: &F) {
    let (bench, other) = (Bench::new(fixture), Bench::new(fixture));
    let kind = ObjectKind::Event;
    let (backend, queue) = (&bench.backend, &bench.queue);
    let (buffer, target) = (bench.filled(64, 1), bench.filled(64, 2));
    let all = Region::first(64);
    let event = other.marker();
    let on = queue.after(from_ref(&event));
    transfers_refused(backend, on, (&buffer, all), &target, is_foreign(kind));
    refused_as_foreign(kind, backend.enqueue_marker(on));
    refused_as_foreign(kind, backend.enqueue_barrier(on));
    queue.finish().unwrap();
    assert_eq!(bench.read(&buffer), [1; 64]);
    assert_eq!(bench.read(&target), [2; 64]);
}

/// Memory that is given to another backend's `release` goes back to its own backend. Memory that is released after an event
/// of another backend is gone in any case.
pub fn a_release_with_a_foreign_object_is_an_error<F: Fixture>(fixture: &F) {
    let (bench, other) = (Bench::new(fixture), Bench::new(fixture));
    let kind = ObjectKind::Memory;
    refused_as_foreign(kind, bench.backend.release(other.filled(64, 1), &[]));
    let kind = ObjectKind::Event;
    let marker = other.marker();
    let released = bench
        .backend
        .release(bench.filled(64, 1), from_ref(&marker));
    refused_as_foreign(kind, released);
    marker.wait().unwrap();
}

/// One foreign event in a wait list is enough to refuse the call.
pub fn a_foreign_event_among_others_is_refused<F: Fixture>(fixture: &F) {
    let (bench, other) = (Bench::new(fixture), Bench::new(fixture));
    let buffer = bench.filled(64, 1);
    let own = bench.fill(&bench.queue, &buffer, 2, &[]);
    let events = [own, other.marker()];
    let all = Region::first(64);
    let fill = bench
        .backend
        .enqueue_fill(bench.queue.after(&events), &buffer, all, &[9_u8]);
    refused_as_foreign(ObjectKind::Event, fill);
    let marker = bench.backend.enqueue_marker(bench.queue.after(&events));
    refused_as_foreign(ObjectKind::Event, marker);
    assert_eq!(bench.read(&buffer), [2; 64]);
}

/// Its own backend resolves it afterwards.
pub fn a_foreign_user_event_is_not_resolved<F: Fixture>(fixture: &F) {
    let (bench, other) = (Bench::new(fixture), Bench::new(fixture));
    let gate = other.gate();
    let resolved = bench.backend.resolve_user_event(&gate, Outcome::Complete);
    refused_as_foreign(ObjectKind::Event, resolved);
    other.open(&gate);
    gate.wait().unwrap();
}
