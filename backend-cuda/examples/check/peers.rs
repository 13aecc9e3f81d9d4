//! What needs two devices.

use std::{
    ffi::c_void,
    slice::from_ref,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Instant,
};

use binpool::MemoryPool;
use binpool_allocators::{
    Allocator, Backend, Event, ImmediateAllocator, Memory, MemoryFlags, Queue, Region,
    VirtualMemory, VirtualMemoryAllocator,
};
use binpool_conformance::Random;
use binpool_cuda::{CudaBackend, CudaMemory, DriverPoolAllocator};
use libloading::Library;

use crate::{DRIVER, queue};

const BYTES: usize = 1 << 20;

fn pair() -> [CudaBackend; 2] {
    [0, 1].map(|ordinal| CudaBackend::open(ordinal).unwrap())
}

/// A reservation with memory.
fn mapped(backend: &CudaBackend, bytes: usize) -> CudaMemory {
    let pages = backend.create_pages(bytes).unwrap();
    let reservation = backend.reserve(pages.bytes()).unwrap();
    backend.map(&reservation, 0, &pages).unwrap();
    reservation
}

/// Memory of each kind.
fn all_kinds(backend: &CudaBackend) -> Vec<CudaMemory> {
    let pool = DriverPoolAllocator::new(backend).unwrap();
    vec![
        backend.create_buffer(BYTES, MemoryFlags::empty()).unwrap(),
        mapped(backend, BYTES),
        pool.allocate(BYTES).unwrap(),
        backend.create_managed(BYTES).unwrap(),
        backend
            .create_buffer(BYTES, MemoryFlags::HOST_RESIDENT)
            .unwrap(),
    ]
}

/// Copies memory of each kind to each kind on the other device, on the queue of either.
pub(crate) fn copies() {
    let [one, two] = pair();
    let queues = [queue(&one), queue(&two)];
    let mut random = Random::new(7);
    for (here, there) in [(&one, &two), (&two, &one)] {
        for source in &all_kinds(here) {
            for destination in &all_kinds(there) {
                for queue in &queues {
                    let mark = u8::try_from(random.below(256)).unwrap();
                    let all = Region::first(BYTES);
                    let fill = here.enqueue_fill(queue, source, all, &[mark, 1, 2, 3]);
                    let copy = here
                        .enqueue_copy(queue.after(&[fill.unwrap()]), source, all, destination, 0)
                        .unwrap();
                    let read = there
                        .enqueue_read(queues[1].after(&[copy]), destination, all)
                        .unwrap();
                    assert_eq!(read.wait().unwrap(), [mark, 1, 2, 3].repeat(BYTES / 4));
                }
            }
        }
    }
    assert!(!one.is_lost() && !two.is_lost());
}

/// Copies a large block each way, and prints how fast.
pub(crate) fn speed() {
    const LARGE: usize = 256 << 20;

    let [one, two] = pair();
    for (here, there) in [(&one, &two), (&two, &one)] {
        let queue = queue(here);
        for (name, source, destination) in [
            (
                "cuMemAlloc",
                here.create_buffer(LARGE, MemoryFlags::empty()).unwrap(),
                there.create_buffer(LARGE, MemoryFlags::empty()).unwrap(),
            ),
            ("pages", mapped(here, LARGE), mapped(there, LARGE)),
        ] {
            let copy = || {
                here.enqueue_copy(&queue, &source, Region::first(LARGE), &destination, 0)
                    .unwrap()
            };
            copy().wait().unwrap();
            let start = Instant::now();
            copy().wait().unwrap();
            let seconds = start.elapsed().as_secs_f64();
            println!("  {name}: {:.0} MiB/s", 256.0 / seconds);
        }
    }
}

/// Pools of both devices, whose blocks go to and fro, from several threads.
pub(crate) fn pools() {
    let [one, two] = pair();
    let queues = [queue(&one), queue(&two)];
    let here = MemoryPool::new(VirtualMemoryAllocator::new(&one), &queues[0]).unwrap();
    let there = MemoryPool::new(ImmediateAllocator::new(&two).unwrap(), &queues[1]).unwrap();
    let crossed = AtomicU64::new(0);
    thread::scope(|scope| {
        for seed in 0..4 {
            let (here, there, queues, crossed) = (&here, &there, &queues, &crossed);
            scope.spawn(move || {
                let mut random = Random::new(seed);
                for step in 0..200_usize {
                    let (first, second) = (&queues[random.below(2)], &queues[random.below(2)]);
                    let bytes = 1 + random.below(2 << 20);
                    let mark = u8::try_from(step % 256).unwrap();
                    let block = here.allocate_on(first, bytes).unwrap();
                    let copy = there.allocate_on(first, bytes).unwrap();
                    block.enqueue_fill(first, .., &[mark]).unwrap();
                    let done = block.enqueue_copy_to(first, &copy).unwrap();
                    drop(block);
                    let read = copy.enqueue_read(second.after(from_ref(&done)), ..);
                    assert!(
                        read.unwrap()
                            .wait()
                            .unwrap()
                            .iter()
                            .all(|byte| *byte == mark)
                    );
                    crossed.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(crossed.load(Ordering::Relaxed), 800);
    assert!(!one.is_lost() && !two.is_lost());
}

/// Commands of one device write to memory of the other, as kernels of a program do.
pub(crate) fn peer_access() {
    let [one, two] = pair();
    for (here, there) in [(&one, &two), (&two, &one)] {
        assert!(here.enable_peer_access(there).unwrap(), "they are no peers");
        let queue = queue(there);
        let pool = DriverPoolAllocator::new(there).unwrap();
        for memory in [
            there.create_buffer(BYTES, MemoryFlags::empty()).unwrap(),
            mapped(there, BYTES),
            pool.allocate(BYTES).unwrap(),
        ] {
            set(here, memory.device_address().unwrap(), 7);
            let mut bytes = vec![0_u8; BYTES];
            there.read(&queue, &memory, 0, &mut bytes).unwrap();
            assert_eq!(bytes, vec![7; BYTES]);
        }
        assert!(!one.is_lost() && !two.is_lost());
    }
}

/// Sets bytes by the driver's own call, in the context of a device, and leaves no context current.
#[allow(unsafe_code, reason = "calls of the driver")]
fn set(backend: &CudaBackend, address: u64, value: u8) {
    // SAFETY: It is the driver, which is loaded already.
    let driver = unsafe { Library::new(DRIVER) }.unwrap();
    // SAFETY: The call has this signature.
    let current =
        unsafe { driver.get::<extern "system" fn(*mut c_void) -> i32>(b"cuCtxSetCurrent") };
    // SAFETY: The call has this signature.
    let set = unsafe {
        driver.get::<extern "system" fn(u64, u8, usize, usize) -> i32>(b"cuMemsetD8Async")
    };
    // SAFETY: The call has this signature.
    let wait = unsafe { driver.get::<extern "system" fn() -> i32>(b"cuCtxSynchronize") };
    let (current, set, wait) = (current.unwrap(), set.unwrap(), wait.unwrap());
    assert_eq!(current(backend.raw_context()), 0);
    assert_eq!((set(address, value, BYTES, 0), wait()), (0, 0));
    assert_eq!(current(std::ptr::null_mut()), 0);
}
