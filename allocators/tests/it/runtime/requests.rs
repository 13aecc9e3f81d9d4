//! Requests are checked before the runtime is called, and told in its terms.

use binpool_allocators::{
    Align, AsMemory, Backend, Error, EventStatus, HostUse, InvalidRequest, Memory as _,
    MemoryFlags, MemoryKind, Queue as _, Region, VirtualMemory,
    runtime::{Access, CoreEvent, adopt_block},
};

use super::{
    ALL, HIGH, LOW, assert_after, buffer, copy,
    device::{LARGEST_BLOCK, LARGEST_RESERVATION, PAGE, Scripted, Told},
    fill, map_first, of_pages, pages, refusal, reservation, rig, view,
};

#[test]
fn blocks_of_impossible_sizes_or_flags_are_refused() {
    let device = Scripted::new();
    let create = |bytes, flags| device.create_buffer(bytes, flags);
    let none = MemoryFlags::empty();
    assert_eq!(refusal(create(0, none)), InvalidRequest::ZeroSize);
    let too_large = |requested, largest| InvalidRequest::TooLarge { requested, largest };
    let requested = LARGEST_BLOCK + 1;
    assert_eq!(
        refusal(create(requested, none)),
        too_large(requested, LARGEST_BLOCK)
    );
    let flags = MemoryFlags::READ_ONLY | MemoryFlags::WRITE_ONLY;
    let refused = InvalidRequest::ContradictoryFlags { flags };
    assert_eq!(refusal(create(256, flags)), refused);
    assert_eq!(device.blocks(), 0);
    assert_eq!(create(LARGEST_BLOCK, none).unwrap().bytes(), LARGEST_BLOCK);
    assert_eq!(create(1, none).unwrap().bytes(), 1);
}

#[test]
fn views_lie_inside_their_memory_and_are_aligned_in_its_block() {
    let (device, _, memory) = rig();
    let upper = view(&device, &memory, HIGH);
    let end = view(&device, &upper, Region::new(112, 16));
    assert_eq!(
        [&upper, &end].map(|view| (view.offset(), view.bytes())),
        [(128, 128), (240, 16)]
    );
    assert!(memory.has_views() && upper.has_views() && !end.has_views());
    assert_ne!(end.id(), upper.id());
    assert_eq!(end.kind(), MemoryKind::Buffer);
    let refused = |of: &_, region| refusal(device.create_sub_region(of, region));
    let (offset, alignment) = (136, device.limits().alignment);
    let misaligned = InvalidRequest::Misaligned { offset, alignment };
    assert_eq!(refused(&upper, Region::new(8, 16)), misaligned);
    assert_eq!(
        refused(&memory, Region::new(16, 0)),
        InvalidRequest::ZeroSize
    );
    let (offset, bytes, size) = (16, 128, 128);
    let outside = InvalidRequest::OutOfBounds {
        offset,
        bytes,
        size,
    };
    assert_eq!(refused(&upper, Region::new(16, 128)), outside);
    drop(end);
    drop(upper);
    assert!(!memory.has_views());
    assert_eq!(AsMemory::<Scripted>::size(&memory), 256);
}

#[test]
fn commands_are_told_the_places_of_the_block() {
    let (device, [one, _], memory) = rig();
    let upper = view(&device, &memory, HIGH);
    let (at, there) = (Region::new(16, 32), Region::new(144, 32));
    fill(&device, &one, &upper, at);
    assert_eq!(device.last().told, Told::Fill(there, vec![1]));
    let pattern = |pattern: &[u8]| {
        device.enqueue_fill(&one, &upper, at, pattern).unwrap();
        let Told::Fill(region, pattern) = device.last().told else {
            unreachable!()
        };
        assert_eq!(region, there);
        pattern
    };
    assert_eq!(pattern(&[1, 2]), [1, 2]);
    assert_eq!(pattern(&[1, 1, 1, 2]), [1, 1, 1, 2]);
    assert_eq!(pattern(&[3, 3, 3, 3]), [3], "one byte again and again");
    device
        .enqueue_write(&one, &upper, 16, [5; 32].into())
        .unwrap();
    assert_eq!(device.last().told, Told::Write(there, vec![5; 32]));
    drop(device.enqueue_read(&one, &upper, at).unwrap());
    assert_eq!(device.last().told, Told::Read(there));
    device.enqueue_copy(&one, &upper, at, &memory, 0).unwrap();
    assert_eq!(device.last().told, Told::Copy(there, Region::first(32)));
    device.enqueue_copy(&one, &memory, at, &upper, 64).unwrap();
    assert_eq!(device.last().told, Told::Copy(at, Region::new(192, 32)));
    device.commit(&one, &upper).unwrap();
    assert_eq!(device.last().told, Told::Commit(HIGH));
    device.enqueue_marker(&one).unwrap();
    assert_eq!(device.last().told, Told::Marker);
    device.enqueue_barrier(&one).unwrap();
    assert_eq!(device.last().told, Told::Barrier);
}

