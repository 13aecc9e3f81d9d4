//! Pools of pages: blocks lie in mapped pages whatever fails, and pages move only once their commands have ended.

use std::sync::atomic::{AtomicUsize, Ordering};

use binpool::{
    Allocator, Backend, Error, MemoryPool, PoolOptions, QueueOrder, Region, ScrubPolicy,
    VirtualMemoryAllocator,
    adaptors::{Budget, Limit},
    random::Random,
};
use binpool_mock::{
    CallKind, Completion, Fault, MockBackend, MockDevice, MockDeviceBuilder, MockEvent, MockMemory,
    MockQueue, Persistence,
};

use crate::common::MIB;

type Pages = Limit<VirtualMemoryAllocator<MockBackend>>;

struct Rig {
    device: MockDevice,
    budget: Budget,
    pool: MemoryPool<Pages>,
    queues: [MockQueue; 2],
}

fn rig(builder: MockDeviceBuilder) -> Rig {
    let device = builder.virtual_memory(true).build();
    let backend = device.backend();
    let budget = Budget::new(u64::MAX);
    let allocator = Limit::shared(VirtualMemoryAllocator::new(&backend), &budget);
    let queues = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
    let pool = PoolOptions::new().build(allocator, &queues[0]).unwrap();
    Rig {
        device,
        budget,
        pool,
        queues,
    }
}

/// Allocates, fills, checks and frees blocks on two queues. Returns how many requests failed.
fn program(rig: &Rig, steps: usize, random: &mut Random) -> usize {
    let mut blocks = Vec::new();
    let mut failed = 0;
    for step in 0..steps {
        if blocks.len() > 12 || (random.below(3) == 0 && !blocks.is_empty()) {
            let (block, mark, queue): (binpool::PooledBuffer<Pages>, u8, &MockQueue) =
                blocks.swap_remove(random.below(blocks.len()));
            let mut bytes = [0_u8; 2];
            let last = block.size() - 1;
            let is_read = block.read(queue, 0, &mut bytes[..1]).is_ok()
                && block.read(queue, last, &mut bytes[1..]).is_ok();
            assert!(
                !is_read || bytes == [mark; 2],
                "step {step}: {bytes:?} for {mark}"
            );
            continue;
        }
        let queue = &rig.queues[random.below(2)];
        let most = [4096, 3 * MIB, 9 * MIB][random.below(3)];
        let bytes = 1 + random.below(most);
        let Ok(block) = rig.pool.allocate_on(queue, bytes) else {
            failed += 1;
            continue;
        };
        let mark = u8::try_from(step % 251).unwrap() + 1;
        if block.enqueue_fill(queue, 0..bytes, &[mark]).is_ok() {
            blocks.push((block, mark, queue));
        }
    }
    failed
}

fn check_end(rig: Rig) {
    assert_eq!(rig.device.violations(), []);
    assert_eq!(rig.pool.statistics().active_blocks, 0);
    let Rig {
        device,
        budget,
        pool,
        queues,
    } = rig;
    drop(pool);
    assert_eq!(
        (budget.used_bytes(), device.statistics().committed_bytes),
        (0, 0)
    );
    drop(queues);
    assert!(device.leaks().is_empty());
    assert_eq!(device.violations(), []);
}

#[test]
fn blocks_of_two_queues_keep_their_bytes_while_pages_move() {
    for seed in 0..20 {
        let builder = MockDevice::builder().completion(Completion::Seeded(seed));
        let rig = rig(builder.capacity_bytes(96 * MIB as u64));
        program(&rig, 600, &mut Random::new(seed));
        let statistics = rig.pool.statistics();
        assert!(
            statistics.maps > statistics.unmaps && statistics.unmaps > 0,
            "{statistics:?}"
        );
        check_end(rig);
    }
}

#[test]
fn a_failed_call_loses_nothing() {
    for kind in [
        CallKind::Reserve,
        CallKind::CreatePages,
        CallKind::Map,
        CallKind::Unmap,
    ] {
        for nth in 1..12 {
            let rig = rig(MockDevice::builder().capacity_bytes(48 * MIB as u64));
            rig.device
                .fail_nth(kind, nth, Fault::Backend(-5), Persistence::Once);
            program(&rig, 150, &mut Random::new(nth));
            let violations = rig.device.violations();
            assert_eq!(violations, [], "{kind} {nth}");
            assert_eq!(rig.pool.statistics().active_blocks, 0);
            // The program goes on.
            drop(rig.pool.allocate(4 * MIB).unwrap());
        }
    }
}

