//! Calls of the driver that fail.

use std::{error::Error as _, slice::from_ref};

use binpool_allocators::{
    Allocator, Backend, Error, Event, EventStatus, ImmediateAllocator, MemoryFlags, Queue,
    QueueOrder, Region, VirtualMemory,
};
use binpool_cuda::{
    Argument, CudaBackend, CudaError, CudaModule, CudaQueue, DriverPoolAllocator, Grid,
};

use crate::common::{Device, PAGE, bytes, queue};

#[test]
fn a_call_that_fails_has_no_effect_and_names_its_function() {
    let device = Device::new(1 << 24);
    let backend = device.backend();
    let queue = queue(&backend);
    let block = backend.create_buffer(64, MemoryFlags::empty()).unwrap();
    backend.write(&queue, &block, 0, &[1_u8; 64]).unwrap();
    for call in ["cuEventRecord", "cuMemsetD8Async"] {
        device.fail(call, 0, 1, 999);
        let fill = || backend.enqueue_fill(&queue, &block, Region::first(64), &[1_u8]);
        let Err(Error::Backend(failure)) = fill() else {
            panic!("{call}");
        };
        assert_eq!((failure.operation, failure.code), (call, Some(999)));
        fill().unwrap().wait().unwrap();
    }
    device.fail("cuMemcpyAsync", 0, 1, 1);
    backend.write(&queue, &block, 0, &[2_u8; 64]).unwrap_err();
    assert_eq!(bytes(&backend, &queue, &block), [1; 64]);
    assert!(!backend.is_lost());
}

/// The program may free its bytes then.
#[test]
fn a_read_that_blocks_and_fails_waits_for_what_it_has_enqueued() {
    let device = Device::new(1 << 24);
    let backend = device.backend();
    let queue = queue(&backend);
    let block = backend.create_buffer(64, MemoryFlags::empty()).unwrap();
    device.fail("cuEventRecord", 0, 1, 999);
    let read = backend.read(&queue, &block, 0, &mut [0_u8; 64]);
    assert!(read.is_err());
    assert_eq!(device.calls("cuStreamSynchronize"), 1);
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
    let behind = backend.enqueue_marker(two.after(from_ref(&gate))).unwrap();
    let text = ".version 6.4\n.visible .entry add_to(";
    let kernel = CudaModule::load_ptx(&backend, text).unwrap();
    let kernel = kernel.kernel("add_to").unwrap();
    let arguments = [
        Argument::Memory(&reservation),
        Argument::Memory(&reservation),
        Argument::U64(PAGE as u64 / 4 + 1),
    ];
    let grid = Grid::of_threads(256, 128);
    // SAFETY: None: a program may not let a kernel touch what is not mapped.
    let launch = unsafe { kernel.launch(&one, grid, &arguments, from_ref(&gate)) }.unwrap();
    drop(gate);
    let Err(error @ Error::DeviceLost { .. }) = launch.wait() else {
        panic!("the kernel ran");
    };
    let source = error
        .source()
        .and_then(|source| source.downcast_ref::<CudaError>());
    assert!(
        source.is_some_and(|source| source.is_sticky() && source.code() == 700),
        "{error:?}"
    );
    assert!(source.unwrap().to_string().contains("compute-sanitizer"));
    assert_eq!(launch.status().unwrap(), EventStatus::Failed);
    assert!(backend.is_lost());
    assert!(behind.status().unwrap().has_ended());
    assert!(one.finish().is_err());
    assert!(matches!(
        backend.write(&two, &block, 0, &[1_u8]),
        Err(Error::DeviceLost { .. })
    ));
    drop((launch, behind, block, reservation, pages, one, two, backend));
}

/// Uses all kinds of calls, and goes on where one fails.
fn program(backend: &CudaBackend) -> Result<(), Error> {
    let [one, two] = [queue_of(backend)?, queue_of(backend)?];
    let allocator = DriverPoolAllocator::new(backend)?;
    for flags in [MemoryFlags::empty(), MemoryFlags::HOST_RESIDENT] {
        let block = backend.create_buffer(256, flags)?;
        let all = Region::first(255);
        let gate = backend.create_user_event()?;
        let fill = backend.enqueue_fill(one.after(from_ref(&gate)), &block, all, &[1_u8, 2, 3])?;
        let write = backend.enqueue_write(two.after(&[fill]), &block, 0, [7; 9].into())?;
        drop(gate);
        let read = backend
            .enqueue_read(one.after(&[write]), &block, all)?
            .wait()?;
        assert_eq!(read[..12], [7, 7, 7, 7, 7, 7, 7, 7, 7, 1, 2, 3]);
        let pooled = allocator.allocate(256)?;
        backend.enqueue_copy(&one, &block, all, &pooled, 0)?;
        let mut seen = [0_u8; 3];
        backend.read(&one, &pooled, 8, &mut seen)?;
        assert_eq!(seen, [7, 1, 2]);
    }
    let ordered = allocator.allocate_on(&one, 256)?;
    backend.enqueue_fill(&one, &ordered, Region::first(256), &[1_u8])?;
    drop(ordered);
    allocator.peaks()?;
    add([backend, backend], &one)?;
    let reservation = backend.reserve(4 * PAGE)?;
    let pages = backend.create_pages(PAGE)?;
    backend.map(&reservation, PAGE, &pages)?;
    backend.map(&reservation, 3 * PAGE, &pages)?;
    backend.write(&one, &reservation, PAGE, &[1_u8; 100])?;
    backend.unmap(&reservation, Region::new(PAGE, PAGE))?;
    let mut seen = [0_u8];
    backend.read(&one, &reservation, 3 * PAGE, &mut seen)?;
    assert_eq!(seen, [1]);
    backend.map(&reservation, 0, &backend.create_pages(PAGE)?)
}

