//! What a failed call keeps.

use std::panic::{AssertUnwindSafe, catch_unwind};

use binpool_allocators::{Backend, Error, EventStatus, Result, VirtualMemory};

use super::{
    ALL, HIGH, LOW, Memory, StreamQueue, assert_after, buffer, copy,
    device::{Call, Mark, Scripted, Told},
    fill, launch, map_first, of_pages, read, reservation, rig, view,
};

/// Has the next command fail, and returns the mark of what it has enqueued nevertheless.
#[track_caller]
fn failing<T>(device: &Scripted, enqueue: impl FnOnce() -> Result<T>) -> Mark {
    device.fail(Call::Submit);
    assert!(matches!(enqueue(), Err(Error::Backend(_))));
    device.last().mark
}

fn failing_fill(device: &Scripted, queue: &StreamQueue, memory: &Memory) -> Mark {
    failing(device, || device.enqueue_fill(queue, memory, LOW, &[1_u8]))
}

#[test]
fn what_a_failed_call_may_have_enqueued_keeps_its_memory() {
    let (device, [one, two], memory) = rig();
    let rest = failing_fill(&device, &one, &memory);
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
fn a_failed_call_that_has_enqueued_nothing_keeps_nothing() {
    let (device, [one, two], memory) = rig();
    device.fail(Call::AfterFailure);
    failing_fill(&device, &one, &memory);
    assert!(device.has_acted());
    device.core().order_conflicts();
    read(&device, &two, &memory, LOW).set(EventStatus::Complete);
    assert_after(&device, &[]);
    drop(memory);
    assert_eq!(device.blocks(), 0);
}

#[test]
fn a_failed_call_keeps_each_of_its_blocks() {
    let (device, [one, _], memory) = rig();
    let others = [(); 2].map(|()| buffer(&device));
    let parts = [&others[0], &memory, &others[1]].map(|memory| memory.part_of_kernel().unwrap());
    let rest = failing(&device, || launch(&device, &one, &parts.each_ref()));
    drop(parts);
    drop((memory, others));
    assert_eq!(device.blocks(), 3);
    rest.set(EventStatus::Failed);
    assert_eq!(device.blocks(), 0);
}

#[test]
fn a_failed_call_does_not_stand_for_the_commands_before_it() {
    let (device, [one, _], memory) = rig();
    let before = fill(&device, &one, &memory, ALL);
    let rest = failing_fill(&device, &one, &memory);
    drop(memory);
    rest.set(EventStatus::Complete);
    assert_eq!(device.blocks(), 1);
    before.set(EventStatus::Complete);
    assert_eq!(device.blocks(), 0);
}

#[test]
fn a_later_command_does_not_stand_for_a_failed_call() {
    let (device, [one, _], memory) = rig();
    let rest = failing_fill(&device, &one, &memory);
    let after = fill(&device, &one, &memory, ALL);
    drop(memory);
    after.set(EventStatus::Complete);
    assert_eq!(device.blocks(), 1);
    rest.set(EventStatus::Complete);
    assert_eq!(device.blocks(), 0);
}

#[test]
fn many_failed_calls_are_all_kept() {
    let (device, [one, _], memory) = rig();
    let rests: Vec<_> = (0..40)
        .map(|_| failing_fill(&device, &one, &memory))
        .collect();
    drop(memory);
    for rest in rests.iter().rev() {
        assert_eq!(device.blocks(), 1);
        rest.set(EventStatus::Complete);
    }
    assert_eq!(device.blocks(), 0);
}

#[test]
fn a_failed_call_keeps_a_block_that_is_freed_in_order() {
    let (device, [one, _], memory) = rig();
    let block = memory.block().unwrap();
    block
        .is_freed_in_order
        .store(true, std::sync::atomic::Ordering::Relaxed);
    let rest = failing_fill(&device, &one, &memory);
    drop(memory);
    assert_eq!(device.blocks(), 1);
    rest.set(EventStatus::Complete);
    assert_eq!(device.blocks(), 0);
}

#[test]
fn a_failed_transfer_without_a_copy_keeps_its_memory() {
    type Transfer = fn(&Scripted, &StreamQueue, &Memory) -> Result<()>;
    let transfers: [(Transfer, Told); 2] = [
        (
            |device, queue, memory| device.write(queue, memory, 16, &[1_u8; 16]),
            Told::WriteDirectly((16..32).into()),
        ),
        (
            |device, queue, memory| device.read(queue, memory, 16, &mut [0_u8; 16]),
            Told::ReadDirectly((16..32).into()),
        ),
    ];
    for (transfer, told) in transfers {
        let (device, [one, _], memory) = rig();
        device.set(|options| options.transfers_directly = true);
        transfer(&device, &one, &memory).unwrap();
        assert_eq!(device.last().told, told);
        device.fail(Call::Transfer);
        transfer(&device, &one, &memory).unwrap_err();
        let rest = device.last().mark;
        drop(memory);
        assert_eq!(device.blocks(), 1);
        rest.set(EventStatus::Complete);
        assert_eq!(device.blocks(), 0);
    }
}

#[test]
fn a_transfer_without_a_copy_that_has_ended_keeps_nothing() {
    let (device, [one, _], memory) = rig();
    device.set(|options| options.transfers_directly = true);
    device.write(&one, &memory, 0, &[1_u8; 16]).unwrap();
    drop(memory);
    assert_eq!(device.blocks(), 0);
}

#[test]
fn pages_that_a_failed_call_may_use_stay_mapped_and_allocated() {
    for by_reservation in [false, true] {
        let (device, [one, _], memory) = rig();
        drop(memory);
        let reservation = reservation(&device);
        map_first(&device, &reservation, &[1, 1, 1]);
        let region = of_pages(0, 2);
        let rest = failing(&device, || {
            device.enqueue_fill(&one, &reservation, region, &[1_u8])
        });
        for page in 0..2 {
            let unmapped = VirtualMemory::unmap(&device, &reservation, of_pages(page, 1));
            unmapped.unwrap_err();
        }
        VirtualMemory::unmap(&device, &reservation, of_pages(2, 1)).unwrap();
        assert_eq!(device.blocks(), 3);
        if by_reservation {
            drop(reservation);
            assert_eq!(device.blocks(), 3);
            rest.set(EventStatus::Complete);
        } else {
            rest.set(EventStatus::Complete);
            VirtualMemory::unmap(&device, &reservation, region).unwrap();
            drop(reservation);
        }
        assert_eq!(device.blocks(), 0);
    }
}

/// What a failed call may have enqueued is asked for without a lock, since a runtime may wait there for a thread that enqueues.
#[test]
fn other_commands_are_enqueued_while_a_failed_call_is_looked_at() {
    for orders_conflicts in [false, true] {
        let (device, [one, _], memory) = rig();
        if orders_conflicts {
            device.core().order_conflicts();
        }
        let (clone, queue, same) = (device.clone(), one.clone(), view(&device, &memory, LOW));
        device.at(Call::AfterFailure, move || {
            copy(&clone, &queue, &buffer(&clone), &buffer(&clone));
            fill(&clone, &queue, &same, LOW);
            Ok(())
        });
        device.fail(Call::Submit);
        device
            .enqueue_fill(&one, &memory, LOW, &[1_u8])
            .unwrap_err();
        assert!(device.has_acted());
    }
}

#[test]
fn a_command_whose_call_panics_holds_nothing_up() {
    for orders_conflicts in [false, true] {
        let (device, [one, two], memory) = rig();
        if orders_conflicts {
            device.core().order_conflicts();
        }
        device.at(Call::Submit, || panic!("on purpose"));
        let panics = catch_unwind(AssertUnwindSafe(|| fill(&device, &one, &memory, LOW)));
        assert!(panics.is_err());
        for queue in [&one, &two] {
            fill(&device, queue, &memory, LOW).set(EventStatus::Complete);
        }
        drop(memory);
        assert_eq!(device.blocks(), 0);
    }
}
