//! When pages are unmapped: whole ones, that no command uses.

use binpool_allocators::{
    Error, EventStatus, InvalidRequest, Region, Result, VirtualMemory, runtime::Access,
};

use super::{
    Memory, ORDERS,
    device::{Call, PAGE, Scripted, Told},
    fill, in_order, launch, map_first, of_pages, pages, refusal, reservation, view,
};

/// A reservation with pages 0, 1 to 2, and 3.
fn mapped() -> (Scripted, Memory) {
    let device = Scripted::new();
    let reservation = reservation(&device);
    map_first(&device, &reservation, &[1, 2, 1]);
    (device, reservation)
}

fn unmap(device: &Scripted, reservation: &Memory, first: usize, count: usize) -> Result<()> {
    VirtualMemory::unmap(device, reservation, of_pages(first, count))
}

#[track_caller]
fn assert_in_use(device: &Scripted, reservation: &Memory, first: usize, count: usize) {
    let Region { offset, bytes } = of_pages(first, count);
    let refused = unmap(device, reservation, first, count);
    assert_eq!(refusal(refused), InvalidRequest::InUse { offset, bytes });
}

#[track_caller]
fn assert_not_mapped(device: &Scripted, reservation: &Memory, first: usize, count: usize) {
    let Region { offset, bytes } = of_pages(first, count);
    let refused = unmap(device, reservation, first, count);
    assert_eq!(
        refusal(refused),
        InvalidRequest::NotMapped { offset, bytes }
    );
}

/// Checks that commands may use all four pages.
#[track_caller]
fn assert_usable(reservation: &Memory) {
    reservation.part(of_pages(0, 4), Access::Write).unwrap();
}

#[test]
fn whole_pages_are_unmapped_in_one_piece_or_in_several() {
    // The pieces that may be unmapped together: those that cut none.
    for first in 0..4 {
        for count in 1..=4 - first {
            let (device, reservation) = mapped();
            if first == 2 || first + count == 2 {
                assert_not_mapped(&device, &reservation, first, count);
                assert_usable(&reservation);
                continue;
            }
            unmap(&device, &reservation, first, count).unwrap();
            assert_eq!(device.last().told, Told::Unmap(of_pages(first, count)));
            for page in 0..4 {
                let is_mapped = reservation.part(of_pages(page, 1), Access::Read).is_ok();
                assert_eq!(is_mapped, !(first..first + count).contains(&page));
            }
            // What is gone may be mapped again, and what stays is unmapped without it.
            assert_not_mapped(&device, &reservation, first, count);
            let fresh = pages(&device, count);
            VirtualMemory::map(&device, &reservation, first * PAGE, &fresh).unwrap();
            assert_usable(&reservation);
        }
    }
}

#[test]
fn an_unmap_that_begins_or_ends_beside_what_is_mapped_is_refused() {
    let (device, reservation) = mapped();
    for (first, count) in [(3, 2), (4, 1), (0, 6), (1, 1)] {
        assert_not_mapped(&device, &reservation, first, count);
    }
    unmap(&device, &reservation, 1, 2).unwrap();
    assert_not_mapped(&device, &reservation, 0, 4); // A gap.
    let cut = Region::new(1, PAGE - 1);
    let refused = VirtualMemory::unmap(&device, &reservation, cut);
    assert!(matches!(refusal(refused), InvalidRequest::NotMapped { .. }));
    let calls = device.commands().len();
    VirtualMemory::unmap(&device, &reservation, Region::new(PAGE, 0)).unwrap();
    assert_eq!(device.commands().len(), calls, "there was nothing to do");
    for page in [0, 3] {
        reservation.part(of_pages(page, 1), Access::Write).unwrap();
    }
}

#[test]
fn pages_are_unmapped_once_all_commands_that_use_them_have_ended() {
    // Whichever of the pieces a command uses.
    for (page, order) in (0..4).flat_map(|page| ORDERS.map(|order| (page, order))) {
        let (device, reservation) = mapped();
        let queues = [(); 3].map(|()| in_order(&device));
        let marks = queues.map(|queue| fill(&device, &queue, &reservation, of_pages(page, 1)));
        for index in order {
            assert_in_use(&device, &reservation, 0, 4);
            assert_usable(&reservation);
            marks[index].set(EventStatus::Failed);
        }
        unmap(&device, &reservation, 0, 4).unwrap();
        assert_eq!(device.blocks(), 1);
    }
}

#[test]
fn pages_are_unmapped_while_commands_use_others() {
    let (device, reservation) = mapped();
    let queue = in_order(&device);
    fill(&device, &queue, &reservation, of_pages(1, 2));
    unmap(&device, &reservation, 0, 1).unwrap();
    unmap(&device, &reservation, 3, 1).unwrap();
    assert_in_use(&device, &reservation, 1, 2);
}

