//! Functions of the program's that use the pool, or end a part of it, while the pool calls them.

use std::{
    io::{self, Write},
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    time::Duration,
};

use binpool::{
    Allocator, Backend, Error, ImmediateAllocator, MemoryPool, PoolOptions, PoolRecording,
    QueueOrder, Sweeper,
};
use binpool_allocators::{EventOf, MemoryOf};
use binpool_mock::{MockBackend, MockDevice};

use crate::common::{MIB, Pool, Rig};

/// Is called with each release.
type OnRelease = Box<dyn Fn() + Send + Sync>;

/// Calls the program while it takes memory back.
struct Telling {
    inner: ImmediateAllocator<MockBackend>,
    on_release: Arc<OnceLock<OnRelease>>,
}

impl std::fmt::Debug for Telling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Telling").finish_non_exhaustive()
    }
}

impl Allocator for Telling {
    type Backend = MockBackend;

    fn backend(&self) -> &MockBackend {
        self.inner.backend()
    }

    fn allocate(&self, bytes: usize) -> Result<MemoryOf<Self>, Error> {
        self.inner.allocate(bytes)
    }

    fn release(&self, memory: MemoryOf<Self>, after: &[EventOf<Self>]) -> Result<(), Error> {
        if let Some(call) = self.on_release.get() {
            call();
        }
        self.inner.release(memory, after)
    }

    fn is_deferred(&self) -> bool {
        self.inner.is_deferred()
    }
}

/// A pool of blocks of their own over 64 MiB, and what is called while a block goes back.
fn telling_pool() -> (MemoryPool<MockBackend>, Arc<OnceLock<OnRelease>>) {
    let device = MockDevice::builder().capacity_bytes(64 << 20).build();
    let backend = device.backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let on_release = Arc::<OnceLock<OnRelease>>::default();
    let allocator = Telling {
        inner: ImmediateAllocator::new(&backend).unwrap(),
        on_release: Arc::clone(&on_release),
    };
    let options = PoolOptions::new().segments(false);
    (options.build(allocator, &queue).unwrap(), on_release)
}

#[test]
fn a_request_from_inside_of_a_release_does_not_wait_for_that_release() {
    let (pool, on_release) = telling_pool();
    let kept = pool.allocate(40 * MIB).unwrap();
    drop(pool.allocate(16 * MIB).unwrap());
    let (tell, told) = mpsc::channel();
    let weak = pool.downgrade();
    let ask = move || {
        let pool = weak.upgrade().unwrap();
        tell.send(pool.allocate(60 * MIB).unwrap_err()).unwrap();
    };
    assert!(on_release.set(Box::new(ask)).is_ok());
    assert_eq!(pool.free_held(), 16 << 20);
    assert!(told.try_recv().unwrap().is_out_of_memory());
    // Nothing is on its way any more that a later request would wait for.
    assert!(pool.allocate(60 * MIB).is_err());
    drop(kept);
}

#[test]
fn a_sweeper_can_be_dropped_on_its_own_thread() {
    let (pool, on_release) = telling_pool();
    let sweeper = Arc::<Mutex<Option<Sweeper>>>::default();
    let (to_drop, (tell, dropped)) = (Arc::clone(&sweeper), mpsc::channel());
    let end = move || {
        let sweeper = to_drop.lock().unwrap().take();
        if sweeper.is_some() {
            drop(sweeper);
            tell.send(()).unwrap();
        }
    };
    assert!(on_release.set(Box::new(end)).is_ok());
    {
        // Until it is there to be dropped.
        let mut place = sweeper.lock().unwrap();
        drop(pool.allocate(MIB).unwrap());
        *place = Some(pool.sweep_in_background(Duration::ZERO).unwrap());
    }
    assert_eq!(dropped.recv(), Ok(()), "its thread has not panicked");
}

#[test]
fn a_hook_whose_own_request_does_not_fit_is_not_called_for_it() {
    let rig = Rig::with_capacity(MIB);
    let calls = Arc::new(AtomicU32::new(0));
    let (weak, count) = (rig.pool.downgrade(), Arc::clone(&calls));
    rig.pool.add_reclaim_hook(move |_| {
        let refused = weak.upgrade().unwrap().allocate(MIB);
        let is_refused = refused.is_err_and(|error| error.is_out_of_memory());
        count.fetch_add(u32::from(is_refused), Ordering::Relaxed);
        false
    });
    let all = rig.pool.allocate(MIB).unwrap();
    for round in 1..3 {
        assert!(rig.pool.allocate(MIB).unwrap_err().is_out_of_memory());
        assert_eq!(calls.load(Ordering::Relaxed), round);
    }
    drop(all);
}

