//! Functions of the program's that panic while the pool calls them: it loses no memory, and no later request waits forever.

use std::{
    panic::{self, AssertUnwindSafe, catch_unwind, panic_any},
    sync::{
        Arc, Mutex, Once,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use binpool::{
    Allocator, Backend, Budget, Error, ImmediateAllocator, LeadingBits, MemoryPool, PoolOptions,
    PooledBuffer, QueueOrder, Region, ReusePolicy, ScrubPolicy, SizeClasses,
};
use binpool_allocators::{EventOf, MemoryOf};
use binpool_mock::{MockBackend, MockDevice, MockQueue};
use tracing::{Event, Level, Subscriber, span};
use tracing_subscriber::{
    Layer,
    layer::{Context, SubscriberExt},
};

use crate::common::log::told;

const MIB: usize = 1 << 20;

const NEVER: u64 = 0;

/// All memory of the device, in units of this many bytes.
const ALL: usize = 64;

/// What the panics of these tests carry: dropped, it panics again.
struct Fuse;

impl Drop for Fuse {
    fn drop(&mut self) {
        panic_any("the payload of a panic was dropped");
    }
}

/// Counts calls, and panics with one of them.
#[derive(Clone, Debug, Default)]
struct Calls(Arc<Numbers>);

#[derive(Debug, Default)]
struct Numbers {
    made: AtomicU64,
    /// The number of the call that panics, counted from 1; 0 for none.
    panics: AtomicU64,
}

impl Calls {
    fn panicking_at(number: u64) -> Self {
        let calls = Self::default();
        calls.panic_at(number);
        calls
    }

    fn panic_at(&self, number: u64) {
        self.0.panics.store(number, Ordering::Relaxed);
    }

    fn panic_next(&self) {
        self.panic_at(self.made() + 1);
    }

    fn call(&self) {
        let number = self.0.made.fetch_add(1, Ordering::Relaxed) + 1;
        if number == self.0.panics.load(Ordering::Relaxed) {
            panic_any(Fuse);
        }
    }

    fn made(&self) -> u64 {
        self.0.made.load(Ordering::Relaxed)
    }
}

/// Panics that are on purpose are not printed.
fn without_noise() {
    static SET: Once = Once::new();
    SET.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let text = info.payload().downcast_ref::<&str>();
            let is_ours = info.payload().is::<Fuse>()
                || text.is_some_and(|text| text.starts_with("the payload"));
            if !is_ours {
                usual(info);
            }
        }));
    });
}

/// What a program may hand to a pool.
#[derive(Debug)]
struct Fragile {
    inner: ImmediateAllocator<MockBackend>,
    calls: Calls,
}

impl Allocator for Fragile {
    type Backend = MockBackend;

    fn backend(&self) -> &MockBackend {
        self.inner.backend()
    }

    fn allocate(&self, bytes: usize) -> Result<MemoryOf<Self>, Error> {
        self.calls.call();
        let memory = self.inner.allocate(bytes);
        self.calls.call();
        memory
    }

    fn release(&self, memory: MemoryOf<Self>, after: &[EventOf<Self>]) -> Result<(), Error> {
        self.calls.call();
        self.inner.release(memory, after)
    }

    fn create_view(&self, block: &MemoryOf<Self>, region: Region) -> Result<MemoryOf<Self>, Error> {
        self.calls.call();
        self.inner.create_view(block, region)
    }

    fn release_view(&self, view: MemoryOf<Self>) {
        self.calls.call();
        self.inner.release_view(view);
    }

    fn is_deferred(&self) -> bool {
        self.inner.is_deferred()
    }
}

#[derive(Debug)]
struct FragileClasses {
    inner: LeadingBits,
    calls: Calls,
}

impl SizeClasses for FragileClasses {
    fn bin_count(&self) -> usize {
        self.inner.bin_count()
    }

    fn bin_number(&self, bytes: usize) -> usize {
        self.calls.call();
        self.inner.bin_number(bytes)
    }

    fn alloc_size(&self, bin: usize) -> usize {
        self.calls.call();
        self.inner.alloc_size(bin)
    }
}

/// A subscriber of `tracing`.
struct FragileLayer {
    calls: Calls,
    /// Set if it panics at warnings and errors, too.
    at_warnings: bool,
}

impl<S: Subscriber> Layer<S> for FragileLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        self.calls.call();
        if self.at_warnings && *event.metadata().level() <= Level::WARN {
            panic_any(Fuse);
        }
    }

    fn on_enter(&self, _: &span::Id, _: Context<'_, S>) {
        self.calls.call();
    }

    fn on_exit(&self, _: &span::Id, _: Context<'_, S>) {
        self.calls.call();
    }
}

type Pool = MemoryPool<MockBackend>;
type Block = PooledBuffer<MockBackend>;

struct Rig {
    /// In bytes.
    unit: usize,
    device: MockDevice,
    budget: Budget,
    queues: [MockQueue; 3],
    pool: Pool,
}