#[test]
fn a_command_over_no_bytes_is_a_marker_after_its_wait_list() {
    let (device, [one, two], memory) = rig();
    let event = device.enqueue_marker(&one).unwrap();
    let (wait_for, none) = ([event.clone()], Region::new(256, 0));
    let after = two.after(&wait_for);
    let told = || {
        assert_after(&device, &[event.mark()]);
        device.last().told
    };
    device.enqueue_fill(after, &memory, none, &[1_u8]).unwrap();
    assert_eq!(told(), Told::Marker);
    device
        .enqueue_write(after, &memory, 256, [].into())
        .unwrap();
    assert_eq!(told(), Told::Marker);
    drop(device.enqueue_read(after, &memory, none).unwrap());
    assert_eq!(told(), Told::Marker);
    device
        .enqueue_copy(after, &memory, none, &memory, 7)
        .unwrap();
    assert_eq!(told(), Told::Marker);
    device
        .enqueue_fill(after, &memory, Region::new(255, 1), &[1_u8])
        .unwrap();
    assert_eq!(told(), Told::Fill(Region::new(255, 1), vec![1]));
}

#[test]
fn transfers_that_wait_come_after_their_wait_list() {
    let (device, [one, two], memory) = rig();
    let events = [&one, &two].map(|queue| device.enqueue_marker(queue).unwrap());
    let marks = events.each_ref().map(CoreEvent::mark);
    device.set(|options| options.status = EventStatus::Complete);
    for directly in [false, true] {
        device.set(|options| options.transfers_directly = directly);
        device
            .write(two.after(&events), &memory, 0, &[1_u8])
            .unwrap();
        assert_after(&device, &marks);
        device
            .read(two.after(&events), &memory, 0, &mut [1_u8])
            .unwrap();
        assert_after(&device, &marks);
    }
}

#[test]
fn commands_out_of_bounds_are_refused() {
    let (device, [one, _], memory) = rig();
    let upper = view(&device, &memory, HIGH);
    let (offset, bytes, size) = (127, 2, 128);
    let at = Region::new(offset, bytes);
    for refused in [
        device.enqueue_fill(&one, &upper, at, &[1_u8]).map(drop),
        device.enqueue_read(&one, &upper, at).map(drop),
        device
            .enqueue_write(&one, &upper, offset, [1, 2].into())
            .map(drop),
        device.enqueue_copy(&one, &upper, at, &memory, 0).map(drop),
        device
            .enqueue_copy(&one, &memory, Region::first(2), &upper, offset)
            .map(drop),
        device.write(&one, &upper, offset, &[1_u8; 2]),
        device.read(&one, &upper, offset, &mut [1_u8; 2]),
        upper.part(at, Access::Read).map(drop),
    ] {
        let outside = InvalidRequest::OutOfBounds {
            offset,
            bytes,
            size,
        };
        assert_eq!(refusal(refused), outside);
    }
    assert_eq!(device.commands().len(), 0);
}

#[test]
fn a_pattern_that_does_not_fit_is_refused() {
    let (device, [one, _], memory) = rig();
    let fill = |pattern: &[u8]| device.enqueue_fill(&one, &memory, Region::new(16, 6), pattern);
    let (offset, bytes, pattern) = (16, 6, 4);
    let refused = InvalidRequest::PatternMismatch {
        offset,
        bytes,
        pattern,
    };
    for pattern in [[1; 4], [1, 2, 3, 4]] {
        assert_eq!(refusal(fill(&pattern)), refused);
    }
    assert_eq!(device.commands().len(), 0);
}

#[test]
fn a_copy_that_overlaps_itself_is_refused() {
    let (device, [one, _], memory) = rig();
    let copy = |from: Region, to| device.enqueue_copy(&one, &memory, from, &memory, to);
    for (from, to) in [
        (Region::new(64, 64), 127),
        (Region::new(64, 64), 1),
        (LOW, 0),
    ] {
        let (bytes, from_at) = (from.bytes, from.offset);
        let overlapping = InvalidRequest::OverlappingCopy {
            from: from_at,
            to,
            bytes,
        };
        assert_eq!(refusal(copy(from, to)), overlapping);
    }
    copy(Region::new(64, 64), 128).unwrap();
    copy(Region::new(64, 64), 0).unwrap();
    // The same places of two blocks are different bytes.
    device
        .enqueue_copy(&one, &memory, LOW, &buffer(&device), 0)
        .unwrap();
}

