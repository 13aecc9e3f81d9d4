//! Blocks that are carved from segments: free neighbours become one, little is taken from the device, all of it comes
//! back.

use std::{
    sync::{Arc, Mutex},
    thread,
};

use binpool::{
    Allocator, Backend, Error, ImmediateAllocator, PoolOptions, PooledBuffer, Queue, QueueOrder,
    ReusePolicy, SvmAllocator, SvmGrain,
};
use binpool_allocators::{Align, EventOf, MemoryOf};
use binpool_conformance::Random;
use binpool_mock::{CallKind, Completion, Fault, HostWait, MockBackend, MockDevice, Persistence};

use crate::common::{Block, MIB, Rig, every_call_fails_once};

const GIB: u64 = 1 << 30;

fn options() -> PoolOptions {
    PoolOptions::new().segments(true).leading_bits(8)
}

fn rig() -> Rig {
    Rig::with_options(MockDevice::builder().capacity_bytes(64 * GIB), options())
}

#[test]
fn small_blocks_share_a_segment() {
    let rig = rig();
    let blocks = [(); 100].map(|()| rig.pool.allocate(1000).unwrap());
    assert_eq!(rig.blocks_on_device(), 1);
    let statistics = rig.pool.statistics();
    assert_eq!((statistics.misses, statistics.carved_hits), (1, 99));
    drop(blocks);
}

#[test]
fn free_neighbours_serve_a_larger_block() {
    let rig = rig();
    let blocks: Vec<_> = (0..64).map(|_| rig.pool.allocate(MIB).unwrap()).collect();
    let managed = rig.pool.managed_bytes();
    drop(blocks);
    let large: Vec<_> = (0..16)
        .map(|_| rig.pool.allocate(2 * MIB).unwrap())
        .collect();
    assert_eq!(rig.pool.managed_bytes(), managed, "no segment was added");
    drop(large);
}

#[test]
fn a_large_segment_is_not_broken_up_for_a_small_block() {
    let rig = rig();
    let large = rig.pool.allocate(64 * MIB).unwrap();
    let memory = rig.blocks_on_device();
    drop(large);
    let small = rig.pool.allocate(1000).unwrap();
    let large = rig.pool.allocate(64 * MIB).unwrap();
    assert_eq!(rig.blocks_on_device(), memory + 1);
    drop((small, large));
}

#[test]
fn blocks_of_one_segment_have_bytes_of_their_own() {
    let rig = rig();
    let blocks: Vec<_> = (1..=50_u8)
        .map(|mark| {
            let bytes = 100 * usize::from(mark);
            let block = rig.pool.allocate(bytes).unwrap();
            block.enqueue_fill(&rig.queue, 0..bytes, &[mark]).unwrap();
            (block, mark)
        })
        .collect();
    for (block, mark) in &blocks {
        let mut bytes = vec![0_u8; block.size()];
        block.read(&rig.queue, 0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| byte == mark));
    }
    let (block, mark) = &blocks[40];
    let slice = block.slice(256..512).unwrap();
    let mut bytes = [0; 256];
    slice.read(&rig.queue, 0, &mut bytes).unwrap();
    assert_eq!(bytes, [*mark; 256]);
    assert!(rig.device.violations().is_empty());
}

#[test]
fn after_dropping_all_the_device_has_everything_back() {
    let rig = rig();
    let blocks: Vec<_> = (1..200_usize)
        .map(|step| rig.pool.allocate(step * 7919 % 3_000_000 + 1).unwrap())
        .collect();
    let managed = rig.pool.managed_bytes();
    assert_eq!(managed, rig.device.statistics().committed_bytes);
    drop(blocks);
    assert_eq!(rig.pool.statistics().held_bytes, managed);
    assert_eq!(rig.pool.free_held(), managed);
    assert_eq!(rig.pool.managed_bytes(), 0);
    assert_eq!(rig.blocks_on_device(), 0);
    assert_eq!(rig.device.statistics().live_sub_regions, 0);
}

#[test]
fn segments_of_shared_virtual_memory_come_back_too() {
    let device = MockDevice::new();
    let backend = device.backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let allocator = SvmAllocator::new(&backend, SvmGrain::Coarse).unwrap();
    let pool = options().build(allocator, &queue).unwrap();
    let gate = backend.create_user_event().unwrap();
    let blocks = [(); 20].map(|()| pool.allocate(1000).unwrap());
    let mut addresses = blocks.each_ref().map(|block| block.address().unwrap());
    addresses.sort();
    assert!(
        addresses
            .windows(2)
            .all(|pair| pair[1].addr().get() - pair[0].addr().get() >= 1000)
    );
    blocks[7]
        .enqueue_fill(queue.after(std::slice::from_ref(&gate)), 0..1000, &[1_u8])
        .unwrap();
    drop(blocks);
    pool.free_held();
    assert_eq!(pool.managed_bytes(), 0);
    assert_eq!(
        device.statistics().live_blocks,
        1,
        "a command still uses it"
    );
    backend
        .resolve_user_event(&gate, binpool::Outcome::Complete)
        .unwrap();
    assert_eq!(device.statistics().live_blocks, 0);
    assert!(device.violations().is_empty());
}