#[test]
fn hooks_of_two_pools_that_ask_each_other_come_to_an_end() {
    let rigs = [(); 2].map(|()| Rig::with_capacity(MIB));
    let calls = [(); 2].map(|()| Arc::new(AtomicU32::new(0)));
    for (rig, other, count) in [
        (&rigs[0], &rigs[1], &calls[0]),
        (&rigs[1], &rigs[0], &calls[1]),
    ] {
        let (other, count) = (other.pool.downgrade(), Arc::clone(count));
        rig.pool.add_reclaim_hook(move |_| {
            let is_refused = other.upgrade().unwrap().allocate(MIB).is_err();
            count.fetch_add(u32::from(is_refused), Ordering::Relaxed);
            false
        });
    }
    let all = rigs.each_ref().map(|rig| rig.pool.allocate(MIB).unwrap());
    assert!(rigs[0].pool.allocate(MIB).is_err());
    // The hooks of each pool once: a pool that a hook asks still has hooks of its own.
    assert_eq!(calls.map(|calls| calls.load(Ordering::Relaxed)), [1, 1]);
    drop(all);
}

/// A writer that does something with each piece.
struct Busy<F>(F);

impl<F: FnMut()> Write for Busy<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (self.0)();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A pool, and a writer that asks it for a hundred blocks with each piece.
fn pool_and_its_writer() -> (Pool, Busy<impl FnMut()>) {
    let pool = Rig::with_capacity(64 * MIB).pool;
    let weak = pool.downgrade();
    let writer = Busy(move || {
        if let Some(pool) = weak.upgrade() {
            (0..100).for_each(|_| drop(pool.allocate(5000).unwrap()));
        }
    });
    (pool, writer)
}

#[test]
fn what_the_writer_of_a_recording_asks_for_is_not_recorded() {
    let (pool, writer) = pool_and_its_writer();
    let recording = pool.record(writer).unwrap();
    for _ in 0..10_000 {
        drop(pool.allocate(100).unwrap());
    }
    let summary = recording.finish().unwrap();
    assert_eq!((summary.allocations, summary.frees), (10_000, 10_000));
    assert!(pool.statistics().hits >= 10_099, "it did ask");
}

#[test]
fn what_the_writer_of_a_recording_frees_for_others_is_recorded() {
    let rig = Rig::with_capacity(64 * MIB);
    let to_drop = Arc::new(Mutex::new(None));
    let given = Arc::clone(&to_drop);
    let (tell, told) = mpsc::channel();
    let writer = Busy(move || {
        if given.lock().unwrap().take().is_some() {
            tell.send(()).unwrap();
        }
    });
    let recording = rig.pool.record(writer).unwrap();
    *to_drop.lock().unwrap() = Some(rig.pool.allocate(100).unwrap());
    told.recv().unwrap();
    let summary = recording.finish().unwrap();
    assert_eq!((summary.allocations, summary.frees), (1, 1));
}

#[test]
fn a_recording_can_be_ended_by_its_own_writer() {
    for is_finished in [false, true] {
        let rig = Rig::with_capacity(64 * MIB);
        let recording = Arc::<Mutex<Option<PoolRecording>>>::default();
        let to_end = Arc::clone(&recording);
        let (tell, told) = mpsc::channel();
        let writer = Busy(move || {
            if let Some(recording) = to_end.lock().unwrap().take() {
                let result = is_finished.then(|| recording.finish());
                tell.send(result).unwrap();
            }
        });
        *recording.lock().unwrap() = Some(rig.pool.record(writer).unwrap());
        drop(rig.pool.allocate(100).unwrap());
        let kind = told.recv().unwrap().map(|it| it.unwrap_err().kind());
        assert_eq!(kind, is_finished.then_some(io::ErrorKind::Deadlock));
        // It has ended.
        assert!(rig.pool.record(io::sink()).is_ok());
    }
}
