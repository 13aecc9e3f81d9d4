//! Virtual memory: pages keep their contents where they are mapped, and what is not allowed is refused and changes nothing.

use binpool_allocators::{
    Backend, Error, Event, InvalidRequest, Memory, MemoryFlags, Outcome, QueueOrder, Region,
    Transfers, VirtualMemory,
};
use binpool_mock::{
    CallKind, Completion, Fault, MockBackend, MockDevice, MockMemory, MockQueue, Persistence,
    Violation,
};

const PAGE: usize = 2 << 20;

fn device() -> MockDevice {
    MockDevice::builder()
        .virtual_memory(true)
        .capacity_bytes(64 * PAGE as u64)
        .build()
}

fn queue(backend: &MockBackend) -> MockQueue {
    backend.create_queue(QueueOrder::InOrder).unwrap()
}

fn refusal<T: std::fmt::Debug>(result: Result<T, Error>) -> InvalidRequest {
    match result {
        Err(Error::InvalidRequest(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

fn byte(backend: &MockBackend, queue: &MockQueue, memory: &MockMemory, at: usize) -> u8 {
    let mut byte = [0];
    backend.read(queue, memory, at, &mut byte, &[]).unwrap();
    byte[0]
}

#[test]
fn pages_keep_their_contents_wherever_they_are_mapped() {
    let device = device();
    let backend = device.backend();
    let queue = queue(&backend);
    let one = backend.reserve(8 * PAGE).unwrap();
    let two = backend.reserve(8 * PAGE).unwrap();
    let [a, b] = [(); 2].map(|()| backend.create_pages(PAGE).unwrap());
    backend.map(&one, 0, &a).unwrap();
    backend.map(&one, PAGE, &b).unwrap();
    backend.write(&queue, &one, PAGE - 1, &[1, 2], &[]).unwrap();
    backend.unmap(&one, Region::first(2 * PAGE)).unwrap();
    backend.map(&two, 5 * PAGE, &a).unwrap();
    backend.map(&one, 0, &b).unwrap();
    assert_eq!(byte(&backend, &queue, &two, 6 * PAGE - 1), 1);
    assert_eq!(byte(&backend, &queue, &one, 0), 2);
    // Fresh pages are zeros, although other bytes were at these addresses before.
    backend
        .map(&one, PAGE, &backend.create_pages(PAGE).unwrap())
        .unwrap();
    assert_eq!(byte(&backend, &queue, &one, PAGE), 0);
    assert!(device.violations().is_empty());
}

#[test]
fn only_pages_take_of_the_device() {
    let device = device();
    let backend = device.backend();
    let committed = || device.statistics().committed_bytes;
    let reservation = backend.reserve(1 << 40).unwrap();
    assert_eq!(committed(), 0);
    let pages = backend.create_pages(60 * PAGE).unwrap();
    assert_eq!(committed(), 60 * PAGE as u64);
    assert!(
        backend
            .create_pages(5 * PAGE)
            .unwrap_err()
            .is_out_of_memory()
    );
    // Mapped pages stay until they are unmapped.
    backend.map(&reservation, 0, &pages).unwrap();
    drop(pages);
    assert_eq!(committed(), 60 * PAGE as u64);
    backend
        .unmap(&reservation, Region::first(60 * PAGE))
        .unwrap();
    assert_eq!(committed(), 0);
    backend
        .map(&reservation, 0, &backend.create_pages(PAGE).unwrap())
        .unwrap();
    // A view keeps the reservation, and the end of both unmaps what is left.
    let view = backend
        .create_sub_region(&reservation, Region::first(256))
        .unwrap();
    drop(reservation);
    assert_eq!(committed(), PAGE as u64);
    drop(view);
    assert_eq!((committed(), device.leaks().is_empty()), (0, true));
}

#[test]
fn what_is_refused_changes_nothing() {
    let device = device();
    let backend = device.backend();
    let queue = queue(&backend);
    let reservation = backend.reserve(4 * PAGE).unwrap();
    let [two, one] = [2, 1].map(|pages| backend.create_pages(pages * PAGE).unwrap());
    backend.map(&reservation, PAGE, &two).unwrap();
    let map = |offset, pages| refusal(backend.map(&reservation, offset, pages));
    let unmap = |offset, bytes| refusal(backend.unmap(&reservation, Region::new(offset, bytes)));
    let overlapping = InvalidRequest::AlreadyMapped {
        offset: 2 * PAGE,
        bytes: PAGE,
    };
    assert_eq!(map(2 * PAGE, &one), overlapping);
    assert!(matches!(map(256, &one), InvalidRequest::Misaligned { .. }));
    assert!(matches!(
        map(4 * PAGE, &one),
        InvalidRequest::OutOfBounds { .. }
    ));
    // Half of the pages, and more than they are.
    for (offset, bytes) in [
        (PAGE, PAGE),
        (0, 3 * PAGE),
        (PAGE, 3 * PAGE),
        (3 * PAGE, PAGE),
    ] {
        assert_eq!(
            unmap(offset, bytes),
            InvalidRequest::NotMapped { offset, bytes }
        );
    }
    let other = self::device().backend();
    assert!(matches!(
        refusal(other.map(&reservation, 0, &one)),
        InvalidRequest::ForeignObject { .. }
    ));
    assert_eq!(refusal(backend.reserve(0)), InvalidRequest::ZeroSize);
    assert_eq!(refusal(backend.create_pages(0)), InvalidRequest::ZeroSize);
    // Pages have no addresses, and other memory is no pages.
    assert!(backend.create_sub_region(&one, Region::first(256)).is_err());
    assert!(backend.write(&queue, &one, 0, &[1], &[]).is_err());
    let buffer = backend.create_buffer(PAGE, MemoryFlags::empty()).unwrap();
    assert!(backend.map(&reservation, 0, &buffer).is_err());
    assert!(backend.map(&buffer, 0, &one).is_err());
    backend.map(&reservation, 0, &one).unwrap();
    backend
        .unmap(&reservation, Region::first(3 * PAGE))
        .unwrap();
    assert_eq!(one.bytes(), PAGE);
    assert!(device.violations().is_empty());
}

#[test]
fn a_command_on_addresses_without_memory_is_reported_and_fails() {
    let device = device();
    let backend = device.backend();
    let queue = queue(&backend);
    let reservation = backend.reserve(4 * PAGE).unwrap();
    backend
        .map(&reservation, 0, &backend.create_pages(PAGE).unwrap())
        .unwrap();
    let filled = backend.enqueue_fill(&queue, &reservation, Region::first(PAGE + 1), &[1], &[]);
    assert!(filled.unwrap().wait().is_err());
    let violations = device.violations();
    assert!(
        matches!(
            violations[..],
            [Violation::UseAfterFree {
                call: CallKind::Fill,
                ..
            }]
        ),
        "{violations:?}"
    );
}

#[test]
fn pages_that_a_command_will_use_are_not_to_be_unmapped() {
    let device = MockDevice::builder()
        .virtual_memory(true)
        .completion(Completion::Manual)
        .build();
    let backend = device.backend();
    let queue = queue(&backend);
    let reservation = backend.reserve(4 * PAGE).unwrap();
    for page in 0..2 {
        backend
            .map(
                &reservation,
                page * PAGE,
                &backend.create_pages(PAGE).unwrap(),
            )
            .unwrap();
    }
    let gate = backend.create_user_event().unwrap();
    backend
        .enqueue_fill(
            &queue,
            &reservation,
            Region::first(PAGE),
            &[1],
            std::slice::from_ref(&gate),
        )
        .unwrap();
    backend
        .unmap(&reservation, Region::new(PAGE, PAGE))
        .unwrap();
    assert!(device.violations().is_empty(), "no command uses those");
    backend.unmap(&reservation, Region::first(PAGE)).unwrap();
    let violations = device.violations();
    assert!(
        matches!(violations[..], [Violation::FreedInUse { .. }]),
        "{violations:?}"
    );
    backend
        .resolve_user_event(&gate, Outcome::Complete)
        .unwrap();
}

#[test]
fn each_call_can_fail_and_has_no_effect_then() {
    let device = device();
    let backend = device.backend();
    let reservation = backend.reserve(4 * PAGE).unwrap();
    let pages = backend.create_pages(PAGE).unwrap();
    let region = Region::first(PAGE);
    for kind in [
        CallKind::Reserve,
        CallKind::CreatePages,
        CallKind::Map,
        CallKind::Unmap,
    ] {
        device.fail_nth(kind, 1, Fault::Backend(-5), Persistence::Once);
        let call = || match kind {
            CallKind::Reserve => backend.reserve(PAGE).map(drop),
            CallKind::CreatePages => backend.create_pages(PAGE).map(drop),
            CallKind::Map => backend.map(&reservation, 0, &pages),
            _ => backend.unmap(&reservation, region),
        };
        assert!(call().is_err(), "{kind}");
        call().unwrap();
    }
    assert_eq!(device.statistics().committed_bytes, PAGE as u64);
}

#[test]
fn pages_that_outlive_their_reservation_keep_their_contents() {
    let backend = device().backend();
    let queue = queue(&backend);
    let pages = backend.create_pages(PAGE).unwrap();
    let first = backend.reserve(PAGE).unwrap();
    backend.map(&first, 0, &pages).unwrap();
    backend.write(&queue, &first, 5, &[7], &[]).unwrap();
    drop(first);
    let second = backend.reserve(PAGE).unwrap();
    backend.map(&second, 0, &pages).unwrap();
    assert_eq!(byte(&backend, &queue, &second, 5), 7);
}

#[test]
fn pages_are_mapped_at_one_place_at_a_time() {
    let backend = device().backend();
    let pages = backend.create_pages(PAGE).unwrap();
    let reservation = backend.reserve(4 * PAGE).unwrap();
    backend.map(&reservation, 0, &pages).unwrap();
    let error = backend.map(&reservation, PAGE, &pages).unwrap_err();
    assert!(error.to_string().contains("two places"), "{error}");
    backend.unmap(&reservation, Region::first(PAGE)).unwrap();
    backend.map(&reservation, PAGE, &pages).unwrap();
}

#[test]
fn pages_are_not_committed_by_a_command() {
    let backend = device().backend();
    let pages = backend.create_pages(PAGE).unwrap();
    assert!(backend.commit(&queue(&backend), &pages).is_err());
}

#[test]
fn an_unmap_that_cuts_pages_says_so_wherever_it_starts() {
    let backend = device().backend();
    let reservation = backend.reserve(4 * PAGE).unwrap();
    let pages = backend.create_pages(PAGE).unwrap();
    backend.map(&reservation, 0, &pages).unwrap();
    for (offset, bytes) in [(256, PAGE), (0, 256), (0, 0)] {
        let cut = refusal(backend.unmap(&reservation, Region::new(offset, bytes)));
        assert_eq!(cut, InvalidRequest::NotMapped { offset, bytes });
    }
}

#[test]
fn a_device_without_it_says_so() {
    let error = MockDevice::new().backend().reserve(PAGE).unwrap_err();
    assert!(error.to_string().contains("virtual memory"), "{error}");
}
