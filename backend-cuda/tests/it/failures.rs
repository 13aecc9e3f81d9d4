//! Calls of the driver that fail.

use std::{error::Error as _, slice::from_ref};

use binpool_allocators::{
    Allocator, Backend, Error, Event, EventStatus, ImmediateAllocator, MemoryFlags, Queue,
    QueueOrder, Region, Transfers, VirtualMemory,
};
use binpool_cuda::{CudaBackend, CudaError, CudaQueue, DriverPoolAllocator};

use crate::common::{Device, PAGE, bytes, queue};

#[test]
fn a_call_that_fails_has_no_effect_and_names_its_function() {
    let device = Device::new(1 << 24);
    let backend = device.backend();
    let queue = queue(&backend);
    let block = backend.create_buffer(64, MemoryFlags::empty()).unwrap();
    backend.write(&queue, &block, 0, &[1; 64], &[]).unwrap();
    for call in ["cuEventRecord", "cuMemsetD8Async"] {
        device.fail(call, 0, 1, 999);
        let fill = || backend.enqueue_fill(&queue, &block, Region::first(64), &[1], &[]);
        let Err(Error::Backend(failure)) = fill() else {
            panic!("{call}");
        };
        assert_eq!((failure.operation, failure.code), (call, Some(999)));
        fill().unwrap().wait().unwrap();
    }
    device.fail("cuMemcpyAsync", 0, 1, 1);
    backend.write(&queue, &block, 0, &[2; 64], &[]).unwrap_err();
    assert_eq!(bytes(&backend, &queue, &block), [1; 64]);
    assert!(!backend.is_lost());
}

#[test]
fn memory_that_runs_out_is_out_of_memory() {
    let device = Device::new(1 << 24);
    let backend = device.backend();
    let allocator = ImmediateAllocator::new(&backend).unwrap();
    for (call, allocate) in [
        ("cuMemAlloc", MemoryFlags::empty()),
        ("cuMemHostAlloc", MemoryFlags::HOST_RESIDENT),
    ] {
        device.fail(call, 0, 2, 2);
        let error = backend.create_buffer(64, allocate).unwrap_err();
        assert!(error.is_out_of_memory(), "{error:?}");
    }
    // Where memory that has ended is waiting to be freed, the second attempt finds it.
    device.fail("cuMemAlloc", 0, 1, 2);
    allocator.allocate(64).unwrap();
}

#[test]
fn an_illegal_address_loses_the_device_and_nobody_waits_for_ever() {
    let device = Device::new(1 << 24);
    let backend = device.backend();
    let [one, two] = [(); 2].map(|()| queue(&backend));
    let reservation = backend.reserve(2 * PAGE).unwrap();
    let pages = backend.create_pages(PAGE).unwrap();
    backend.map(&reservation, 0, &pages).unwrap();
    let block = backend.create_buffer(64, MemoryFlags::empty()).unwrap();
    let gate = backend.create_user_event().unwrap();
    let behind = backend.enqueue_marker(&two, from_ref(&gate)).unwrap();
    // What a program may not do: unmap under a command.
    let held = backend.enqueue_marker(&one, from_ref(&gate)).unwrap();
    let fill = backend
        .enqueue_fill(&one, &reservation, Region::first(64), &[1], &[held])
        .unwrap();
    backend.unmap(&reservation, Region::first(PAGE)).unwrap();
    drop(gate);
    let Err(error @ Error::DeviceLost { .. }) = fill.wait() else {
        panic!("the fill ran");
    };
    let source = error
        .source()
        .and_then(|source| source.downcast_ref::<CudaError>());
    assert!(
        source.is_some_and(|source| source.is_sticky() && source.code() == 700),
        "{error:?}"
    );
    assert!(source.unwrap().to_string().contains("compute-sanitizer"));
    assert_eq!(fill.status().unwrap(), EventStatus::Failed);
    assert!(backend.is_lost());
    assert!(behind.status().unwrap().has_ended());
    assert!(one.finish().is_err());
    assert!(matches!(
        backend.write(&two, &block, 0, &[1], &[]),
        Err(Error::DeviceLost { .. })
    ));
    drop((fill, behind, block, reservation, pages, one, two, backend));
}

