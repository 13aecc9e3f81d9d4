//! What is mapped to a reservation: where, until when, and which commands may use it.

use std::sync::mpsc;

use binpool_allocators::{
    Error, EventStatus, InvalidRequest, Region, VirtualMemory, runtime::Access,
};

use super::{
    LOW, Memory, ORDERS, assert_after, buffer,
    device::{Call, Mark, PAGE, Scripted},
    fill, in_order, launch, launch_on, map_first, of_pages, pages, read, refusal, reservation,
    view,
};

fn map(device: &Scripted, reservation: &Memory, at: usize, pages: &Memory) {
    VirtualMemory::map(device, reservation, at * PAGE, pages).unwrap();
}

fn is_mapped(reservation: &Memory, region: Region) -> bool {
    let part = reservation.part(region, Access::Write);
    match part {
        Ok(_) => true,
        refused => {
            let Region { offset, bytes } = region;
            assert_eq!(
                refusal(refused),
                InvalidRequest::NotMapped { offset, bytes }
            );
            false
        }
    }
}

#[test]
fn pages_are_mapped_beside_others_but_not_over_them() {
    // Two pages at 2, and others of one to three pages anywhere.
    for count in 1..=3 {
        for at in 0..=6 - count {
            let device = Scripted::new();
            let reservation = reservation(&device);
            map(&device, &reservation, 2, &pages(&device, 2));
            let others = pages(&device, count);
            let mapped = VirtualMemory::map(&device, &reservation, at * PAGE, &others);
            let (offset, bytes) = (at * PAGE, count * PAGE);
            if at + count <= 2 || at >= 4 {
                mapped.unwrap();
            } else {
                let refused = InvalidRequest::AlreadyMapped { offset, bytes };
                assert_eq!(refusal(mapped), refused, "{count} at {at}");
                assert_eq!(device.commands().len(), 1, "the runtime was called");
            }
            assert!(is_mapped(&reservation, of_pages(2, 2)));
        }
    }
}

#[test]
fn a_command_uses_only_what_is_mapped_without_a_gap() {
    let device = Scripted::new();
    let reservation = reservation(&device);
    // Pages 0 and 1 in one piece, page 2, a gap, page 4, a gap.
    map_first(&device, &reservation, &[2, 1]);
    map(&device, &reservation, 4, &pages(&device, 1));
    for (first, last) in
        (0..6 * PAGE).flat_map(|first| (first..6 * PAGE).map(move |last| (first, last)))
    {
        let mapped = |byte: usize| byte < 3 * PAGE || (4 * PAGE..5 * PAGE).contains(&byte);
        let expected = (first..=last).all(mapped);
        assert_eq!(
            is_mapped(&reservation, (first..last + 1).into()),
            expected,
            "{first} to {last}"
        );
    }
    // No bytes are everywhere.
    assert!(is_mapped(&reservation, Region::new(4 * PAGE - 1, 0)));
    assert!(is_mapped(&reservation, Region::new(6 * PAGE, 0)));
}

#[test]
fn a_view_of_a_reservation_has_the_pages_of_its_place() {
    let device = Scripted::new();
    let reservation = reservation(&device);
    map(&device, &reservation, 3, &pages(&device, 1));
    let upper = view(&device, &reservation, of_pages(2, 3));
    assert!(upper.part(of_pages(1, 1), Access::Read).is_ok());
    let (offset, bytes) = (2 * PAGE, PAGE);
    let refused = upper.part(of_pages(0, 1), Access::Read);
    assert_eq!(
        refusal(refused),
        InvalidRequest::NotMapped { offset, bytes }
    );
}

/// Drops everything, and checks that these blocks are left until the mark has ended.
#[track_caller]
fn assert_left_until(device: &Scripted, mark: &Mark, blocks: usize) {
    assert_eq!(device.blocks(), blocks);
    mark.set(EventStatus::Complete);
    assert_eq!(device.blocks(), 0);
}

#[test]
fn a_reservation_and_the_pages_that_a_command_uses_live_until_it_has_ended() {
    for drop_pages_first in [false, true] {
        let device = Scripted::new();
        let (queue, reservation, page) =
            (in_order(&device), reservation(&device), pages(&device, 2));
        map(&device, &reservation, 1, &page);
        let used = fill(&device, &queue, &reservation, Region::new(2 * PAGE, 1));
        if drop_pages_first {
            drop((page, reservation));
        } else {
            drop(reservation);
            assert_eq!(device.blocks(), 2);
            drop(page);
        }
        assert_left_until(&device, &used, 2);
    }
}

#[test]
fn pages_that_no_command_uses_go_with_their_reservation() {
    let device = Scripted::new();
    let (queue, reservation) = (in_order(&device), reservation(&device));
    map_first(&device, &reservation, &[1, 1, 1, 1]);
    let used = fill(&device, &queue, &reservation, Region::new(PAGE, PAGE + 1));
    drop(reservation);
    assert_left_until(&device, &used, 3); // The reservation, and the second and third page.
}

