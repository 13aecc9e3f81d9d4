//! Checks the backend on the real device 0: every promise of the traits, and what a stand-in for the driver cannot show. Where there is a
//! device 1, checks both together. Prints a table, and fails where a promise is broken.
//!
//!     cargo run -p binpool-cuda --example check
//!     cargo run --release -p binpool-cuda --example check 1000000   # Pages change their address so often, instead of 100 000 times.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a check fails by panicking"
)]

mod captures;
mod elsewhere;
mod hand_overs;
mod peers;
#[cfg(target_os = "linux")]
mod share;

#[cfg(target_os = "linux")]
use std::process::Command;
use std::{panic::catch_unwind, process::ExitCode, thread, time::Instant};

use binpool::MemoryPool;
use binpool_allocators::{
    Allocator, Backend, ImmediateAllocator, Memory, MemoryFlags, Queue, QueueOrder, Region,
    VirtualMemory, VirtualMemoryAllocator,
};
use binpool_conformance::Random;
use binpool_conformance::{
    AllocatorFixture, Fixture, allocator_checks, backend_checks, pending_checks,
    virtual_memory_checks,
};
use binpool_cuda::{CudaBackend, CudaDevice, CudaLibrary, CudaQueue, DriverPoolAllocator};

use crate::elsewhere::Elsewhere;

const DRIVER: &str = if cfg!(windows) {
    "nvcuda.dll"
} else {
    "libcuda.so.1"
};

/// The driver, as a library whose objects are foreign to all others.
#[allow(unsafe_code, reason = "the library is the driver")]
fn library() -> CudaLibrary {
    // SAFETY: The library of this name is NVIDIA's.
    unsafe { CudaLibrary::open(DRIVER) }.unwrap()
}

fn open() -> CudaBackend {
    open_of(&library(), 0)
}

fn open_of(library: &CudaLibrary, ordinal: u32) -> CudaBackend {
    CudaDevice::of(library, ordinal).unwrap().backend().unwrap()
}

fn queue(backend: &CudaBackend) -> CudaQueue {
    backend.create_queue(QueueOrder::InOrder).unwrap()
}

/// This many hand-overs between addresses are checked, unless the program is told how many.
const HAND_OVERS: usize = 100_000;

/// The argument of the process that imports a block.
#[cfg(target_os = "linux")]
const IMPORT: &str = "import";

/// Each is of this many words: enough for half of the multiprocessors of a large device.
const WORDS: usize = 1 << 14;

/// A device that others use too, so that no capacity is enforced.
struct Cuda;

impl Fixture for Cuda {
    type Backend = CudaBackend;

    fn backend(&self) -> CudaBackend {
        open()
    }
}

/// Memory of device 0 on queues of device 1.
struct OnAnotherDevice;

impl Fixture for OnAnotherDevice {
    type Backend = Elsewhere;

    fn backend(&self) -> Elsewhere {
        let library = library();
        let [memory, queues] = [0, 1].map(|ordinal| open_of(&library, ordinal));
        Elsewhere { memory, queues }
    }
}

struct Immediate;

impl AllocatorFixture for Immediate {
    type Allocator = ImmediateAllocator<CudaBackend>;

    fn allocator(&self) -> Self::Allocator {
        ImmediateAllocator::new(&open()).unwrap()
    }
}

struct OfDriver;

impl AllocatorFixture for OfDriver {
    type Allocator = DriverPoolAllocator;

    fn allocator(&self) -> Self::Allocator {
        DriverPoolAllocator::new(&open()).unwrap()
    }
}

/// The checks of one part, and how they went.
struct Table {
    failed: usize,
}

impl Table {
    fn run(&mut self, part: &str, name: &str, check: impl FnOnce() + std::panic::UnwindSafe) {
        let start = Instant::now();
        let passed = catch_unwind(check).is_ok();
        self.failed += usize::from(!passed);
        let outcome = if passed { "passed" } else { "FAILED" };
        let milliseconds = start.elapsed().as_millis();
        println!("| {part:<11} | {name:<75} | {outcome} | {milliseconds:>6} ms |");
    }
}

/// Other threads enqueue while pages are mapped, and the reservation is dropped with pages in it.
fn pages_move_while_threads_enqueue() {
    let backend = open();
    let page = backend.page_bytes();
    let reservation = backend.reserve(8 * page).unwrap();
    thread::scope(|scope| {
        for part in 0..4_u8 {
            let (backend, reservation) = (&backend, &reservation);
            scope.spawn(move || {
                let queue = queue(backend);
                let pages = backend.create_pages(page).unwrap();
                for round in 0..50 {
                    let at = (usize::from(part) * 2 + round % 2) * page;
                    backend.map(reservation, at, &pages).unwrap();
                    let mut seen = [0_u8; 2];
                    backend.write(&queue, reservation, at, &[part; 2]).unwrap();
                    backend.read(&queue, reservation, at, &mut seen).unwrap();
                    assert_eq!(seen, [part; 2]);
                    if round < 49 {
                        backend.unmap(reservation, Region::new(at, page)).unwrap();
                    }
                }
            });
        }
    });
}

