//! Blocks that grow: bytes stay, with pages at the same addresses, whatever fails and whatever commands have not ended.

use std::{mem::forget, slice::from_ref, thread};

use binpool::{
    Allocator, AsMemory, Backend, Budget, Error, GrowableBuffer, ImmediateAllocator,
    InvalidRequest, Memory, MemoryId, MemoryPool, Outcome, PoolError, PoolOptions, PooledBuffer,
    Queue, QueueOrder, Region, ScrubPolicy, Verdict, VirtualMemoryAllocator, WatchOptions,
};
use binpool_allocators::VirtualMemory;
use binpool_allocators::forward_to_inner;
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

type Growable = GrowableBuffer<MockBackend>;

fn rig(builder: MockDeviceBuilder, pages: bool) -> Rig {
    rig_with(builder, pages, PoolOptions::new())
}

fn rig_with(builder: MockDeviceBuilder, pages: bool, options: PoolOptions) -> Rig {
    let device = builder.virtual_memory(true).build();
    let backend = device.backend();
    let budget = Budget::new(u64::MAX);
    let queues = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
    let options = options.budget(&budget);
    let pool = if pages {
        options.build(VirtualMemoryAllocator::new(&backend), &queues[0])
    } else {
        options.build(ImmediateAllocator::new(&backend).unwrap(), &queues[0])
    };
    Rig {
        pool: pool.unwrap(),
        device,
        budget,
        queues,
    }
}

impl Rig {
    fn growable(&self, most_bytes: usize) -> Growable {
        self.pool.growable_on(&self.queues[0], most_bytes).unwrap()
    }

    /// Fills the last `bytes` bytes.
    fn fill_end(&self, block: &Growable, bytes: usize, mark: u8) {
        let region = block.size() - bytes..block.size();
        block
            .enqueue_fill(&self.queues[0], region, &[mark])
            .unwrap();
    }

    fn check_end(self) {
        self.device.run();
        assert_eq!(self.device.violations(), []);
        let statistics = self.pool.statistics();
        assert_eq!((statistics.active_blocks, statistics.active_bytes), (0, 0));
        assert_eq!(statistics.managed_bytes, statistics.held_bytes);
        assert_eq!(self.budget.used_bytes(), statistics.managed_bytes);
        drop((self.pool, self.queues));
        assert_eq!(self.budget.used_bytes(), 0);
        assert_eq!(self.device.statistics().committed_bytes, 0);
        assert!(self.device.leaks().is_empty());
        assert_eq!(self.device.violations(), []);
    }
}

fn bytes_of(block: &Growable, queue: &MockQueue) -> Vec<u8> {
    let mut bytes = vec![0_u8; block.size()];
    block.read(queue, 0, &mut bytes).unwrap();
    bytes
}

#[test]
fn with_pages_nothing_is_copied_and_nothing_moves() {
    let rig = rig(MockDevice::builder(), true);
    let mut block = rig.growable(1 << 40);
    assert!(block.stays_in_place() && block.is_empty());
    assert_eq!(rig.pool.managed_bytes(), 0);
    let memory = block.memory_id();
    for (round, mark) in [(1, 1_u8), (2, 2), (3, 3)] {
        block.grow(3 * MIB).unwrap();
        rig.fill_end(&block, 3 * MIB, mark);
        assert_eq!(block.size(), round * 3 * MIB);
        assert_eq!(
            rig.pool.managed_bytes(),
            (round * 3 * MIB).next_multiple_of(2 * MIB) as u64
        );
    }
    let bytes = bytes_of(&block, &rig.queues[0]);
    assert!((0..9 * MIB).all(|at| usize::from(bytes[at]) == 1 + at / (3 * MIB)));
    assert_eq!(block.memory_id(), memory);
    assert_eq!(rig.device.call_count(CallKind::Copy), 0);
    let statistics = rig.pool.statistics();
    assert_eq!(
        (statistics.active_blocks, statistics.active_bytes),
        (1, 9 * MIB as u64)
    );
    assert_eq!(statistics.maps, 3);
    drop(block);
    rig.check_end();
}