/// Panics at one call for pages.
#[derive(Debug)]
struct Fragile {
    inner: VirtualMemoryAllocator<MockBackend>,
    calls: AtomicUsize,
    panics_at: usize,
}

impl Fragile {
    fn call(&self) {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        assert!(number != self.panics_at, "on purpose");
    }
}

impl Allocator for Fragile {
    type Backend = MockBackend;

    fn backend(&self) -> &MockBackend {
        self.inner.backend()
    }

    fn allocate(&self, bytes: usize) -> Result<MockMemory, Error> {
        self.call();
        self.inner.allocate(bytes)
    }

    fn release(&self, memory: MockMemory, after: &[MockEvent]) -> Result<(), Error> {
        self.inner.release(memory, after)
    }

    fn is_deferred(&self) -> bool {
        false
    }

    fn views_are_addresses(&self) -> bool {
        true
    }

    fn page_bytes(&self) -> Option<usize> {
        self.inner.page_bytes()
    }

    fn reserve(&self, bytes: usize) -> Result<MockMemory, Error> {
        self.call();
        self.inner.reserve(bytes)
    }

    fn map(
        &self,
        reservation: &MockMemory,
        offset: usize,
        pages: &MockMemory,
    ) -> Result<(), Error> {
        self.call();
        self.inner.map(reservation, offset, pages)
    }

    fn unmap(&self, reservation: &MockMemory, region: Region) -> Result<(), Error> {
        self.call();
        self.inner.unmap(reservation, region)
    }
}

#[test]
fn a_call_that_panics_loses_nothing() {
    let mut calls = 0;
    for panics_at in 0.. {
        let builder = MockDevice::builder().virtual_memory(true);
        let device = builder.capacity_bytes(64 * MIB as u64).build();
        let backend = device.backend();
        let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
        let allocator = Fragile {
            inner: VirtualMemoryAllocator::new(&backend),
            calls: AtomicUsize::new(0),
            panics_at,
        };
        let pool = MemoryPool::new(allocator, &queue).unwrap();
        let small: Vec<_> = (0..24).map(|_| pool.allocate(2 * MIB)).collect();
        drop(small);
        // Most of the pages move, and then all of them leave.
        drop(pool.allocate(48 * MIB));
        pool.free_held();
        drop(pool.allocate(8 * MIB));
        pool.free_held();
        let made = pool.allocator().calls.load(Ordering::Relaxed);
        let is_lost = pool.statistics().managed_bytes;
        assert!(
            is_lost <= 2 * MIB as u64,
            "call {panics_at} lost {is_lost} bytes"
        );
        drop(pool);
        assert_eq!(device.statistics().committed_bytes, 0, "call {panics_at}");
        calls = calls.max(made);
        if panics_at >= made {
            break;
        }
    }
    assert!(calls > 60, "{calls}");
}

/// Pages that cannot be unmapped when they are to leave are still the pool's, serve requests, and leave later.
#[test]
fn pages_that_cannot_be_unmapped_stay_in_the_pool_until_they_can() {
    let rig = rig(MockDevice::builder().capacity_bytes(64 * MIB as u64));
    let counts = |rig: &Rig| {
        let committed = rig.device.statistics().committed_bytes;
        let statistics = rig.pool.statistics();
        assert_eq!(statistics.managed_bytes, committed);
        assert_eq!(rig.budget.used_bytes(), committed);
        assert_eq!(statistics.held_bytes + statistics.active_bytes, committed);
        committed
    };
    let free = rig.pool.allocate(40 * MIB).unwrap();
    let _used = rig.pool.allocate(8 * MIB).unwrap();
    drop(free);
    let all = counts(&rig);
    let fail_unmap = |persistence| {
        let fault = Fault::Backend(-5);
        rig.device.fail_nth(CallKind::Unmap, 1, fault, persistence);
    };
    fail_unmap(Persistence::Once);
    let released = rig.pool.free_held();
    assert!(released < 40 * MIB as u64);
    assert_eq!(counts(&rig), all - released);
    drop(rig.pool.allocate(40 * MIB).unwrap());
    assert_eq!(counts(&rig), all);
    // Nothing can be unmapped: the same pages serve, and a request for which they would have to move fails.
    fail_unmap(Persistence::Forever);
    let left = rig.pool.statistics().released_blocks;
    assert_eq!((rig.pool.free_held(), rig.pool.trim_to(0)), (0, 0));
    assert_eq!(rig.pool.sweep() + rig.pool.sweep(), 0);
    drop(rig.pool.allocate(40 * MIB).unwrap());
    assert!(rig.pool.allocate(48 * MIB).is_err());
    assert_eq!(rig.pool.statistics().released_blocks, left);
    counts(&rig);
    rig.device.clear_faults();
    drop(rig.pool.allocate(48 * MIB).unwrap());
    rig.pool.free_held();
    assert_eq!(counts(&rig), 8 * MIB as u64);
}

