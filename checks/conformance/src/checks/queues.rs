//! What every backend promises for queues.

use std::collections::HashSet;

use binpool_allocators::{Backend, Event, EventStatus, Queue, QueueOrder};

use crate::{Fixture, bench::Bench};

/// Equality and identity agree.
pub fn clones_of_a_queue_are_equal_and_others_are_not<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let (clone, other) = (bench.queue.clone(), bench.another_queue());
    assert_eq!(bench.queue, clone);
    assert_eq!(bench.queue.id(), clone.id());
    assert_ne!(bench.queue, other);
    assert_ne!(bench.queue.id(), other.id());
    bench.backend.check_queue(&clone).unwrap();
    bench.backend.check_use(&clone).unwrap();
    let queues = HashSet::from([bench.queue.clone(), clone, other]);
    assert_eq!(queues.len(), 2, "{queues:?}");
}

/// Commands that are enqueued through one clone come after those of the other.
pub fn clones_of_a_queue_keep_one_order<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let (queue, clone) = (bench.another_queue(), bench.queue.clone());
    let buffer = bench.filled(64, 1);
    for byte in 2..20 {
        drop(bench.fill(&bench.queue, &buffer, 0, &[]));
        drop(bench.fill(&clone, &buffer, byte, &[]));
        clone.finish().unwrap();
        let mut bytes = [0_u8; 64];
        bench.backend.read(&queue, &buffer, 0, &mut bytes).unwrap();
        assert_eq!(bytes, [byte; 64]);
    }
}

/// Identities are unique, even after the queue is gone.
pub fn identities_of_queues_are_not_used_again<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let mut former = Vec::new();
    for _ in 0..10 {
        let id = bench.another_queue().id();
        assert!(!former.contains(&id), "{id} was another queue's");
        former.push(id);
    }
}

/// `order` returns the requested order.
pub fn a_queue_knows_its_order<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    assert_eq!(bench.queue.order(), QueueOrder::InOrder);
    if let Some(queue) = bench.out_of_order_queue() {
        assert_eq!(queue.order(), QueueOrder::OutOfOrder);
    }
}

/// Without commands, both return at once.
pub fn an_idle_queue_finishes_and_flushes<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    for _ in 0..3 {
        bench.queue.flush().unwrap();
        bench.queue.finish().unwrap();
    }
}

/// `finish` waits for every command.
pub fn a_finished_queue_has_nothing_pending<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    for queue in bench.queues_of_both_orders() {
        let buffers: Vec<_> = (0..8).map(|_| bench.buffer(65_536)).collect();
        let fill = |buffer| bench.fill(&queue, buffer, 5, &[]);
        let events: Vec<_> = buffers.iter().map(fill).collect();
        queue.finish().unwrap();
        for event in &events {
            assert_eq!(event.status().unwrap(), EventStatus::Complete);
        }
    }
}