#[test]
fn the_host_uses_memory_as_its_flags_say() {
    let device = Scripted::new();
    let queue = super::in_order(&device);
    for (flags, reads, writes) in [
        (MemoryFlags::HOST_READ_ONLY, true, false),
        (MemoryFlags::HOST_WRITE_ONLY, false, true),
        (MemoryFlags::HOST_NO_ACCESS, false, false),
    ] {
        device.set(|options| options.transfers_directly = true);
        let memory = device.create_buffer(256, flags).unwrap();
        for (is_allowed, way, result) in [
            (
                reads,
                HostUse::Read,
                device.enqueue_read(&queue, &memory, LOW).map(drop),
            ),
            (
                reads,
                HostUse::Read,
                device.read(&queue, &memory, 0, &mut [0_u8]),
            ),
            (
                writes,
                HostUse::Write,
                device
                    .enqueue_write(&queue, &memory, 0, [1].into())
                    .map(drop),
            ),
            (
                writes,
                HostUse::Write,
                device.write(&queue, &memory, 0, &[0_u8]),
            ),
        ] {
            if is_allowed {
                result.unwrap();
            } else {
                assert_eq!(refusal(result), InvalidRequest::HostAccess { way, flags });
            }
        }
        fill(&device, &queue, &memory, LOW);
        copy(&device, &queue, &memory, &memory);
    }
}

#[test]
fn an_address_is_that_of_the_first_byte() {
    let (device, _, memory) = rig();
    let start = memory.device_address().unwrap();
    let upper = view(&device, &memory, HIGH);
    assert_eq!(upper.device_address().unwrap(), start + 128);
    let part = upper.part(Region::new(3, 5), Access::Write).unwrap();
    assert_eq!(part.address(), Some(start + 131));
    assert_eq!(
        (part.region(), part.access()),
        (Region::new(131, 5), Access::Write)
    );
    let part = upper.part(LOW, Access::Read).unwrap();
    assert_eq!((part.region(), part.access()), (HIGH, Access::Read));
    let part = upper.part_of_kernel().unwrap();
    assert_eq!((part.region(), part.address()), (HIGH, Some(start + 128)));
    let part = memory.part_of_kernel().unwrap();
    assert_eq!((part.region(), part.access()), (ALL, Access::Write));
}

#[test]
fn reservations_and_pages_are_whole_pages() {
    let device = Scripted::new();
    let reserve = |bytes| VirtualMemory::reserve(&device, bytes);
    let create = |bytes| VirtualMemory::create_pages(&device, bytes);
    for (bytes, whole) in [(1, PAGE), (PAGE, PAGE), (PAGE + 1, 2 * PAGE)] {
        assert_eq!(reserve(bytes).unwrap().bytes(), whole);
        let pages = create(bytes).unwrap();
        assert_eq!(
            (pages.bytes(), pages.block().unwrap().bytes),
            (whole, whole)
        );
    }
    let too_large = |requested, largest| InvalidRequest::TooLarge { requested, largest };
    for bytes in [LARGEST_RESERVATION + 1, usize::MAX] {
        assert_eq!(
            refusal(reserve(bytes)),
            too_large(bytes, LARGEST_RESERVATION)
        );
    }
    for bytes in [LARGEST_BLOCK + 1, usize::MAX] {
        assert_eq!(refusal(create(bytes)), too_large(bytes, LARGEST_BLOCK));
    }
    reserve(LARGEST_RESERVATION).unwrap();
    create(LARGEST_BLOCK).unwrap();
    for refused in [reserve(0), create(0)] {
        assert_eq!(refusal(refused), InvalidRequest::ZeroSize);
    }
    assert_eq!(VirtualMemory::page_bytes(&device), PAGE);
    device.set(|options| options.page_bytes = 0);
    for refused in [reserve(PAGE), create(PAGE)] {
        assert!(
            matches!(refused, Err(Error::Unsupported { .. })),
            "{refused:?}"
        );
    }
}

