//! What the core does for every runtime.

mod device;

use std::slice::from_ref;

use binpool_allocators::{
    Backend, Error, EventStatus, InvalidRequest, MemoryFlags, Outcome, Queue, QueueOrder, Region,
    runtime::{CoreMemory, CoreQueue, Runtime},
};

use device::{Mark, Scripted};

type Memory = CoreMemory<Scripted>;
type StreamQueue = CoreQueue<Scripted>;

fn rig() -> (Scripted, [StreamQueue; 2], Memory) {
    let device = Scripted::new();
    let queues = [(); 2].map(|()| device.create_queue(QueueOrder::InOrder).unwrap());
    let memory = device.create_buffer(256, MemoryFlags::empty()).unwrap();
    (device, queues, memory)
}

fn fill(device: &Scripted, queue: &StreamQueue, memory: &Memory, region: Region) -> Mark {
    let filled = device.enqueue_fill(queue, memory, region, &[1_u8]);
    filled.unwrap().mark().clone()
}

fn read(device: &Scripted, queue: &StreamQueue, memory: &Memory, region: Region) -> Mark {
    let read = device.enqueue_read(queue, memory, region).unwrap();
    read.event().mark().clone()
}

/// Checks that the last command comes after these, and after no others.
fn assert_after(device: &Scripted, marks: &[&Mark]) {
    let after = device.last().after;
    let is_there = |mark: &&&Mark| after.iter().any(|other| other.is(mark));
    let found = marks.iter().filter(is_there).count();
    assert_eq!((found, after.len()), (marks.len(), marks.len()));
}

const LOW: Region = Region::new(0, 128);
const HIGH: Region = Region::new(128, 128);

#[test]
fn the_program_orders_its_commands_unless_it_asks_the_core_to() {
    let (device, [one, two], memory) = rig();
    fill(&device, &one, &memory, LOW);
    fill(&device, &two, &memory, LOW);
    assert_after(&device, &[]);
}

#[test]
fn conflicting_commands_of_different_queues_are_put_in_order() {
    let (device, [one, two], memory) = rig();
    device.core().order_conflicts();
    let low = fill(&device, &one, &memory, LOW);
    let high = fill(&device, &one, &memory, HIGH);
    assert_after(&device, &[]); // Its queue is in order.
    let reading = read(&device, &two, &memory, Region::new(0, 16));
    assert_after(&device, &[&low]);
    // Reads do not conflict; a write does, with what is there and no more.
    read(&device, &one, &memory, Region::new(0, 16));
    assert_after(&device, &[]);
    fill(&device, &one, &memory, Region::new(0, 32));
    assert_after(&device, &[&reading]);
    read(&device, &two, &memory, HIGH);
    assert_after(&device, &[&high]);
}

#[test]
fn views_of_a_block_conflict_by_the_bytes_of_the_block() {
    let (device, [one, two], memory) = rig();
    device.core().order_conflicts();
    let view = device.create_sub_region(&memory, HIGH).unwrap();
    let written = fill(&device, &one, &view, Region::first(128));
    read(&device, &two, &memory, LOW);
    assert_after(&device, &[]);
    read(&device, &two, &memory, HIGH);
    assert_after(&device, &[&written]);
}

#[test]
fn a_copy_comes_after_what_conflicts_on_either_side() {
    let (device, [one, two], memory) = rig();
    let other = device.create_buffer(256, MemoryFlags::empty()).unwrap();
    device.core().order_conflicts();
    let source = fill(&device, &one, &memory, LOW);
    let target = read(&device, &one, &other, HIGH);
    let copied = device
        .enqueue_copy(&two, &memory, LOW, &other, 128)
        .unwrap();
    assert_after(&device, &[&source, &target]);
    // A copy inside a block locks it once.
    device.enqueue_copy(&one, &other, HIGH, &other, 0).unwrap();
    assert_after(&device, &[copied.mark()]);
}

#[test]
fn a_command_that_has_ended_is_not_waited_for() {
    let (device, [one, two], memory) = rig();
    device.core().order_conflicts();
    for status in [EventStatus::Complete, EventStatus::Failed] {
        fill(&device, &one, &memory, LOW).set(status);
        fill(&device, &two, &memory, LOW).set(status);
        assert_after(&device, &[]);
    }
}

#[test]
fn commands_of_an_out_of_order_queue_conflict_with_each_other() {
    let (device, _, memory) = rig();
    let queue = device.create_queue(QueueOrder::OutOfOrder).unwrap();
    device.core().order_conflicts();
    let first = fill(&device, &queue, &memory, LOW);
    let second = fill(&device, &queue, &memory, LOW);
    assert_after(&device, &[&first]);
    read(&device, &queue, &memory, LOW);
    assert_after(&device, &[&first, &second]);
}

#[test]
fn what_was_enqueued_before_the_core_put_commands_in_order_counts() {
    let (device, [one, two], memory) = rig();
    fill(&device, &one, &memory, LOW);
    let last = read(&device, &one, &memory, HIGH);
    device.core().order_conflicts();
    read(&device, &two, &memory, LOW);
    assert_after(&device, &[&last]); // The queue's last command is all that is known of it.
}

