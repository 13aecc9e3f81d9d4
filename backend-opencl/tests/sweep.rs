//! Every call of an allocator over OpenCL fails once, in every way. Only a check that did not get what it needs may panic, every
//! counter is right, the pool serves again, and no memory object of the runtime is left.
//!
//! [`Failing`] makes the failures above the runtime. The objects that have to be released after a failure are real ones, and the
//! runtime says when they have been destroyed.
//!
//! A process of its own, since every panic in it, on any thread, is a finding.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[allow(dead_code, reason = "it uses a part of it")]
#[path = "it/common/mod.rs"]
mod common;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use binpool::{
    Allocator, Backend, Budget, DeferredAllocator, Error, ImmediateAllocator, Memory, PoolOptions,
    PooledBuffer, Queue, QueueOrder, Region, SvmAllocator, SvmGrain,
};
use binpool_allocators::MemoryKind;
use binpool_allocators::forward_to_inner;
use binpool_conformance::Failing;
use binpool_conformance::{
    AllocatorFixture, allocator_checks,
    sweep::{Ends, FaultInjector, SweepReport, SweptAllocator, sweep, sweep_checks},
};
use binpool_opencl::{ClEvent, ClMemory, OpenClBackend};

/// Counts the memory of an allocator until the runtime says that it is destroyed: buffers and views. The runtime does not say that
/// of shared virtual memory, which is counted until it is released.
#[derive(Clone, Debug)]
struct Counted<A> {
    inner: A,
    live: Arc<AtomicUsize>,
}

impl<A> Counted<A> {
    fn count(&self, memory: ClMemory) -> ClMemory {
        self.live.fetch_add(1, Ordering::Relaxed);
        if memory.kind() == MemoryKind::Buffer {
            let live = Arc::clone(&self.live);
            let gone = move || {
                live.fetch_sub(1, Ordering::Relaxed);
            };
            memory.on_destroy(gone).unwrap();
        }
        memory
    }
}

impl<A: Allocator<Backend = OpenClBackend>> Allocator for Counted<A> {
    forward_to_inner!(properties);
    forward_to_inner!(limits);

    fn allocate(&self, bytes: usize) -> Result<ClMemory, Error> {
        Ok(self.count(self.inner.allocate(bytes)?))
    }

    fn release(&self, memory: ClMemory, after: &[ClEvent]) -> Result<(), Error> {
        if memory.kind() != MemoryKind::Buffer {
            self.live.fetch_sub(1, Ordering::Relaxed);
        }
        self.inner.release(memory, after)
    }

    fn create_view(&self, block: &ClMemory, region: Region) -> Result<ClMemory, Error> {
        let view = self.inner.create_view(block, region)?;
        if view.kind() == MemoryKind::Buffer {
            return Ok(self.count(view));
        }
        Ok(view)
    }

    fn release_view(&self, view: ClMemory) {
        self.inner.release_view(view);
    }
}

/// What is left of a run. The runtime releases memory in its own time.
fn left_behind(live: &AtomicUsize) -> Vec<String> {
    for _ in 0..20_000 {
        if live.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        thread::sleep(Duration::from_micros(100));
    }
    vec![format!(
        "{} memory objects are left",
        live.load(Ordering::Relaxed)
    )]
}

/// An allocator whose calls fail, of whose memory nothing is to be left after each run.
fn failing<A: Allocator<Backend = OpenClBackend>>(
    backend: &OpenClBackend,
    allocator: fn(&OpenClBackend) -> A,
) -> SweptAllocator<Counted<A>> {
    let live = Arc::<AtomicUsize>::default();
    let counted = Counted {
        inner: allocator(backend),
        live: Arc::clone(&live),
    };
    SweptAllocator::new(Failing::new(counted)).with_violations(move || left_behind(&live))
}

fn immediate(backend: &OpenClBackend) -> ImmediateAllocator<OpenClBackend> {
    ImmediateAllocator::new(backend).unwrap()
}

