use std::{
    sync::{
        Weak,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use binpool_allocators::QueueOrder;

use super::*;
use crate::{
    backend::OpenClBackend,
    order::weak_queue::{QueueCalls, WeakQueue},
    testing::open,
};

/// A queue whose commands are user events.
struct Gone;

impl QueueCalls for Gone {
    fn flush_up_to(&self, _number: u64) -> ClResult<()> {
        Ok(())
    }

    fn stand_in(&self, event: &EventHandle) -> ClResult<EventHandle> {
        event.another()
    }
}

fn queue() -> WeakQueue {
    let calls: Weak<Gone> = Weak::new();
    WeakQueue::new(QueueId::fresh(), QueueOrder::InOrder, calls)
}

/// A command of `queue` that comes after those, and is not enqueued yet.
fn entering(queue: &WeakQueue, before: &[&Arc<TrackedCommand>]) -> Arc<TrackedCommand> {
    let before = before.iter().map(|&one| Arc::clone(one)).collect();
    let entering = TrackedCommand::entering(queue.clone(), queue.id(), before);
    Arc::new(entering)
}

fn enqueue(backend: &OpenClBackend, command: &TrackedCommand) -> EventHandle {
    let event = sys::create_user_event(&backend.context().handle).unwrap();
    command.enqueued(&event, 1, true);
    event
}

/// An enqueued command, and the event that ends it.
fn pending(
    backend: &OpenClBackend,
    before: &[&Arc<TrackedCommand>],
) -> (Arc<TrackedCommand>, EventHandle) {
    let command = entering(&queue(), before);
    let event = enqueue(backend, &command);
    (command, event)
}

fn failed(backend: &OpenClBackend, before: &[&Arc<TrackedCommand>]) -> Arc<TrackedCommand> {
    let (command, event) = pending(backend, before);
    sys::set_user_event_status(&event, -1).unwrap();
    command
}

fn are(found: &Earlier, expected: &[&Arc<TrackedCommand>]) -> bool {
    let is_one = |it: &Arc<TrackedCommand>| expected.iter().any(|one| Arc::ptr_eq(it, one));
    found.len() == expected.len() && found.iter().all(is_one)
}

#[test]
fn the_other_maps_of_an_address_are_those_that_start_there_and_have_not_ended() {
    let backend = open();
    let log = AccessLog::default();
    let add = |offset, command: &Arc<TrackedCommand>| {
        let (id, region) = (MapId::fresh(), Region::new(offset, 8));
        let mut record = log.record.lock();
        record.add_map(id, region, Access::Read, command);
        id
    };
    let ((own, _), (same, ends), (elsewhere, _)) = (
        pending(&backend, &[]),
        pending(&backend, &[]),
        pending(&backend, &[]),
    );
    let id = add(64, &own);
    add(64, &same);
    add(72, &elsewhere);
    assert!(are(&log.other_maps_being_made(64, id), &[&same]));
    sys::set_user_event_status(&ends, 0).unwrap();
    assert!(are(&log.other_maps_being_made(64, id), &[]));
}

#[test]
fn a_wait_for_the_end_of_an_object_returns_after_its_commands() {
    let backend = open();
    let log = AccessLog::default();
    let (command, event) = pending(&backend, &[]);
    log.record
        .lock()
        .enter(Region::first(8), Access::Read, &command);
    let is_ending = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::yield_now();
            is_ending.store(true, Ordering::SeqCst);
            sys::set_user_event_status(&event, 0).unwrap();
        });
        log.wait_until_unused().unwrap();
        assert!(is_ending.load(Ordering::SeqCst));
    });
}

#[test]
fn in_the_place_of_failed_commands_come_those_that_they_were_to_come_after_each_once() {
    let backend = open();
    let mut record = Record::default();
    let ((one, _), (other, _)) = (pending(&backend, &[]), pending(&backend, &[]));
    for _ in 0..50 {
        let command = failed(&backend, &[&one, &other]);
        record.enter(Region::first(8), Access::Read, &command);
    }
    record.sweep();
    let entries = record.pieces.values().map(|piece| piece.entries.len());
    assert_eq!(entries.collect::<Vec<_>>(), [2]);
    let mut earlier = Earlier::new();
    record.collect_conflicting(Region::first(8), Access::Write, &mut earlier);
    assert!(are(&earlier, &[&one, &other]), "{earlier:?}");
}

/// A read replaces the earlier reads of its queue alone.
#[test]
fn what_stands_for_a_failed_read_stays_when_a_read_of_another_queue_replaces_its_like() {
    let backend = open();
    let mut record = Record::default();
    let all = Region::first(8);
    let (first, _) = pending(&backend, &[]);
    let failed_here = failed(&backend, &[&first]);
    let failed_elsewhere = failed(&backend, &[&first]);
    record.enter(all, Access::Read, &failed_here);
    record.enter(all, Access::Read, &failed_elsewhere);
    let later = entering(failed_here.queue(), &[]);
    record.enter(all, Access::Read, &later);
    record.sweep();
    let _pending = enqueue(&backend, &later);
    let mut earlier = Earlier::new();
    record.collect_conflicting(all, Access::Write, &mut earlier);
    assert!(are(&earlier, &[&first, &later]), "{earlier:?}");
}

#[test]
fn bytes_whose_commands_are_over_are_forgotten_however_they_were_cut() {
    let mut record = Record::default();
    let over = entering(&queue(), &[]);
    over.gone();
    record.enter(Region::first(1000), Access::Write, &over);
    for byte in (1..999).step_by(2) {
        record.enter(Region::new(byte, 1), Access::Write, &over);
        // A cut makes three pieces of one.
        assert!(record.pieces.len() <= FIRST_LIMIT + 2);
    }
}

#[test]
fn neighbouring_bytes_that_the_same_commands_use_are_one_piece_again() {
    let backend = open();
    let mut record = Record::default();
    let ((one, _), (other, _)) = (pending(&backend, &[]), pending(&backend, &[]));
    for byte in [0, 1, 2, 3, 6, 7] {
        record.enter(Region::new(byte, 1), Access::Write, &one);
    }
    record.enter(Region::new(3, 1), Access::Read, &other);
    record.sweep();
    let pieces = record
        .pieces
        .iter()
        .map(|(&start, piece)| (start, piece.end));
    assert_eq!(pieces.collect::<Vec<_>>(), [(0, 3), (3, 4), (6, 8)]);
}

/// They may have the last references to their queues.
#[test]
fn commands_that_are_forgotten_are_dropped_after_the_lock_is_released() {
    let backend = open();
    let mut record = Record::default();
    let (pending, _) = pending(&backend, &[]);
    let over = entering(&queue(), &[]);
    for command in [&pending, &over] {
        record.enter(Region::first(8), Access::Read, command);
    }
    over.gone();
    record.sweep();
    assert!(are(&record.take_discarded().into(), &[&over]));
}
