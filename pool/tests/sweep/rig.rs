//! A pool on a device that fails, and what has to be right about it.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use binpool::{
    Allocator, Backend, Budget, Error, MemoryPool, Outcome, PoolOptions, PooledBuffer, Queue,
    QueueOrder,
};
use binpool_conformance::sweep::FaultInjector;
use binpool_mock::{CallKind, MockBackend, MockDevice, MockEvent, MockQueue, SweptDevices};
use parking_lot::Mutex;
use tracing::{
    Level, Metadata, Subscriber,
    span::{Attributes, Id, Record},
};

/// All memory of the device, in bytes.
pub(crate) const CAPACITY: usize = 1 << 18;

pub(crate) type AnyAllocator = Arc<dyn Allocator<Backend = MockBackend>>;
pub(crate) type Block = PooledBuffer<MockBackend>;

/// What becomes of the pool after a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The device is repaired, and the pool has to be as good as new.
    PoolGoesOn,
    /// It is dropped while calls still fail.
    PoolIsDropped,
}

/// How a pool is made.
pub(crate) struct Setting {
    pub(crate) options: PoolOptions,
    /// What its memory is made of.
    pub(crate) allocator: fn(&MockBackend) -> Result<AnyAllocator, Error>,
}

/// A pool of a limit's worth of a device, with queues of both orders.
pub(crate) struct Rig {
    pub(crate) device: MockDevice,
    pub(crate) pool: MemoryPool<MockBackend>,
    pub(crate) home: MockQueue,
    pub(crate) other: MockQueue,
    pub(crate) unordered: MockQueue,
    pub(crate) budget: Budget,
    /// Whether the program has taken a part of a segment out of the pool, which lasts.
    pub(crate) has_taken_a_part: bool,
    /// The gates that would not open.
    shut: Mutex<Vec<MockEvent>>,
    /// The failures that the program was told of.
    heard: Arc<AtomicU64>,
}

impl Rig {
    /// Runs a program with a fresh pool, and looks at what it leaves.
    pub(crate) fn run(
        devices: &SweptDevices,
        setting: &Setting,
        program: fn(&mut Self),
        ending: Ending,
    ) {
        let heard = Arc::<AtomicU64>::default();
        let ears = Ears(Arc::clone(&heard));
        let left = tracing::subscriber::with_default(ears, || {
            let rig = Self::new(devices, setting, &heard);
            let Ok(mut rig) = rig else {
                heard.fetch_add(1, Ordering::Relaxed);
                return None;
            };
            program(&mut rig);
            if rig.has_taken_a_part {
                // The segment is its part's, and past the limit.
                return None;
            }
            let device = rig.device.clone();
            if ending == Ending::PoolGoesOn {
                devices.repair();
                Some((device, rig.end_soundly()))
            } else {
                Some((device, rig.budget.clone()))
            }
        });
        devices.repair();
        if let Some((device, budget)) = left {
            // Memory counts until no command uses it.
            device.run();
            // A pool that is gone cannot try again later.
            let may_lose = ending == Ending::PoolIsDropped
                && devices
                    .fault_point()
                    .is_some_and(|point| point.is_permanent);
            assert!(
                budget.used_bytes() == 0 || may_lose,
                "the pool is gone, and its limit is not free"
            );
        }
        nothing_went_unheard(devices, heard.load(Ordering::Relaxed));
    }

    fn new(
        devices: &SweptDevices,
        setting: &Setting,
        heard: &Arc<AtomicU64>,
    ) -> Result<Self, binpool::PoolError> {
        let device = devices.device();
        let backend = device.backend();
        let home = backend.create_queue(QueueOrder::InOrder)?;
        let other = backend.create_queue(QueueOrder::InOrder)?;
        let unordered = backend.create_queue(QueueOrder::OutOfOrder)?;
        let budget = Budget::new(CAPACITY as u64);
        let options = setting.options.clone().budget(&budget);
        let pool = options.build((setting.allocator)(&backend)?, &home)?;
        Ok(Self {
            device,
            pool,
            home,
            other,
            unordered,
            budget,
            has_taken_a_part: false,
            shut: Mutex::default(),
            heard: Arc::clone(heard),
        })
    }

    /// What came of a step, which may have failed.
    pub(crate) fn note<T, E: fmt::Debug>(&self, result: Result<T, E>) -> Option<T> {
        if result.is_err() {
            self.heard.fetch_add(1, Ordering::Relaxed);
        }
        result.ok()
    }

    /// A thread without a listener may have logged failures.
    pub(crate) fn hear_elsewhere(&self) {
        self.heard.fetch_add(1, Ordering::Relaxed);
    }

    /// A block with a command on it.
    pub(crate) fn block(&self, queue: &MockQueue, bytes: usize) -> Option<Block> {
        let block = self.note(self.pool.allocate_on(queue, bytes))?;
        assert_eq!(block.size(), bytes);
        self.fill(&block, queue);
        Some(block)
    }

    /// A command on a block.
    pub(crate) fn fill(&self, block: &Block, queue: &MockQueue) -> Option<MockEvent> {
        self.note(block.enqueue_fill(queue, 0..block.size(), &[7_u8]))
    }