#[test]
fn pages_outlive_their_reservation_until_the_commands_on_it_have_ended() {
    for order in ORDERS {
        let device = Scripted::new();
        let queues = [(); 3].map(|()| in_order(&device));
        let (reservation, page) = (reservation(&device), pages(&device, 1));
        map(&device, &reservation, 0, &page);
        let fill = |queue| fill(&device, queue, &reservation, of_pages(0, 1));
        let marks = queues.each_ref().map(fill);
        drop(reservation);
        assert_eq!(device.blocks(), 2);
        // The program may map the pages elsewhere, and drop them.
        let other = super::reservation(&device);
        map(&device, &other, 5, &page);
        drop((page, other));
        for index in order {
            assert_eq!(device.blocks(), 2, "{order:?}: {index} is pending");
            marks[index].set(EventStatus::Complete);
        }
        assert_eq!(device.blocks(), 0);
    }
}

#[test]
fn pages_at_two_addresses_live_until_the_commands_on_both_have_ended() {
    for first in 0..2 {
        let device = Scripted::new();
        let (queue, page) = (in_order(&device), pages(&device, 1));
        let reservations = [(); 2].map(|()| reservation(&device));
        let marks = reservations.each_ref().map(|reservation| {
            map(&device, reservation, 0, &page);
            fill(&device, &queue, reservation, of_pages(0, 1))
        });
        drop((page, reservations));
        assert_eq!(device.blocks(), 3);
        marks[first].set(EventStatus::Complete);
        assert_eq!(device.blocks(), 2);
        marks[1 - first].set(EventStatus::Complete);
        assert_eq!(device.blocks(), 0);
    }
}

#[test]
fn pages_live_as_long_as_they_are_mapped() {
    let device = Scripted::new();
    let reservation = reservation(&device);
    map_first(&device, &reservation, &[1, 1]);
    assert_eq!(device.blocks(), 3);
    VirtualMemory::unmap(&device, &reservation, of_pages(0, 1)).unwrap();
    assert_eq!(device.blocks(), 2);
    drop(view(&device, &reservation, of_pages(0, 1)));
    let part = view(&device, &reservation, of_pages(1, 1));
    drop(reservation);
    assert_eq!(device.blocks(), 2, "a view keeps them");
    drop(part);
    assert_eq!(device.blocks(), 0);
}

#[test]
fn a_kernel_uses_what_is_mapped_of_its_memory_and_no_more() {
    let device = Scripted::new();
    let (queue, reservation) = (in_order(&device), reservation(&device));
    map_first(&device, &reservation, &[1, 1, 1]);
    map(&device, &reservation, 5, &pages(&device, 1));
    // Of a view from the middle of the second page to the last page's start.
    let part = view(&device, &reservation, Region::new(PAGE + 16, 4 * PAGE - 16));
    let used = launch_on(&device, &queue, &part);
    for (page, is_used) in [(0, false), (1, true), (2, true), (5, false)] {
        let unmapped = VirtualMemory::unmap(&device, &reservation, of_pages(page, 1));
        assert_eq!(unmapped.is_err(), is_used, "page {page}");
    }
    drop((part, reservation));
    assert_left_until(&device, &used, 3);
}

#[test]
fn a_kernel_does_not_use_the_pages_beside_its_memory() {
    let device = Scripted::new();
    let (queue, reservation) = (in_order(&device), reservation(&device));
    map_first(&device, &reservation, &[1, 1, 1]);
    let middle = view(&device, &reservation, of_pages(1, 1));
    launch_on(&device, &queue, &middle);
    for (page, is_used) in [(0, false), (1, true), (2, false)] {
        let unmapped = VirtualMemory::unmap(&device, &reservation, of_pages(page, 1));
        assert_eq!(unmapped.is_err(), is_used, "page {page}");
    }
}

#[test]
fn a_kernel_on_all_of_a_reservation_uses_all_of_its_pages() {
    let device = Scripted::new();
    let (queue, reservation) = (in_order(&device), reservation(&device));
    map_first(&device, &reservation, &[1, 2]);
    map(&device, &reservation, 4, &pages(&device, 2));
    let used = launch_on(&device, &queue, &reservation);
    drop(reservation);
    assert_left_until(&device, &used, 4);
}

#[test]
fn a_captured_command_does_not_use_pages() {
    let device = Scripted::new();
    let (queue, reservation) = (in_order(&device), reservation(&device));
    map_first(&device, &reservation, &[1]);
    device.set(|options| options.captures = true);
    fill(&device, &queue, &reservation, of_pages(0, 1));
    VirtualMemory::unmap(&device, &reservation, of_pages(0, 1)).unwrap();
    assert_eq!(device.blocks(), 1);
}

