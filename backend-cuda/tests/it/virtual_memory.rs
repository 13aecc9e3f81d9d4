//! Virtual memory of CUDA beside what every backend does with it: what the driver refuses, and what takes of the device.

use std::{
    fmt::Debug,
    slice::from_ref,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread,
};

use binpool_allocators::{
    Backend, Error, Event, InvalidRequest, Outcome, Region, Result, Transfers, VirtualMemory,
};
use binpool_cuda::{Argument, CudaModule, Grid};

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
fn pages_that_a_failed_map_has_left_are_unmapped_by_the_next_one() {
    let device = device();
    let backend = device.backend();
    let [one, two] = [(); 2].map(|()| backend.reserve(4 * PAGE).unwrap());
    let [pages, others, third] = [(); 3].map(|()| backend.create_pages(PAGE).unwrap());
    let left = |unmaps| {
        device.fail("cuMemSetAccess", 0, 1, 999);
        device.fail("cuMemUnmap", 0, unmaps, 999);
        assert!(backend.map(&one, 0, &pages).is_err());
    };
    // The same pages elsewhere, others there, and both where they were.
    left(1);
    backend.map(&two, 0, &pages).unwrap();
    backend.map(&one, 0, &others).unwrap();
    for reservation in [&one, &two] {
        backend.unmap(reservation, Region::first(PAGE)).unwrap();
    }
    left(1);
    backend.map(&one, 0, &pages).unwrap();
    backend.unmap(&one, Region::first(PAGE)).unwrap();
    // As long as they cannot be unmapped, neither they nor their addresses serve, but others do.
    left(4);
    assert!(matches!(
        backend.map(&two, 0, &pages),
        Err(Error::Backend(_))
    ));
    assert!(matches!(
        backend.map(&one, 0, &others),
        Err(Error::Backend(_))
    ));
    backend.map(&two, PAGE, &others).unwrap();
    let fill = backend.enqueue_fill(&queue(&backend), &one, Region::first(PAGE), &[1], &[]);
    assert!(matches!(refusal(fill), InvalidRequest::NotMapped { .. }));
    backend.map(&one, 0, &third).unwrap();
    backend.unmap(&one, Region::first(PAGE)).unwrap();
    left(1);
    drop((one, two, pages, others, third));
    assert_eq!(device.used(), 0);
    drop(backend);
    assert_eq!(device.objects(), 0);
}

#[test]
fn pages_stay_mapped_under_a_kernel_and_a_read_that_blocks() {
    let device = device();
    let backend = device.backend();
    let queue = queue(&backend);
    let reservation = backend.reserve(4 * PAGE).unwrap();
    for at in [0, PAGE] {
        let pages = backend.create_pages(PAGE).unwrap();
        backend.map(&reservation, at, &pages).unwrap();
    }
    let unmap = |at| backend.unmap(&reservation, Region::new(at, PAGE));
    let in_use = |offset| InvalidRequest::InUse {
        offset,
        bytes: PAGE,
    };
    let kernel = CudaModule::load_ptx(&backend, ".version 6.4\n.visible .entry add_to(").unwrap();
    let kernel = kernel.kernel("add_to").unwrap();
    let half = backend
        .create_sub_region(&reservation, Region::new(PAGE, 2 * PAGE))
        .unwrap();
    let arguments = [
        Argument::Memory(&half),
        Argument::Memory(&half),
        Argument::U64(16),
    ];
    let gate = backend.create_user_event().unwrap();
    // SAFETY: These are its parameters, and it touches bytes that are mapped.
    let launch = unsafe {
        kernel.launch(
            &queue,
            Grid::of_threads(16, 16),
            &arguments,
            from_ref(&gate),
        )
    };
    // It does not use all of the memory that is an argument: a part has no pages.
    assert_eq!(refusal(unmap(PAGE)), in_use(PAGE));
    unmap(0).unwrap();
    drop(gate);
    launch.unwrap().wait().unwrap();
    let gate = backend.create_user_event().unwrap();
    let waits = device.calls("cuEventSynchronize");
    thread::scope(|scope| {
        let read = scope.spawn(|| {
            let (mut byte, wait_for) = ([1], from_ref(&gate));
            backend.read(&queue, &reservation, PAGE, &mut byte, wait_for)
        });
        while device.calls("cuEventSynchronize") == waits {
            thread::yield_now();
        }
        let refused = unmap(PAGE);
        backend
            .resolve_user_event(&gate, Outcome::Complete)
            .unwrap();
        assert_eq!(refusal(refused), in_use(PAGE));
        read.join().unwrap().unwrap();
    });
    unmap(PAGE).unwrap();
    assert!(!backend.is_lost());
}