    /// A command on a block that waits for the gate, if there is one.
    pub(crate) fn fill_behind(
        &self,
        block: &Block,
        queue: &MockQueue,
        gate: Option<&MockEvent>,
    ) -> Option<MockEvent> {
        let gates: Vec<MockEvent> = gate.into_iter().cloned().collect();
        self.note(block.enqueue_fill(queue.after(&gates), 0..block.size(), &[8_u8]))
    }

    pub(crate) fn gate(&self) -> Option<MockEvent> {
        self.note(self.backend().create_user_event())
    }

    /// Opens a gate: now, or as soon as the device is repaired, since nothing after it would ever end.
    pub(crate) fn open(&self, gate: Option<MockEvent>) {
        self.resolve(gate, Outcome::Complete);
    }

    /// Lets a gate fail, or opens it as soon as the device is repaired.
    pub(crate) fn fail(&self, gate: Option<MockEvent>) {
        self.resolve(gate, Outcome::Failed);
    }

    fn resolve(&self, gate: Option<MockEvent>, outcome: Outcome) {
        let Some(gate) = gate else { return };
        let resolved = self.backend().resolve_user_event(&gate, outcome);
        if self.note(resolved).is_none() {
            self.shut.lock().push(gate);
        }
    }

    pub(crate) fn backend(&self) -> &MockBackend {
        self.pool.backend()
    }

    /// Every counter agrees with the blocks that the program has.
    pub(crate) fn agrees_with(&self, live: &[&Block]) {
        let statistics = self.pool.statistics();
        let asked: usize = live.iter().map(|block| block.size()).sum();
        let whole: usize = live.iter().map(|block| block.class_size()).sum();
        let not_empty = live.iter().filter(|block| !block.is_empty());
        assert_eq!(
            statistics.active_blocks,
            not_empty.count() as u64,
            "{statistics:?}"
        );
        assert_eq!(statistics.active_bytes, asked as u64, "{statistics:?}");
        let in_use = statistics.managed_bytes - statistics.held_bytes;
        assert_eq!(in_use, whole as u64, "{statistics:?}");
        assert!(
            statistics.pending_bytes <= statistics.held_bytes,
            "{statistics:?}"
        );
        // What could not be given back is the limit's until it can.
        assert!(
            self.budget.used_bytes() >= statistics.managed_bytes,
            "{statistics:?}"
        );
    }

    /// The pool is as good as new, once the program has dropped all blocks. Its limit, which it is to leave free.
    fn end_soundly(self) -> Budget {
        for gate in self.shut.lock().drain(..) {
            let opened = self
                .pool
                .backend()
                .resolve_user_event(&gate, Outcome::Complete);
            opened.unwrap();
        }
        self.device.run();
        self.pool.free_held();
        // What was released counts until no command uses it.
        self.device.run();
        self.agrees_with(&[]);
        assert_eq!(self.budget.used_bytes(), self.pool.managed_bytes());
        for queue in [&self.home, &self.other, &self.unordered] {
            queue.finish().unwrap();
            let block = self.pool.allocate_on(queue, 1000).unwrap();
            self.agrees_with(&[&block]);
            let fill = block.enqueue_fill(queue, 0..1000, &[9_u8]).unwrap();
            let mut bytes = [0_u8; 1000];
            block.read(queue.after(&[fill]), 0, &mut bytes).unwrap();
            assert_eq!(bytes, [9; 1000]);
        }
        // All of it can be allocated, and then no more.
        let all = self.pool.allocate(CAPACITY).unwrap();
        assert!(self.pool.allocate(1).unwrap_err().is_out_of_memory());
        self.agrees_with(&[&all]);
        drop(all);
        self.agrees_with(&[]);
        let Self {
            device,
            pool,
            home,
            other,
            unordered,
            budget,
            ..
        } = self;
        for queue in [&home, &other, &unordered] {
            queue.finish().unwrap();
        }
        drop((other, unordered));
        pool.free_held();
        // What has ended is seen at the next look.
        device.run();
        pool.free_held();
        let statistics = pool.statistics();
        assert_eq!(statistics.managed_bytes, 0, "{statistics:?}");
        assert_eq!(budget.used_bytes(), 0);
        assert_eq!(device.statistics().live_blocks, 0);
        assert_eq!(device.live_events(), 0, "the pool keeps events of nothing");
        // The allocator's, and the one that scrubs.
        let own = device.live_queues() - 1;
        assert!(own <= 2, "the pool keeps {own} queues that nothing needs");
        drop((pool, home));
        budget
    }
}

/// Every failure, but one of memory that the pool made up for, was told: to the program, or to the log. An event that
/// cannot be asked, or waited for, is asked again when it matters.
fn nothing_went_unheard(devices: &SweptDevices, heard: u64) {
    let Some(device) = devices.failing() else {
        return;
    };
    let failed = device.failed_calls();
    let is_made_up_for = |kind| match kind {
        CallKind::Status | CallKind::Wait => true,
        // Steps of an allocation.
        CallKind::CreateBuffer
        | CallKind::CreateSubRegion
        | CallKind::AllocateSvm
        | CallKind::Commit
        | CallKind::Fill => devices
            .fault_point()
            .is_some_and(|point| point.is_out_of_memory),
        _ => false,
    };
    if failed.iter().any(|(kind, _)| !is_made_up_for(kind)) {
        assert!(heard > 0, "no listener heard of {failed:?}");
    }
}

/// Counts what is logged as a warning or an error.
struct Ears(Arc<AtomicU64>);

impl Subscriber for Ears {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
