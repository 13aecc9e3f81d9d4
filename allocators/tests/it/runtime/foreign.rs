//! Objects of other devices: refused before the runtime is called, unless the device is of the same family and shares them.

use std::slice::from_ref;

use binpool_allocators::{
    Backend, EventStatus, FailureOrder, InvalidRequest, MemoryFlags, ObjectKind, Outcome,
    Queue as _, VirtualMemory,
    runtime::{Access, CoreEvent},
};

use super::{
    HIGH, LOW, Memory, StreamQueue, assert_after, buffer, copy,
    device::{PAGE, Scripted},
    fill, in_order, launch, pages, refusal, reservation, view,
};

struct Side {
    device: Scripted,
    queue: StreamQueue,
    memory: Memory,
    event: CoreEvent<Scripted>,
}

impl Side {
    fn new(family: Option<usize>) -> Self {
        let device = Scripted::of(FailureOrder::Kept, family);
        Self {
            queue: in_order(&device),
            memory: buffer(&device),
            event: device.create_user_event().unwrap(),
            device,
        }
    }
}

fn foreign(kind: ObjectKind) -> InvalidRequest {
    InvalidRequest::ForeignObject { kind }
}

#[test]
fn objects_of_another_device_are_refused() {
    use ObjectKind::{Event, Memory, Queue};
    // Devices of no family are not related to each other, nor is one of a family to one of none.
    for families in [
        (None, None),
        (Some(1), None),
        (None, Some(1)),
        (Some(1), Some(2)),
    ] {
        let (here, there) = (Side::new(families.0), Side::new(families.1));
        let own = &here.device;
        let (own_queue, own_event) = (&here.queue, here.event.clone());
        let events = [own_event, there.event.clone()];
        let last = own_queue.after(&events);
        let part = here.memory.part_of_kernel().unwrap();
        let other_part = there.memory.part_of_kernel().unwrap();
        let refused = [
            (Queue, own.check_queue(&there.queue)),
            (Queue, own.enqueue_marker(&there.queue).map(drop)),
            (
                Queue,
                own.enqueue_fill(&there.queue, &here.memory, LOW, &[1_u8])
                    .map(drop),
            ),
            (Queue, own.commit(&there.queue, &here.memory)),
            (Queue, own.write(&there.queue, &here.memory, 0, &[1_u8])),
            (Queue, own.read(&there.queue, &here.memory, 0, &mut [1_u8])),
            (Event, own.enqueue_marker(last).map(drop)),
            (Event, own.write(last, &here.memory, 0, &[1_u8])),
            (Event, own.read(last, &here.memory, 0, &mut [1_u8])),
            (
                Event,
                own.resolve_user_event(&there.event, Outcome::Complete),
            ),
            (Memory, own.commit(own_queue, &there.memory)),
            (Memory, own.create_sub_region(&there.memory, LOW).map(drop)),
            (
                Memory,
                own.enqueue_fill(own_queue, &there.memory, LOW, &[1_u8])
                    .map(drop),
            ),
            (
                Memory,
                own.enqueue_read(own_queue, &there.memory, LOW).map(drop),
            ),
            (
                Memory,
                own.enqueue_write(own_queue, &there.memory, 0, [1].into())
                    .map(drop),
            ),
            (
                Memory,
                own.enqueue_copy(own_queue, &there.memory, LOW, &here.memory, 0)
                    .map(drop),
            ),
            (
                Memory,
                own.enqueue_copy(own_queue, &here.memory, LOW, &there.memory, 0)
                    .map(drop),
            ),
            (Memory, own.write(own_queue, &there.memory, 0, &[1_u8])),
            (Memory, own.read(own_queue, &there.memory, 0, &mut [1_u8])),
            (
                Memory,
                launch(own, own_queue, &[&other_part, &part]).map(drop),
            ),
            (
                Memory,
                launch(own, own_queue, &[&part, &other_part]).map(drop),
            ),
        ];
        for (index, (kind, refused)) in refused.into_iter().enumerate() {
            assert_eq!(refusal(refused), foreign(kind), "call {index}");
        }
        let commands = own.commands().len() + there.device.commands().len();
        assert_eq!(commands, 0, "the runtime was called");
        assert_eq!(there.event.mark().get(), EventStatus::Pending);
    }
}

