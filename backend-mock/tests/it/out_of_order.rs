//! Out-of-order queues: events, markers and barriers are all the order there is.

use std::collections::BTreeSet;

use binpool_allocators::{Backend, Error, Outcome, Queue, QueueOrder};
use binpool_mock::{Completion, MockDevice};

use crate::common::{Rig, is_complete, is_pending};

#[test]
fn commands_overtake_each_other() {
    let rig = Rig::new(Completion::AtOnce);
    let queue = rig.queue(QueueOrder::OutOfOrder);
    let (gate, buffer) = (rig.gate(), rig.buffer(4));
    let first = rig.fill_on(&queue, &buffer, 1, std::slice::from_ref(&gate));
    let second = rig.fill_on(&queue, &buffer, 2, &[]);
    assert!(is_pending(&first) && is_complete(&second));
    rig.backend
        .resolve_user_event(&gate, Outcome::Complete)
        .unwrap();
    assert_eq!(rig.contents(&buffer), [1; 4]);
}

#[test]
fn seeds_reach_every_order() {
    let mut seen = BTreeSet::new();
    for seed in 0..200 {
        let rig = Rig::new(Completion::Seeded(seed));
        let queue = rig.queue(QueueOrder::OutOfOrder);
        let buffer = rig.buffer(1);
        let bytes = [1, 2, 3];
        for byte in bytes {
            rig.fill_on(&queue, &buffer, byte, &[]);
        }
        rig.device.run();
        seen.insert(rig.contents(&buffer)[0]);
    }
    assert_eq!(seen, BTreeSet::from([1, 2, 3]));
}

#[test]
fn a_marker_without_a_wait_list_waits_for_all_before_it_and_holds_nothing_up() {
    let rig = Rig::new(Completion::AtOnce);
    let queue = rig.queue(QueueOrder::OutOfOrder);
    let (gate, buffer) = (rig.gate(), rig.buffer(4));
    rig.fill_on(&queue, &buffer, 1, std::slice::from_ref(&gate));
    let marker = rig.backend.enqueue_marker(&queue).unwrap();
    let after = rig.fill_on(&queue, &buffer, 2, &[]);
    assert!(is_pending(&marker) && is_complete(&after));
    rig.backend
        .resolve_user_event(&gate, Outcome::Complete)
        .unwrap();
    assert!(is_complete(&marker));
}

#[test]
fn a_marker_with_a_wait_list_waits_for_that_only() {
    let rig = Rig::new(Completion::AtOnce);
    let queue = rig.queue(QueueOrder::OutOfOrder);
    let (gate, buffer) = (rig.gate(), rig.buffer(4));
    let gated = rig.fill_on(&queue, &buffer, 1, std::slice::from_ref(&gate));
    let free = rig.fill_on(&queue, &buffer, 2, &[]);
    assert!(is_complete(
        &rig.backend.enqueue_marker(queue.after(&[free])).unwrap()
    ));
    assert!(is_pending(
        &rig.backend.enqueue_marker(queue.after(&[gated])).unwrap()
    ));
}

#[test]
fn everything_after_a_barrier_waits_for_it() {
    let rig = Rig::new(Completion::AtOnce);
    let queue = rig.queue(QueueOrder::OutOfOrder);
    let (gate, buffer) = (rig.gate(), rig.buffer(4));
    let before = rig.fill_on(&queue, &buffer, 1, &[]);
    let barrier = rig
        .backend
        .enqueue_barrier(queue.after(std::slice::from_ref(&gate)))
        .unwrap();
    let after = rig.fill_on(&queue, &buffer, 2, &[]);
    let marker = rig.backend.enqueue_marker(queue.after(&[before])).unwrap();
    assert!([&barrier, &after, &marker].into_iter().all(is_pending));
    rig.backend
        .resolve_user_event(&gate, Outcome::Complete)
        .unwrap();
    assert!([&barrier, &after, &marker].into_iter().all(is_complete));
}

#[test]
fn a_barrier_without_a_wait_list_waits_for_all_before_it() {
    let rig = Rig::new(Completion::AtOnce);
    let queue = rig.queue(QueueOrder::OutOfOrder);
    let (gate, buffer) = (rig.gate(), rig.buffer(4));
    rig.fill_on(&queue, &buffer, 1, std::slice::from_ref(&gate));
    let barrier = rig.backend.enqueue_barrier(&queue).unwrap();
    let after = rig.fill_on(&queue, &buffer, 2, &[]);
    assert!(is_pending(&barrier) && is_pending(&after));
    rig.backend
        .resolve_user_event(&gate, Outcome::Complete)
        .unwrap();
    assert_eq!(rig.contents(&buffer), [2; 4]);
}

#[test]
fn a_device_without_out_of_order_queues_says_so() {
    let rig = Rig::on(MockDevice::builder().out_of_order_queues(false));
    let error = rig
        .backend
        .create_queue(QueueOrder::OutOfOrder)
        .unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }));
    assert!(error.to_string().contains("out-of-order"));
}
