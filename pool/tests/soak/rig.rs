//! What all threads share: a device, its queues, the pools over it, and the blocks that no thread has.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering},
};

use binpool::{
    Allocator, Backend, Budget, ImmediateAllocator, MemoryPool, PoolOptions, PooledBuffer,
    QueueOrder, Retain, ReusePolicy, ScrubPolicy, SvmAllocator, SvmGrain,
};
use binpool_conformance::Random;
use binpool_mock::{CallKind, Completion, Fault, MockBackend, MockDevice, MockQueue};

use crate::books::Tally;

pub(crate) type AnyAllocator = Arc<dyn Allocator<Backend = MockBackend>>;
pub(crate) type Pool = MemoryPool<MockBackend>;

pub(crate) const THREADS: usize = 8;

pub(crate) const POOLS: usize = 4;

/// All that the limit ever lets the pools have, and what the device has.
pub(crate) const CAPACITY: u64 = 64 << 20;

/// The most blocks in each thread's mailbox, and in the cache.
pub(crate) const MOST_IN_A_BOX: usize = 32;

/// A block, and what has to be in it.
pub(crate) struct Held {
    pub(crate) block: PooledBuffer<MockBackend>,
    pub(crate) pool: usize,
    /// Every byte of it, and the place of the queue that put it there; `None` if none did.
    pub(crate) mark: Option<(u8, usize)>,
}

pub(crate) struct Rig {
    pub(crate) device: MockDevice,
    pub(crate) backend: MockBackend,
    pub(crate) budget: Budget,
    pub(crate) queues: Vec<MockQueue>,
    pub(crate) pools: Vec<Pool>,
    /// Whether each pool scrubs, so that a fresh block has zeros in it.
    pub(crate) scrubs: [bool; POOLS],
    pub(crate) mailboxes: Vec<Mutex<Vec<Held>>>,
    /// Blocks that a hook drops when memory runs short.
    pub(crate) cache: Arc<Mutex<Vec<Held>>>,
    pub(crate) hooks_called: Arc<AtomicU64>,
    /// How many threads there have been.
    pub(crate) lives: AtomicU64,
}

impl Rig {
    pub(crate) fn new() -> Self {
        let device = MockDevice::builder()
            .capacity_bytes(CAPACITY)
            .completion(Completion::Seeded(1))
            // The fuzz targets and the tests of queues look for races. Here threads would wait for those who look.
            .detect_races(false)
            .build();
        let backend = device.backend();
        let orders = [
            QueueOrder::InOrder,
            QueueOrder::InOrder,
            QueueOrder::InOrder,
            QueueOrder::OutOfOrder,
        ];
        let queues: Vec<_> = orders
            .iter()
            .map(|order| backend.create_queue(*order).unwrap())
            .collect();
        let budget = Budget::new(CAPACITY);
        let buffers = || -> AnyAllocator { Arc::new(ImmediateAllocator::new(&backend).unwrap()) };
        let svm: AnyAllocator = Arc::new(SvmAllocator::new(&backend, SvmGrain::Coarse).unwrap());
        let pools = [
            (PoolOptions::new().segments(true), buffers()),
            (
                PoolOptions::new()
                    .segments(false)
                    .reuse(ReusePolicy::InsertWait),
                buffers(),
            ),
            (
                PoolOptions::new()
                    .segments(true)
                    .reuse(ReusePolicy::WaitOnHost)
                    .retain(Retain::new().at_most(2 << 20)),
                svm,
            ),
            (
                PoolOptions::new()
                    .segments(false)
                    .scrub(ScrubPolicy::OnFree),
                buffers(),
            ),
        ];
        let pools: Vec<Pool> = pools
            .map(|(options, allocator)| {
                let options = options.budget(&budget);
                options.build(allocator, &queues[0]).unwrap()
            })
            .into();
        let rig = Self {
            device,
            backend,
            budget,
            queues,
            pools,
            scrubs: [false, false, false, true],
            mailboxes: (0..THREADS).map(|_| Mutex::default()).collect(),
            cache: Arc::default(),
            hooks_called: Arc::default(),
            lives: AtomicU64::new(0),
        };
        rig.add_hooks();
        rig
    }