#[test]
fn without_pages_a_block_that_is_full_is_copied_and_goes_back() {
    let options = PoolOptions::new().segments(false);
    let rig = rig_with(MockDevice::builder(), false, options);
    let mut block = rig.growable(64 * MIB);
    assert!(!block.stays_in_place());
    for round in 0..32 {
        block.grow(MIB).unwrap();
        rig.fill_end(&block, MIB, round);
    }
    assert!(rig.device.call_count(CallKind::Copy) < 10);
    let bytes = bytes_of(&block, &rig.queues[0]);
    assert!((0..32).all(|round| bytes[usize::from(round) * MIB] == round));
    let statistics = rig.pool.statistics();
    assert_eq!(
        (statistics.active_blocks, statistics.active_bytes),
        (1, 32 * MIB as u64)
    );
    assert!(statistics.held_blocks > 0);
    drop(block);
    rig.check_end();
}

#[test]
fn without_pages_the_exact_size_is_enough_where_more_does_not_fit() {
    let builder = MockDevice::builder().capacity_bytes(24 * MIB as u64);
    let rig = rig_with(builder, false, PoolOptions::new().segments(false));
    let mut block = rig.growable(64 * MIB);
    block.grow(11 * MIB).unwrap();
    rig.fill_end(&block, 11 * MIB, 5);
    block.grow(MIB).unwrap();
    assert_eq!(bytes_of(&block, &rig.queues[0])[11 * MIB - 1], 5);
    assert!(block.grow(12 * MIB).unwrap_err().is_out_of_memory());
    assert_eq!(block.size(), 12 * MIB);
    drop(block);
    rig.check_end();
}

#[test]
fn a_copy_comes_after_the_commands_of_all_queues() {
    for seed in 0..20 {
        let builder = MockDevice::builder().completion(Completion::Seeded(seed));
        let rig = rig(builder, false);
        let mut block = rig.growable(8 * MIB);
        block.grow(1000).unwrap();
        block.order_before(&rig.queues[1]).unwrap();
        block.enqueue_fill(&rig.queues[1], .., &[7_u8]).unwrap();
        block.grow(MIB).unwrap();
        block.order_before(&rig.queues[1]).unwrap();
        assert_eq!(bytes_of(&block, &rig.queues[1])[..1000], [7; 1000]);
        drop(block);
        rig.check_end();
    }
}

#[test]
fn pages_that_commands_use_stay_until_a_later_shrink() {
    let builder = MockDevice::builder().completion(Completion::Manual);
    let rig = rig(builder, true);
    let mut block = rig.growable(64 * MIB);
    for _ in 0..3 {
        block.grow(2 * MIB).unwrap();
    }
    block.enqueue_fill(&rig.queues[1], .., &[7_u8]).unwrap();
    block.shrink(3 * MIB).unwrap();
    assert_eq!(block.size(), 3 * MIB);
    assert_eq!(rig.pool.managed_bytes(), 6 * MIB as u64);
    rig.device.run();
    // Later commands reach what is left only, and do not matter.
    block.enqueue_fill(&rig.queues[1], .., &[8_u8]).unwrap();
    block.shrink(0).unwrap();
    assert_eq!(rig.pool.managed_bytes(), 4 * MIB as u64);
    // What grows again before it is unmapped is still there.
    block.shrink(2 * MIB).unwrap();
    block.grow(MIB).unwrap();
    let maps = rig.pool.statistics().maps;
    assert_eq!((maps, rig.pool.managed_bytes()), (3, 4 * MIB as u64));
    rig.device.run();
    block.shrink(0).unwrap();
    block.enqueue_fill(&rig.queues[1], .., &[9_u8]).unwrap();
    drop(block);
    rig.check_end();
}

#[test]
fn a_drop_waits_for_no_command_and_its_memory_is_freed_after_them() {
    let builder = MockDevice::builder().completion(Completion::Manual);
    let rig = rig(builder, true);
    let mut block = rig.growable(64 * MIB);
    block.grow(5 * MIB).unwrap();
    block.enqueue_fill(&rig.queues[0], .., &[7_u8]).unwrap();
    block.order_before(&rig.queues[1]).unwrap();
    block.enqueue_fill(&rig.queues[1], .., &[8_u8]).unwrap();
    // A kernel that the device does not see.
    block.record_use(&rig.queues[1]).unwrap();
    thread::scope(|scope| scope.spawn(|| drop(block)).join().unwrap());
    let pages = 6 * MIB as u64;
    let statistics = rig.pool.statistics();
    assert_eq!((statistics.active_blocks, statistics.active_bytes), (0, 0));
    assert_eq!(
        (statistics.managed_bytes, statistics.held_bytes),
        (pages, pages)
    );
    assert_eq!(statistics.pending_bytes, pages);
    let held_back: Vec<_> = rig.pool.held_back().iter().map(|it| it.bytes).collect();
    assert_eq!(held_back, [pages; 2]);
    assert_eq!(rig.device.statistics().committed_bytes, pages);
    rig.device.run();
    assert_eq!(rig.pool.sweep(), pages);
    assert_eq!(rig.device.statistics().committed_bytes, 0);
    rig.check_end();
}

