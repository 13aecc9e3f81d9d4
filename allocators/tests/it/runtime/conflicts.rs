//! Conflicting commands are put in order, if the program asks for that.

use std::{slice::from_ref, sync::mpsc, thread};

use binpool_allocators::{
    Backend, EventStatus, FailureOrder, Queue as _, QueueOrder, Region, VirtualMemory,
    runtime::{Access, CoreEvent},
};

use super::{
    HIGH, LOW, Memory, StreamQueue, assert_after, buffer, copy,
    device::{Call, Mark, PAGE, Scripted, Told},
    fill, in_order, launch, launch_on, map_first, of_pages, pages, read, reservation, rig, view,
};

fn ordered_rig() -> (Scripted, [StreamQueue; 2], Memory) {
    let rig = rig();
    rig.0.core().order_conflicts();
    rig
}

#[test]
fn the_program_orders_its_commands_unless_it_asks_the_core_to() {
    let (device, [one, two], memory) = rig();
    fill(&device, &one, &memory, LOW);
    fill(&device, &two, &memory, LOW);
    assert_after(&device, &[]);
}

#[test]
fn conflicting_commands_of_different_queues_are_put_in_order() {
    let (device, [one, two], memory) = ordered_rig();
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

/// What is known of a queue that is in order: a later command stands for an earlier one only where nothing conflicts with the earlier one alone.
#[test]
fn a_command_comes_after_all_that_it_conflicts_with_of_another_queue() {
    use Access::{Read, Write};
    let at = |start, end| Region::from(start..end);
    for (first, second, third, after) in [
        // The second stands for the first.
        ((Write, LOW), (Write, LOW), (Read, LOW), [false, true]),
        (
            (Write, at(16, 32)),
            (Write, LOW),
            (Write, LOW),
            [false, true],
        ),
        ((Write, at(0, 16)), (Write, LOW), (Read, LOW), [false, true]),
        (
            (Write, at(112, 128)),
            (Write, LOW),
            (Read, LOW),
            [false, true],
        ),
        ((Read, LOW), (Write, LOW), (Write, LOW), [false, true]),
        ((Read, LOW), (Write, LOW), (Read, LOW), [false, true]),
        ((Read, LOW), (Read, LOW), (Write, LOW), [false, true]),
        // It does not: a read lets another read pass, which must not pass the write before.
        ((Write, LOW), (Read, LOW), (Read, LOW), [true, false]),
        ((Write, LOW), (Read, LOW), (Write, LOW), [true, true]),
        ((Read, LOW), (Read, LOW), (Read, LOW), [false, false]),
        // It does not, as it leaves bytes of the first out.
        (
            (Write, LOW),
            (Write, at(0, 127)),
            (Read, at(127, 128)),
            [true, false],
        ),
        (
            (Write, LOW),
            (Write, at(1, 128)),
            (Read, at(0, 1)),
            [true, false],
        ),
        (
            (Write, LOW),
            (Write, at(16, 32)),
            (Read, at(16, 32)),
            [true, true],
        ),
        (
            (Read, LOW),
            (Write, at(0, 127)),
            (Write, at(127, 128)),
            [true, false],
        ),
        (
            (Read, LOW),
            (Read, at(1, 128)),
            (Write, at(0, 1)),
            [true, false],
        ),
        // Neighbours share no byte.
        (
            (Write, at(0, 64)),
            (Write, at(64, 128)),
            (Write, at(63, 64)),
            [true, false],
        ),
        (
            (Write, at(0, 64)),
            (Write, at(64, 128)),
            (Write, at(64, 65)),
            [false, true],
        ),
        (
            (Write, at(0, 64)),
            (Write, at(64, 128)),
            (Write, at(63, 65)),
            [true, true],
        ),
    ] {
        let (device, [one, two], memory) = ordered_rig();
        let use_it = |queue, (access, region)| match access {
            Write => fill(&device, queue, &memory, region),
            Read => read(&device, queue, &memory, region),
        };
        let earlier = [use_it(&one, first), use_it(&one, second)];
        let which = [first, second, third];
        use_it(&two, third);
        let found = device.last().after;
        let is_there = |mark: &Mark| found.iter().any(|other| other.is(mark));
        assert_eq!(earlier.each_ref().map(is_there), after, "{which:?}");
    }
}

#[test]
fn each_transfer_conflicts_as_it_reads_or_writes() {
    type Transfer = fn(&Scripted, &StreamQueue, &Memory, &Memory) -> Mark;
    let transfers: [(&str, bool, Transfer); 5] = [
        ("a fill", true, |device, queue, memory, _| {
            fill(device, queue, memory, LOW)
        }),
        ("a write", true, |device, queue, memory, _| {
            let written = device.enqueue_write(queue, memory, 0, [1; 128].into());
            written.unwrap().mark().clone()
        }),
        ("a read", false, |device, queue, memory, _| {
            read(device, queue, memory, LOW)
        }),
        ("a copy from it", false, copy),
        ("a copy to it", true, |device, queue, memory, other| {
            let copied = device.enqueue_copy(queue, other, LOW, memory, 0);
            copied.unwrap().mark().clone()
        }),
    ];
    for (name, writes, transfer) in transfers {
        let (device, [one, two], memory) = ordered_rig();
        let earlier = transfer(&device, &one, &memory, &buffer(&device));
        read(&device, &two, &memory, LOW);
        assert_eq!(device.last().after.len(), usize::from(writes), "{name}");
        fill(&device, &two, &memory, LOW);
        assert_after(&device, &[&earlier]);
        // The other way around.
        let (device, [one, two], memory) = ordered_rig();
        read(&device, &one, &memory, LOW);
        transfer(&device, &two, &memory, &buffer(&device));
        assert_eq!(device.last().after.len(), usize::from(writes), "{name}");
    }
}

#[test]
fn a_command_of_one_queue_does_not_stand_for_that_of_another() {
    let (device, [one, two], memory) = rig();
    let [first, second] = [&one, &two].map(|queue| fill(&device, queue, &memory, LOW));
    device.core().order_conflicts();
    read(&device, &in_order(&device), &memory, LOW);
    assert_after(&device, &[&first, &second]);
    let (device, [one, two], memory) = ordered_rig();
    let [first, second] = [&one, &two].map(|queue| read(&device, queue, &memory, LOW));
    fill(&device, &in_order(&device), &memory, LOW);
    assert_after(&device, &[&first, &second]);
}

#[test]
fn views_of_a_block_conflict_by_the_bytes_of_the_block() {
    let (device, [one, two], memory) = ordered_rig();
    let upper = view(&device, &memory, HIGH);
    let written = fill(&device, &one, &upper, Region::first(128));
    read(&device, &two, &memory, LOW);
    assert_after(&device, &[]);
    read(&device, &two, &memory, HIGH);
    assert_after(&device, &[&written]);
    // A view of a view.
    let end = view(&device, &upper, Region::new(64, 64));
    let written = fill(&device, &two, &end, Region::first(64));
    read(&device, &one, &memory, Region::new(128, 64));
    assert_after(&device, &[]);
    read(&device, &one, &memory, Region::new(192, 64));
    assert_after(&device, &[&written]);
}

#[test]
fn a_kernel_counts_as_writing_all_memory_that_it_is_passed() {
    let (device, [one, two], memory) = ordered_rig();
    let upper = view(&device, &memory, HIGH);
    let launched = launch_on(&device, &one, &upper);
    read(&device, &two, &memory, LOW);
    assert_after(&device, &[]);
    let reading = read(&device, &two, &memory, Region::new(255, 1));
    assert_after(&device, &[&launched]);
    launch_on(&device, &one, &memory);
    assert_eq!(device.last().after.len(), 2); // The reads of the other queue.
    let launched = launch_on(&device, &one, &upper);
    assert_after(&device, &[&reading]);
    launch_on(&device, &two, &upper);
    assert!(device.last().after.iter().any(|mark| mark.is(&launched)));
}

#[test]
fn a_kernel_comes_after_what_conflicts_with_each_of_its_arguments() {
    let (device, [one, two], _) = ordered_rig();
    let memory = [(); 3].map(|()| buffer(&device));
    let written = memory
        .each_ref()
        .map(|one_of| fill(&device, &one, one_of, LOW));
    let parts = memory
        .each_ref()
        .map(|one_of| one_of.part_of_kernel().unwrap());
    let launched = launch(&device, &two, &parts.each_ref()).unwrap();
    assert_after(&device, &written.each_ref());
    for one_of in &memory {
        read(&device, &one, one_of, HIGH);
        assert_after(&device, &[&launched]);
    }
}

#[test]
fn a_part_of_a_command_is_used_as_its_access_says() {
    let (device, [one, two], memory) = ordered_rig();
    let part = |region, access| memory.part(region, access).unwrap();
    let parts = [part(LOW, Access::Read), part(HIGH, Access::Write)];
    let launched = launch(&device, &one, &parts.each_ref()).unwrap();
    read(&device, &two, &memory, LOW);
    assert_after(&device, &[]);
    read(&device, &two, &memory, HIGH);
    assert_after(&device, &[&launched]);
    fill(&device, &two, &memory, LOW);
    assert_after(&device, &[&launched]);
}

#[test]
fn a_command_uses_all_its_parts_of_one_block_though_one_lies_around_another() {
    for is_around_first in [false, true] {
        let (device, [one, two], memory) = ordered_rig();
        let inside = memory.part(LOW, Access::Read).unwrap();
        let parts = [inside, memory.part_of_kernel().unwrap()];
        let mut parts = parts.each_ref();
        if is_around_first {
            parts.reverse();
        }
        let launched = launch(&device, &one, &parts).unwrap();
        for region in [LOW, HIGH] {
            read(&device, &two, &memory, region);
            assert_after(&device, &[&launched]);
        }
    }
}

#[test]
fn a_copy_comes_after_what_conflicts_on_either_side() {
    // Either block may be the one with the lower address.
    let (device, [one, two], memory) = ordered_rig();
    let other = buffer(&device);
    for (from, to) in [(&memory, &other), (&other, &memory)] {
        let source = fill(&device, &one, from, LOW);
        let target = read(&device, &one, to, HIGH);
        let copied = copy(&device, &two, from, to);
        let after = device.last().after;
        assert!(
            [&source, &target]
                .iter()
                .all(|mark| after.iter().any(|other| other.is(mark)))
        );
        // Its source may be read further, and its target not.
        read(&device, &one, from, LOW);
        assert!(!device.last().after.iter().any(|mark| mark.is(&copied)));
        for (memory, region) in [(from, LOW), (to, HIGH)] {
            fill(&device, &one, memory, region);
            assert!(device.last().after.iter().any(|mark| mark.is(&copied)));
        }
        for command in device.commands() {
            command.mark.set(EventStatus::Complete);
        }
    }
}

#[test]
fn a_copy_inside_a_block_locks_it_once_and_uses_both_its_places() {
    let (device, [one, two], memory) = ordered_rig();
    let source = fill(&device, &one, &memory, LOW);
    let copied = copy(&device, &two, &memory, &memory);
    assert_after(&device, &[&source]);
    read(&device, &one, &memory, LOW);
    assert_after(&device, &[]);
    read(&device, &one, &memory, HIGH);
    assert_after(&device, &[&copied]);
    fill(&device, &in_order(&device), &memory, LOW);
    assert!(device.last().after.iter().any(|mark| mark.is(&copied)));
}

#[test]
fn a_command_comes_after_its_wait_list_as_well_as_after_what_it_conflicts_with() {
    let (device, [one, two], memory) = rig();
    let events = [
        device.enqueue_marker(&one).unwrap(),
        device.enqueue_marker(&two).unwrap(),
        device.create_user_event().unwrap(),
    ];
    let marks = events.each_ref().map(CoreEvent::mark);
    let filled = device
        .enqueue_fill(one.after(&events), &memory, LOW, &[1_u8])
        .unwrap();
    assert_after(&device, &marks);
    device.core().order_conflicts();
    let read = device.enqueue_read(two.after(&events[..2]), &memory, LOW);
    drop(read.unwrap());
    assert_after(&device, &[marks[0], marks[1], filled.mark()]);
}

#[test]
fn a_command_that_has_ended_is_not_waited_for() {
    let (device, [one, two], memory) = ordered_rig();
    for status in [EventStatus::Complete, EventStatus::Failed] {
        fill(&device, &one, &memory, LOW).set(status);
        fill(&device, &two, &memory, LOW).set(status);
        assert_after(&device, &[]);
    }
    // A command whose progress the runtime cannot tell is.
    let lost = fill(&device, &one, &memory, LOW);
    lost.lose();
    fill(&device, &two, &memory, LOW);
    assert_after(&device, &[&lost]);
}

#[test]
fn commands_of_an_out_of_order_queue_conflict_with_each_other() {
    let (device, _, memory) = ordered_rig();
    let queue = device.create_queue(QueueOrder::OutOfOrder).unwrap();
    let first = fill(&device, &queue, &memory, LOW);
    let second = fill(&device, &queue, &memory, LOW);
    assert_after(&device, &[&first]);
    read(&device, &queue, &memory, LOW);
    assert_after(&device, &[&first, &second]);
}

#[test]
fn a_command_stands_for_no_earlier_one_where_failures_lose_the_order() {
    for failure_order in [FailureOrder::FailsEarly, FailureOrder::Lost] {
        let device = Scripted::of(failure_order, None);
        device.core().order_conflicts();
        let ([one, two], memory) = ([(); 2].map(|()| in_order(&device)), buffer(&device));
        let first = fill(&device, &one, &memory, LOW);
        let second = fill(&device, &one, &memory, LOW);
        read(&device, &two, &memory, LOW);
        assert_after(&device, &[&first, &second]);
    }
}

#[test]
fn no_command_is_forgotten_however_many_there_are() {
    let (device, [one, two], memory) = ordered_rig();
    let at = |index: usize| Region::new(2 * index, 1);
    let pending: Vec<_> = (0..20)
        .map(|index| fill(&device, &one, &memory, at(index)))
        .collect();
    for index in 20..100 {
        fill(&device, &one, &memory, at(index)).set(EventStatus::Complete);
    }
    fill(&device, &two, &memory, Region::first(256));
    assert_after(&device, &pending.iter().collect::<Vec<_>>());
}

#[test]
fn commands_that_have_ended_are_forgotten() {
    let device = Scripted::of(FailureOrder::Lost, None);
    let (queue, memory) = (in_order(&device), buffer(&device));
    let pending = 40;
    for _ in 0..pending {
        fill(&device, &queue, &memory, LOW);
        device.fail(Call::Submit);
        device
            .enqueue_fill(&queue, &memory, LOW, &[1_u8])
            .unwrap_err();
    }
    for _ in 0..1000 {
        fill(&device, &queue, &memory, LOW).set(EventStatus::Complete);
        device.fail(Call::Submit);
        device
            .enqueue_fill(&queue, &memory, LOW, &[1_u8])
            .unwrap_err();
        device.last().mark.set(EventStatus::Failed);
    }
    assert!(device.kept_marks() < 4 * pending, "{}", device.kept_marks());
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
    let (device, [one, two], memory) = ordered_rig();
    device.set(|options| options.transfers_directly = true);
    let written = fill(&device, &one, &memory, LOW);
    device.set(|options| options.status = EventStatus::Complete);
    device.write(&two, &memory, 3, &[1_u8; 16]).unwrap();
    assert_after(&device, &[&written]);
    assert_eq!(
        device.last().told,
        Told::Write(Region::new(3, 16), vec![1; 16])
    );
    let mut bytes = [0_u8; 1];
    device.read(&two, &memory, 5, &mut bytes).unwrap();
    assert_after(&device, &[&written]);
    assert_eq!(
        (device.last().told, bytes),
        (Told::Read(Region::new(5, 1)), [7])
    );
}

#[test]
fn memory_at_two_addresses_is_put_in_order_by_address() {
    let (device, [one, two], _) = ordered_rig();
    let [first, second] = [(); 2].map(|()| reservation(&device));
    let both = pages(&device, 2);
    for reservation in [&first, &second] {
        VirtualMemory::map(&device, reservation, 0, &both).unwrap();
    }
    let written = fill(&device, &one, &first, of_pages(0, 1));
    read(&device, &two, &second, of_pages(0, 1));
    assert_after(&device, &[]);
    read(&device, &two, &first, of_pages(1, 1));
    assert_after(&device, &[]);
    read(&device, &two, &first, of_pages(0, 1));
    assert_after(&device, &[&written]);
}

#[test]
fn a_kernel_on_a_reservation_conflicts_with_all_of_its_pages() {
    let (device, [one, two], _) = ordered_rig();
    let reservation = reservation(&device);
    map_first(&device, &reservation, &[1, 1]);
    let launched = launch_on(&device, &one, &reservation);
    read(&device, &two, &reservation, Region::new(2 * PAGE - 1, 1));
    assert_after(&device, &[&launched]);
}

#[test]
fn a_command_on_a_view_of_released_memory_comes_after_the_events_of_its_release() {
    let (device, [one, two], memory) = ordered_rig();
    let rest = view(&device, &memory, HIGH);
    let marker = device.enqueue_marker(&one).unwrap();
    device.release(memory, from_ref(&marker)).unwrap();
    read(&device, &two, &rest, Region::first(16));
    assert_after(&device, &[marker.mark()]);
}

#[test]
fn a_captured_command_conflicts_with_nothing() {
    let (device, [one, two], memory) = ordered_rig();
    device.set(|options| options.captures = true);
    fill(&device, &one, &memory, LOW);
    device.set(|options| options.captures = false);
    fill(&device, &two, &memory, LOW);
    assert_after(&device, &[]);
}

/// Lets another thread come as far as it can while the next command is being enqueued. Returns what it did.
fn while_enqueuing<T: Send + 'static>(
    device: &Scripted,
    other: impl FnOnce() -> T + Send + 'static,
) -> impl FnOnce() -> T {
    let (send, receive) = mpsc::channel();
    device.at(Call::Submit, move || {
        let other = thread::spawn(other);
        for _ in 0..1000 {
            if other.is_finished() {
                break;
            }
            thread::yield_now();
        }
        send.send(other).unwrap();
        Ok(())
    });
    move || receive.recv().unwrap().join().unwrap()
}