fn kinds_of_memory() {
    let backend = open();
    let queue = queue(&backend);
    let blocks = [
        backend.create_buffer(1 << 20, MemoryFlags::empty()),
        backend.create_buffer(1 << 20, MemoryFlags::HOST_RESIDENT),
        backend.create_managed(1 << 20),
    ];
    for block in blocks {
        let block = block.unwrap();
        for pattern in [&[1_u8, 2][..], &[1, 2, 3, 4], &[1, 2, 3, 4, 5, 6, 7, 8]] {
            let all = Region::first(block.bytes());
            let fill = backend.enqueue_fill(&queue, &block, all, pattern);
            drop(fill.unwrap());
            let mut bytes = vec![0_u8; block.bytes()];
            backend.read(&queue, &block, 0, &mut bytes).unwrap();
            assert_eq!(bytes, pattern.repeat(block.bytes() / pattern.len()));
        }
    }
}

fn default_streams() {
    let backend = open();
    for queue in [
        backend.legacy_default_queue(),
        backend.per_thread_default_queue(),
    ] {
        let block = backend.create_buffer(4096, MemoryFlags::empty()).unwrap();
        backend.write(&queue, &block, 0, &[3_u8; 4096]).unwrap();
        let read = backend.enqueue_read(&queue, &block, Region::new(100, 4));
        assert_eq!(read.unwrap().wait().unwrap(), [3; 4]);
    }
}

/// More than there is is out of memory, and the device goes on.
fn too_much_is_out_of_memory() {
    let backend = open();
    let largest = backend.limits().largest_block_bytes;
    for refused in [
        backend.create_buffer(largest, MemoryFlags::empty()),
        backend.create_pages(largest / backend.page_bytes() * backend.page_bytes()),
    ] {
        assert!(refused.unwrap_err().is_out_of_memory());
    }
    let memory = backend.device_memory().unwrap();
    assert!(memory.free_bytes < memory.total_bytes && !backend.is_lost());
    drop(backend.create_buffer(4096, MemoryFlags::empty()).unwrap());
}

/// A pool with blocks on two streams, from several threads.
fn pool<A: Allocator<Backend = CudaBackend>>(allocator: A, backend: &CudaBackend) {
    let queues = [(); 2].map(|()| queue(backend));
    let pool = MemoryPool::new(allocator, &queues[0]).unwrap();
    thread::scope(|scope| {
        for seed in 0..4 {
            let (pool, queues) = (&pool, &queues);
            scope.spawn(move || {
                let mut random = Random::new(seed);
                for step in 0..500_usize {
                    let queue = &queues[random.below(2)];
                    let bytes = 1 + random.below(8 << 20);
                    let block = pool.allocate_on(queue, bytes).unwrap();
                    let mark = u8::try_from(step % 256).unwrap();
                    block.enqueue_fill(queue, 0..bytes, &[mark]).unwrap();
                    let mut last = [0];
                    block.read(queue, bytes - 1, &mut last).unwrap();
                    assert_eq!(last, [mark]);
                }
            });
        }
    });
    assert!(!backend.is_lost());
}

/// A block that grows stays at its address, with its bytes, and what it no longer needs goes back.
fn growable() {
    let backend = open();
    let queue = queue(&backend);
    let pool = MemoryPool::new(VirtualMemoryAllocator::new(&backend), &queue).unwrap();
    let mut block = pool.growable_on(&queue, 64 << 30).unwrap();
    let address = block.memory_on(&queue).unwrap().device_address().unwrap();
    let step = 3 << 20;
    for mark in 1..=20_u8 {
        block.grow(step).unwrap();
        let region = block.size() - step..;
        block.enqueue_fill(&queue, region, &[mark]).unwrap();
    }
    let mut bytes = vec![0_u8; block.size()];
    block.read(&queue, 0, &mut bytes).unwrap();
    for (part, mark) in bytes.chunks(step).zip(1..) {
        assert!(part.iter().all(|byte| *byte == mark));
    }
    let now = block.memory_on(&queue).unwrap().device_address().unwrap();
    assert_eq!(now, address);
    block.shrink(19 * step).unwrap();
    queue.finish().unwrap();
    block.shrink(0).unwrap();
    assert_eq!(pool.managed_bytes(), 2 * backend.page_bytes() as u64);
}