/// Drops a block whose pages a command uses, while nothing says when that ends.
fn dropped_where_nothing_says_when_its_command_ends() -> Rig {
    let builder = MockDevice::builder().completion(Completion::Manual);
    let rig = rig(builder, true);
    let mut block = rig.growable(64 * MIB);
    block.grow(MIB).unwrap();
    block.enqueue_fill(&rig.queues[0], .., &[7_u8]).unwrap();
    for kind in [CallKind::Marker, CallKind::Finish] {
        let fault = Fault::Backend(-5);
        rig.device.fail_nth(kind, 1, fault, Persistence::Forever);
    }
    drop(block);
    assert_eq!(rig.pool.free_held(), 0);
    rig
}

#[test]
fn pages_stay_where_nothing_says_when_their_commands_end() {
    let rig = dropped_where_nothing_says_when_its_command_ends();
    let pages = 2 * MIB as u64;
    assert_eq!(
        (rig.budget.used_bytes(), rig.pool.managed_bytes()),
        (pages, pages)
    );
    rig.device.clear_faults();
    rig.device.run();
    assert_eq!(rig.pool.free_held(), pages);
    rig.check_end();
}

#[test]
fn addresses_stay_reserved_where_nothing_says_when_their_commands_end() {
    let Rig { device, pool, .. } = dropped_where_nothing_says_when_its_command_ends();
    drop(pool);
    device.clear_faults();
    device.run();
    // A command of the program's own may still use them.
    assert_eq!(device.statistics().committed_bytes, 2 * MIB as u64);
    assert_eq!(device.violations(), []);
}

#[test]
fn a_pool_that_ends_does_not_wait_for_the_commands_of_dropped_blocks() {
    let builder = MockDevice::builder().completion(Completion::Manual);
    let rig = rig(builder, true);
    let mut block = rig.growable(64 * MIB);
    block.grow(MIB).unwrap();
    let gate = rig.device.backend().create_user_event().unwrap();
    let on = rig.queues[0].after(from_ref(&gate));
    block.enqueue_fill(on, .., &[7_u8]).unwrap();
    drop((block, rig.pool));
    assert_eq!(rig.device.statistics().committed_bytes, 2 * MIB as u64);
    let backend = rig.device.backend();
    backend
        .resolve_user_event(&gate, Outcome::Complete)
        .unwrap();
    rig.device.run();
    assert_eq!(rig.budget.used_bytes(), 0);
    assert_eq!(rig.device.statistics().committed_bytes, 0);
    assert_eq!(rig.device.violations(), []);
}

#[test]
fn dropped_pages_that_commands_use_count_in_the_limit() {
    for holds in [false, true] {
        let builder = MockDevice::builder().completion(Completion::Manual);
        let rig = rig(builder, true);
        let limit = 8 * MIB as u64;
        rig.budget.set_max_bytes(limit);
        if !holds {
            rig.pool.stop_holding();
        }
        let gate = rig.device.backend().create_user_event().unwrap();
        let begin = |queue: &MockQueue| {
            let mut block = rig.pool.growable_on(queue, 4 * MIB)?;
            block.grow(4 * MIB)?;
            let filled = block.enqueue_fill(queue.after(from_ref(&gate)), .., &[1_u8]);
            filled.map_err(PoolError::from)
        };
        for _ in 0..2 {
            begin(&rig.queues[0]).unwrap();
        }
        assert_eq!(rig.pool.managed_bytes(), limit);
        let error = begin(&rig.queues[0]).unwrap_err();
        assert_eq!(
            error.out_of_memory().map(|report| report.verdict),
            Some(Verdict::Pending)
        );
        assert!(rig.pool.allocate(MIB).unwrap_err().is_out_of_memory());
        assert_eq!(rig.device.statistics().committed_bytes, limit);
        let backend = rig.device.backend();
        backend
            .resolve_user_event(&gate, Outcome::Complete)
            .unwrap();
        // It waits for the commands.
        begin(&rig.queues[1]).unwrap();
        assert!(rig.device.statistics().committed_bytes <= limit);
        assert!(rig.pool.allocate(4 * MIB).is_ok());
        rig.pool.resume_holding();
        drop(gate);
        rig.check_end();
    }
}