#[test]
fn a_transfer_that_waits_is_in_order_too() {
    let (device, [one, two], memory) = rig();
    device.core().order_conflicts();
    let written = fill(&device, &one, &memory, LOW);
    // The mark of the write itself is pending, so that the test does not wait.
    let write = device.enqueue_write(&two, &memory, 0, [1; 16].into());
    write.unwrap();
    assert_after(&device, &[&written]);
}

#[test]
fn memory_lives_until_the_last_command_of_each_queue_has_ended() {
    let (device, [one, two], memory) = rig();
    let first = fill(&device, &one, &memory, LOW);
    let [last, other] = [&one, &two].map(|queue| fill(&device, queue, &memory, LOW));
    drop(memory);
    assert_eq!(device.blocks(), 1);
    last.set(EventStatus::Complete);
    assert_eq!(device.blocks(), 1);
    other.set(EventStatus::Failed); // It touches no memory any more.
    assert_eq!(device.blocks(), 0);
    // The first came before the last on its queue, and was not asked.
    assert_eq!(first.get(), EventStatus::Pending);
}

#[test]
fn all_commands_of_an_out_of_order_queue_have_to_end() {
    let (device, _, memory) = rig();
    let queue = device.create_queue(QueueOrder::OutOfOrder).unwrap();
    let commands = [(); 40].map(|()| fill(&device, &queue, &memory, LOW));
    drop(memory);
    for command in &commands {
        assert_eq!(device.blocks(), 1);
        command.set(EventStatus::Complete);
    }
    assert_eq!(device.blocks(), 0);
}

#[test]
fn a_view_keeps_its_block_and_its_commands_count() {
    let (device, [one, _], memory) = rig();
    let view = device.create_sub_region(&memory, HIGH).unwrap();
    let used = fill(&device, &one, &view, Region::first(16));
    device.release(memory, &[]).unwrap();
    assert_eq!(device.blocks(), 1);
    drop(view);
    assert_eq!(device.blocks(), 1);
    used.set(EventStatus::Complete);
    assert_eq!(device.blocks(), 0);
}

#[test]
fn memory_is_released_after_the_events_that_the_program_names() {
    let (device, [one, _], memory) = rig();
    let marker = device.enqueue_marker(&one).unwrap();
    device.release(memory, from_ref(&marker)).unwrap();
    assert_eq!(device.blocks(), 1);
    marker.mark().set(EventStatus::Complete);
    assert_eq!(device.blocks(), 0);
}

#[test]
fn what_a_failed_call_may_have_enqueued_keeps_its_memory() {
    let (device, [one, two], memory) = rig();
    device.fail_next();
    let failed = device.enqueue_fill(&one, &memory, LOW, &[1_u8]);
    assert!(matches!(failed, Err(Error::Backend(_))));
    let rest = device.last().mark;
    device.core().order_conflicts();
    let read = read(&device, &two, &memory, HIGH);
    assert_after(&device, &[&rest]); // It may be anywhere in the block.
    read.set(EventStatus::Complete);
    drop(memory);
    assert_eq!(device.blocks(), 1);
    rest.set(EventStatus::Complete);
    assert_eq!(device.blocks(), 0);
}

#[test]
fn a_user_event_that_is_dropped_fails_what_waits_for_it() {
    let (device, [one, _], _) = rig();
    let gate = device.create_user_event().unwrap();
    let mark = gate.mark().clone();
    device.enqueue_marker(one.after(from_ref(&gate))).unwrap();
    let copy = gate.clone();
    drop(gate);
    assert_eq!(mark.get(), EventStatus::Pending);
    drop(copy);
    assert_eq!(mark.get(), EventStatus::Failed);
}

#[test]
fn a_user_event_is_resolved_once_and_no_other_event_is() {
    let (device, [one, _], _) = rig();
    let gate = device.create_user_event().unwrap();
    device.resolve_user_event(&gate, Outcome::Complete).unwrap();
    let again = device.resolve_user_event(&gate, Outcome::Failed);
    assert_eq!(gate.mark().get(), EventStatus::Complete);
    let marker = device.enqueue_marker(&one).unwrap();
    let not_one = device.resolve_user_event(&marker, Outcome::Complete);
    for (refused, why) in [
        (again, InvalidRequest::AlreadyResolved),
        (not_one, InvalidRequest::NotAUserEvent),
    ] {
        assert!(matches!(refused, Err(Error::InvalidRequest(refusal)) if refusal == why));
    }
}

#[test]
fn a_backend_ends_with_its_last_object_and_frees_everything() {
    let (device, [one, _], memory) = rig();
    let used = fill(&device, &one, &memory, LOW);
    let blocks = device.clone();
    drop((device, one, memory));
    assert_eq!(blocks.blocks(), 1);
    used.set(EventStatus::Complete);
    assert_eq!(blocks.blocks(), 0);
}