#[test]
fn a_map_that_fails_leaves_nothing() {
    let device = Scripted::new();
    let (reservation, page) = (reservation(&device), pages(&device, 1));
    device.fail(Call::Map);
    let failed = VirtualMemory::map(&device, &reservation, PAGE, &page);
    assert!(matches!(failed, Err(Error::Backend(_))));
    assert!(!is_mapped(&reservation, of_pages(1, 1)));
    map(&device, &reservation, 1, &page);
    assert!(is_mapped(&reservation, of_pages(1, 1)));
    device.fail(Call::Map);
    let other = pages(&device, 1);
    VirtualMemory::map(&device, &reservation, 0, &other).unwrap_err();
    drop(other);
    assert_eq!(device.blocks(), 2, "the refused pages are gone");
    assert!(is_mapped(&reservation, of_pages(1, 1)));
}

#[test]
fn pages_that_are_being_mapped_are_used_by_no_thread() {
    let device = Scripted::new();
    let reservation = reservation(&device);
    map_first(&device, &reservation, &[1]);
    let (send, receive) = mpsc::channel();
    let (clone, same) = (device.clone(), view(&device, &reservation, of_pages(0, 6)));
    device.at(Call::Map, move || {
        // As other threads could meanwhile.
        assert!(!is_mapped(&same, of_pages(1, 1)));
        assert!(!is_mapped(&same, of_pages(0, 2)));
        assert!(is_mapped(&same, of_pages(0, 1)));
        let mapped = VirtualMemory::map(&clone, &same, 2 * PAGE, &pages(&clone, 1));
        let (offset, bytes) = (2 * PAGE, PAGE);
        assert_eq!(
            refusal(mapped),
            InvalidRequest::AlreadyMapped { offset, bytes }
        );
        for region in [of_pages(1, 2), of_pages(0, 3)] {
            let unmapped = VirtualMemory::unmap(&clone, &same, region);
            let Region { offset, bytes } = region;
            assert_eq!(
                refusal(unmapped),
                InvalidRequest::NotMapped { offset, bytes }
            );
        }
        // A kernel touches only what is mapped.
        let queue = in_order(&clone);
        send.send(launch_on(&clone, &queue, &same)).unwrap();
        map(&clone, &same, 5, &pages(&clone, 1));
        Ok(())
    });
    map(&device, &reservation, 1, &pages(&device, 2));
    assert!(device.has_acted());
    let launched = receive.recv().unwrap();
    assert!(is_mapped(&reservation, of_pages(0, 3)));
    assert!(is_mapped(&reservation, of_pages(5, 1)));
    // The kernel holds the first page, and not those that were not there yet.
    VirtualMemory::unmap(&device, &reservation, of_pages(1, 2)).unwrap();
    VirtualMemory::unmap(&device, &reservation, of_pages(0, 1)).unwrap_err();
    launched.set(EventStatus::Complete);
    VirtualMemory::unmap(&device, &reservation, of_pages(0, 1)).unwrap();
}

#[test]
fn what_was_mapped_before_is_not_in_the_way_of_a_map_that_fails() {
    let device = Scripted::new();
    let (queue, reservation) = (in_order(&device), reservation(&device));
    map_first(&device, &reservation, &[1, 1]);
    let used = fill(&device, &queue, &reservation, of_pages(0, 1));
    let refused = VirtualMemory::map(&device, &reservation, 0, &pages(&device, 1));
    refusal(refused);
    let unmapped = VirtualMemory::unmap(&device, &reservation, of_pages(0, 1));
    let (offset, bytes) = (0, PAGE);
    assert_eq!(refusal(unmapped), InvalidRequest::InUse { offset, bytes });
    used.set(EventStatus::Complete);
    VirtualMemory::unmap(&device, &reservation, of_pages(0, 2)).unwrap();
}

#[test]
fn a_command_uses_each_of_its_reservations() {
    let device = Scripted::new();
    device.core().order_conflicts();
    let (queue, other) = (in_order(&device), in_order(&device));
    let reservations = [(); 2].map(|()| reservation(&device));
    for reservation in &reservations {
        map_first(&device, reservation, &[1]);
    }
    let memory = buffer(&device);
    let [first, last] = reservations
        .each_ref()
        .map(|reservation| reservation.part_of_kernel().unwrap());
    let middle = memory.part_of_kernel().unwrap();
    let used = launch(&device, &queue, &[&first, &middle, &last]).unwrap();
    drop((first, middle, last));
    for reservation in &reservations {
        VirtualMemory::unmap(&device, reservation, of_pages(0, 1)).unwrap_err();
        read(&device, &other, reservation, Region::first(1)).set(EventStatus::Complete);
        assert_after(&device, &[&used]);
    }
    read(&device, &other, &memory, LOW).set(EventStatus::Complete);
    assert_after(&device, &[&used]);
    drop((reservations, memory));
    assert_left_until(&device, &used, 5);
}