#[test]
fn a_trim_takes_dropped_pages_that_no_command_uses() {
    let trims: [fn(&MemoryPool<MockBackend>) -> u64; 3] = [
        |pool| pool.trim_to(0),
        MemoryPool::free_held,
        MemoryPool::sweep,
    ];
    for trim in trims {
        let builder = MockDevice::builder().completion(Completion::Manual);
        let rig = rig(builder, true);
        let mut block = rig.growable(64 * MIB);
        block.grow(4 * MIB).unwrap();
        rig.fill_end(&block, MIB, 1);
        drop(block);
        assert_eq!(rig.pool.managed_bytes(), 4 * MIB as u64);
        rig.device.run();
        assert_eq!(trim(&rig.pool), 4 * MIB as u64);
        assert_eq!(rig.pool.managed_bytes(), 0);
        rig.check_end();
    }
}

#[test]
fn a_block_that_is_forgotten_or_outlives_its_pool_does_no_harm() {
    let rig = rig(MockDevice::builder(), true);
    let mut forgotten = rig.growable(64 * MIB);
    forgotten.grow(MIB).unwrap();
    let mut last = rig.growable(64 * MIB);
    last.grow(MIB).unwrap();
    forget(forgotten);
    drop(rig.pool);
    last.grow(4 * MIB).unwrap();
    rig.queues.iter().for_each(|queue| {
        last.enqueue_fill(queue, .., &[1_u8]).unwrap();
    });
    last.shrink(MIB).unwrap();
    drop(last);
    assert_eq!(rig.budget.used_bytes(), 2 * MIB as u64, "of the forgotten");
    assert_eq!(rig.device.statistics().committed_bytes, 2 * MIB as u64);
}

#[test]
fn pages_count_in_the_limit_and_free_pages_of_the_pool_make_room_for_them() {
    let rig = rig(MockDevice::builder(), true);
    rig.budget.set_max_bytes(16 * MIB as u64);
    let blocks = [(); 3].map(|()| rig.pool.allocate(4 * MIB).unwrap());
    let mut block = rig.growable(1 << 30);
    block.grow(4 * MIB).unwrap();
    rig.fill_end(&block, 4 * MIB, 9);
    let error = block.grow(4 * MIB).unwrap_err();
    let report = error.out_of_memory().unwrap();
    assert_eq!(report.requested_bytes, 4 * MIB);
    assert_eq!(report.active_bytes, 16 * MIB as u64);
    assert_eq!(
        (block.size(), rig.budget.used_bytes()),
        (4 * MIB, 16 * MIB as u64)
    );
    drop(blocks);
    block.grow(12 * MIB).unwrap();
    assert_eq!(bytes_of(&block, &rig.queues[0])[4 * MIB - 1], 9);
    // The pool takes nothing more, and a hook that shrinks the block helps it.
    assert!(rig.pool.allocate(MIB).unwrap_err().is_out_of_memory());
    block.shrink(12 * MIB).unwrap();
    assert!(rig.pool.allocate(MIB).is_ok());
    drop(block);
    rig.check_end();
}

#[test]
fn growth_waits_for_the_commands_that_hold_free_pages_back() {
    let builder = MockDevice::builder().completion(Completion::Manual);
    let rig = rig(builder.capacity_bytes(16 * MIB as u64), true);
    let other = rig.pool.allocate(12 * MIB).unwrap();
    other.enqueue_fill(&rig.queues[0], .., &[1_u8]).unwrap();
    drop(other);
    let mut block = rig.growable(1 << 30);
    block.grow(16 * MIB).unwrap();
    drop(block);
    rig.check_end();
}