/// Uses all kinds of calls, and goes on where one fails.
fn program(backend: &CudaBackend) -> Result<(), Error> {
    let [one, two] = [queue_of(backend)?, queue_of(backend)?];
    let allocator = DriverPoolAllocator::new(backend)?;
    for flags in [MemoryFlags::empty(), MemoryFlags::HOST_RESIDENT] {
        let block = backend.create_buffer(256, flags)?;
        let all = Region::first(255);
        let gate = backend.create_user_event()?;
        let fill = backend.enqueue_fill(&one, &block, all, &[1, 2, 3], from_ref(&gate))?;
        let write = backend.enqueue_write(&two, &block, 0, [7; 9].into(), &[fill])?;
        drop(gate);
        let read = backend.enqueue_read(&one, &block, all, &[write])?.wait()?;
        assert_eq!(read[..12], [7, 7, 7, 7, 7, 7, 7, 7, 7, 1, 2, 3]);
        let pooled = allocator.allocate(256)?;
        backend.enqueue_copy(&one, &block, all, &pooled, 0, &[])?;
        let mut seen = [0; 3];
        backend.read(&one, &pooled, 8, &mut seen, &[])?;
        assert_eq!(seen, [7, 1, 2]);
    }
    let ordered = allocator.allocate_on(&one, 256)?;
    backend.enqueue_fill(&one, &ordered, Region::first(256), &[1], &[])?;
    drop(ordered);
    allocator.peaks()?;
    let reservation = backend.reserve(4 * PAGE)?;
    backend.map(&reservation, PAGE, &backend.create_pages(PAGE)?)?;
    backend.write(&one, &reservation, PAGE, &[1; 100], &[])?;
    backend.unmap(&reservation, Region::new(PAGE, PAGE))?;
    backend.map(&reservation, 0, &backend.create_pages(PAGE)?)
}

fn queue_of(backend: &CudaBackend) -> Result<CudaQueue, Error> {
    backend.create_queue(QueueOrder::InOrder)
}

/// Where the driver refuses to take something back, that is lost; nothing else is.
#[test]
fn whichever_call_fails_nothing_panics_hangs_or_is_lost() {
    const CALLS: [(&str, bool); 26] = [
        ("cuMemAlloc", true),
        ("cuMemHostAlloc", true),
        ("cuMemPoolCreate", true),
        ("cuMemPoolSetAttribute", true),
        ("cuMemPoolGetAttribute", true),
        ("cuMemAllocFromPoolAsync", true),
        ("cuMemcpyAsync", true),
        ("cuMemsetD8Async", true),
        ("cuStreamCreate", true),
        ("cuStreamSynchronize", true),
        ("cuStreamWaitEvent", true),
        ("cuStreamWaitValue32", true),
        ("cuEventCreate", true),
        ("cuEventRecord", true),
        ("cuEventQuery", true),
        ("cuEventSynchronize", true),
        ("cuMemAddressReserve", true),
        ("cuMemCreate", true),
        ("cuMemMap", true),
        ("cuMemSetAccess", true),
        ("cuMemUnmap", false),
        ("cuMemFree", false),
        ("cuMemFreeAsync", false),
        ("cuMemRelease", false),
        ("cuStreamDestroy", false),
        ("cuEventDestroy", false),
    ];
    for (call, loses_nothing) in CALLS {
        let mut nth = 0;
        loop {
            let device = Device::new(1 << 25);
            device.fail(call, nth, 1, 999);
            let backend = device.backend();
            let result = program(&backend);
            program(&backend).unwrap_or_else(|error| {
                // The fault lies ahead still.
                assert!(result.is_ok(), "{call} {nth}: {error:?}");
            });
            let is_over = device.calls(call) <= nth;
            drop(backend);
            if loses_nothing {
                assert_eq!((device.objects(), device.used()), (0, 0), "{call} {nth}");
            }
            if is_over {
                break;
            }
            nth += 1;
        }
    }
}