#[test]
fn ranges_start_on_what_views_may_though_the_allocator_asks_for_less() {
    let device = MockDevice::builder()
        .alignment(Align::new(512).unwrap())
        .largest_svm_alignment(Align::new(128).unwrap())
        .build();
    let backend = device.backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let allocator = SvmAllocator::new(&backend, SvmGrain::Coarse).unwrap();
    let pool = options().build(allocator, &queue).unwrap();
    let blocks = [1, 4, 100, 600].map(|bytes| pool.allocate(bytes).unwrap());
    assert_eq!(
        blocks.each_ref().map(PooledBuffer::class_size),
        [512, 512, 512, 1024]
    );
}

#[test]
fn a_pool_that_does_not_hold_gives_segments_back_when_they_are_free() {
    let rig = rig();
    rig.pool.stop_holding();
    let [one, two] = [(); 2].map(|()| rig.pool.allocate(1000).unwrap());
    drop(one);
    assert_eq!(rig.blocks_on_device(), 1);
    drop(two);
    assert_eq!(rig.blocks_on_device(), 0);
    assert_eq!(rig.pool.managed_bytes(), 0);
}

#[test]
fn a_view_that_cannot_be_made_loses_nothing() {
    let rig = rig();
    rig.device.fail_nth(
        CallKind::CreateSubRegion,
        1,
        Fault::Backend(-1),
        Persistence::Once,
    );
    assert!(rig.pool.allocate(1000).is_err());
    let statistics = rig.pool.statistics();
    assert_eq!(statistics.held_bytes, statistics.managed_bytes);
    drop(rig.pool.allocate(1000).unwrap());
    assert_eq!(rig.pool.free_held(), statistics.managed_bytes);
}

#[test]
fn a_detached_block_outlives_its_pool() {
    let rig = rig();
    let memory = rig.pool.allocate(1000).unwrap().detach().unwrap();
    drop(rig.pool);
    assert_eq!(rig.device.statistics().live_blocks, 1);
    rig.backend
        .write(&rig.queue, &memory, 0, &[1_u8; 1000])
        .unwrap();
    drop(memory);
    assert_eq!(rig.device.statistics().live_blocks, 0);
}

#[test]
fn a_range_crosses_queues_when_its_commands_have_ended_and_not_before() {
    for policy in ReusePolicy::ALL {
        let builder = MockDevice::builder().completion(Completion::Manual);
        let rig = Rig::with_options(builder, options().reuse(policy));
        let other = rig.another_queue(QueueOrder::InOrder);
        let block = rig.pool.allocate(100_000).unwrap();
        block.enqueue_fill(&rig.queue, 0..100_000, &[1_u8]).unwrap();
        drop(block);
        // Of another class, so that the bins have nothing.
        let early = rig.pool.allocate_on(&other, 90_000).unwrap();
        early.enqueue_fill(&other, 0..90_000, &[2_u8]).unwrap();
        let own = rig.pool.allocate(80_000).unwrap();
        own.enqueue_fill(&rig.queue, 0..80_000, &[3_u8]).unwrap();
        rig.device.run();
        let managed = rig.pool.managed_bytes();
        let late = rig.pool.allocate_on(&other, 20_000).unwrap();
        late.enqueue_fill(&other, 0..20_000, &[4_u8]).unwrap();
        rig.device.run();
        assert_eq!(rig.pool.managed_bytes(), managed, "{policy:?}");
        assert!(
            rig.device.violations().is_empty(),
            "{:#?}",
            rig.device.violations()
        );
    }
}

/// What the device has taken from it grows to little more than the program has in use, whatever the sizes.
#[test]
fn the_mixed_workload_takes_hardly_more_than_it_has_in_use() {
    let rig = rig();
    let mut random = Random::new(42);
    let mut next = || random.next();
    let entries: Vec<(usize, usize)> = (0..65_536)
        .map(|_| {
            let power = 1_u64 << (8 + next() % 18);
            let size = power + (next() & (power - 1));
            let slot = next() % 1000;
            (
                usize::try_from(size).unwrap(),
                usize::try_from(slot).unwrap(),
            )
        })
        .collect();
    let mut live: Vec<Option<PooledBuffer<_>>> = entries[..1000]
        .iter()
        .map(|(size, _)| Some(rig.pool.allocate(*size).unwrap()))
        .collect();
    for (size, slot) in &entries {
        live[*slot] = None;
        live[*slot] = Some(rig.pool.allocate(*size).unwrap());
    }
    let statistics = rig.pool.statistics();
    let parts = statistics.peak_managed_bytes * 100 / statistics.peak_active_bytes;
    assert!(
        parts <= 120,
        "{parts} % of the peak in use were managed: {statistics:?}"
    );
}