#[test]
fn views_keep_pages() {
    let rig = rig(MockDevice::builder(), true);
    let backend = rig.device.backend();
    let mut block = rig.growable(64 * MIB);
    block.grow(2 * MIB).unwrap();
    block.grow(2 * MIB).unwrap();
    let memory = block.memory_on(&rig.queues[0]).unwrap();
    let view = backend
        .create_sub_region(memory, Region::new(2 * MIB, 4096))
        .unwrap();
    block.shrink(2 * MIB).unwrap();
    backend
        .enqueue_fill(&rig.queues[0], &view, .., &[7_u8])
        .unwrap();
    assert_eq!(rig.pool.managed_bytes(), 4 * MIB as u64);
    drop(block);
    backend
        .enqueue_fill(&rig.queues[0], &view, .., &[8_u8])
        .unwrap();
    assert_eq!(view.bytes(), 4096);
    assert_eq!(rig.pool.free_held(), 0);
    assert_eq!(rig.pool.managed_bytes(), 4 * MIB as u64);
    drop(view);
    assert_eq!(rig.pool.free_held(), 4 * MIB as u64);
    rig.check_end();
}

#[test]
fn pages_stay_until_the_commands_that_used_a_view_have_ended() {
    for queue in 0..2 {
        let builder = MockDevice::builder().completion(Completion::Manual);
        let rig = rig(builder, true);
        let backend = rig.device.backend();
        let mut block = rig.growable(64 * MIB);
        block.grow(2 * MIB).unwrap();
        block.grow(2 * MIB).unwrap();
        let memory = block.memory_on(&rig.queues[0]).unwrap();
        let region = Region::new(2 * MIB, 4096);
        let view = backend.create_sub_region(memory, region).unwrap();
        block.record_use(&rig.queues[queue]).unwrap();
        block.shrink(2 * MIB).unwrap();
        rig.device.run();
        block.shrink(0).unwrap();
        let used = backend.enqueue_fill(&rig.queues[queue], &view, .., &[7_u8]);
        used.unwrap();
        drop(view);
        block.shrink(0).unwrap();
        assert_eq!(rig.pool.managed_bytes(), 4 * MIB as u64);
        rig.device.run();
        block.shrink(0).unwrap();
        assert_eq!(rig.pool.managed_bytes(), 2 * MIB as u64);
        drop(block);
        rig.check_end();
    }
}

#[test]
fn pages_stay_until_the_commands_of_all_queues_have_ended_once_a_view_is_gone() {
    for drops in [false, true] {
        let builder = MockDevice::builder().completion(Completion::Manual);
        let rig = rig(builder, true);
        let backend = rig.device.backend();
        // So that the pool knows the queue.
        let other = rig.pool.allocate_on(&rig.queues[1], 1000).unwrap();
        let mut block = rig.growable(64 * MIB);
        block.grow(2 * MIB).unwrap();
        let committed = || rig.device.statistics().committed_bytes;
        let before = committed();
        let memory = block.memory_on(&rig.queues[0]).unwrap();
        let region = Region::new(0, 4096);
        let view = backend.create_sub_region(memory, region).unwrap();
        block.shrink(2 * MIB).unwrap();
        let gate = backend.create_user_event().unwrap();
        let on = rig.queues[1].after(from_ref(&gate));
        backend.enqueue_fill(on, &view, .., &[7_u8]).unwrap();
        drop(view);
        let mut block = Some(block);
        for _ in 0..2 {
            if drops {
                block = None;
            } else {
                block.as_mut().unwrap().shrink(0).unwrap();
            }
            rig.device.run();
            assert_eq!(committed(), before);
        }
        backend
            .resolve_user_event(&gate, Outcome::Complete)
            .unwrap();
        drop((block, other, gate));
        rig.check_end();
    }
}

#[test]
fn pages_that_a_block_grows_over_again_stay_when_their_former_commands_end() {
    let builder = MockDevice::builder().completion(Completion::Manual);
    let rig = rig(builder, true);
    let mut block = rig.growable(64 * MIB);
    for _ in 0..2 {
        block.grow(2 * MIB).unwrap();
    }
    block.enqueue_fill(&rig.queues[0], .., &[7_u8]).unwrap();
    block.shrink(2 * MIB).unwrap();
    block.grow(2 * MIB).unwrap();
    rig.device.run();
    block.shrink(0).unwrap();
    assert_eq!(rig.pool.managed_bytes(), 4 * MIB as u64);
    assert_eq!(bytes_of(&block, &rig.queues[0])[4 * MIB - 1], 7);
    drop(block);
    rig.check_end();
}

