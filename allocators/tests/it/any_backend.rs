//! Objects of a backend that is chosen at run time are those of that backend.

use std::{
    collections::hash_map::DefaultHasher,
    hash::{Hash, Hasher},
};

use binpool_allocators::{AnyBackend, Backend, Event, Queue, QueueOrder};
use binpool_mock::{CallKind, Completion, Fault, MockDevice, MockQueue, Persistence};

fn hash(object: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    object.hash(&mut hasher);
    hasher.finish()
}

#[test]
fn a_queue_is_flushed_and_finished_as_the_backends_own() {
    let device = MockDevice::builder().completion(Completion::Manual).build();
    let backend = AnyBackend::new(device.backend());
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    backend.enqueue_marker(&queue, &[]).unwrap();
    queue.flush().unwrap();
    let calls = |kind| device.call_count(kind);
    assert_eq!((calls(CallKind::Flush), calls(CallKind::Finish)), (1, 0));
    assert_eq!(device.pending_commands(), 1);
    queue.finish().unwrap();
    assert_eq!((calls(CallKind::Flush), calls(CallKind::Finish)), (1, 1));
    assert_eq!(device.pending_commands(), 0);
    for kind in [CallKind::Flush, CallKind::Finish] {
        device.fail_nth(kind, 1, Fault::Backend(-36), Persistence::Once);
    }
    assert!(queue.flush().is_err() && queue.finish().is_err());
}

#[test]
fn queues_and_events_are_keys_by_what_they_are() {
    let backend = AnyBackend::new(MockDevice::new().backend());
    let [one, other] = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
    assert!(one == one.clone() && one != other);
    assert_eq!(hash(&one), hash(&one.clone()));
    assert_ne!(hash(&one), hash(&other));
    let own: &MockQueue = one.downcast_ref().unwrap();
    assert_eq!((own.id(), hash(own)), (one.id(), hash(&one)));
    let [one, other] = [one, other].map(|queue| backend.enqueue_marker(&queue, &[]).unwrap());
    assert!(one == one.clone() && one != other);
    assert_eq!(hash(&one), hash(&one.clone()));
    assert_ne!(hash(&one), hash(&other));
    assert_ne!(one.id(), other.id());
}
