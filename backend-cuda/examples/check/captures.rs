//! What other queues and memory do while a stream is captured into a graph.

use std::{ffi::c_void, slice::from_ref, thread, time::Instant};

use binpool_allocators::{
    Allocator, Backend, Event, EventStatus, MemoryFlags, Outcome, Queue, Region, VirtualMemory,
};
use binpool_cuda::{
    Argument, CudaBackend, CudaMemory, CudaModule, CudaQueue, DriverPoolAllocator, Grid,
};
use libloading::Library;

use crate::{DRIVER, open, queue};

const BYTES: usize = 1 << 20;
/// `CU_STREAM_CAPTURE_MODE_GLOBAL`, which forbids all threads something.
const GLOBAL: u32 = 0;
const RELAXED: u32 = 2;
/// This many calls are timed.
const CALLS: u32 = 100_000;

type OfStream = extern "system" fn(*mut c_void, *mut usize) -> i32;
type Instantiate = extern "system" fn(*mut usize, usize, u64) -> i32;

macro_rules! call {
    ($driver:expr, $name:literal: $signature:ty) => {{
        #[allow(unsafe_code, reason = "a call that the crate does not make")]
        // SAFETY: The signature is right.
        let call = unsafe { $driver.get::<$signature>($name) };
        *call.unwrap()
    }};
}

#[allow(unsafe_code, reason = "the library is the driver")]
fn driver() -> Library {
    // SAFETY: The library of this name is NVIDIA's.
    unsafe { Library::new(DRIVER) }.unwrap()
}

fn block(backend: &CudaBackend) -> CudaMemory {
    backend.create_buffer(BYTES, MemoryFlags::empty()).unwrap()
}

fn check(backend: &CudaBackend, queue: &CudaQueue, memory: &CudaMemory, byte: u8) {
    let mut seen = vec![0_u8; BYTES];
    backend.read(queue, memory, 0, &mut seen).unwrap();
    assert!(seen.iter().all(|seen| *seen == byte));
}

/// Captures a fill, does `work` meanwhile on this and on another thread, with another queue, and checks that a launch of the graph fills.
fn during_a_capture(work: impl Fn(&CudaBackend, &CudaQueue) + Sync) {
    let (driver, backend) = (driver(), open());
    let [captured, other] = [(); 2].map(|()| queue(&backend));
    let memory = block(&backend);
    let all = Region::first(BYTES);
    backend
        .write(&captured, &memory, 0, &vec![1_u8; BYTES])
        .unwrap();
    let set = call!(driver, b"cuCtxSetCurrent": extern "system" fn(*mut c_void) -> i32);
    assert_eq!(set(backend.raw_context()), 0);
    let begin =
        call!(driver, b"cuStreamBeginCapture_v2": extern "system" fn(*mut c_void, u32) -> i32);
    assert_eq!(begin(captured.raw(), GLOBAL), 0);
    let fill = backend.enqueue_fill(&captured, &memory, all, &[7_u8]);
    work(&backend, &other);
    thread::scope(|scope| {
        scope.spawn(|| work(&backend, &other));
    });
    let (mut graph, mut executable) = (0, 0);
    let end = call!(driver, b"cuStreamEndCapture": OfStream);
    assert_eq!(end(captured.raw(), &raw mut graph), 0);
    fill.unwrap();
    check(&backend, &captured, &memory, 1);
    let instantiate = call!(driver, b"cuGraphInstantiateWithFlags": Instantiate);
    assert_eq!(instantiate(&raw mut executable, graph, 0), 0);
    let launch = call!(driver, b"cuGraphLaunch": extern "system" fn(usize, *mut c_void) -> i32);
    assert_eq!(launch(executable, captured.raw()), 0);
    check(&backend, &captured, &memory, 7);
    for (destroy, graph) in [
        (
            call!(driver, b"cuGraphExecDestroy": extern "system" fn(usize) -> i32),
            executable,
        ),
        (
            call!(driver, b"cuGraphDestroy": extern "system" fn(usize) -> i32),
            graph,
        ),
    ] {
        assert_eq!(destroy(graph), 0);
    }
}