#[test]
fn kept_addresses_keep_pages() {
    let rig = rig(MockDevice::builder(), true);
    let mut block = rig.growable(64 * MIB);
    block.grow(4 * MIB).unwrap();
    let kept = rig.pool.keep_addresses();
    block.shrink(4 * MIB).unwrap();
    assert_eq!(rig.pool.managed_bytes(), 4 * MIB as u64);
    drop(kept);
    block.shrink(0).unwrap();
    assert_eq!(rig.pool.managed_bytes(), 0);
    drop(block);
    rig.check_end();
}

#[test]
fn a_block_that_is_dropped_while_addresses_are_kept_stays_until_they_are_not() {
    let rig = rig(MockDevice::builder(), true);
    let mut block = rig.growable(64 * MIB);
    block.grow(1000).unwrap();
    let memory = block.memory_on(&rig.queues[0]).unwrap();
    let address = memory.device_address().unwrap();
    let kept = [(); 2].map(|()| rig.pool.keep_addresses());
    drop(block);
    let at = rig.pool.backend().memory_at(address, 1000).unwrap();
    rig.pool
        .backend()
        .write(&rig.queues[0], &at, 0, &[7_u8; 1000])
        .unwrap(); // A graph is launched.
    drop(at);
    let [one, two] = kept;
    drop(one);
    assert!(rig.pool.managed_bytes() > 0);
    drop(two);
    assert_eq!((rig.pool.active_blocks(), rig.pool.managed_bytes()), (0, 0));
    rig.check_end();
}

#[test]
fn a_block_does_not_grow_beyond_its_largest_size() {
    for pages in [false, true] {
        let rig = rig(MockDevice::builder(), pages);
        let mut block = rig.growable(1000);
        block.grow(400).unwrap();
        for bytes in [601, usize::MAX] {
            let error = block.grow(bytes).unwrap_err();
            let expected = InvalidRequest::OutOfBounds {
                offset: 400,
                bytes,
                size: 1000,
            };
            assert_eq!(error.to_string(), Error::from(expected).to_string());
        }
        block.grow(600).unwrap();
        assert!(rig.pool.growable_on(&rig.queues[0], 0).is_err());
        assert!(block.write(&rig.queues[0], 1000, &[1_u8]).is_err());
        drop(block);
        rig.check_end();
    }
}

#[test]
fn a_pool_that_scrubs_hands_out_zeros_as_the_block_grows() {
    for pages in [false, true] {
        let options = PoolOptions::new().scrub(ScrubPolicy::OnHandOut);
        let rig = rig_with(MockDevice::builder(), pages, options);
        let mut block = rig.growable(64 * MIB);
        for mark in 1..5 {
            block.grow(700_000).unwrap();
            let bytes = bytes_of(&block, &rig.queues[0]);
            let last = &bytes[block.size() - 700_000..];
            assert!(last.iter().all(|byte| *byte == 0), "{mark}, pages: {pages}");
            rig.fill_end(&block, 700_000, mark);
        }
        drop(block);
        rig.check_end();
    }
}

/// Gives pages as another user has left them.
#[derive(Debug)]
struct Used<A> {
    inner: A,
    queue: MockQueue,
}

impl<A: Allocator<Backend = MockBackend>> Allocator for Used<A> {
    forward_to_inner!();

    fn allocate(&self, bytes: usize) -> Result<MockMemory, Error> {
        let pages = self.inner.allocate(bytes)?;
        let (backend, all) = (self.backend(), Region::first(pages.bytes()));
        let reservation = backend.reserve(all.bytes)?;
        backend.map(&reservation, 0, &pages)?;
        backend.enqueue_fill(&self.queue, &reservation, all, &[7_u8])?;
        self.queue.finish()?;
        backend.unmap(&reservation, all)?;
        Ok(pages)
    }

    fn release(&self, memory: MockMemory, after: &[MockEvent]) -> Result<(), Error> {
        self.inner.release(memory, after)
    }
}