#[test]
fn pages_of_a_command_that_is_being_enqueued_are_not_unmapped() {
    let (device, reservation) = mapped();
    for page in 0..4 {
        let parts = [(); 2].map(|()| reservation.part(of_pages(page, 1), Access::Read).unwrap());
        for part in parts {
            assert_in_use(&device, &reservation, 0, 4);
            drop(part);
        }
        let part = view(&device, &reservation, of_pages(page, 1));
        let part = part.part_of_kernel().map(drop);
        part.unwrap();
    }
    let kernel = reservation.part_of_kernel().unwrap();
    assert_in_use(&device, &reservation, 0, 1);
    assert_in_use(&device, &reservation, 3, 1);
    drop(kernel);
    let queue = in_order(&device);
    let (clone, same) = (device.clone(), view(&device, &reservation, of_pages(0, 4)));
    device.at(Call::Submit, move || {
        // As another thread could meanwhile.
        assert_in_use(&clone, &same, 0, 1);
        unmap(&clone, &same, 1, 3)
    });
    let used = fill(&device, &queue, &reservation, of_pages(0, 1));
    assert!(device.has_acted());
    assert_in_use(&device, &reservation, 0, 1);
    used.set(EventStatus::Complete);
    unmap(&device, &reservation, 0, 1).unwrap();
}

#[test]
fn an_unmap_that_fails_leaves_the_pages_mapped() {
    let (device, reservation) = mapped();
    device.fail(Call::Unmap);
    let failed = unmap(&device, &reservation, 0, 4);
    assert!(matches!(failed, Err(Error::Backend(_))));
    assert_usable(&reservation);
    assert_eq!(device.blocks(), 4);
    unmap(&device, &reservation, 0, 4).unwrap();
    assert_eq!(device.blocks(), 1);
}

#[test]
fn pages_stay_mapped_if_the_runtime_cannot_tell_whether_commands_have_ended() {
    let (device, reservation) = mapped();
    let used = fill(&device, &in_order(&device), &reservation, of_pages(3, 1));
    used.lose();
    let calls = device.commands().len();
    let failed = unmap(&device, &reservation, 0, 4);
    assert!(matches!(failed, Err(Error::Backend(_))));
    assert_eq!(
        device.commands().len(),
        calls,
        "the runtime was told to unmap them"
    );
    assert_usable(&reservation);
    used.set(EventStatus::Complete);
    unmap(&device, &reservation, 0, 4).unwrap();
}

#[test]
fn pages_that_are_being_unmapped_are_used_by_no_thread() {
    for fails in [false, true] {
        let (device, reservation) = mapped();
        let (clone, same) = (device.clone(), view(&device, &reservation, of_pages(0, 6)));
        device.at(Call::Unmap, move || {
            // As other threads could meanwhile.
            for page in 1..4 {
                refusal(same.part(of_pages(page, 1), Access::Read));
            }
            same.part(of_pages(0, 1), Access::Read).unwrap();
            assert_not_mapped(&clone, &same, 3, 1);
            assert_not_mapped(&clone, &same, 0, 4);
            let map = VirtualMemory::map(&clone, &same, 3 * PAGE, &pages(&clone, 1));
            assert!(matches!(refusal(map), InvalidRequest::AlreadyMapped { .. }));
            drop(same.part_of_kernel().unwrap());
            let failure = Error::unsupported("unmapping");
            if fails { Err(failure) } else { Ok(()) }
        });
        assert_eq!(unmap(&device, &reservation, 1, 3).is_err(), fails);
        assert!(device.has_acted());
        for page in 0..4 {
            let is_mapped = reservation.part(of_pages(page, 1), Access::Read).is_ok();
            assert_eq!(is_mapped, fails || page == 0, "page {page}");
        }
    }
}

#[test]
fn a_kernel_that_is_launched_while_an_unmapping_fails_uses_the_pages_that_stay() {
    for is_mapped_again in [false, true] {
        let (device, reservation) = mapped();
        let (clone, same) = (device.clone(), view(&device, &reservation, of_pages(0, 6)));
        let queue = in_order(&device);
        device.at(Call::Unmap, move || {
            // As another thread could meanwhile.
            launch(&clone, &queue, &[&same.part_of_kernel()?])?;
            if is_mapped_again {
                return Ok(());
            }
            Err(Error::unsupported("unmapping"))
        });
        assert_eq!(
            unmap(&device, &reservation, 1, 2).is_err(),
            !is_mapped_again
        );
        assert!(device.has_acted());
        if is_mapped_again {
            // It is the program's to know that the kernel does not touch these.
            VirtualMemory::map(&device, &reservation, PAGE, &pages(&device, 2)).unwrap();
            unmap(&device, &reservation, 1, 2).unwrap();
        } else {
            assert_in_use(&device, &reservation, 1, 2);
        }
        assert_in_use(&device, &reservation, 0, 1);
    }
}

#[test]
fn pages_that_end_as_they_are_unmapped_may_use_their_reservation() {
    let (device, reservation) = mapped();
    let (clone, same) = (device.clone(), view(&device, &reservation, of_pages(0, 6)));
    device.at(Call::Free, move || {
        // The end of memory may call the program.
        same.part(of_pages(0, 1), Access::Read).map(drop)?;
        unmap(&clone, &same, 0, 1)
    });
    unmap(&device, &reservation, 1, 2).unwrap();
    assert!(device.has_acted());
    assert_eq!(device.blocks(), 2);
}