impl Rig {
    /// A pool whose allocator and size classes make these calls.
    fn new(unit: usize, options: PoolOptions, calls: &Calls) -> Self {
        without_noise();
        let device = MockDevice::builder()
            .capacity_bytes((ALL * unit) as u64)
            .build();
        let backend = device.backend();
        let queues = [
            QueueOrder::InOrder,
            QueueOrder::InOrder,
            QueueOrder::OutOfOrder,
        ]
        .map(|order| backend.create_queue(order).unwrap());
        let budget = Budget::new(u64::MAX);
        let fragile = Fragile {
            inner: ImmediateAllocator::new(&backend).unwrap(),
            calls: calls.clone(),
        };
        let classes = FragileClasses {
            inner: LeadingBits::default(),
            calls: calls.clone(),
        };
        let pool = options
            .size_classes(classes)
            .budget(&budget)
            .build(fragile, &queues[0])
            .unwrap();
        Self {
            unit,
            device,
            budget,
            queues,
            pool,
        }
    }

    /// Does what makes the pool call the program, one thing after the other, whatever becomes of each.
    fn run(&self) {
        let [one, two, unordered] = &self.queues;
        let cache = Arc::new(Mutex::new(Vec::new()));
        let to_clear = Arc::clone(&cache);
        let hook = self.pool.add_reclaim_hook(move |_| {
            // Not dropped under the lock, which a panic would poison.
            let cached: Vec<Block> = std::mem::take(&mut *to_clear.lock().unwrap());
            drop(cached);
            false
        });
        let ask = |queue, units| {
            attempt(|| self.pool.allocate_on(queue, units * self.unit).ok()).flatten()
        };
        let used_on = |block: Option<Block>, queue| {
            let fill = |block: &Block| block.enqueue_fill(queue, 0..8, &[1_u8]).map(drop);
            attempt(|| block.as_ref().map(fill));
            block
        };
        // The second one is in the thread's cache.
        (0..2).for_each(|_| drop(attempt(|| self.pool.allocate(5000))));
        let small: Vec<_> = (0..3)
            .map(|_| attempt(|| self.pool.allocate(5000).ok()))
            .collect();
        let [a, b] = [16, 12].map(|units| ask(one, units));
        let a = used_on(a, two);
        attempt(|| drop(a));
        let c = used_on(ask(two, 16), two);
        attempt(|| drop(c));
        let d = used_on(ask(unordered, 3), unordered);
        attempt(|| drop((b, d)));
        attempt(|| self.pool.sweep());
        // Parts of what is free.
        let parts: Vec<_> = (0..3).map(|_| ask(one, 2)).collect();
        attempt(|| self.pool.sweep());
        cache.lock().unwrap().extend(ask(one, 20));
        // What does not fit until the cache is empty and all of the rest has gone back.
        let large = ask(two, 48);
        attempt(|| ask(one, 48));
        attempt(|| drop(parts));
        if let Some(large) = large {
            attempt(|| large.enqueue_release(Some(one), &[]).map(drop));
        }
        attempt(|| self.pool.trim_to(4 * self.unit as u64));
        attempt(|| self.pool.stop_holding());
        attempt(|| drop(small));
        attempt(|| ask(one, 1));
        attempt(|| self.pool.resume_holding());
        attempt(|| drop((ask(one, 1), ask(two, 8))));
        attempt(|| self.pool.free_held());
        assert!(self.pool.remove_reclaim_hook(hook));
    }
}

/// What it returns, if it does not panic.
fn attempt<R>(run: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => Some(result),
        Err(panic) => {
            std::mem::forget(panic);
            None
        }
    }
}

fn settings() -> impl Iterator<Item = (bool, ReusePolicy, ScrubPolicy)> {
    let policies = [
        (ReusePolicy::default(), ScrubPolicy::Never),
        (ReusePolicy::InsertWait, ScrubPolicy::Never),
        (ReusePolicy::WaitOnHost, ScrubPolicy::OnFree),
    ];
    [false, true]
        .into_iter()
        .flat_map(move |segments| policies.map(|(reuse, scrub)| (segments, reuse, scrub)))
}

/// Runs the program with these calls of the allocator and the size classes, and of the subscriber. How many there are.
fn run(setting: (bool, ReusePolicy, ScrubPolicy), numbers: [u64; 2]) -> [u64; 2] {
    let [allocator, layer] = numbers.map(Calls::panicking_at);
    let (segments, reuse, scrub) = setting;
    // Less for fills to write.
    let unit = if scrub == ScrubPolicy::Never {
        MIB
    } else {
        MIB / 16
    };
    let options = PoolOptions::new()
        .segments(segments)
        .reuse(reuse)
        .scrub(scrub);
    let rig = Rig::new(unit, options, &allocator);
    let subscriber = tracing_subscriber::registry().with(FragileLayer {
        calls: layer.clone(),
        // Which is where the pool tells of the panics of others.
        at_warnings: numbers[1] == NEVER,
    });
    told(subscriber, || rig.run());
    let made = [allocator, layer].map(|calls| {
        calls.panic_at(NEVER);
        calls.made()
    });
    let context = format!("{setting:?} {numbers:?}");
    let left = rig.pool.statistics();
    assert_eq!((left.active_blocks, left.active_bytes), (0, 0), "{context}");
    assert_eq!(left.managed_bytes, rig.budget.used_bytes(), "{context}");
    // It can have everything, and so nothing is lost; and where it cannot, it is told so, and does not wait forever.
    let all = rig.pool.allocate(ALL * unit).expect(&context);
    assert!(rig.pool.allocate(MIB).is_err(), "{context}");
    drop((all, rig.pool));
    assert_eq!(rig.budget.used_bytes(), 0, "{context}");
    assert_eq!(rig.device.statistics().created_bytes, 0, "{context}");
    made
}

