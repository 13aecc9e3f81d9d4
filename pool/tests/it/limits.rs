//! How much a pool may take, and what it gives back by itself.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    time::Duration,
};

use binpool::{
    Backend, Budget, ImmediateAllocator, MemoryPool, PoolOptions, Queue, QueueOrder, Retain,
    Verdict, adaptors::Statistics,
};
use binpool_mock::{CallKind, Completion, Fault, MockBackend, MockDevice, Persistence};
use parking_lot::Mutex;

use crate::common::{MIB, Rig};

/// A pool on a large device, within `budget`.
fn limited(backend: &MockBackend, budget: &Budget, segments: bool) -> MemoryPool<MockBackend> {
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let allocator = ImmediateAllocator::new(backend).unwrap();
    PoolOptions::new()
        .budget(budget)
        .segments(segments)
        .build(allocator, &queue)
        .unwrap()
}

fn budget_of(mib: usize) -> Budget {
    Budget::new((mib * MIB) as u64)
}

#[test]
fn a_pool_stays_within_its_limit_and_says_so() {
    for segments in [false, true] {
        let backend = MockDevice::new().backend();
        let budget = budget_of(16);
        let pool = limited(&backend, &budget, segments);
        let held = pool.allocate(8 * MIB).unwrap();
        let error = pool.allocate(9 * MIB).unwrap_err();
        let report = error.out_of_memory().unwrap();
        assert_eq!(report.verdict, Verdict::Limited);
        assert_eq!(report.capacity_bytes, 16 * MIB as u64);
        assert_eq!(report.device_bytes, 1 << 30);
        assert!(error.to_string().contains("raise the limit"), "{error}");
        // Free memory makes room, and so does a higher limit.
        drop(held);
        let nine = pool.allocate(9 * MIB).unwrap();
        budget.set_max_bytes(32 * MIB as u64);
        let more = pool.allocate(16 * MIB).unwrap();
        assert!(budget.used_bytes() <= 32 * MIB as u64);
        drop((nine, more));
    }
}