#[test]
fn a_command_that_another_thread_is_enqueuing_counts() {
    let (device, [one, two], memory) = ordered_rig();
    let (clone, same) = (device.clone(), view(&device, &memory, LOW));
    let other = while_enqueuing(&device, move || {
        let read = read(&clone, &two, &same, LOW);
        let commands = clone.commands();
        commands
            .into_iter()
            .find(|command| command.mark.is(&read))
            .unwrap()
    });
    let first = fill(&device, &one, &memory, LOW);
    let second = other();
    assert!(
        second.after.iter().any(|mark| mark.is(&first)),
        "the threads' commands race"
    );
}

#[test]
fn the_last_command_of_a_queue_is_the_last_that_its_stream_got() {
    let (device, [one, _], memory) = rig();
    let (clone, same, queue) = (device.clone(), view(&device, &memory, LOW), one.clone());
    let other = while_enqueuing(&device, move || fill(&clone, &queue, &same, LOW));
    let first = fill(&device, &one, &memory, LOW);
    let second = other();
    drop(memory);
    first.set(EventStatus::Complete);
    assert_eq!(device.blocks(), 1, "the second command may still run");
    second.set(EventStatus::Complete);
    assert_eq!(device.blocks(), 0);
}

#[test]
fn a_thread_that_is_late_to_note_its_command_does_not_forget_a_later_one() {
    let (device, [one, _], memory) = rig();
    let (send, receive) = mpsc::channel();
    let (clone, same, queue) = (device.clone(), view(&device, &memory, LOW), one.clone());
    device.at(Call::AskIfCaptured, move || {
        // As another thread could.
        send.send(fill(&clone, &queue, &same, LOW)).unwrap();
        Ok(())
    });
    let first = fill(&device, &one, &memory, LOW);
    let second = receive.recv().unwrap();
    drop(memory);
    first.set(EventStatus::Complete);
    assert_eq!(device.blocks(), 1, "the second command may still run");
    second.set(EventStatus::Complete);
    assert_eq!(device.blocks(), 0);
}
