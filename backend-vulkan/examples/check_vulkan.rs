//! Checks the backend on a real device: every promise of the traits, with pages where the device has sparse binding, and a pool from several
//! threads. Prints a table, and fails where a promise is broken.
//!
//!     cargo run -p binpool-vulkan --example check_vulkan [NUMBER]

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a check fails by panicking"
)]

use std::{
    panic::{UnwindSafe, catch_unwind},
    process::ExitCode,
    sync::OnceLock,
    thread,
    time::Instant,
};

use binpool::MemoryPool;
use binpool_allocators::{
    Allocator, Backend, ImmediateAllocator, QueueOrder, VirtualMemory, VirtualMemoryAllocator,
    runtime::Runtime as _,
};
use binpool_conformance::{
    AllocatorFixture, Fixture, Random, allocator_checks, backend_checks, hazard_checks,
    pending_checks, virtual_memory_checks,
};
use binpool_vulkan::VulkanBackend;

static NUMBER: OnceLock<usize> = OnceLock::new();

fn open() -> VulkanBackend {
    VulkanBackend::open(*NUMBER.get().unwrap_or(&0)).unwrap()
}

struct Vulkan;

impl Fixture for Vulkan {
    type Backend = VulkanBackend;

    fn backend(&self) -> VulkanBackend {
        open()
    }
}

/// The core puts conflicting commands in order.
struct Ordered;

impl Fixture for Ordered {
    type Backend = VulkanBackend;

    fn backend(&self) -> VulkanBackend {
        let backend = open();
        backend.core().order_conflicts();
        backend
    }
}

struct Immediate;

impl AllocatorFixture for Immediate {
    type Allocator = ImmediateAllocator<VulkanBackend>;

    fn allocator(&self) -> Self::Allocator {
        ImmediateAllocator::new(&open()).unwrap()
    }
}

/// The checks of one part, and how they went.
struct Table {
    failed: usize,
}

impl Table {
    fn run(&mut self, part: &str, name: &str, check: impl FnOnce() + UnwindSafe) {
        let start = Instant::now();
        let passed = catch_unwind(check).is_ok();
        self.failed += usize::from(!passed);
        let outcome = if passed { "passed" } else { "FAILED" };
        let milliseconds = start.elapsed().as_millis();
        println!("| {part:<11} | {name:<75} | {outcome} | {milliseconds:>6} ms |");
    }
}

/// A pool with blocks on two queues, from several threads.
fn pool<A: Allocator<Backend = VulkanBackend>>(allocator: A, backend: &VulkanBackend) {
    let queues = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
    let pool = MemoryPool::new(allocator, &queues[0]).unwrap();
    thread::scope(|scope| {
        for seed in 0..4 {
            let (pool, queues) = (&pool, &queues);
            scope.spawn(move || {
                let mut random = Random::new(seed);
                for step in 0..300_usize {
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

fn main() -> ExitCode {
    if let Some(number) = std::env::args().nth(1).and_then(|text| text.parse().ok()) {
        let _first = NUMBER.set(number);
    }
    let has_pages = match VulkanBackend::open(*NUMBER.get().unwrap_or(&0)) {
        Ok(backend) => {
            println!("{}\n", backend.limits().device_name);
            backend.page_bytes() > 0
        }
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let mut table = Table { failed: 0 };
    for check in backend_checks() {
        table.run("backend", check.name, || (check.run)(&Vulkan));
    }
    for check in pending_checks() {
        table.run("user events", check.name, || (check.run)(&Vulkan));
    }
    for check in hazard_checks() {
        table.run("hazards", check.name, || (check.run)(&Ordered));
    }
    for check in allocator_checks() {
        table.run("immediate", check.name, || (check.run)(&Immediate));
    }
    table.run("pool", "blocks keep their bytes", || {
        let backend = open();
        pool(ImmediateAllocator::new(&backend).unwrap(), &backend);
    });
    if has_pages {
        for check in virtual_memory_checks() {
            table.run("pages", check.name, || (check.run)(&Vulkan));
        }
        table.run("pool", "blocks in pages keep their bytes", || {
            let backend = open();
            pool(VirtualMemoryAllocator::new(&backend), &backend);
        });
    }
    println!("\n{} failed", table.failed);
    ExitCode::from(u8::from(table.failed > 0))
}