/// Launches a kernel of a device that adds a block of another to itself.
fn add([device, other]: [&CudaBackend; 2], queue: &CudaQueue) -> Result<(), Error> {
    let block = other.create_buffer(256, MemoryFlags::empty())?;
    other.enqueue_fill(queue, &block, Region::first(256), &1_f32.to_ne_bytes())?;
    let text = ".version 6.4\n.visible .entry add_to(";
    let kernel = CudaModule::load_ptx(device, text)?.kernel("add_to")?;
    let arguments = [&block, &block].map(Argument::Memory);
    let arguments = [arguments[0], arguments[1], Argument::U64(64)];
    // SAFETY: These are the parameters of the kernel.
    unsafe { kernel.launch(queue, Grid::of_threads(64, 64), &arguments, &[]) }?;
    drop(kernel);
    assert_eq!(
        other
            .enqueue_read(queue, &block, Region::first(4))?
            .wait()?,
        2_f32.to_ne_bytes()
    );
    Ok(())
}

fn queue_of(backend: &CudaBackend) -> Result<CudaQueue, Error> {
    backend.create_queue(QueueOrder::InOrder)
}

/// Where the driver refuses to take something back, that is lost; nothing else is.
#[test]
fn whichever_call_fails_nothing_panics_hangs_or_is_lost() {
    const CALLS: [(&str, bool); 32] = [
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
        ("cuModuleLoadData", true),
        ("cuModuleGetFunction", true),
        ("cuLaunchKernel", true),
        ("cuModuleUnload", false),
        ("cuMemUnmap", false),
        ("cuMemFree", false),
        ("cuMemFreeAsync", false),
        ("cuMemRelease", false),
        ("cuCtxGetCurrent", false),
        ("cuCtxSetCurrent", false),
        ("cuStreamDestroy", false),
        ("cuEventDestroy", false),
    ];
    for (call, loses_nothing) in CALLS {
        sweep(call, 0, loses_nothing, |backends| program(&backends[0]));
    }
}

/// Copies between devices, and uses memory of one on a queue of the other.
fn program_of_two([here, there]: &[CudaBackend; 2]) -> Result<(), Error> {
    let [one, two] = [queue_of(here)?, queue_of(there)?];
    here.enable_peer_access(there)?;
    let reservation = there.reserve(PAGE)?;
    there.map(&reservation, 0, &there.create_pages(PAGE)?)?;
    let pooled = DriverPoolAllocator::new(there)?.allocate(256)?;
    let block = here.create_buffer(256, MemoryFlags::empty())?;
    let all = Region::first(256);
    let gate = here.create_user_event()?;
    let fill = here.enqueue_fill(two.after(from_ref(&gate)), &block, all, &[1_u8, 2])?;
    let copy = here.enqueue_copy(one.after(&[fill]), &block, all, &reservation, 0)?;
    let copy = there.enqueue_copy(two.after(&[copy]), &reservation, all, &pooled, 0)?;
    drop(gate);
    let mut seen = [0_u8; 3];
    there.read(one.after(&[copy]), &pooled, 0, &mut seen)?;
    assert_eq!(seen, [1, 2, 1]);
    add([here, there], &one)
}

#[test]
fn whichever_call_fails_between_devices_nothing_panics_hangs_or_is_lost() {
    const CALLS: [(&str, bool); 19] = [
        ("cuMemcpyPeerAsync", true),
        ("cuDeviceCanAccessPeer", true),
        ("cuCtxEnablePeerAccess", true),
        ("cuMemPoolSetAccess", true),
        ("cuMemPoolCreate", true),
        ("cuMemcpyAsync", true),
        ("cuMemsetD16Async", true),
        ("cuStreamCreate", true),
        ("cuStreamSynchronize", true),
        ("cuStreamWaitEvent", true),
        ("cuStreamWaitValue32", true),
        ("cuEventCreate", true),
        ("cuEventRecord", true),
        ("cuEventQuery", true),
        ("cuEventSynchronize", true),
        ("cuMemSetAccess", true),
        ("cuLaunchKernel", true),
        ("cuCtxSetCurrent", false),
        ("cuStreamDestroy", false),
    ];
    for (call, loses_nothing) in CALLS {
        for device in [0, 1] {
            sweep(call, device, loses_nothing, program_of_two);
        }
    }
}

/// Runs a program again and again, and lets another call of a name fail each time, on one of two devices.
fn sweep(
    call: &str,
    failing: usize,
    loses_nothing: bool,
    program: impl Fn(&[CudaBackend; 2]) -> Result<(), Error>,
) {
    for nth in 0.. {
        let devices = Device::pair(1 << 25);
        devices[failing].fail(call, nth, 1, 999);
        let backends = [&devices[0], &devices[1]].map(Device::backend);
        let result = program(&backends);
        program(&backends).unwrap_or_else(|error| {
            // The fault lies ahead still.
            assert!(result.is_ok(), "{call} {nth}: {error:?}");
        });
        let is_over = devices[failing].calls(call) <= nth;
        drop(backends);
        if loses_nothing {
            for device in &devices {
                assert_eq!((device.objects(), device.used()), (0, 0), "{call} {nth}");
            }
        }
        if is_over {
            break;
        }
    }
}