#[test]
fn devices_of_a_family_take_each_others_queues_and_events_and_copy_to_each_other() {
    let [here, there] = [(); 2].map(|()| Side::new(Some(1)));
    here.device.check_queue(&there.queue).unwrap();
    fill(&here.device, &there.queue, &here.memory, LOW);
    let events = [there.event.clone(), here.event.clone()];
    here.device
        .enqueue_marker(here.queue.after(&events))
        .unwrap();
    assert_after(&here.device, &[there.event.mark(), here.event.mark()]);
    let copied = copy(&here.device, &here.queue, &here.memory, &there.memory);
    let back = copy(&here.device, &here.queue, &there.memory, &here.memory);
    let arguments = [&there.memory, &here.memory].map(|memory| memory.part_of_kernel().unwrap());
    let launched = launch(&here.device, &here.queue, &arguments.each_ref()).unwrap();
    drop(arguments);
    here.device
        .resolve_user_event(&there.event, Outcome::Complete)
        .unwrap();
    assert_eq!(there.event.mark().get(), EventStatus::Complete);
    // The memory of both lives until the last of them has ended.
    drop((here.memory, there.memory));
    for mark in [copied, back, launched] {
        assert_eq!((here.device.blocks(), there.device.blocks()), (1, 1));
        mark.set(EventStatus::Complete);
    }
    let [first, ..] = &here.device.commands()[..] else {
        unreachable!()
    };
    assert_eq!(
        (here.device.blocks(), there.device.blocks()),
        (1, 0),
        "the fill is pending"
    );
    first.mark.set(EventStatus::Complete);
    assert_eq!(here.device.blocks(), 0);
}

#[test]
fn what_only_the_own_device_may_do_is_refused_in_a_family_too() {
    let [here, there] = [(); 2].map(|()| Side::new(Some(1)));
    let own = &here.device;
    let (queue, other) = (&here.queue, &there.memory);
    for refused in [
        own.commit(queue, other),
        own.create_sub_region(other, LOW).map(drop),
        own.enqueue_fill(queue, other, LOW, &[1_u8]).map(drop),
        own.enqueue_read(queue, other, LOW).map(drop),
        own.enqueue_write(queue, other, 0, [1].into()).map(drop),
        own.write(queue, other, 0, &[1_u8]),
        own.read(queue, other, 0, &mut [1_u8]),
    ] {
        assert_eq!(refusal(refused), foreign(ObjectKind::Memory));
    }
    let refused = own.release(there.memory, &[]);
    assert_eq!(refusal(refused), foreign(ObjectKind::Memory));
    assert_eq!(there.device.blocks(), 0);
}

#[test]
fn memory_is_released_after_events_of_its_family() {
    let [here, there] = [(); 2].map(|()| Side::new(Some(1)));
    let events = [here.event.clone(), there.event.clone()];
    here.device.release(here.memory, &events).unwrap();
    for event in events {
        assert_eq!(here.device.blocks(), 1);
        there
            .device
            .resolve_user_event(&event, Outcome::Complete)
            .unwrap();
    }
    assert_eq!(here.device.blocks(), 0);
}

#[test]
fn a_release_that_is_refused_frees_the_memory_after_its_commands() {
    for is_foreign_first in [false, true] {
        let [here, there] = [(); 2].map(|()| Side::new(None));
        let used = fill(&here.device, &here.queue, &here.memory, LOW);
        let mut events = [here.event, there.event];
        if is_foreign_first {
            events.reverse();
        }
        let refused = here.device.release(here.memory, &events);
        assert_eq!(refusal(refused), foreign(ObjectKind::Event));
        assert_eq!(here.device.blocks(), 1);
        used.set(EventStatus::Complete);
        assert_eq!(here.device.blocks(), 0, "the events do not count");
    }
    let [here, there] = [(); 2].map(|()| Side::new(None));
    let used = fill(&there.device, &there.queue, &there.memory, LOW);
    let refused = here.device.release(there.memory, from_ref(&here.event));
    assert_eq!(refusal(refused), foreign(ObjectKind::Memory));
    assert_eq!(there.device.blocks(), 1);
    used.set(EventStatus::Complete);
    assert_eq!(there.device.blocks(), 0);
}

#[test]
fn pages_and_reservations_of_another_device_are_refused() {
    for family in [None, Some(1)] {
        let [here, there] = [(); 2].map(|()| Scripted::of(FailureOrder::Kept, family));
        let [own, other] = [&here, &there].map(reservation);
        let [own_page, other_page] = [&here, &there].map(|device| pages(device, 1));
        VirtualMemory::map(&there, &other, 2 * PAGE, &other_page).unwrap();
        let region = (2 * PAGE..3 * PAGE).into();
        for refused in [
            VirtualMemory::map(&here, &own, 0, &other_page),
            VirtualMemory::map(&here, &other, 0, &own_page),
            VirtualMemory::unmap(&here, &other, region),
        ] {
            assert_eq!(refusal(refused), foreign(ObjectKind::Memory));
        }
        assert_eq!(here.commands().len(), 0);
        assert!(other.part(region, Access::Read).is_ok());
    }
}

#[test]
fn a_view_of_another_devices_memory_is_refused_as_well() {
    let [here, there] = [(); 2].map(|()| Side::new(None));
    let part = view(&there.device, &there.memory, HIGH);
    let refused = here.device.create_sub_region(&part, LOW);
    assert_eq!(refusal(refused), foreign(ObjectKind::Memory));
    let refused = here.device.release(part, &[]);
    assert_eq!(refusal(refused), foreign(ObjectKind::Memory));
    assert_eq!(Backend::limits(&here.device), here.device.core().limits());
    drop(here.device.create_buffer(1, MemoryFlags::empty()).unwrap());
}
