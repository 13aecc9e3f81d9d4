//! Pools of pages: blocks lie in mapped pages whatever fails, and pages are unmapped only once their commands have ended.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use binpool::{
    Allocator, Backend, Budget, Error, MemoryPool, PoolOptions, PoolStatistics, QueueOrder, Region,
    ScrubPolicy, VirtualMemoryAllocator,
};
use binpool_conformance::Random;
use binpool_mock::{
    CallKind, Completion, Fault, MockBackend, MockDevice, MockDeviceBuilder, MockEvent, MockMemory,
    MockQueue, Persistence,
};

use crate::common::MIB;

struct Rig {
    device: MockDevice,
    budget: Budget,
    pool: MemoryPool<MockBackend>,
    queues: [MockQueue; 2],
}

fn rig(builder: MockDeviceBuilder) -> Rig {
    rig_with(builder, PoolOptions::new())
}

fn rig_with(builder: MockDeviceBuilder, options: PoolOptions) -> Rig {
    let device = builder.virtual_memory(true).build();
    let backend = device.backend();
    let budget = Budget::new(u64::MAX);
    let allocator = VirtualMemoryAllocator::new(&backend);
    let queues = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
    let pool = options
        .budget(&budget)
        .build(allocator, &queues[0])
        .unwrap();
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
            let (block, mark, queue): (binpool::PooledBuffer<MockBackend>, u8, &MockQueue) =
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
    // Where requests happen to find what is free, nothing has to move.
    let mut without_moves = 0;
    for seed in 0..20 {
        let builder = MockDevice::builder().completion(Completion::Seeded(seed));
        let rig = rig(builder.capacity_bytes(96 * MIB as u64));
        program(&rig, 400, &mut Random::new(seed));
        let statistics = rig.pool.statistics();
        assert!(statistics.maps > statistics.unmaps, "{statistics:?}");
        without_moves += usize::from(statistics.unmaps == 0);
        check_end(rig);
    }
    assert!(without_moves <= 1, "{without_moves} programs");
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
    calls: Arc<AtomicUsize>,
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
        let made = Arc::<AtomicUsize>::default();
        let allocator = Fragile {
            inner: VirtualMemoryAllocator::new(&backend),
            calls: Arc::clone(&made),
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
        let made = made.load(Ordering::Relaxed);
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

/// A pool of pages in one arena, on a device where commands end only when they are told to, or when something waits for them.
fn manual_rig() -> Rig {
    manual(MockDevice::builder().capacity_bytes(64 << 30))
}

fn manual(builder: MockDeviceBuilder) -> Rig {
    let builder = builder.completion(Completion::Manual);
    rig_with(builder, PoolOptions::new().arenas(1))
}

/// The same with little memory, so that the host has room for the contents.
fn small_manual_rig() -> Rig {
    manual(MockDevice::builder().capacity_bytes(1 << 30))
}

impl Rig {
    /// Leaves 192 MiB free that no command uses, and beside them 24 MiB that the first queue's commands may use. Returns the blocks of
    /// another queue that keep it so.
    fn free_beside_what_is_pending(&self) -> [binpool::PooledBuffer<MockBackend>; 2] {
        let one = &self.queues[0];
        let three = self
            .device
            .backend()
            .create_queue(QueueOrder::InOrder)
            .unwrap();
        drop(self.pool.allocate_on(one, 200 * MIB).unwrap());
        // This request makes a marker on the first queue, and the next one sees that it has ended.
        let first = self.pool.allocate_on(&three, 4 * MIB).unwrap();
        self.device.run();
        let held = self.pool.allocate_on(&three, 8 * MIB).unwrap();
        let [block, beside] = [(); 2].map(|()| self.pool.allocate_on(one, 12 * MIB).unwrap());
        // The thread keeps the last block, and gives the one before back.
        drop(beside);
        drop(block);
        [first, held]
    }
}

#[test]
fn pages_that_no_queue_used_serve_every_queue_whatever_is_freed_beside_them() {
    let rig = manual_rig();
    let _held = rig.free_beside_what_is_pending();
    let before = rig.pool.statistics();
    let block = rig.pool.allocate_on(&rig.queues[1], 32 * MIB).unwrap();
    let after = rig.pool.statistics();
    let memory = |now: &PoolStatistics| (now.maps, now.managed_bytes);
    assert_eq!(memory(&after), memory(&before));
    drop(block);
    assert_eq!(rig.device.violations(), []);
}

/// The first queue may have both: what no command uses, and what its own do.
#[test]
fn a_block_may_lie_in_free_neighbours_that_are_kept_apart() {
    let rig = manual_rig();
    let _held = rig.free_beside_what_is_pending();
    let before = rig.pool.statistics();
    let [one, two] = &rig.queues;
    let block = rig.pool.allocate_on(one, 184 * MIB).unwrap();
    assert_eq!(rig.pool.statistics().maps, before.maps);
    block.enqueue_fill(one, 0..184 * MIB, &[1_u8]).unwrap();
    drop(block);
    // The other queue gets none of it.
    let other = rig.pool.allocate_on(two, 184 * MIB).unwrap();
    assert!(rig.pool.statistics().maps > before.maps);
    other.enqueue_fill(two, 0..184 * MIB, &[2_u8]).unwrap();
    rig.device.run();
    assert_eq!(rig.device.violations(), []);
}

impl Rig {
    /// Eight blocks of 8 MiB on the first queue, filled with their numbers from 1 on. Every second one is freed while its fill is pending.
    fn every_second_is_pending(&self) -> Vec<binpool::PooledBuffer<MockBackend>> {
        let one = &self.queues[0];
        let block = |number: u8| {
            let block = self.pool.allocate_on(one, 8 * MIB).unwrap();
            block.enqueue_fill(one, .., &[number]).unwrap();
            block
        };
        let mut blocks: Vec<_> = (1..=8).map(block).collect();
        (0..4).for_each(|number| drop(blocks.remove(number)));
        blocks
    }

    /// Checks that those that are left have their numbers.
    fn check_numbers(&self, blocks: &[binpool::PooledBuffer<MockBackend>]) {
        for (block, number) in blocks.iter().zip([2, 4, 6, 8]) {
            let mut bytes = vec![0_u8; 8 * MIB];
            block.read(&self.queues[0], 0, &mut bytes).unwrap();
            assert!(bytes.iter().all(|byte| *byte == number), "block {number}");
        }
    }

    /// The calls that mapped, those that unmapped, and what is managed.
    fn mapping(&self) -> (u64, u64, u64) {
        let now = self.pool.statistics();
        (now.maps, now.unmaps, now.managed_bytes)
    }
}

#[test]
fn pages_of_a_queue_move_to_its_next_block_while_its_commands_are_pending() {
    let rig = small_manual_rig();
    let [one, two] = &rig.queues;
    let blocks = rig.every_second_is_pending();
    let before = rig.mapping();
    let large = rig.pool.allocate_on(one, 32 * MIB).unwrap();
    let (maps, unmaps, managed) = rig.mapping();
    assert!(maps > before.0, "no free range has 32 MiB");
    assert_eq!((unmaps, managed), (before.1, before.2), "no new pages");
    large.enqueue_fill(one, .., &[9_u8]).unwrap();
    drop(large);
    // Another queue does not get them while the old commands, or the new one, are pending.
    let other = rig.pool.allocate_on(two, 32 * MIB).unwrap();
    assert!(rig.mapping().2 > managed);
    other.enqueue_fill(two, .., &[10_u8]).unwrap();
    rig.device.run();
    rig.check_numbers(&blocks);
    // The old addresses are given up once the commands there have ended.
    rig.pool.sweep();
    assert!(rig.mapping().1 > before.1);
    rig.check_numbers(&blocks);
    assert_eq!(rig.device.violations(), []);
    drop((blocks, other));
    check_end(rig);
}

#[test]
fn where_pages_may_not_move_so_new_ones_serve_the_request() {
    let builder = MockDevice::builder().capacity_bytes(1 << 30);
    let refuses = manual(builder.page_aliases(false));
    // A device that maps pages at one address only, and one that fails once.
    for (rig, fails_once) in [(refuses, false), (small_manual_rig(), true)] {
        let one = &rig.queues[0];
        let blocks = rig.every_second_is_pending();
        let before = rig.mapping();
        if fails_once {
            let fault = Fault::Backend(-5);
            rig.device
                .fail_nth(CallKind::Map, 1, fault, Persistence::Once);
        }
        let mut large = Vec::new();
        for _ in 0..2 {
            large.push(rig.pool.allocate_on(one, 32 * MIB).unwrap());
        }
        // A device that refuses is not asked again.
        let failed = rig.device.call_count(CallKind::Map) - rig.mapping().0;
        assert_eq!(failed, 1);
        let created = rig.mapping().2 - before.2;
        let pages = 32 * MIB as u64;
        assert_eq!(created < 2 * pages, fails_once, "{created}");
        rig.device.run();
        rig.check_numbers(&blocks);
        drop((blocks, large));
        check_end(rig);
    }
}

#[test]
fn an_old_address_that_cannot_be_unmapped_is_tried_again() {
    let rig = small_manual_rig();
    let blocks = rig.every_second_is_pending();
    let large = rig.pool.allocate_on(&rig.queues[0], 32 * MIB).unwrap();
    rig.device.run();
    rig.device
        .fail_nth(CallKind::Unmap, 1, Fault::Backend(-5), Persistence::Once);
    let before = rig.mapping().1;
    rig.pool.sweep();
    let some = rig.mapping().1;
    rig.pool.sweep();
    let all = rig.mapping().1;
    assert!(before < some && some + 1 == all, "{before} {some} {all}");
    drop((blocks, large));
    check_end(rig);
}

#[test]
fn where_addresses_are_short_fewer_are_reserved() {
    let short = rig(MockDevice::builder());
    for nth in [1, 2] {
        short.device.fail_nth(
            CallKind::Reserve,
            nth,
            Fault::OutOfMemory,
            Persistence::Once,
        );
    }
    let block = short.pool.allocate(MIB).unwrap();
    block.enqueue_fill(&short.queues[0], .., &[1]).unwrap();
    // Without any it is out of memory, after some tries.
    let none = rig(MockDevice::builder());
    none.device.fail_nth(
        CallKind::Reserve,
        1,
        Fault::OutOfMemory,
        Persistence::Forever,
    );
    assert!(none.pool.allocate(MIB).unwrap_err().is_out_of_memory());
}

#[test]
fn every_page_that_was_mapped_counts_as_unmapped_once_it_has_left() {
    for may_alias in [false, true] {
        let builder = MockDevice::builder().virtual_memory(true);
        let device = builder.page_aliases(may_alias).build();
        let backend = device.backend();
        let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
        let pool = MemoryPool::new(VirtualMemoryAllocator::new(&backend), &queue).unwrap();
        let check = |has_moved| {
            let told = pool.statistics();
            let calls = [CallKind::Map, CallKind::Unmap].map(|kind| device.call_count(kind));
            assert_eq!([told.maps, told.unmaps], calls, "{may_alias}");
            assert_eq!(told.unmaps > 0, has_moved, "{may_alias}");
        };
        let [before, between, after] = [(); 3].map(|()| pool.allocate(20 * MIB).unwrap());
        check(false);
        drop((before, after));
        drop(pool.allocate(70 * MIB).unwrap());
        check(true);
        drop(between);
        pool.trim_to(0);
        check(true);
        assert_eq!(pool.managed_bytes(), 0);
    }
}