#[test]
fn a_pool_that_scrubs_leaves_nothing_of_others_in_the_rest_of_the_last_page() {
    let device = MockDevice::builder().virtual_memory(true).build();
    let backend = device.backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let used = Used {
        inner: VirtualMemoryAllocator::new(&backend),
        queue: queue.clone(),
    };
    let options = PoolOptions::new().scrub(ScrubPolicy::OnHandOut);
    let pool = options.build(used, &queue).unwrap();
    let mut block = pool.growable_on(&queue, 64 * MIB).unwrap();
    for _ in 0..2 {
        block.grow(3 * MIB).unwrap();
        let mut bytes = vec![1_u8; block.class_size()];
        let memory = block.memory_on(&queue).unwrap();
        backend.read(&queue, memory, 0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 0));
    }
    // The first fill is that of `Used`.
    device.fail_nth(CallKind::Fill, 2, Fault::Backend(-5), Persistence::Once);
    assert!(block.grow(3 * MIB).is_err());
    assert_eq!((block.size(), block.class_size()), (6 * MIB, 6 * MIB));
}

#[test]
fn growth_by_more_than_the_device_has_is_out_of_memory() {
    for pages in [false, true] {
        let rig = rig(MockDevice::builder().capacity_bytes(16 * MIB as u64), pages);
        let mut block = rig.growable(1 << 40);
        let error = block.grow(1 << 30).unwrap_err();
        let report = error.out_of_memory().unwrap();
        assert_eq!(report.verdict, Verdict::NeverFits);
        assert_eq!(rig.pool.statistics().out_of_memory, 1);
        block.grow(1000).unwrap();
        drop(block);
        rig.check_end();
    }
}

#[test]
fn a_watched_pool_knows_the_present_size_and_who_made_it_grow() {
    for pages in [false, true] {
        let rig = rig(MockDevice::builder(), pages);
        rig.pool.watch(WatchOptions::new());
        let mut block = rig.growable(64 * MIB);
        block.grow(MIB).unwrap();
        block.grow(2 * MIB).unwrap();
        // Without pages, this takes a half more, and the last one fits into that.
        block.grow(10).unwrap();
        block.grow(10).unwrap();
        block.shrink(5).unwrap();
        let live = rig.pool.live_blocks();
        let [group] = &live.groups[..] else {
            panic!("{live:?}");
        };
        let size = 3 * MIB as u64 + 15;
        assert_eq!((group.blocks, group.requested_bytes), (1, size));
        let call_site = group.call_site.as_ref().unwrap();
        assert!(call_site.contains("it/growable.rs"), "{call_site:?}");
        drop(block);
        assert!(rig.pool.live_blocks().groups.is_empty());
        rig.check_end();
    }
}

/// Grows, shrinks, fills and reads two blocks as a model does, which is their bytes.
fn program(rig: &Rig, steps: usize, random: &mut Random) -> usize {
    let most = 5 * MIB;
    let mut failed = 0;
    let mut blocks = Vec::new();
    for _ in 0..2 {
        if let Ok(block) = rig.pool.growable_on(&rig.queues[0], most) {
            blocks.push((block, Vec::<u8>::new()));
        }
    }
    for step in 0..steps {
        if blocks.is_empty() {
            break;
        }
        let number = random.below(blocks.len());
        let (block, model) = &mut blocks[number];
        let memory = block.memory_id();
        let most_bytes = [5000, MIB][random.below(2)];
        let bytes = 1 + random.below(most_bytes);
        let queue = &rig.queues[random.below(2)];
        match random.below(4) {
            0 | 1 => {
                let fits = model.len() + bytes <= most;
                let has_grown = block.grow(bytes).is_ok();
                assert!(fits || !has_grown);
                failed += usize::from(!has_grown);
                if has_grown {
                    let mark = u8::try_from(step % 251).unwrap();
                    let start = model.len();
                    let is_filled = block.order_before(queue).is_ok()
                        && block
                            .enqueue_fill(queue, start..start + bytes, &[mark])
                            .is_ok()
                        // The block's own queue, where a copy runs, comes after it.
                        && block.order_before(&rig.queues[0]).is_ok();
                    if is_filled {
                        model.resize(start + bytes, mark);
                    } else {
                        let _result = block.shrink(bytes);
                    }
                }
            }
            2 => {
                // Where it fails, it is shorter anyway.
                let _result = block.shrink(bytes);
                model.truncate(model.len().saturating_sub(bytes));
            }
            _ => {
                let mut found = vec![0_u8; model.len()];
                if block.order_before(queue).is_ok() && block.read(queue, 0, &mut found).is_ok() {
                    assert!(found == *model, "step {step}");
                }
            }
        }
        assert_eq!(block.size(), model.len(), "step {step}");
        assert!(!block.stays_in_place() || block.memory_id() == memory);
    }
    failed
}

