//! Memory that another thread is just giving back.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use binpool::{Allocator, Backend, Error, ImmediateAllocator, MemoryPool, PoolOptions, QueueOrder};
use binpool_allocators::MemoryOf;
use binpool_mock::{MockBackend, MockDevice, MockEvent};

/// All memory of the device, and one block.
const ALL: usize = 4096;

/// What a thread that gives memory back has come to.
#[derive(Debug, Default)]
struct Progress {
    has_begun: AtomicBool,
    may_go_on: AtomicBool,
    has_ended: AtomicBool,
    /// Allocations that were refused.
    refusals: AtomicUsize,
}

impl Progress {
    fn wait_until(flag: &AtomicBool) {
        while !flag.load(Ordering::Acquire) {
            thread::yield_now();
        }
    }
}

/// Takes a while to take memory back, from when it may go on.
#[derive(Debug)]
struct Slow {
    inner: ImmediateAllocator<MockBackend>,
    progress: Arc<Progress>,
}

impl Allocator for Slow {
    type Backend = MockBackend;

    fn backend(&self) -> &MockBackend {
        self.inner.backend()
    }

    fn allocate(&self, bytes: usize) -> Result<MemoryOf<Self>, Error> {
        let memory = self.inner.allocate(bytes);
        // The first time, the pool looks further, and the second time there is nothing else.
        if memory.is_err() && self.progress.refusals.fetch_add(1, Ordering::Relaxed) == 1 {
            self.progress.may_go_on.store(true, Ordering::Release);
        }
        memory
    }

    fn release(&self, memory: MemoryOf<Self>, after: &[MockEvent]) -> Result<(), Error> {
        self.progress.has_begun.store(true, Ordering::Release);
        Progress::wait_until(&self.progress.may_go_on);
        (0..10_000).for_each(|_| thread::yield_now());
        let result = self.inner.release(memory, after);
        self.progress.has_ended.store(true, Ordering::Release);
        result
    }

    fn is_deferred(&self) -> bool {
        self.inner.is_deferred()
    }
}

fn slow_pool() -> (MemoryPool<MockBackend>, Arc<Progress>) {
    let builder = MockDevice::builder().capacity_bytes(ALL as u64);
    let backend = builder.build().backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let progress = Arc::<Progress>::default();
    let allocator = Slow {
        inner: ImmediateAllocator::new(&backend).unwrap(),
        progress: Arc::clone(&progress),
    };
    let options = PoolOptions::new().segments(false);
    (options.build(allocator, &queue).unwrap(), progress)
}

#[test]
fn a_request_waits_for_what_another_thread_gives_back() {
    let (pool, progress) = slow_pool();
    let block = pool.allocate(ALL).unwrap();
    pool.stop_holding();
    thread::scope(|scope| {
        scope.spawn(move || drop(block));
        Progress::wait_until(&progress.has_begun);
        assert!(pool.allocate(ALL).is_ok());
        assert!(progress.refusals.load(Ordering::Relaxed) >= 2);
    });
}

#[test]
fn dropping_a_sweeper_waits_for_its_sweep() {
    let (pool, progress) = slow_pool();
    drop(pool.allocate(ALL).unwrap());
    let sweeper = pool.sweep_in_background(Duration::ZERO).unwrap();
    Progress::wait_until(&progress.has_begun);
    progress.may_go_on.store(true, Ordering::Release);
    drop(sweeper);
    assert!(progress.has_ended.load(Ordering::Acquire));
}