    /// A pool that runs short has the cache dropped, and then the other pools free their idle blocks.
    fn add_hooks(&self) {
        for (place, pool) in self.pools.iter().enumerate() {
            let (cache, called) = (Arc::clone(&self.cache), Arc::clone(&self.hooks_called));
            pool.add_reclaim_hook(move |_| {
                called.fetch_add(1, Ordering::Relaxed);
                let cached = std::mem::take(&mut *cache.lock().unwrap());
                !cached.is_empty()
            });
            // No pool keeps itself alive, by whatever way round.
            for other in &self.pools[place + 1..] {
                let other = other.clone();
                pool.add_reclaim_hook(move |_| other.free_held() > 0);
            }
        }
    }

    /// Calls of many kinds fail now and then.
    pub(crate) fn inject_faults(&self, seed: u64) {
        let mut random = Random::new(seed);
        let faults = [
            (CallKind::CreateBuffer, 0.02, Fault::OutOfMemory),
            (CallKind::Commit, 0.02, Fault::OutOfMemory),
            (CallKind::AllocateSvm, 0.02, Fault::OutOfMemory),
            (CallKind::Commit, 0.01, Fault::Backend(-9999)),
            (CallKind::CreateSubRegion, 0.002, Fault::Backend(-9999)),
            (CallKind::Fill, 0.002, Fault::Backend(-9999)),
            (CallKind::EnqueueWrite, 0.002, Fault::OutOfMemory),
            (CallKind::Read, 0.002, Fault::Backend(-9999)),
            (CallKind::Marker, 0.005, Fault::Backend(-9999)),
            (CallKind::Barrier, 0.005, Fault::Backend(-9999)),
            (CallKind::Status, 0.005, Fault::Backend(-9999)),
            (CallKind::Flush, 0.005, Fault::Backend(-9999)),
            (CallKind::Release, 0.005, Fault::Backend(-9999)),
        ];
        for (kind, probability, fault) in faults {
            self.device
                .fail_randomly(kind, probability, random.next(), fault);
        }
    }

    /// Lets everything come to rest, while no thread is at work.
    pub(crate) fn settle(&self) {
        self.device.clear_faults();
        self.device.run();
        for pool in &self.pools {
            pool.resume_holding();
        }
        self.budget.set_max_bytes(CAPACITY);
    }

    /// The blocks that no thread has.
    pub(crate) fn for_each_waiting(&self, mut what: impl FnMut(&Held)) {
        let boxes = self.mailboxes.iter().chain([&*self.cache]);
        boxes.for_each(|waiting| waiting.lock().unwrap().iter().for_each(&mut what));
    }

    /// Drops every block, and has the pools give everything back.
    pub(crate) fn drain(&self, hands: &mut [Vec<Held>], tally: &mut Tally) {
        let boxes = self.mailboxes.iter().chain([&*self.cache]);
        let waiting = boxes.flat_map(|waiting| std::mem::take(&mut *waiting.lock().unwrap()));
        let held: Vec<_> = hands
            .iter_mut()
            .flat_map(std::mem::take)
            .chain(waiting)
            .collect();
        for held in held {
            tally.check_bytes(self, &held);
            drop(held);
        }
        // Memory that is freed after commands leaves events behind, which the pool drops once it sees that those have ended.
        for _ in 0..4 {
            for pool in &self.pools {
                pool.free_held();
            }
            self.device.run();
        }
    }

    /// The end of everything: nothing is alive.
    pub(crate) fn end(self) {
        let Self {
            device,
            backend,
            budget,
            queues,
            pools,
            ..
        } = self;
        drop((pools, queues, backend));
        device.run();
        assert_eq!(budget.used_bytes(), 0);
        assert!(device.leaks().is_empty(), "{}", device.leaks());
        assert!(device.violations().is_empty(), "{:#?}", device.violations());
    }
}