#[test]
fn bytes_are_those_of_a_model() {
    for pages in [false, true] {
        for seed in 0..12 {
            let builder = MockDevice::builder().completion(Completion::Seeded(seed));
            let rig = rig(builder.capacity_bytes(32 * MIB as u64), pages);
            program(&rig, 100, &mut Random::new(seed));
            rig.check_end();
        }
    }
}

#[test]
fn a_failed_call_loses_nothing() {
    for pages in [false, true] {
        let run = |call: Option<(u64, Fault)>| {
            let rig = rig(MockDevice::builder().capacity_bytes(24 * MIB as u64), pages);
            let before = rig.device.statistics().total_calls();
            if let Some((call, fault)) = call {
                rig.device.fail_nth_any(call, fault, Persistence::Once);
            }
            program(&rig, 12, &mut Random::new(3));
            let calls = rig.device.statistics().total_calls() - before;
            rig.device.clear_faults();
            rig.pool.free_held();
            drop(rig.pool.allocate(20 * MIB).unwrap());
            rig.check_end();
            calls
        };
        let calls = run(None);
        assert!(calls > 30, "{calls}");
        for call in 1..=calls {
            let fault = [Fault::OutOfMemory, Fault::Backend(-5)][usize::from(call % 2 == 0)];
            run(Some((call, fault)));
        }
    }
}

#[test]
fn a_block_that_grows_is_memory_for_commands_at_its_present_size() {
    fn size_and_memory(
        memory: &impl AsMemory<MockBackend>,
        queue: &MockQueue,
    ) -> (usize, Option<MemoryId>) {
        (memory.size(), memory.memory_on(queue).map(Memory::id))
    }
    for pages in [false, true] {
        let rig = rig(MockDevice::builder(), pages);
        let mut block = rig.growable(64 * MIB);
        for _ in 0..2 {
            block.grow(3000).unwrap();
            let buffer: &PooledBuffer<MockBackend> = &block;
            let memory = buffer.memory_on(&rig.queues[0]);
            let expected = (buffer.size(), memory.map(Memory::id));
            assert_eq!(size_and_memory(&block, &rig.queues[0]), expected);
            assert!(expected.1.is_some());
        }
        assert_eq!(block.size(), 6000);
        drop(block);
        rig.check_end();
    }
}

#[test]
fn a_block_that_grows_by_copies_has_room_for_half_as_much_again() {
    let rig = rig(MockDevice::builder(), false);
    let mut block = rig.growable(64 * MIB);
    block.grow(4 * MIB).unwrap();
    assert_eq!(block.class_size(), 4 * MIB);
    block.grow(1).unwrap();
    assert_eq!(block.class_size(), 6 * MIB);
    drop(block);
    rig.check_end();
}

#[test]
fn pages_that_wait_to_be_unmapped_still_go_after_the_block_grew_by_nothing() {
    let rig = rig(MockDevice::builder().completion(Completion::Manual), true);
    let mut block = rig.growable(64 * MIB);
    for _ in 0..2 {
        block.grow(2 * MIB).unwrap();
    }
    let pages = rig.pool.managed_bytes();
    rig.fill_end(&block, 4 * MIB, 1);
    block.shrink(2 * MIB).unwrap();
    assert_eq!(rig.pool.managed_bytes(), pages, "a command may use them");
    block.grow(0).unwrap();
    rig.device.run();
    block.shrink(0).unwrap();
    assert_eq!(rig.pool.managed_bytes(), pages / 2);
    drop(block);
    rig.check_end();
}

#[test]
fn a_device_that_fails_to_make_pages_is_not_taken_for_a_full_one() {
    let rig = rig(MockDevice::builder(), true);
    drop(rig.pool.allocate(20 * MIB).unwrap());
    let held = rig.pool.managed_bytes();
    let mut block = rig.growable(64 * MIB);
    let fault = Fault::Backend(-5);
    rig.device
        .fail_nth(CallKind::CreatePages, 1, fault, Persistence::Once);
    let error = block.grow(2 * MIB).unwrap_err();
    assert!(!error.is_out_of_memory(), "{error}");
    assert_eq!(
        rig.pool.managed_bytes(),
        held,
        "nothing was released for it"
    );
    block.grow(2 * MIB).unwrap();
    drop(block);
    rig.check_end();
}