#[test]
fn pages_that_can_never_be_unmapped_leave_with_the_pool() {
    let rig = rig(MockDevice::builder().capacity_bytes(64 * MIB as u64));
    drop(rig.pool.allocate(40 * MIB).unwrap());
    rig.device
        .fail_nth(CallKind::Unmap, 1, Fault::Backend(-5), Persistence::Forever);
    assert_eq!(rig.pool.free_held(), 0);
    check_end(rig);
}

#[test]
fn a_block_beyond_all_addresses_is_one_that_the_device_has_no_room_for() {
    let rig = rig(MockDevice::builder()
        .capacity_bytes(16 * MIB as u64)
        .largest_block_bytes(usize::MAX));
    let error = rig.pool.allocate(100 * MIB).unwrap_err();
    assert!(error.is_out_of_memory(), "{error}");
    check_end(rig);
}

#[test]
fn a_request_that_fits_nowhere_maps_nothing() {
    let rig = rig(MockDevice::builder().capacity_bytes(64 * MIB as u64));
    let _half = rig.pool.allocate(32 * MIB).unwrap();
    let maps = rig.pool.statistics().maps;
    assert!(rig.pool.allocate(60 * MIB).is_err());
    let statistics = rig.pool.statistics();
    assert_eq!((statistics.maps, statistics.unmaps), (maps, 0));
    assert_eq!(statistics.managed_bytes, 32 * MIB as u64);
    // A few attempts, each for what the device has left.
    let created = rig.device.call_count(CallKind::CreatePages);
    assert!(created < 300, "{created}");
}

#[test]
fn the_pool_holds_hardly_more_than_was_in_use() {
    let rig = rig(MockDevice::builder().capacity_bytes(8 << 30));
    let small: Vec<_> = (0..64)
        .map(|_| rig.pool.allocate(8 * MIB).unwrap())
        .collect();
    drop(small);
    let large: Vec<_> = (0..5)
        .map(|_| rig.pool.allocate(100 * MIB).unwrap())
        .collect();
    let statistics = rig.pool.statistics();
    assert!(statistics.managed_bytes <= 528 << 20, "{statistics:?}");
    drop(large);
    assert_eq!(rig.pool.free_held(), statistics.managed_bytes);
    check_end(rig);
}

#[test]
fn what_pages_cannot_do_is_refused() {
    let backend = MockDevice::builder().virtual_memory(true).build().backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    for options in [
        PoolOptions::new().segments(false),
        PoolOptions::new().scrub(ScrubPolicy::OnFree),
    ] {
        let pool = options.build(VirtualMemoryAllocator::new(&backend), &queue);
        assert!(pool.unwrap_err().to_string().contains("pages"));
    }
}

#[test]
fn pages_stay_in_the_pool_while_a_limit_rules_a_request_out() {
    let rig = rig(MockDevice::builder());
    rig.budget.set_max_bytes(32 * MIB as u64);
    let kept = rig.pool.allocate(16 * MIB).unwrap();
    drop(rig.pool.allocate(8 * MIB).unwrap());
    let before = rig.pool.managed_bytes();
    for beyond in [40 * MIB, 20 * MIB] {
        let error = rig.pool.allocate(beyond).unwrap_err();
        assert_eq!(error.out_of_memory().unwrap().released_bytes, 0);
        assert_eq!(rig.pool.managed_bytes(), before, "{beyond}");
    }
    assert!(rig.pool.allocate(12 * MIB).is_ok());
    drop(kept);
    check_end(rig);
}