/// Has to be told of the commands that may still use what comes back.
#[derive(Debug)]
struct Told {
    inner: ImmediateAllocator<MockBackend>,
    events: Arc<Mutex<Vec<usize>>>,
}

impl Allocator for Told {
    type Backend = MockBackend;

    fn backend(&self) -> &MockBackend {
        self.inner.backend()
    }

    fn allocate(&self, bytes: usize) -> Result<MemoryOf<Self>, Error> {
        self.inner.allocate(bytes)
    }

    fn release(&self, memory: MemoryOf<Self>, after: &[EventOf<Self>]) -> Result<(), Error> {
        self.events.lock().unwrap().push(after.len());
        self.inner.release(memory, after)
    }

    fn is_deferred(&self) -> bool {
        false
    }
}

#[test]
fn a_segment_goes_back_behind_every_queue_that_used_it_whoever_goes_last() {
    for pool_goes_first in [false, true] {
        let device = MockDevice::builder().completion(Completion::Manual).build();
        let backend = device.backend();
        let [home, other] = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
        let events = Arc::new(Mutex::new(Vec::new()));
        let allocator = Told {
            inner: ImmediateAllocator::new(&backend).unwrap(),
            events: Arc::clone(&events),
        };
        let pool = options().build(allocator, &home).unwrap();
        let [one, two] = [&home, &other].map(|queue| {
            let block = pool.allocate_on(queue, MIB).unwrap();
            block.enqueue_fill(queue, 0..MIB, &[1_u8]).unwrap();
            block
        });
        assert_eq!(device.statistics().live_blocks, 1, "they share a segment");
        drop(one);
        if pool_goes_first {
            drop(pool);
            drop(two);
        } else {
            drop(two);
            drop(pool);
        }
        assert_eq!(*events.lock().unwrap(), [2], "{pool_goes_first}");
        device.run();
        assert_eq!(device.statistics().live_blocks, 0);
        assert!(device.violations().is_empty());
    }
}

#[test]
fn every_call_may_fail_once() {
    let rig = || {
        let builder = MockDevice::builder().capacity_bytes(8 * MIB as u64);
        Rig::with_options(builder, options())
    };
    every_call_fails_once(rig, 8 * MIB, |rig, other| {
        let first = rig.pool.allocate(4 * MIB)?;
        first.write(&rig.queue, 0, &[1_u8; 64])?;
        let second = rig.pool.allocate_on(other, 1000)?;
        second.enqueue_fill(other, 0..1000, &[2_u8])?;
        drop((first, second));
        let third = rig.pool.allocate(5 * MIB)?;
        third.record_use(other)?;
        drop(third);
        drop(rig.pool.allocate_on(other, 2000)?);
        Ok(())
    });
}

#[test]
fn threads_share_segments_and_lose_nothing() {
    let builder = MockDevice::builder()
        .capacity_bytes(GIB)
        .completion(Completion::Seeded(3))
        .host_waits(HostWait::Block);
    let rig = Rig::with_options(builder, options());
    thread::scope(|scope| {
        for thread in 0..4_u8 {
            let rig = &rig;
            scope.spawn(move || {
                let order = [QueueOrder::InOrder, QueueOrder::OutOfOrder][usize::from(thread % 2)];
                let queue = rig.another_queue(order);
                for round in 0..300_usize {
                    let bytes = 1 + round * 7919 % 50_000;
                    let block = rig.pool.allocate_on(&queue, bytes).unwrap();
                    let filled = block.enqueue_fill(&queue, 0..bytes, &[thread]).unwrap();
                    let mut contents = vec![!thread; bytes];
                    block
                        .read(queue.after(&[filled]), 0, &mut contents)
                        .unwrap();
                    assert!(contents.iter().all(|byte| *byte == thread));
                }
            });
        }
    });
    let statistics = rig.pool.statistics();
    assert_eq!(statistics.active_blocks, 0);
    assert_eq!(statistics.held_bytes, statistics.managed_bytes);
    assert!(rig.device.violations().is_empty());
    rig.pool.free_held();
    rig.device.run();
    assert_eq!(rig.blocks_on_device(), 0);
}

