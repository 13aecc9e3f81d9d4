//! Kernels that the program launches by this crate.

use std::{error::Error as _, slice::from_ref};

use binpool_allocators::{
    Allocator, Backend, Error, InvalidRequest, MemoryFlags, ObjectKind, Outcome, Queue, Region,
};
use binpool_cuda::{
    Argument, CudaBackend, CudaError, CudaKernel, CudaMemory, CudaModule, CudaQueue,
    DriverPoolAllocator, Grid,
};

use crate::common::{Device, bytes, queue};

const COUNT: u64 = 256;
const BYTES: usize = 4 * 256;

fn add_to(backend: &CudaBackend) -> CudaKernel {
    let text = ".version 6.4\n.visible .entry add_to(";
    let module = CudaModule::load_ptx(backend, text).unwrap();
    module.kernel("add_to").unwrap()
}

fn launch(
    kernel: &CudaKernel,
    queue: &CudaQueue,
    [result, operand]: [&CudaMemory; 2],
) -> Result<(), Error> {
    let arguments = [
        Argument::Memory(result),
        Argument::Memory(operand),
        Argument::U64(COUNT),
    ];
    // SAFETY: These are the parameters of the kernel, and no other stream uses the memory.
    unsafe { kernel.launch(queue, Grid::of_threads(256, 128), &arguments, &[]) }.map(drop)
}

fn filled(backend: &CudaBackend, queue: &CudaQueue, memory: CudaMemory, value: f32) -> CudaMemory {
    let all = Region::first(BYTES);
    let fill = backend.enqueue_fill(queue, &memory, all, &value.to_ne_bytes());
    fill.unwrap();
    memory
}

/// The name of the driver's code.
fn name(error: &Error) -> Option<&'static str> {
    let source = error.source()?.downcast_ref::<CudaError>();
    source.map(CudaError::name)
}

#[test]
fn what_a_launch_uses_is_freed_and_unloaded_after_it() {
    let device = Device::new(1 << 24);
    let backend = device.backend();
    let queue = queue(&backend);
    // Its memory is freed without a wait.
    let allocator = DriverPoolAllocator::new(&backend).unwrap();
    let block = |value| {
        let memory = allocator.allocate(BYTES).unwrap();
        filled(&backend, &queue, memory, value)
    };
    let (sum, operand, kernel) = (block(1.0), block(2.0), add_to(&backend));
    queue.finish().unwrap();
    let gate = backend.create_user_event().unwrap();
    backend
        .enqueue_marker(queue.after(from_ref(&gate)))
        .unwrap();
    launch(&kernel, &queue, [&sum, &operand]).unwrap();
    drop((operand, kernel));
    assert_eq!(device.calls("cuModuleUnload"), 0);
    assert_eq!(device.calls("cuMemFreeAsync"), 0);
    backend
        .resolve_user_event(&gate, Outcome::Complete)
        .unwrap();
    assert_eq!(
        bytes(&backend, &queue, &sum),
        3.0_f32.to_ne_bytes().repeat(256)
    );
    assert!(!backend.is_lost());
    drop((sum, gate, queue, allocator, backend));
    assert_eq!((device.objects(), device.used()), (0, 0));
}

#[test]
fn a_launch_waits_for_its_events() {
    let backend = Device::new(1 << 24).backend();
    let [one, two] = [(); 2].map(|()| queue(&backend));
    let [sum, operand] = [(); 2].map(|()| {
        let memory = backend.create_buffer(BYTES, MemoryFlags::empty()).unwrap();
        filled(&backend, &one, memory, 1.0)
    });
    let gate = backend.create_user_event().unwrap();
    let ready = backend.enqueue_marker(one.after(from_ref(&gate))).unwrap();
    let arguments = [&sum, &operand].map(Argument::Memory);
    let arguments = [arguments[0], arguments[1], Argument::U64(COUNT)];
    let kernel = add_to(&backend);
    let grid = Grid::of_threads(256, 128);
    // SAFETY: These are the parameters of the kernel; the fills are waited for.
    let launched = unsafe { kernel.launch(&two, grid, &arguments, &[ready]) }.unwrap();
    assert!(!binpool_allocators::Event::has_ended(&launched));
    drop(gate);
    assert_eq!(
        bytes(&backend, &two, &sum),
        2.0_f32.to_ne_bytes().repeat(256)
    );
}