#[cfg(target_os = "linux")]
fn shared_with_another_process() {
    let mut other = Command::new(std::env::current_exe().unwrap());
    other.arg(IMPORT);
    let backend = open();
    println!("pages can be exported: {}", backend.exports_pages());
    share::export(&backend, other);
}

fn two_devices(table: &mut Table) {
    for check in backend_checks() {
        table.run("far queues", check.name, || (check.run)(&OnAnotherDevice));
    }
    for check in pending_checks() {
        table.run("far queues", check.name, || (check.run)(&OnAnotherDevice));
    }
    // Peer access lasts as long as the contexts.
    let _kept = [0, 1].map(|ordinal| CudaBackend::open(ordinal).unwrap());
    table.run("two devices", "copies, no peers", peers::copies);
    table.run("two devices", "speed, no peers", peers::speed);
    table.run("two devices", "pools, no peers", peers::pools);
    table.run("two devices", "peer_access", peers::peer_access);
    table.run("two devices", "copies, peers", peers::copies);
    table.run("two devices", "speed, peers", peers::speed);
    table.run("two devices", "pools, peers", peers::pools);
}

fn main() -> ExitCode {
    #[cfg(target_os = "linux")]
    if std::env::args().nth(1).as_deref() == Some(IMPORT) {
        share::import(&open());
        return ExitCode::SUCCESS;
    }
    let hand_overs = match std::env::args().nth(1).map(|count| count.parse()) {
        None => HAND_OVERS,
        Some(Ok(count)) => count,
        Some(Err(error)) => {
            eprintln!("the number of hand-overs: {error}");
            return ExitCode::FAILURE;
        }
    };
    let has_two = match CudaDevice::all().as_deref() {
        Ok([device, others @ ..]) => {
            println!("{}, {} MiB\n", device.name(), device.total_bytes() >> 20);
            !others.is_empty()
        }
        Ok([]) => {
            eprintln!("there is no CUDA device");
            return ExitCode::FAILURE;
        }
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let mut table = Table { failed: 0 };
    for check in backend_checks() {
        table.run("backend", check.name, || (check.run)(&Cuda));
    }
    for check in pending_checks() {
        table.run("user events", check.name, || (check.run)(&Cuda));
    }
    for check in virtual_memory_checks() {
        table.run("pages", check.name, || (check.run)(&Cuda));
    }
    for check in allocator_checks() {
        table.run("immediate", check.name, || (check.run)(&Immediate));
    }
    for check in allocator_checks() {
        table.run("driver pool", check.name, || (check.run)(&OfDriver));
    }
    table.run("memory", "kinds_of_memory", kinds_of_memory);
    table.run(
        "memory",
        "too_much_is_out_of_memory",
        too_much_is_out_of_memory,
    );
    table.run("streams", "default_streams", default_streams);
    table.run(
        "pages",
        "pages_move_while_threads_enqueue",
        pages_move_while_threads_enqueue,
    );
    for (name, streams) in [("hand_overs", 1), ("hand_overs, two streams", 2)] {
        table.run("addresses", name, || {
            let wrong = hand_overs::between_addresses(&open(), WORDS, hand_overs, streams);
            assert_eq!(wrong, 0);
        });
    }
    table.run("addresses", "hand_overs, new addresses", || {
        assert_eq!(hand_overs::at_new_addresses(&open(), WORDS, hand_overs), 0);
    });
    table.run("captures", "events", captures::events);
    table.run("captures", "blocks", captures::blocks);
    table.run("captures", "pages", captures::pages);
    table.run(
        "captures",
        "pool_of_the_driver",
        captures::pool_of_the_driver,
    );
    table.run("captures", "modules", captures::modules);
    table.run("captures", "costs", captures::costs);
    table.run("pool", "of buffers", || {
        let backend = open();
        pool(ImmediateAllocator::new(&backend).unwrap(), &backend);
    });
    table.run("pool", "of pages", || {
        let backend = open();
        pool(VirtualMemoryAllocator::new(&backend), &backend);
    });
    table.run("pool", "a block that grows", growable);
    #[cfg(target_os = "linux")]
    table.run(
        "processes",
        "shared_with_another_process",
        shared_with_another_process,
    );
    table.run("pool", "of the driver's pool", || {
        let backend = open();
        pool(DriverPoolAllocator::new(&backend).unwrap(), &backend);
    });
    if has_two {
        two_devices(&mut table);
    }
    println!("\n{} failed", table.failed);
    ExitCode::from(u8::from(table.failed > 0))
}
