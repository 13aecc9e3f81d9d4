//! What the mock does with virtual memory beside what every backend does: it reports misuse, and its calls can fail.

use binpool_allocators::{
    Backend, Error, Event, InvalidRequest, Outcome, QueueOrder, Region, Transfers, VirtualMemory,
};
use binpool_mock::{
    CallKind, Completion, Fault, MockBackend, MockDevice, MockQueue, Persistence, Violation,
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

#[test]
fn fresh_pages_are_zeros_whatever_was_at_their_addresses() {
    let backend = device().backend();
    let queue = queue(&backend);
    let reservation = backend.reserve(PAGE).unwrap();
    for _ in 0..2 {
        let pages = backend.create_pages(PAGE).unwrap();
        backend.map(&reservation, 0, &pages).unwrap();
        let mut byte = [9];
        backend
            .read(&queue, &reservation, 5, &mut byte, &[])
            .unwrap();
        assert_eq!(byte, [0]);
        backend.write(&queue, &reservation, 5, &[7], &[]).unwrap();
        backend.unmap(&reservation, Region::first(PAGE)).unwrap();
    }
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
fn an_unmap_of_pages_that_a_command_will_use_is_refused_and_reported() {
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
    let refused = backend.unmap(&reservation, Region::first(PAGE));
    assert!(
        matches!(
            refused,
            Err(Error::InvalidRequest(InvalidRequest::InUse { .. }))
        ),
        "{refused:?}"
    );
    let violations = device.violations();
    assert!(
        matches!(violations[..], [Violation::FreedInUse { .. }]),
        "{violations:?}"
    );
    backend
        .resolve_user_event(&gate, Outcome::Complete)
        .unwrap();
    device.run();
    backend.unmap(&reservation, Region::first(PAGE)).unwrap();
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
fn a_device_without_it_says_so() {
    let error = MockDevice::new().backend().reserve(PAGE).unwrap_err();
    assert!(error.to_string().contains("virtual memory"), "{error}");
}