#[test]
fn a_range_that_cannot_be_waited_for_stays_in_the_pool() {
    let builder = MockDevice::builder()
        .capacity_bytes(GIB)
        .completion(Completion::Manual);
    let options = options().reuse(ReusePolicy::InsertWait);
    let rig = Rig::with_options(builder, options);
    let other = rig.another_queue(QueueOrder::InOrder);
    // So that there is room for another segment before the idle one would go.
    let large = rig.pool.allocate(160 * MIB).unwrap();
    // The kept view of this one overlaps what is asked for next.
    let block = rig.pool.allocate_on(&other, 16 * MIB).unwrap();
    block.enqueue_fill(&other, 0..MIB, &[1_u8]).unwrap();
    drop(block);
    let managed = rig.pool.managed_bytes();
    rig.device
        .fail_nth(CallKind::Barrier, 1, Fault::Backend(-7), Persistence::Once);
    let fresh = rig.pool.allocate(8 * MIB).unwrap();
    assert!(rig.pool.managed_bytes() > managed, "it is fresh");
    // Nothing was lost: after a wait, the next one has it.
    let again = rig.pool.allocate(16 * MIB).unwrap();
    assert_eq!(rig.pool.statistics().device_wait_hits, 1);
    drop((large, fresh, again));
    rig.device.run();
    assert_eq!(
        rig.pool.free_held(),
        rig.pool.statistics().peak_managed_bytes
    );
    assert!(rig.device.violations().is_empty());
}

#[test]
fn a_full_device_has_small_blocks_among_large_ones() {
    let builder = MockDevice::builder().capacity_bytes(2 * MIB as u64);
    let rig = Rig::with_options(builder, PoolOptions::new().segments(true));
    let _large = rig.pool.allocate(MIB).unwrap();
    // Elsewhere it would have a segment of its own kind.
    let _small = rig.pool.allocate(4096).unwrap();
    assert_eq!(rig.blocks_on_device(), 1);
}

#[test]
fn a_segment_of_just_the_block_is_asked_for_where_a_usual_one_is_refused() {
    let rig = Rig::with_options(MockDevice::builder(), PoolOptions::new().segments(true));
    let shortages = Arc::new(Mutex::new(0));
    let count = Arc::clone(&shortages);
    rig.pool.add_reclaim_hook(move |_| {
        *count.lock().unwrap() += 1;
        false
    });
    rig.device
        .fail_nth(CallKind::Commit, 1, Fault::OutOfMemory, Persistence::Once);
    let block = rig.pool.allocate(MIB / 2).unwrap();
    assert_eq!(*shortages.lock().unwrap(), 0);
    assert_eq!(rig.pool.managed_bytes(), block.class_size() as u64);
}

#[test]
fn a_segment_whose_commands_have_ended_serves_before_the_device_is_asked() {
    // With the policy by which no memory crosses, the other queue's commands are not looked at.
    for (policy, made) in [
        (ReusePolicy::Opportunistic, 1),
        (ReusePolicy::InsertWait, 1),
        (ReusePolicy::WaitOnHost, 1),
        (ReusePolicy::SameQueue, 2),
    ] {
        let options = PoolOptions::new().segments(true).reuse(policy);
        let rig = Rig::with_options(MockDevice::builder(), options);
        let unordered = rig.another_queue(QueueOrder::OutOfOrder);
        // Too large to be held back from its segment.
        let block = rig.pool.allocate_on(&unordered, 32 * MIB).unwrap();
        block.enqueue_fill(&unordered, 0..100, &[1_u8]).unwrap();
        drop(block);
        let _block = rig.pool.allocate(32 * MIB).unwrap();
        let calls = rig.device.call_count(CallKind::CreateBuffer);
        assert_eq!(calls, made, "{policy:?}");
    }
}

#[test]
fn what_is_managed_is_in_use_or_held_whatever_goes_back() {
    let rig = rig();
    let check = |blocks: &[&Block]| {
        let now = rig.pool.statistics();
        let in_use: usize = blocks.iter().map(|block| block.class_size()).sum();
        assert_eq!(now.managed_bytes, in_use as u64 + now.held_bytes);
        (now.held_blocks, now.held_bytes)
    };
    let small = rig.pool.allocate(4096).unwrap();
    assert_eq!(check(&[&small]), (0, (128 << 10) - 4096));
    let [one, other] = [(); 2].map(|()| rig.pool.allocate(MIB).unwrap());
    let (_, free) = check(&[&small, &one, &other]);
    drop(one);
    assert_eq!(check(&[&small, &other]), (1, free + (1 << 20)));
    // It stays with the segment of the other one, as no block any more.
    assert_eq!(rig.pool.free_held(), 0);
    assert_eq!(check(&[&small, &other]), (0, free + (1 << 20)));
    drop(other);
    assert_eq!(rig.pool.free_held(), 2 << 20);
    rig.pool.stop_holding();
    assert_eq!(check(&[&small]), (0, (128 << 10) - 4096));
    drop(small);
    assert_eq!((check(&[]), rig.pool.managed_bytes()), ((0, 0), 0));
}
