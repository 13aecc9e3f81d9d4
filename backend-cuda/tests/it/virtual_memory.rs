//! Pages keep their contents where they are mapped, and what is not allowed is refused and changes nothing.

use std::{fmt::Debug, slice::from_ref, thread};

use binpool_allocators::{
    Backend, Error, Event, InvalidRequest, Memory, MemoryFlags, MemoryKind, Region, Result,
    Transfers, VirtualMemory,
};
use binpool_cuda::{CudaBackend, CudaMemory, CudaQueue};

use crate::common::{Device, PAGE, queue};

fn device() -> Device {
    Device::new(64 * PAGE)
}

fn refusal<T: Debug>(result: Result<T>) -> InvalidRequest {
    match result {
        Err(Error::InvalidRequest(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

fn byte(backend: &CudaBackend, queue: &CudaQueue, memory: &CudaMemory, at: usize) -> u8 {
    let mut byte = [0];
    backend.read(queue, memory, at, &mut byte, &[]).unwrap();
    byte[0]
}

#[test]
fn pages_keep_their_contents_wherever_they_are_mapped() {
    let backend = device().backend();
    assert_eq!(backend.page_bytes(), PAGE);
    let queue = queue(&backend);
    let [one, two] = [(); 2].map(|()| backend.reserve(8 * PAGE).unwrap());
    let [a, b] = [(); 2].map(|()| backend.create_pages(PAGE - 1).unwrap());
    assert_eq!(
        (a.bytes(), a.kind(), one.kind()),
        (PAGE, MemoryKind::Pages, MemoryKind::Buffer)
    );
    backend.map(&one, 0, &a).unwrap();
    backend.map(&one, PAGE, &b).unwrap();
    backend.write(&queue, &one, PAGE - 1, &[1, 2], &[]).unwrap();
    backend.unmap(&one, Region::first(2 * PAGE)).unwrap();
    backend.map(&two, 5 * PAGE, &a).unwrap();
    backend.map(&one, 0, &b).unwrap();
    assert_eq!(byte(&backend, &queue, &two, 6 * PAGE - 1), 1);
    assert_eq!(byte(&backend, &queue, &one, 0), 2);
}

#[test]
fn only_pages_take_of_the_device() {
    let device = device();
    let backend = device.backend();
    let reservation = backend.reserve(1 << 40).unwrap();
    assert_eq!(device.used(), 0);
    let pages = backend.create_pages(60 * PAGE).unwrap();
    assert!(
        backend
            .create_pages(5 * PAGE)
            .unwrap_err()
            .is_out_of_memory()
    );
    // Mapped pages stay until they are unmapped.
    backend.map(&reservation, 0, &pages).unwrap();
    drop(pages);
    assert_eq!(device.used(), 60 * PAGE);
    backend
        .unmap(&reservation, Region::first(60 * PAGE))
        .unwrap();
    assert_eq!(device.used(), 0);
    backend
        .map(&reservation, 0, &backend.create_pages(PAGE).unwrap())
        .unwrap();
    // A view keeps the reservation, and the end of both unmaps what is left.
    let view = backend
        .create_sub_region(&reservation, Region::first(256))
        .unwrap();
    drop(reservation);
    assert_eq!(device.used(), PAGE);
    drop(view);
    assert_eq!(device.used(), 0);
    drop(backend);
    assert_eq!(device.objects(), 0);
}

#[test]
fn what_is_refused_changes_nothing() {
    let backend = device().backend();
    let queue = queue(&backend);
    let reservation = backend.reserve(4 * PAGE).unwrap();
    let [two, one] = [2, 1].map(|pages| backend.create_pages(pages * PAGE).unwrap());
    backend.map(&reservation, PAGE, &two).unwrap();
    let map = |offset, pages| refusal(backend.map(&reservation, offset, pages));
    let unmap = |offset, bytes| refusal(backend.unmap(&reservation, Region::new(offset, bytes)));
    let (offset, bytes) = (2 * PAGE, PAGE);
    assert_eq!(
        map(offset, &one),
        InvalidRequest::AlreadyMapped { offset, bytes }
    );
    let (offset, bytes) = (0, 2 * PAGE);
    assert_eq!(
        map(offset, &two),
        InvalidRequest::AlreadyMapped { offset, bytes }
    );
    assert!(matches!(map(256, &one), InvalidRequest::Misaligned { .. }));
    assert!(matches!(
        map(4 * PAGE, &one),
        InvalidRequest::OutOfBounds { .. }
    ));
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
    let other = device().backend();
    assert!(matches!(
        refusal(other.map(&reservation, 0, &one)),
        InvalidRequest::ForeignObject { .. }
    ));
    assert_eq!(refusal(backend.reserve(0)), InvalidRequest::ZeroSize);
    assert_eq!(refusal(backend.create_pages(0)), InvalidRequest::ZeroSize);
    for bytes in [usize::MAX, usize::MAX / 2] {
        assert!(matches!(
            refusal(backend.reserve(bytes)),
            InvalidRequest::TooLarge { .. }
        ));
        assert!(matches!(
            refusal(backend.create_pages(bytes)),
            InvalidRequest::TooLarge { .. }
        ));
    }
    // Pages have no addresses, and other memory is no pages.
    assert!(backend.create_sub_region(&one, Region::first(256)).is_err());
    assert!(one.cu_device_ptr().is_err());
    assert!(backend.write(&queue, &one, 0, &[1], &[]).is_err());
    assert!(backend.commit(&queue, &one).is_err());
    let buffer = backend.create_buffer(PAGE, MemoryFlags::empty()).unwrap();
    assert!(backend.map(&reservation, 0, &buffer).is_err());
    assert!(backend.map(&buffer, 0, &one).is_err());
    backend.map(&reservation, 0, &one).unwrap();
    backend
        .unmap(&reservation, Region::first(3 * PAGE))
        .unwrap();
}

#[test]
fn a_transfer_without_memory_behind_it_is_refused() {
    let backend = device().backend();
    let queue = queue(&backend);
    let reservation = backend.reserve(4 * PAGE).unwrap();
    backend
        .map(&reservation, 0, &backend.create_pages(PAGE).unwrap())
        .unwrap();
    let fill = backend.enqueue_fill(&queue, &reservation, Region::first(PAGE + 1), &[1], &[]);
    assert!(matches!(refusal(fill), InvalidRequest::NotMapped { .. }));
    let view = backend
        .create_sub_region(&reservation, Region::new(PAGE, PAGE))
        .unwrap();
    let write = backend.write(&queue, &view, 0, &[1], &[]);
    assert!(matches!(refusal(write), InvalidRequest::NotMapped { .. }));
    backend
        .map(&view, 0, &backend.create_pages(PAGE).unwrap())
        .unwrap();
    let fill = backend.enqueue_fill(&queue, &reservation, Region::first(PAGE + 1), &[1], &[]);
    fill.unwrap().wait().unwrap();
    assert!(!backend.is_lost());
}

#[test]
fn each_call_can_fail_and_has_no_effect_then() {
    let device = device();
    let backend = device.backend();
    let reservation = backend.reserve(4 * PAGE).unwrap();
    let pages = backend.create_pages(PAGE).unwrap();
    let region = Region::first(PAGE);
    for name in [
        "cuMemAddressReserve",
        "cuMemCreate",
        "cuMemMap",
        "cuMemSetAccess",
        "cuMemUnmap",
    ] {
        let call = || match name {
            "cuMemAddressReserve" => backend.reserve(PAGE).map(drop),
            "cuMemCreate" => backend.create_pages(PAGE).map(drop),
            "cuMemUnmap" => backend.unmap(&reservation, region),
            _ => backend.map(&reservation, 0, &pages),
        };
        if name == "cuMemSetAccess" {
            backend.unmap(&reservation, region).unwrap();
        }
        device.fail(name, 0, 1, 999);
        let objects = device.objects();
        assert!(call().is_err(), "{name}");
        assert_eq!(device.objects(), objects, "{name}");
        call().unwrap();
    }
    assert_eq!(device.used(), PAGE);
}

#[test]
fn pages_that_cannot_be_unmapped_after_a_failure_count_as_mapped() {
    let device = device();
    let backend = device.backend();
    let reservation = backend.reserve(4 * PAGE).unwrap();
    let pages = backend.create_pages(PAGE).unwrap();
    device.fail("cuMemSetAccess", 0, 1, 999);
    device.fail("cuMemUnmap", 0, 1, 999);
    assert!(backend.map(&reservation, 0, &pages).is_err());
    assert!(matches!(
        refusal(backend.map(&reservation, 0, &pages)),
        InvalidRequest::AlreadyMapped { .. }
    ));
    backend.unmap(&reservation, Region::first(PAGE)).unwrap();
    backend.map(&reservation, 0, &pages).unwrap();
}

#[test]
fn access_is_asked_for_again_where_the_device_is_busy_but_not_for_ever() {
    const NOT_READY: i32 = 600;

    let device = device();
    let backend = device.backend();
    let reservation = backend.reserve(4 * PAGE).unwrap();
    let pages = backend.create_pages(PAGE).unwrap();
    device.fail("cuMemSetAccess", 0, 10, NOT_READY);
    backend.map(&reservation, 0, &pages).unwrap();
    assert_eq!(device.calls("cuMemSetAccess"), 11);
    backend.unmap(&reservation, Region::first(PAGE)).unwrap();
    device.fail("cuMemSetAccess", 0, 10_000, NOT_READY);
    let error = backend.map(&reservation, 0, &pages).unwrap_err();
    assert!(matches!(error, Error::Backend(_)), "{error:?}");
    assert_eq!(
        (device.calls("cuMemMap"), device.calls("cuMemUnmap")),
        (2, 2)
    );
}

#[test]
fn a_reservation_is_dropped_behind_the_commands_that_use_it() {
    let device = device();
    let backend = device.backend();
    let queue = queue(&backend);
    let reservation = backend.reserve(PAGE).unwrap();
    backend
        .map(&reservation, 0, &backend.create_pages(PAGE).unwrap())
        .unwrap();
    let gate = backend.create_user_event().unwrap();
    let fill = backend
        .enqueue_fill(
            &queue,
            &reservation,
            Region::first(PAGE),
            &[1],
            from_ref(&gate),
        )
        .unwrap();
    drop(reservation);
    assert_eq!(device.used(), PAGE);
    drop(gate);
    fill.wait().unwrap();
    backend.enqueue_marker(&queue, &[]).unwrap().wait().unwrap();
    assert_eq!((device.used(), backend.is_lost()), (0, false));
}

#[test]
fn threads_map_and_unmap_parts_of_one_reservation() {
    const ROUNDS: usize = 50;

    let backend = device().backend();
    let reservation = backend.reserve(8 * PAGE).unwrap();
    thread::scope(|scope| {
        for part in 0..4_u8 {
            let (backend, reservation) = (&backend, &reservation);
            scope.spawn(move || {
                let queue = queue(backend);
                let offset = usize::from(part) * 2 * PAGE;
                let pages = backend.create_pages(PAGE).unwrap();
                for round in 0..ROUNDS {
                    let at = offset + (round % 2) * PAGE;
                    backend.map(reservation, at, &pages).unwrap();
                    if round > 0 {
                        assert_eq!(byte(backend, &queue, reservation, at + 9), part);
                    }
                    backend
                        .write(&queue, reservation, at, &[part; 10], &[])
                        .unwrap();
                    backend.unmap(reservation, Region::new(at, PAGE)).unwrap();
                }
            });
        }
    });
}

#[test]
fn pages_are_mapped_at_one_place_and_outlive_the_reservation() {
    let backend = device().backend();
    let queue = queue(&backend);
    let [one, two] = [(); 2].map(|()| backend.reserve(4 * PAGE).unwrap());
    let pages = backend.create_pages(PAGE).unwrap();
    backend.map(&one, 0, &pages).unwrap();
    for (reservation, offset) in [(&one, PAGE), (&two, 0)] {
        let again = backend.map(reservation, offset, &pages);
        assert!(matches!(again, Err(Error::Unsupported { .. })), "{again:?}");
    }
    backend.write(&queue, &one, 9, &[4], &[]).unwrap();
    drop(one);
    backend.map(&two, PAGE, &pages).unwrap();
    assert_eq!(byte(&backend, &queue, &two, PAGE + 9), 4);
}