#[test]
fn pages_stay_mapped_under_a_command_of_which_no_event_tells_the_end() {
    let device = device();
    let backend = device.backend();
    let queue = queue(&backend);
    let reservation = backend.reserve(PAGE).unwrap();
    backend
        .map(&reservation, 0, &backend.create_pages(PAGE).unwrap())
        .unwrap();
    let gate = backend.create_user_event().unwrap();
    device.fail("cuEventRecord", 0, 1, 999);
    let all = Region::first(PAGE);
    let fill = backend.enqueue_fill(&queue, &reservation, all, &[1], from_ref(&gate));
    fill.unwrap_err();
    let in_use = InvalidRequest::InUse {
        offset: 0,
        bytes: PAGE,
    };
    assert_eq!(refusal(backend.unmap(&reservation, all)), in_use);
    drop(gate);
    backend.unmap(&reservation, all).unwrap();
    assert!(!backend.is_lost());
}

#[test]
fn no_command_uses_addresses_that_are_just_being_mapped() {
    const NOT_READY: i32 = 600;

    let device = device();
    let backend = device.backend();
    let reservation = backend.reserve(PAGE).unwrap();
    let pages = backend.create_pages(PAGE).unwrap();
    device.fail("cuMemSetAccess", 0, 10_000, NOT_READY); // The map fails in the end.
    let queue = queue(&backend);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(backend.map(&reservation, 0, &pages).is_err());
            is_over.store(true, Ordering::Release);
        });
        while !is_over.load(Ordering::Acquire) {
            let all = Region::first(PAGE);
            let fill = backend.enqueue_fill(&queue, &reservation, all, &[1], &[]);
            assert!(matches!(refusal(fill), InvalidRequest::NotMapped { .. }));
        }
    });
    assert!(!backend.is_lost());
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
fn addresses_with_pages_are_freed_after_a_wait_for_the_device_and_others_at_once() {
    let device = device();
    let backend = device.backend();
    let queue = queue(&backend);
    let [with_pages, without] = [(); 2].map(|()| backend.reserve(PAGE).unwrap());
    backend
        .map(&with_pages, 0, &backend.create_pages(PAGE).unwrap())
        .unwrap();
    // A command of the program itself, which the backend knows nothing of.
    let word = AtomicU32::new(0);
    device.hold(queue.cu_stream(), &word);
    device.fill(queue.cu_stream(), with_pages.cu_device_ptr().unwrap(), PAGE);
    drop(without);
    let calls =
        || ["cuCtxSynchronize", "cuMemUnmap", "cuMemAddressFree"].map(|call| device.calls(call));
    let at_once = calls();
    let while_held = thread::scope(|scope| {
        let dropped = scope.spawn(|| drop(with_pages));
        while device.calls("cuCtxSynchronize") == at_once[0] && !dropped.is_finished() {
            thread::yield_now();
        }
        let while_held = calls();
        word.store(1, Ordering::Release);
        while_held
    });
    assert_eq!(
        (at_once, while_held, calls()),
        ([0, 0, 1], [1, 0, 1], [1, 1, 2])
    );
    assert!(!backend.is_lost());
}

#[test]
fn pages_that_cannot_be_unmapped_keep_no_others_from_it_when_the_reservation_ends() {
    let device = device();
    let backend = device.backend();
    let [one, two] = [(); 2].map(|()| backend.reserve(2 * PAGE).unwrap());
    let [a, b] = [(); 2].map(|()| backend.create_pages(PAGE).unwrap());
    backend.map(&one, 0, &a).unwrap();
    backend.map(&one, PAGE, &b).unwrap();
    device.fail("cuMemUnmap", 0, 1, 999);
    drop(one);
    assert!(backend.map(&two, 0, &a).is_err());
    backend.map(&two, 0, &b).unwrap();
}