#[test]
fn a_kernel_runs_on_its_own_device_with_memory_of_another_after_peer_access() {
    let devices = Device::pair(1 << 24);
    let [here, there] = [&devices[0], &devices[1]].map(Device::backend);
    let [own, theirs] = [&here, &there].map(queue);
    let kernel = add_to(&here);
    let [sum, operand] = [1.0, 2.0].map(|value| {
        let memory = there.create_buffer(BYTES, MemoryFlags::empty()).unwrap();
        filled(&there, &theirs, memory, value)
    });
    theirs.finish().unwrap();
    let refused = launch(&kernel, &own, [&sum, &operand]).unwrap_err();
    let [number, other] = [&devices[0], &devices[1]].map(Device::ordinal);
    let text = format!("a kernel of device {number} on memory of device {other} without");
    assert!(
        matches!(&refused, Error::Unsupported { what } if what.starts_with(&text) && what.contains("enable_peer_access")),
        "{refused:?}"
    );
    here.enable_peer_access(&there).unwrap();
    let kind = ObjectKind::Queue;
    let foreign = InvalidRequest::ForeignObject { kind };
    let refused = launch(&kernel, &theirs, [&sum, &operand]);
    assert!(
        matches!(&refused, Err(Error::InvalidRequest(refusal)) if *refusal == foreign),
        "{refused:?}"
    );
    let streams = devices[1].calls("cuStreamCreate");
    let gate = here.create_user_event().unwrap();
    here.enqueue_marker(own.after(from_ref(&gate))).unwrap();
    launch(&kernel, &own, [&sum, &operand]).unwrap();
    drop(operand);
    assert_eq!(devices[1].used(), 2 * BYTES);
    drop(gate);
    own.finish().unwrap();
    assert_eq!(
        bytes(&there, &theirs, &sum),
        3.0_f32.to_ne_bytes().repeat(256)
    );
    assert_eq!(devices[1].used(), BYTES);
    let launches = [&devices[0], &devices[1]].map(|device| device.calls("cuLaunchKernel"));
    assert_eq!(launches, [1, 0]);
    assert_eq!(devices[1].calls("cuStreamCreate"), streams);
    assert!(!here.is_lost() && !there.is_lost());
}

#[test]
fn what_cannot_be_loaded_or_launched_is_an_error() {
    let (device, foreign) = (Device::new(1 << 24), Device::new(1 << 24).backend());
    let backend = device.backend();
    let own = queue(&backend);
    for (text, code) in [
        ("kernel", "INVALID_PTX"),
        ("\u{7f}ELF", "INVALID_PTX"),
        (".version\0", "INVALID_PTX"),
    ] {
        let error = CudaModule::load_ptx(&backend, text).unwrap_err();
        assert_eq!(name(&error), Some(code), "{error}");
    }
    assert_eq!(device.calls("cuModuleLoadData"), 1);
    let module = CudaModule::load_ptx(&backend, ".version 6.4").unwrap();
    for kernel in ["add_to", "a\0"] {
        let error = module.kernel(kernel).unwrap_err();
        assert_eq!(name(&error), Some("NOT_FOUND"), "{error}");
    }

    let memory = |backend: &CudaBackend| backend.create_buffer(BYTES, MemoryFlags::empty());
    let (block, strange) = (memory(&backend).unwrap(), memory(&foreign).unwrap());
    let kernel = add_to(&backend);
    let refused = [
        launch(&kernel, &own, [&block, &strange]),
        launch(&kernel, &queue(&foreign), [&block, &block]),
    ];
    for refused in refused {
        assert!(matches!(
            refused,
            Err(Error::InvalidRequest(InvalidRequest::ForeignObject { .. }))
        ));
    }
    let allocator = DriverPoolAllocator::new(&backend).unwrap();
    let ordered = allocator.allocate_on(&queue(&backend), BYTES).unwrap();
    let refused = launch(&kernel, &own, [&block, &ordered]);
    assert!(matches!(refused, Err(Error::Unsupported { .. })));
    assert_eq!(device.calls("cuLaunchKernel"), 0);
    device.fail("cuLaunchKernel", 0, 1, 701);
    let error = launch(&kernel, &own, [&block, &block]).unwrap_err();
    assert_eq!(name(&error), Some("LAUNCH_OUT_OF_RESOURCES"), "{error}");
    backend.read(&own, &block, 0, &mut [0_u8; 4]).unwrap();
}