pub(crate) fn events() {
    during_a_capture(|backend, queue| {
        let gate = backend.create_user_event().unwrap();
        let marker = backend
            .enqueue_marker(queue.after(from_ref(&gate)))
            .unwrap();
        assert_eq!(marker.status().unwrap(), EventStatus::Pending);
        backend
            .resolve_user_event(&gate, Outcome::Complete)
            .unwrap();
        marker.wait().unwrap();
        queue.finish().unwrap();
    });
}

pub(crate) fn blocks() {
    during_a_capture(|backend, queue| {
        let free = |backend: &CudaBackend| backend.device_memory().unwrap().free_bytes;
        let before = free(backend);
        for flags in [MemoryFlags::empty(), MemoryFlags::HOST_RESIDENT] {
            let block = backend.create_buffer(64 * BYTES, flags).unwrap();
            backend.write(queue, &block, 0, &vec![3_u8; BYTES]).unwrap();
        }
        drop(backend.create_managed(BYTES).unwrap());
        backend.enqueue_marker(queue).unwrap().wait().unwrap();
        // They are freed meanwhile.
        assert!(free(backend) + 64 * BYTES > before);
    });
}

pub(crate) fn pages() {
    during_a_capture(|backend, queue| {
        let page = backend.page_bytes();
        let reservation = backend.reserve(2 * page).unwrap();
        let pages = backend.create_pages(page).unwrap();
        for at in [0, page] {
            backend.map(&reservation, at, &pages).unwrap();
            backend.write(queue, &reservation, at, &[3_u8; 64]).unwrap();
            backend.unmap(&reservation, Region::new(at, page)).unwrap();
        }
    });
}

pub(crate) fn pool_of_the_driver() {
    during_a_capture(|backend, queue| {
        let pool = DriverPoolAllocator::new(backend).unwrap();
        for block in [pool.allocate(BYTES), pool.allocate_on(queue, BYTES)] {
            backend
                .write(queue, &block.unwrap(), 0, &[3_u8; 64])
                .unwrap();
        }
        pool.trim_to(0).unwrap();
        pool.peaks().unwrap();
    });
}

#[allow(unsafe_code, reason = "a launch")]
pub(crate) fn modules() {
    during_a_capture(|backend, queue| {
        let module = CudaModule::load_ptx(backend, include_str!("../add_to.ptx")).unwrap();
        let kernel = module.kernel("add_to").unwrap();
        let [sum, operand] = [(); 2].map(|()| block(backend));
        let arguments = [&sum, &operand].map(Argument::Memory);
        let arguments = [arguments[0], arguments[1], Argument::U64(64)];
        // SAFETY: These are the parameters of the kernel.
        unsafe { kernel.launch(queue, Grid::of_threads(64, 64), &arguments, &[]) }.unwrap();
        queue.finish().unwrap();
    });
}

/// Prints what the way around a capture costs.
pub(crate) fn costs() {
    let (driver, backend) = (driver(), open());
    let queue = queue(&backend);
    let gate = backend.create_user_event().unwrap();
    let marker = backend
        .enqueue_marker(queue.after(from_ref(&gate)))
        .unwrap();
    let start = Instant::now();
    for _ in 0..CALLS {
        assert_eq!(marker.status().unwrap(), EventStatus::Pending);
    }
    let asking = start.elapsed() / CALLS;
    backend
        .resolve_user_event(&gate, Outcome::Complete)
        .unwrap();
    let exchange =
        call!(driver, b"cuThreadExchangeStreamCaptureMode": extern "system" fn(*mut u32) -> i32);
    let start = Instant::now();
    for _ in 0..CALLS {
        let mut mode = RELAXED;
        assert_eq!(exchange(&raw mut mode), 0);
        assert_eq!((mode, exchange(&raw mut mode)), (GLOBAL, 0));
    }
    let exchanging = start.elapsed() / CALLS;
    println!(
        "an event is asked for in {asking:?}, of which two changes of the mode take {exchanging:?}"
    );
}