#[test]
fn an_allocator_or_a_size_class_that_panics_loses_nothing() {
    for setting in settings() {
        let [calls, _] = run(setting, [NEVER; 2]);
        assert!(calls > 50, "{setting:?}");
        for number in 1..=calls {
            run(setting, [number, NEVER]);
        }
    }
}

#[test]
fn a_subscriber_that_panics_loses_nothing() {
    for setting in settings() {
        let [_, calls] = run(setting, [NEVER; 2]);
        assert!(calls > 20, "{setting:?}");
        for number in 1..=calls {
            run(setting, [NEVER, number]);
        }
    }
}

#[test]
fn a_hook_that_panics_does_no_harm_whatever_it_panics_with() {
    let rig = Rig::new(MIB, PoolOptions::new(), &Calls::default());
    rig.pool.add_reclaim_hook(|_| panic_any(Fuse));
    let all = rig.pool.allocate(ALL * MIB).unwrap();
    let asked = attempt(|| rig.pool.allocate(MIB).is_err());
    assert_eq!(asked, Some(true), "no panic comes out of the request");
    drop(all);
}

#[test]
fn a_sweeper_goes_on_after_a_sweep_that_panicked() {
    let calls = Calls::default();
    let rig = Rig::new(MIB, PoolOptions::new().segments(false), &calls);
    drop([(); 2].map(|()| rig.pool.allocate(MIB).unwrap()));
    // The first of the two releases.
    calls.panic_next();
    let sweeper = rig.pool.sweep_in_background(Duration::ZERO).unwrap();
    while rig.pool.managed_bytes() > 0 {
        thread::yield_now();
    }
    drop(sweeper);
    assert_eq!(rig.budget.used_bytes(), 0);
}

#[test]
fn a_block_whose_release_panics_can_be_dropped_while_its_thread_unwinds() {
    let calls = Calls::default();
    let rig = Rig::new(MIB, PoolOptions::new().segments(false), &calls);
    rig.pool.stop_holding();
    let block = rig.pool.allocate(MIB).unwrap();
    calls.panic_next();
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let _block = block;
        panic_any(5);
    }));
    assert_eq!(*unwound.unwrap_err().downcast::<i32>().unwrap(), 5);
    assert_eq!(rig.pool.statistics().active_blocks, 0);
    assert_eq!(rig.budget.used_bytes(), 0);
}

#[test]
fn a_view_whose_creation_panics_where_a_thread_carves_by_itself_loses_nothing() {
    without_noise();
    let calls = Calls::default();
    let device = MockDevice::new();
    let backend = device.backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let fragile = Fragile {
        inner: ImmediateAllocator::new(&backend).unwrap(),
        calls: calls.clone(),
    };
    let pool = PoolOptions::new().build(fragile, &queue).unwrap();
    let mut held = Vec::new();
    while pool.statistics().carved_hits == 0 {
        held.push(pool.allocate((held.len() + 1) * 10_000).unwrap());
    }
    let before = pool.statistics();
    let made = calls.made();
    // The segment of the last one has room for it.
    calls.panic_next();
    assert!(attempt(|| pool.allocate(50_000)).is_none());
    assert_eq!(calls.made(), made + 1);
    assert_eq!(pool.statistics(), before);
    held.push(pool.allocate(50_000).unwrap());
    let after = pool.statistics();
    let carved = after.carved_hits - before.carved_hits;
    assert_eq!((after.misses, carved), (before.misses, 1));
    drop((held, pool));
    assert_eq!(device.statistics().created_bytes, 0);
}

#[test]
fn a_release_of_a_pools_last_block_returns_though_a_hook_panics_when_it_is_dropped() {
    without_noise();
    for bytes in [1000, 40 * MIB] {
        let device = MockDevice::new();
        let backend = device.backend();
        let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
        let allocator = ImmediateAllocator::new(&backend).unwrap();
        let pool = PoolOptions::new().build(allocator, &queue).unwrap();
        let fuse = Fuse;
        pool.add_reclaim_hook(move |_| {
            let _kept = &fuse;
            false
        });
        let block = pool.allocate(bytes).unwrap();
        drop(pool);
        assert!(matches!(attempt(|| block.release()), Some(Ok(()))));
        assert_eq!(device.statistics().created_bytes, 0);
    }
}
