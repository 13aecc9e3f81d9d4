//! What lives until when.

use std::{
    slice::from_ref,
    sync::{Arc, atomic::Ordering},
};

use binpool_allocators::{
    Backend, Error, EventStatus, FailureOrder, MemoryFlags, QueueOrder, Region,
    runtime::{Access, CoreEvent, adopt_block},
};
use tracing_subscriber::filter::LevelFilter;

use super::{
    ALL, HIGH, LOW, Memory, ORDERS, buffer, copy,
    device::{Call, Mark, Scripted},
    fill, in_order, launch, launch_on, pages, read, rig, view,
};
use crate::log::logged;

/// Checks that a block lives until all of these have ended.
#[track_caller]
fn assert_lives_until(device: &Scripted, marks: [&Mark; 3], order: [usize; 3]) {
    for index in order {
        assert_eq!(device.blocks(), 1, "{order:?}: {index} is pending");
        marks[index].set(EventStatus::Complete);
    }
    assert_eq!(device.blocks(), 0, "{order:?}");
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
fn memory_lives_until_its_commands_have_ended_in_whatever_order_they_end() {
    for order in ORDERS {
        let (device, [one, two], memory) = rig();
        let three = in_order(&device);
        let marks = [
            fill(&device, &one, &memory, LOW),
            read(&device, &two, &memory, HIGH),
            launch_on(&device, &three, &memory),
        ];
        drop(memory);
        assert_lives_until(&device, marks.each_ref(), order);
    }
}

#[test]
fn a_command_of_which_the_runtime_cannot_tell_keeps_its_memory() {
    let (device, [one, _], memory) = rig();
    let filled = fill(&device, &one, &memory, LOW);
    filled.lose();
    drop(memory);
    assert_eq!(device.blocks(), 1);
    filled.set(EventStatus::Complete);
    assert_eq!(device.blocks(), 0);
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
fn all_commands_of_a_queue_have_to_end_where_failures_lose_its_order() {
    for failure_order in [FailureOrder::FailsEarly, FailureOrder::Lost] {
        for order in ORDERS {
            let device = Scripted::of(failure_order, None);
            let (queue, memory) = (in_order(&device), buffer(&device));
            let marks = [(); 3].map(|()| fill(&device, &queue, &memory, LOW));
            drop(memory);
            assert_lives_until(&device, marks.each_ref(), order);
        }
    }
}

#[test]
fn a_command_keeps_each_of_its_blocks() {
    let (device, [one, _], memory) = rig();
    let others = [(); 3].map(|()| buffer(&device));
    let parts = others
        .each_ref()
        .map(|other| other.part_of_kernel().unwrap());
    let launched = launch(&device, &one, &parts.each_ref()).unwrap();
    drop(parts);
    drop(others);
    assert_eq!(device.blocks(), 4);
    launched.set(EventStatus::Complete);
    assert_eq!(device.blocks(), 1);
    let target = buffer(&device);
    let copied = copy(&device, &one, &memory, &target);
    drop((memory, target));
    assert_eq!(device.blocks(), 2);
    copied.set(EventStatus::Complete);
    assert_eq!(device.blocks(), 0);
}

#[test]
fn every_kind_of_command_keeps_its_memory() {
    type Enqueue = fn(&Scripted, &super::StreamQueue, &Memory) -> Mark;
    let kinds: [(&str, Enqueue); 5] = [
        ("fill", |device, queue, memory| {
            fill(device, queue, memory, LOW)
        }),
        ("read", |device, queue, memory| {
            read(device, queue, memory, LOW)
        }),
        ("write", |device, queue, memory| {
            let written = device.enqueue_write(queue, memory, 0, [1; 16].into());
            written.unwrap().mark().clone()
        }),
        ("copy", |device, queue, memory| {
            copy(device, queue, memory, memory)
        }),
        ("kernel", launch_on),
    ];
    for (kind, enqueue) in kinds {
        for orders_conflicts in [false, true] {
            let (device, [one, _], memory) = rig();
            if orders_conflicts {
                device.core().order_conflicts();
            }
            let mark = enqueue(&device, &one, &memory);
            drop(memory);
            assert_eq!(device.blocks(), 1, "{kind}");
            mark.set(EventStatus::Complete);
            assert_eq!(device.blocks(), 0, "{kind}");
        }
    }
}

#[test]
fn a_command_over_no_bytes_keeps_its_memory_too() {
    let (device, [one, _], memory) = rig();
    let mark = fill(&device, &one, &memory, Region::new(16, 0));
    drop(memory);
    assert_eq!(device.blocks(), 1);
    mark.set(EventStatus::Complete);
    assert_eq!(device.blocks(), 0);
}

#[test]
fn a_view_keeps_its_block_and_its_commands_count() {
    let (device, [one, _], memory) = rig();
    let view = view(&device, &memory, HIGH);
    let used = fill(&device, &one, &view, Region::first(16));
    device.release(memory, &[]).unwrap();
    assert_eq!(device.blocks(), 1);
    drop(view);
    assert_eq!(device.blocks(), 1);
    used.set(EventStatus::Complete);
    assert_eq!(device.blocks(), 0);
}

#[test]
fn memory_is_released_after_all_events_that_the_program_names_in_whatever_order_they_end() {
    for order in ORDERS {
        let (device, [one, two], memory) = rig();
        let events = [
            device.enqueue_marker(&one).unwrap(),
            device.enqueue_marker(&two).unwrap(),
            device.create_user_event().unwrap(),
        ];
        device.release(memory, &events).unwrap();
        let marks = events.each_ref().map(CoreEvent::mark);
        assert_lives_until(&device, marks, order);
    }
}

#[test]
fn memory_is_released_after_its_events_and_its_commands() {
    for order in ORDERS {
        let (device, [one, two], memory) = rig();
        let used = [&one, &two].map(|queue| fill(&device, queue, &memory, LOW));
        let event = device.create_user_event().unwrap();
        device.release(memory, from_ref(&event)).unwrap();
        assert_lives_until(&device, [&used[0], event.mark(), &used[1]], order);
    }
}

#[test]
fn memory_is_released_after_its_events_however_many_there_are() {
    let (device, [one, _], memory) = rig();
    let events: Vec<_> = (0..40)
        .map(|_| device.enqueue_marker(&one).unwrap())
        .collect();
    for event in &events[..10] {
        event.mark().set(EventStatus::Complete);
    }
    device.release(memory, &events).unwrap();
    for event in events[10..].iter().rev() {
        assert_eq!(device.blocks(), 1);
        event.mark().set(EventStatus::Complete);
    }
    assert_eq!(device.blocks(), 0);
}

#[test]
fn the_events_of_a_release_hold_the_block_for_its_views_too() {
    let (device, [one, _], memory) = rig();
    let view = view(&device, &memory, HIGH);
    let marker = device.enqueue_marker(&one).unwrap();
    device.release(view, from_ref(&marker)).unwrap();
    device.release(memory, &[]).unwrap();
    assert_eq!(device.blocks(), 1);
    marker.mark().set(EventStatus::Complete);
    assert_eq!(device.blocks(), 0);
}

#[test]
fn a_captured_command_does_not_count_as_a_use() {
    let (device, [one, _], memory) = rig();
    device.set(|options| options.captures = true);
    fill(&device, &one, &memory, LOW);
    drop(memory);
    assert_eq!(device.blocks(), 0);
}

#[test]
fn a_captured_command_leaves_the_uses_before_it() {
    let (device, [one, _], memory) = rig();
    let used = fill(&device, &one, &memory, LOW);
    device.set(|options| options.captures = true);
    fill(&device, &one, &memory, LOW);
    drop(memory);
    assert_eq!(device.blocks(), 1);
    used.set(EventStatus::Complete);
    assert_eq!(device.blocks(), 0);
}

fn free_in_order(memory: &Memory) {
    let block = memory.block().unwrap();
    block.is_freed_in_order.store(true, Ordering::Relaxed);
}

#[test]
fn a_block_that_is_freed_after_its_commands_anyway_is_dropped_at_once() {
    let (device, [one, _], memory) = rig();
    free_in_order(&memory);
    fill(&device, &one, &memory, LOW);
    drop(memory);
    assert_eq!(device.count().load(Ordering::Relaxed), 0);
}

#[test]
fn a_block_that_is_freed_in_order_still_waits_for_the_events_of_its_release() {
    let (device, [one, two], memory) = rig();
    free_in_order(&memory);
    fill(&device, &one, &memory, LOW);
    let events = [&one, &two].map(|queue| device.enqueue_marker(queue).unwrap());
    device.release(memory, &events).unwrap();
    for event in events.iter().rev() {
        assert_eq!(device.blocks(), 1);
        event.mark().set(EventStatus::Complete);
    }
    assert_eq!(device.blocks(), 0);
}

#[test]
fn a_block_that_the_runtime_may_not_free_is_kept_until_it_may() {
    let (device, [one, _], memory) = rig();
    let held = Arc::clone(&memory.block().unwrap().held);
    *held.lock() = Some("unmap it");
    let used = fill(&device, &one, &memory, LOW);
    drop(memory);
    used.set(EventStatus::Complete);
    assert_eq!(device.blocks(), 1);
    *held.lock() = None;
    assert_eq!(device.blocks(), 0);
}

#[test]
fn what_the_backend_keeps_goes_after_all_its_commands() {
    for order in ORDERS {
        let (device, [one, two], memory) = rig();
        let marks = [&one, &two, &one].map(|queue| fill(&device, queue, &memory, LOW));
        let kept = Arc::new(());
        let after = marks.to_vec();
        device.core().keep_until(Arc::clone(&kept), after);
        for index in order {
            device.core().drop_what_has_ended();
            assert_eq!(Arc::strong_count(&kept), 2, "{order:?}: {index} is pending");
            marks[index].set(EventStatus::Complete);
        }
        device.core().drop_what_has_ended();
        assert_eq!(Arc::strong_count(&kept), 1);
    }
}

#[test]
fn what_waits_for_nothing_is_dropped_at_once() {
    let (device, [one, _], memory) = rig();
    let ended = fill(&device, &one, &memory, LOW);
    ended.set(EventStatus::Failed);
    let kept = Arc::new(());
    device.core().keep_until(Arc::clone(&kept), vec![ended]);
    device.core().keep_until(Arc::clone(&kept), Vec::new());
    assert_eq!(Arc::strong_count(&kept), 1);
    drop(memory);
    assert_eq!(device.count().load(Ordering::Relaxed), 0);
}

/// Calls the backend as it is dropped.
struct Busy(Scripted, Vec<Mark>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.core().keep_until((), self.1.clone());
        self.0.core().drop_what_has_ended();
    }
}

#[test]
fn what_is_dropped_may_use_the_backend() {
    let (device, [one, _], memory) = rig();
    let mark = fill(&device, &one, &memory, LOW);
    let busy = || Busy(device.clone(), vec![mark.clone()]);
    device.core().keep_until(busy(), vec![mark.clone()]);
    device.core().keep_until(busy(), Vec::new());
    mark.set(EventStatus::Complete);
    device.core().drop_what_has_ended();
    drop(memory);
    assert_eq!(device.blocks(), 0);
}

/// Some blocks whose commands end only after they are dropped.
fn ended_blocks(device: &Scripted, count: usize) {
    let queue = in_order(device);
    let marks: Vec<_> = (0..count)
        .map(|_| fill(device, &queue, &buffer(device), LOW))
        .collect();
    for mark in marks {
        mark.set(EventStatus::Complete);
    }
}

#[test]
fn every_call_frees_some_of_what_no_command_uses_any_more() {
    type Do = fn(&Scripted, &super::StreamQueue, &Memory);
    let calls: [(&str, Do); 6] = [
        ("a command", |device, queue, memory| {
            fill(device, queue, memory, LOW);
        }),
        ("a marker", |device, queue, _| {
            device.enqueue_marker(queue).unwrap();
        }),
        ("a write", |device, queue, memory| {
            device.write(queue, memory, 0, &[1_u8]).unwrap();
        }),
        ("a read", |device, queue, memory| {
            device.read(queue, memory, 0, &mut [0_u8]).unwrap();
        }),
        ("a release", |device, _, memory| {
            device.release(view(device, memory, LOW), &[]).unwrap();
        }),
        ("an allocation", |device, _, _| {
            buffer(device);
        }),
    ];
    for (name, call) in calls {
        let (device, [one, _], memory) = rig();
        device.set(|options| options.transfers_directly = true);
        ended_blocks(&device, 1);
        let count = device.count();
        assert_eq!(count.load(Ordering::Relaxed), 2);
        call(&device, &one, &memory);
        assert_eq!(count.load(Ordering::Relaxed), 1, "{name}");
    }
}

#[test]
fn what_commands_still_use_hides_nothing_that_they_do_not() {
    let (device, [one, _], memory) = rig();
    for _ in 0..10 {
        fill(&device, &one, &buffer(&device), LOW);
    }
    ended_blocks(&device, 1);
    for _ in 0..10 {
        fill(&device, &one, &memory, LOW);
    }
    assert_eq!(device.count().load(Ordering::Relaxed), 11);
}

#[test]
fn a_call_frees_more_than_it_adds_so_that_the_list_gets_shorter() {
    let (device, [one, _], memory) = rig();
    ended_blocks(&device, 100);
    for _ in 0..40 {
        fill(&device, &one, &memory, LOW);
    }
    assert_eq!(device.count().load(Ordering::Relaxed), 1);
}

fn shortage() -> Error {
    Error::device_out_of_memory(256, "full")
}

#[test]
fn an_allocation_is_tried_again_without_what_no_command_uses_any_more() {
    type Do = fn(&Scripted) -> Memory;
    let allocations: [Do; 2] = [buffer, |device| pages(device, 1)];
    for allocate in allocations {
        let (device, [one, _], memory) = rig();
        fill(&device, &one, &memory, LOW);
        drop(memory);
        ended_blocks(&device, 20);
        let count = device.count();
        device.at(Call::Allocate, || Err(shortage()));
        device.at(Call::Allocate, move || {
            assert_eq!(
                count.load(Ordering::Relaxed),
                1,
                "but for the one that is used"
            );
            Ok(())
        });
        let allocated = allocate(&device);
        assert_eq!(device.blocks(), 2);
        drop(allocated);
    }
}

#[test]
fn an_allocation_that_fails_otherwise_is_not_tried_again() {
    let device = Scripted::new();
    device.fail(Call::Allocate);
    let failed = device.create_buffer(256, MemoryFlags::empty());
    assert!(matches!(failed, Err(Error::Backend(_))));
    assert!(device.has_acted());
    // A shortage twice is an error, and leaves nothing.
    for _ in 0..2 {
        device.at(Call::Allocate, || Err(shortage()));
    }
    let failed = device.create_buffer(256, MemoryFlags::empty());
    assert!(failed.unwrap_err().is_out_of_memory());
    assert!(device.has_acted());
    assert_eq!(device.blocks(), 0);
}

#[test]
fn a_shortage_says_once_why_blocks_cannot_be_freed() {
    let (device, _, memory) = rig();
    let other = buffer(&device);
    *other.block().unwrap().held.lock() = Some("end its map");
    drop((memory, other));
    let lines = logged(LevelFilter::TRACE, || {
        device.at(Call::Allocate, || Err(shortage()));
        device.fail(Call::Allocate); // No shortage.
        device.create_buffer(256, MemoryFlags::empty()).unwrap_err();
        for _ in 0..3 {
            for _ in 0..2 {
                device.at(Call::Allocate, || Err(shortage()));
            }
            device.create_buffer(256, MemoryFlags::empty()).unwrap_err();
        }
    });
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(
        lines[0].contains("WARN") && lines[0].contains("end its map"),
        "{lines:?}"
    );
    assert!(lines[0].contains("blocks=1"), "{lines:?}");
}

#[test]
fn a_shortage_without_a_reason_says_nothing() {
    let (device, [one, _], memory) = rig();
    fill(&device, &one, &memory, LOW);
    drop(memory);
    let lines = logged(LevelFilter::TRACE, || {
        for _ in 0..2 {
            device.at(Call::Allocate, || Err(shortage()));
        }
        device.create_buffer(256, MemoryFlags::empty()).unwrap_err();
    });
    assert_eq!(lines, [""; 0]);
}

#[test]
fn a_block_of_the_backends_own_is_memory_like_any_other() {
    let (device, [one, _], _) = rig();
    let block = device.block(64, MemoryFlags::HOST_NO_ACCESS, None);
    // SAFETY: the block is of this device, and of this size.
    let memory = unsafe { adopt_block(&device, block, 64, MemoryFlags::HOST_NO_ACCESS) };
    assert!(memory.part(Region::first(64), Access::Read).is_ok());
    assert!(memory.part(Region::first(65), Access::Read).is_err());
    assert!(device.write(&one, &memory, 0, &[1_u8]).is_err());
    let used = fill(&device, &one, &memory, Region::first(64));
    drop(memory);
    assert_eq!(device.blocks(), 1);
    used.set(EventStatus::Complete);
    assert_eq!(device.blocks(), 0);
}

#[test]
fn a_block_is_allocated_as_the_program_asks() {
    let device = Scripted::new();
    let memory = device
        .create_buffer(300, MemoryFlags::HOST_RESIDENT)
        .unwrap();
    let block = memory.block().unwrap();
    assert_eq!(
        (block.bytes, block.flags),
        (300, MemoryFlags::HOST_RESIDENT)
    );
}

#[test]
fn memory_and_queues_keep_their_backend() {
    let (device, [one, two], memory) = rig();
    // The device has one of these, as has each of its blocks.
    let count = device.count();
    fill(&device, &one, &memory, ALL).set(EventStatus::Complete);
    drop((device, one));
    assert_eq!(Arc::strong_count(&count), 3);
    drop(two);
    assert_eq!(Arc::strong_count(&count), 3);
    drop(memory);
    assert_eq!(Arc::strong_count(&count), 1);
    let (device, [one, _], _) = rig();
    let count = device.count();
    drop(device);
    assert_eq!(Arc::strong_count(&count), 2);
    drop(one);
    assert_eq!(Arc::strong_count(&count), 1);
}