#[test]
fn what_is_larger_than_the_limit_fails_at_once_and_takes_nothing_from_anyone() {
    for segments in [false, true] {
        let device = MockDevice::new();
        let budget = budget_of(16);
        let pool = limited(&device.backend(), &budget, segments);
        let is_asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&is_asked);
        pool.add_reclaim_hook(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            false
        });
        drop(pool.allocate(10 * MIB).unwrap());
        let calls = || {
            let kinds = [CallKind::CreateBuffer, CallKind::Commit, CallKind::Release];
            kinds.map(|kind| device.call_count(kind))
        };
        let (before, released) = (calls(), pool.statistics().released_blocks);
        let error = pool.allocate(32 * MIB).unwrap_err();
        let report = error.out_of_memory().unwrap();
        assert_eq!(report.verdict, Verdict::Limited, "not impossible");
        assert_eq!((report.released_bytes, report.held_bytes), (0, 10 << 20));
        assert_eq!(pool.statistics().released_blocks, released);
        assert_eq!(calls(), before);
        assert_eq!(is_asked.load(Ordering::Relaxed), 0);
        let text = error.to_string();
        for part in [
            "could not allocate 32.0 MiB: it is larger than the limit of 16.0 MiB",
            "  the limit          16.0 MiB   6.0 MiB left",
            "advice: raise the limit, or split the work into smaller blocks",
        ] {
            assert!(text.contains(part), "{part:?} is not in {text}");
        }
        // What was free is still there.
        let block = pool.allocate(10 * MIB).unwrap();
        assert_eq!(pool.statistics().misses, 1, "segments: {segments}");
        drop(block);
        // Also where the pool has more than its limit, which was lowered, and what it has serves a request.
        budget.set_max_bytes(MIB as u64);
        assert!(pool.allocate(11 * MIB).is_err());
        assert!(pool.allocate(10 * MIB).is_ok());
        assert_eq!(is_asked.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn free_memory_stays_in_the_pool_while_releasing_all_of_it_would_not_make_room_within_the_limit() {
    for segments in [false, true] {
        let budget = budget_of(16);
        let pool = limited(&MockDevice::new().backend(), &budget, segments);
        let cache = Arc::new(Mutex::new(vec![pool.allocate(8 * MIB).unwrap()]));
        drop(pool.allocate(6 * MIB).unwrap());
        // 2 MiB are left, and 6 MiB are free.
        let (seen, weak) = (Arc::new(Mutex::new(Vec::new())), pool.downgrade());
        let note = Arc::clone(&seen);
        pool.add_reclaim_hook(move |_| {
            note.lock().push(weak.upgrade().unwrap().managed_bytes());
            false
        });
        let error = pool.allocate(12 * MIB).unwrap_err();
        let report = error.out_of_memory().unwrap();
        assert_eq!(
            (report.verdict, report.released_bytes),
            (Verdict::Limited, 0)
        );
        assert_eq!(pool.managed_bytes(), 14 << 20, "segments: {segments}");
        // The hook was asked before anything was released, and where it helps, both make room.
        let shrink = Arc::clone(&cache);
        pool.add_reclaim_hook(move |_| !std::mem::take(&mut *shrink.lock()).is_empty());
        let large = pool.allocate(12 * MIB).unwrap();
        assert_eq!(*seen.lock(), [14 << 20; 2]);
        assert_eq!(pool.managed_bytes(), 12 << 20);
        drop(large);
    }
}

#[test]
fn what_other_pools_have_of_a_limit_is_no_reason_to_release_what_is_free_here() {
    for segments in [false, true] {
        let (backend, budget) = (MockDevice::new().backend(), budget_of(16));
        let [one, two] = [(); 2].map(|()| limited(&backend, &budget, segments));
        let kept = one.allocate(8 * MIB).unwrap();
        drop(two.allocate(6 * MIB).unwrap());
        let error = two.allocate(9 * MIB).unwrap_err().to_string();
        assert!(error.contains("a limit is reached"), "{error}");
        let advice = "advice: raise the limit, or free memory elsewhere under it";
        assert!(error.contains(advice), "{error}");
        assert_eq!(two.managed_bytes(), 6 << 20, "segments: {segments}");
        // Just what its own free memory makes room for.
        assert!(two.would_fit(8 * MIB) && !two.would_fit(8 * MIB + 1));
        drop((two.allocate(8 * MIB).unwrap(), kept));
    }
}

#[test]
fn a_request_beyond_the_limit_leaves_segments_as_large_as_they_were() {
    let [asks, does_not] = [true, false].map(|asks| {
        let pool = limited(&MockDevice::new().backend(), &budget_of(64), true);
        let _first = pool.allocate(MIB).unwrap();
        assert!(!asks || pool.allocate(900 * MIB).is_err());
        let _second = pool.allocate(MIB / 4).unwrap();
        let _third = pool.allocate(2 * MIB).unwrap();
        pool.managed_bytes()
    });
    assert_eq!(asks, does_not);
}

#[test]
fn segments_do_not_take_a_limit_for_themselves() {
    let backend = MockDevice::new().backend();
    let budget = budget_of(4);
    let pool = limited(&backend, &budget, true);
    // Fifteen of these leave 256 KiB, less than a usual segment.
    let blocks: Vec<_> = (0..16).map(|_| pool.allocate(MIB / 4).unwrap()).collect();
    assert!(pool.allocate(1).is_err());
    assert_eq!(pool.managed_bytes(), 4 * MIB as u64);
    drop(blocks);
}

#[test]
fn pools_of_one_budget_help_each_other_out_by_hooks() {
    let backend = MockDevice::new().backend();
    let budget = budget_of(16);
    let [one, two] = [false, true].map(|segments| limited(&backend, &budget, segments));
    drop(one.allocate(12 * MIB).unwrap());
    assert!(two.allocate(12 * MIB).is_err(), "the other one holds it");
    let other = one.clone();
    two.add_reclaim_hook(move |_| other.free_held() > 0);
    assert!(two.allocate(12 * MIB).is_ok());
    assert_eq!(one.managed_bytes(), 0);
}

#[test]
fn a_soft_limit_may_trim_the_pool_that_crosses_it() {
    let backend = MockDevice::new().backend();
    let budget = budget_of(1000);
    let pool = limited(&backend, &budget, false);
    let (weak, calls) = (pool.downgrade(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&calls);
    budget.on_soft_limit(8 * MIB as u64, move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        weak.upgrade().unwrap().trim_to(0);
    });
    let still = pool.downgrade();
    drop(pool.allocate(6 * MIB).unwrap());
    let block = pool.allocate(4 * MIB).unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    assert_eq!(pool.managed_bytes(), 4 * MIB as u64, "the rest went back");
    drop((block, pool));
    assert!(still.upgrade().is_none(), "the callback keeps no pool");
}

#[test]
fn would_fit_knows_what_can_be_had() {
    for segments in [false, true] {
        let options = PoolOptions::new().segments(segments);
        let rig = Rig::with_options(
            MockDevice::builder().capacity_bytes(64 * MIB as u64),
            options,
        );
        let fits = |mib: usize| rig.pool.would_fit(mib * MIB);
        assert!(rig.pool.would_fit(0));
        assert!(fits(64) && !fits(65) && !rig.pool.would_fit(usize::MAX));
        let [one, two] = [(); 2].map(|()| rig.pool.allocate(24 * MIB).unwrap());
        assert!(fits(16) && !fits(17), "segments: {segments}");
        drop(one);
        assert!(fits(24) && fits(40) && !fits(41));
        drop(two);
        assert!(fits(64));
        // A question is not a failure.
        assert_eq!(rig.pool.statistics().out_of_memory, 0);
    }
    let pool = limited(&MockDevice::new().backend(), &budget_of(8), true);
    assert!(pool.would_fit(8 * MIB) && !pool.would_fit(9 * MIB));
}

#[test]
fn above_the_release_threshold_free_memory_goes_back_once_no_command_uses_it() {
    for segments in [false, true] {
        let options = PoolOptions::new()
            .segments(segments)
            .retain(Retain::new().at_most(8 * MIB as u64));
        let rig = Rig::with_options(
            MockDevice::builder().completion(Completion::Manual),
            options,
        );
        let small = rig.pool.allocate(8 * MIB).unwrap();
        let gate = rig.gate();
        let large = rig.pool.allocate(16 * MIB).unwrap();
        large
            .enqueue_fill(
                rig.queue.after(std::slice::from_ref(&gate)),
                0..MIB,
                &[1_u8],
            )
            .unwrap();
        drop(large);
        assert_eq!(rig.pool.managed_bytes(), 24 * MIB as u64, "it is in use");
        rig.open(&gate);
        rig.device.run();
        drop(small);
        assert_eq!(
            rig.pool.managed_bytes(),
            8 * MIB as u64,
            "segments: {segments}"
        );
        assert!(rig.device.violations().is_empty());
    }
}

#[test]
fn a_sweep_gives_back_what_was_free_since_the_one_before() {
    for segments in [false, true] {
        let options = PoolOptions::new().segments(segments);
        let rig = Rig::with_options(MockDevice::builder(), options);
        let [idle, busy] = [16, 32].map(|mib| rig.pool.allocate(mib * MIB).unwrap());
        drop(idle);
        assert_eq!(rig.pool.sweep(), 0, "nothing was free before");
        drop(busy);
        assert_eq!(rig.pool.sweep(), 16 * MIB as u64, "segments: {segments}");
        // Used in between.
        drop(rig.pool.allocate(32 * MIB).unwrap());
        assert_eq!(rig.pool.sweep(), 0);
        assert_eq!(rig.pool.sweep(), 32 * MIB as u64);
        assert_eq!(rig.blocks_on_device(), 0);
    }
}

#[test]
fn a_sweep_leaves_what_commands_still_use() {
    for segments in [false, true] {
        let options = PoolOptions::new().segments(segments);
        let rig = Rig::with_options(
            MockDevice::builder().completion(Completion::Manual),
            options,
        );
        let gate = rig.gate();
        drop(rig.gated(&rig.queue, &gate));
        let managed = rig.pool.managed_bytes();
        assert_eq!([(); 3].map(|()| rig.pool.sweep()), [0; 3]);
        rig.open(&gate);
        rig.device.run();
        let swept = [(); 3].map(|()| rig.pool.sweep()).iter().sum::<u64>();
        assert_eq!((swept, rig.pool.managed_bytes()), (managed, 0));
        assert!(rig.device.violations().is_empty());
    }
}

#[test]
fn decay_sweeps_after_so_many_allocations() {
    for segments in [false, true] {
        let options = PoolOptions::new()
            .segments(segments)
            .retain(Retain::new().unused_for_allocations(10));
        let rig = Rig::with_options(MockDevice::builder(), options);
        drop(rig.pool.allocate(16 * MIB).unwrap());
        let small = rig.pool.allocate(1000).unwrap();
        let least = rig.pool.managed_bytes() - 16 * MIB as u64;
        // The first sweep is due with the tenth allocation, and takes note; the second gives back.
        for allocation in 3..=20 {
            assert!(rig.pool.managed_bytes() > least, "{allocation}");
            drop(rig.pool.allocate(1000).unwrap());
        }
        assert!(rig.pool.managed_bytes() < least + MIB as u64);
        drop(small);
    }
}

#[test]
fn what_decays_goes_before_fresh_memory_comes() {
    let options = PoolOptions::new()
        .segments(false)
        .retain(Retain::new().unused_for_allocations(2));
    let rig = Rig::with_options(MockDevice::builder(), options);
    drop(rig.pool.allocate(16 * MIB).unwrap());
    // The first sweep is due with the second allocation, and takes note.
    let kept = [(); 2].map(|()| rig.pool.allocate(MIB).unwrap());
    let fresh = rig.pool.allocate(32 * MIB).unwrap();
    let peak = rig.pool.statistics().peak_managed_bytes;
    assert_eq!(peak, 34 * MIB as u64);
    drop((kept, fresh));
}

#[test]
fn decay_by_time_needs_no_allocation_to_hit() {
    // No time at all: every look at the clock finds a sweep due.
    let options = PoolOptions::new().retain(Retain::new().unused_for(Duration::ZERO));
    let rig = Rig::with_options(MockDevice::builder(), options);
    drop(rig.pool.allocate(16 * MIB).unwrap());
    for _ in 0..200 {
        drop(rig.pool.allocate(1000).unwrap());
    }
    assert!(rig.pool.managed_bytes() < 16 * MIB as u64);
    // Far from over.
    let options = PoolOptions::new().retain(
        Retain::new()
            .unused_for(Duration::MAX)
            .unused_for_allocations(50),
    );
    let rig = Rig::with_options(MockDevice::builder(), options);
    drop(rig.pool.allocate(16 * MIB).unwrap());
    for _ in 0..98 {
        drop(rig.pool.allocate(1000).unwrap());
    }
    assert!(rig.pool.managed_bytes() > 16 * MIB as u64);
    drop(rig.pool.allocate(1000).unwrap());
    assert!(rig.pool.managed_bytes() < 16 * MIB as u64);
}

#[test]
fn a_thread_sweeps_where_it_is_asked_for_and_ends_with_the_pool() {
    let device = MockDevice::new();
    let backend = device.backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let allocator = Statistics::new(ImmediateAllocator::new(&backend).unwrap());
    let meter = allocator.clone();
    let pool = MemoryPool::new(allocator, &queue).unwrap();
    drop(pool.allocate(16 * MIB).unwrap());
    let sweeper = pool.sweep_in_background(Duration::from_millis(1)).unwrap();
    while meter.reading().current_bytes > 0 {
        std::thread::yield_now();
    }
    assert_eq!(pool.managed_bytes(), 0);
    // Dropping it joins the thread, whether the pool is there or not.
    let (done, is_done) = mpsc::channel();
    drop(pool);
    std::thread::spawn(move || {
        drop(sweeper);
        done.send(()).unwrap();
    });
    is_done.recv_timeout(Duration::from_secs(60)).unwrap();
}

#[test]
fn a_limit_is_set_and_taken_away_while_the_pool_is_in_use() {
    let backend = MockDevice::new().backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let allocator = ImmediateAllocator::new(&backend).unwrap();
    let build = |options: PoolOptions| options.build(allocator.clone(), &queue).unwrap();
    // Pools that were made with the same options have limits of their own.
    let [one, other] = [(); 2].map(|()| build(PoolOptions::new()));
    assert_eq!(one.limit(), u64::MAX);
    let block = one.allocate(2 * MIB).unwrap();
    one.set_limit(MIB as u64);
    assert_eq!((one.limit(), other.limit()), (MIB as u64, u64::MAX));
    // What the pool has stays, and nothing comes to it until it is within the limit.
    let error = one.allocate(2 * MIB).unwrap_err();
    assert_eq!(error.out_of_memory().unwrap().verdict, Verdict::Limited);
    drop(block);
    one.trim_to(0);
    assert!(one.allocate(MIB).is_ok());
    assert!(other.allocate(2 * MIB).is_ok());
    one.set_limit(u64::MAX);
    assert!(one.allocate(2 * MIB).is_ok());
}

#[test]
fn a_pool_above_its_lowered_limit_waits_for_a_free_block_that_is_all_it_has() {
    let builder = MockDevice::builder().completion(Completion::Manual);
    let rig = Rig::with_options(builder, PoolOptions::new().segments(false));
    let other = rig.another_queue(QueueOrder::InOrder);
    let block = rig.pool.allocate_on(&other, 8 * MIB).unwrap();
    block.enqueue_fill(&other, .., &[1_u8]).unwrap();
    drop(block);
    assert_eq!(rig.pool.managed_bytes(), 8 << 20);
    rig.pool.set_limit(4 << 20);
    let block = rig.pool.allocate(8 * MIB).unwrap();
    assert_eq!(rig.pool.managed_bytes(), 8 << 20);
    drop(block);
}

/// A pool with idle segments of 130 MiB, at a low point of a program that repeats itself and needs 110.
fn at_a_low_point() -> Rig {
    let rig = Rig::with_options(MockDevice::builder(), PoolOptions::new().segments(true));
    drop(rig.pool.allocate(70 * MIB).unwrap());
    for _ in 0..2 {
        let blocks = [50, 60].map(|mib| rig.pool.allocate(mib * MIB).unwrap());
        // Not the first one first, which the next round would have at once.
        blocks.into_iter().rev().for_each(drop);
    }
    assert_eq!(rig.pool.managed_bytes(), 130 * MIB as u64);
    rig
}

#[test]
fn at_a_low_point_the_segment_of_a_plan_takes_the_place_of_idle_ones_that_have_more() {
    let rig = at_a_low_point();
    let block = rig.pool.allocate(20 * MIB).unwrap();
    assert_eq!(rig.pool.managed_bytes(), 110 * MIB as u64);
    let rest = rig.pool.allocate(90 * MIB).unwrap();
    assert_eq!(rig.pool.managed_bytes(), 110 * MIB as u64);
    drop((block, rest));
}

#[test]
fn a_pool_above_its_lowered_limit_keeps_the_segments_that_it_has_at_a_low_point() {
    let rig = at_a_low_point();
    rig.pool.set_limit(0);
    drop(rig.pool.allocate(20 * MIB).unwrap());
    assert_eq!(rig.pool.managed_bytes(), 130 * MIB as u64);
}

#[test]
fn at_a_low_point_nothing_is_lost_where_the_device_refuses_the_segment() {
    let rig = at_a_low_point();
    rig.device.fail_nth(
        CallKind::CreateBuffer,
        1,
        Fault::OutOfMemory,
        Persistence::Once,
    );
    drop(rig.pool.allocate(20 * MIB).unwrap());
    drop([50, 60].map(|mib| rig.pool.allocate(mib * MIB).unwrap()));
    assert!(
        rig.pool.managed_bytes() <= 130 * MIB as u64,
        "{:?}",
        rig.pool
    );
}