fn svm(backend: &OpenClBackend) -> SvmAllocator<OpenClBackend> {
    SvmAllocator::new(backend, SvmGrain::Coarse).unwrap()
}

/// The allocator of a run.
struct Fails<A>(SweptAllocator<Counted<A>>);

impl<A: Allocator<Backend = OpenClBackend> + Clone> AllocatorFixture for Fails<A> {
    type Allocator = Failing<Counted<A>>;

    fn allocator(&self) -> Self::Allocator {
        self.0.allocator().clone()
    }
}

fn every_check_of<A: Allocator<Backend = OpenClBackend> + Clone>(
    allocator: fn(&OpenClBackend) -> A,
) {
    let backend = common::open();
    let report = sweep_checks(allocator_checks(), || failing(&backend, allocator), Fails);
    println!("{report}");
    report.assert_no_findings();
}

#[test]
fn every_check_of_an_allocator() {
    every_check_of(immediate);
    every_check_of(DeferredAllocator::new);
}

/// A pool with bins or segments, on queues of both orders, that runs into its limit.
fn pool_program<A: Allocator<Backend = OpenClBackend> + Clone>(
    failing: &SweptAllocator<Counted<A>>,
    options: &PoolOptions,
) {
    const LIMIT: usize = 1 << 20;
    let backend = failing.allocator().backend().clone();
    let [home, other] = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
    let budget = Budget::new(LIMIT as u64);
    let options = options.clone().budget(&budget);
    let pool = options.build(failing.allocator().clone(), &home).unwrap();
    let mut live: Vec<PooledBuffer<_>> = Vec::new();
    for (step, bytes) in [
        100,
        5000,
        70_000,
        100,
        LIMIT / 2,
        5000,
        LIMIT / 3,
        LIMIT / 2,
    ]
    .into_iter()
    .enumerate()
    {
        let queue = if step % 2 == 0 { &home } else { &other };
        if let Ok(block) = pool.allocate_on(queue, bytes) {
            drop(block.enqueue_fill(queue, 0..block.size(), &[1_u8]).unwrap());
            live.push(block);
        }
        if step % 3 == 2 && !live.is_empty() {
            // A failure that is made up: the block is back all the same.
            let _failed = live.swap_remove(0).release();
        }
    }
    if let Some(block) = live.pop() {
        let _failed = block.enqueue_release(Some(&other), &[]);
    }
    pool.trim_to(LIMIT as u64 / 2);
    drop(live);
    failing.repair();
    assert_eq!(pool.active_blocks(), 0);
    assert!(budget.used_bytes() >= pool.managed_bytes());
    for queue in [&home, &other] {
        queue.finish().unwrap();
        let block = pool.allocate_on(queue, 1000).unwrap();
        let written = block.enqueue_fill(queue, 0..1000, &[7_u8]).unwrap();
        let mut bytes = [0_u8; 1000];
        block.read(queue.after(&[written]), 0, &mut bytes).unwrap();
        assert_eq!(bytes, [7; 1000]);
    }
    pool.free_held();
    drop(pool);
    for queue in [home, other] {
        queue.finish().unwrap();
    }
}

fn every_pool_of<A: Allocator<Backend = OpenClBackend> + Clone>(
    allocator: fn(&OpenClBackend) -> A,
) {
    let backend = common::open();
    let mut report = SweepReport::default();
    for segments in [true, false] {
        let options = PoolOptions::new().segments(segments);
        let name = format!("a pool, segments: {segments}");
        let fresh = || failing(&backend, allocator);
        report.add(sweep(&name, Ends::Always, fresh, move |failing| {
            pool_program(failing, &options);
        }));
    }
    println!("{report}");
    report.assert_no_findings();
}

#[test]
fn every_pool() {
    every_pool_of(immediate);
    every_pool_of(DeferredAllocator::new);
    every_pool_of(svm);
}