#[test]
fn pages_have_no_address_and_take_no_command() {
    let device = Scripted::new();
    let (queue, pages) = (super::in_order(&device), pages(&device, 1));
    assert_eq!(pages.kind(), MemoryKind::Pages);
    for refused in [
        device
            .enqueue_fill(&queue, &pages, Region::first(1), &[1_u8])
            .map(drop),
        device.create_sub_region(&pages, Region::first(1)).map(drop),
        device.commit(&queue, &pages),
        pages.part(Region::first(1), Access::Read).map(drop),
        pages.part_of_kernel().map(drop),
        pages.device_address().map(drop),
    ] {
        assert!(
            matches!(refused, Err(Error::Unsupported { .. })),
            "{refused:?}"
        );
    }
    let reservation = reservation(&device);
    assert_eq!(reservation.kind(), MemoryKind::Buffer);
    reservation.device_address().unwrap();
    // Nor does a buffer where memory is without addresses.
    let block = device.block(64, MemoryFlags::empty(), None);
    // SAFETY: the block is of this device, and of this size.
    let memory = unsafe { adopt_block(&device, block, 64, MemoryFlags::empty()) };
    assert!(matches!(
        memory.device_address(),
        Err(Error::Unsupported { .. })
    ));
    assert_eq!(memory.part_of_kernel().unwrap().address(), None);
}

#[test]
fn a_map_of_what_is_no_page_or_to_what_is_no_reservation_is_refused() {
    let (device, _, memory) = rig();
    let (reservation, page) = (reservation(&device), pages(&device, 1));
    for refused in [
        VirtualMemory::map(&device, &reservation, 0, &memory),
        VirtualMemory::map(&device, &reservation, 0, &reservation),
        VirtualMemory::map(&device, &memory, 0, &page),
        VirtualMemory::map(&device, &page, 0, &page),
        VirtualMemory::unmap(&device, &memory, of_pages(0, 1)),
    ] {
        assert!(
            matches!(refused, Err(Error::Unsupported { .. })),
            "{refused:?}"
        );
    }
    let map = |at| VirtualMemory::map(&device, &reservation, at, &page);
    let (offset, alignment) = (PAGE / 2, Align::new(PAGE).unwrap());
    let misaligned = InvalidRequest::Misaligned { offset, alignment };
    assert_eq!(refusal(map(PAGE / 2)), misaligned);
    let (offset, bytes, size) = (6 * PAGE, PAGE, 6 * PAGE);
    let outside = InvalidRequest::OutOfBounds {
        offset,
        bytes,
        size,
    };
    assert_eq!(refusal(map(6 * PAGE)), outside);
    let refused = VirtualMemory::unmap(&device, &reservation, of_pages(6, 1));
    assert_eq!(refusal(refused), outside);
    assert_eq!(device.commands().len(), 0);
    map(5 * PAGE).unwrap();
    assert_eq!(device.last().told, Told::Map(of_pages(5, 1)));
}

#[test]
fn a_view_of_a_reservation_is_mapped_and_unmapped_by_its_own_places() {
    let device = Scripted::new();
    let reservation = reservation(&device);
    let upper = view(&device, &reservation, of_pages(2, 2));
    VirtualMemory::map(&device, &upper, PAGE, &pages(&device, 1)).unwrap();
    assert_eq!(device.last().told, Told::Map(of_pages(3, 1)));
    let refused = VirtualMemory::map(&device, &upper, 2 * PAGE, &pages(&device, 1));
    refusal(refused);
    assert!(reservation.part(of_pages(3, 1), Access::Read).is_ok());
    VirtualMemory::unmap(&device, &upper, of_pages(1, 1)).unwrap();
    assert_eq!(device.last().told, Told::Unmap(of_pages(3, 1)));
    map_first(&device, &reservation, &[1]);
}

#[test]
fn pages_are_mapped_at_whole_pages_of_the_reservation_wherever_a_view_of_it_begins() {
    let device = Scripted::new();
    let reservation = reservation(&device);
    let page = pages(&device, 1);
    let (offset, alignment) = (16, Align::new(PAGE).unwrap());
    let within = view(&device, &reservation, Region::new(offset, 3 * PAGE));
    let misaligned = InvalidRequest::Misaligned { offset, alignment };
    let refused = VirtualMemory::map(&device, &within, 0, &page);
    assert_eq!(refusal(refused), misaligned);
    VirtualMemory::map(&device, &within, PAGE - offset, &page).unwrap();
    assert_eq!(device.last().told, Told::Map(of_pages(1, 1)));
    let mapped = Region::new(PAGE - offset, PAGE);
    VirtualMemory::unmap(&device, &within, mapped).unwrap();
    assert_eq!(device.last().told, Told::Unmap(of_pages(1, 1)));
}
