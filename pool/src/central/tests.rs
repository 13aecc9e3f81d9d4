use binpool_allocators::{Backend, Queue};
use binpool_mock::{CallKind, Fault, MockBackend, MockQueue, Persistence};

use crate::{
    PoolOptions, Retain,
    block::HeldBlock,
    free::thread_cache::Activity,
    mock_pool::MockPool,
    request::{HitKind, Request},
    shared::{State, ThreadCache},
};

const MIB: usize = 1 << 20;

fn request(bytes: usize) -> Request {
    Request {
        asked: bytes,
        bin: 0,
        slot: 0,
        bytes,
        home: 0,
    }
}

#[test]
fn bytes_in_use_are_counted_in_whole_blocks() {
    let mock = MockPool::of_blocks();
    let mut state = mock.shared.state.lock();
    state.count_active(1000, 1024, HitKind::Ready);
    state.count_active(100, 256, HitKind::Ready);
    assert_eq!((state.in_use, state.active_bytes), (1280, 1100));
    state.deactivate(1000, 1024);
    assert_eq!((state.in_use, state.active_bytes), (256, 100));
    state.deactivate(100, 256);
    assert_eq!((state.in_use, state.active_bytes), (0, 0));
}

#[test]
fn the_peak_of_a_thread_lies_on_top_of_what_all_others_have_in_use() {
    let mock = MockPool::of_blocks();
    let mut state = mock.shared.state.lock();
    state.count_active(1000, 1024, HitKind::Ready);
    let peak_of_thread = |bytes, peak_bytes| Activity {
        hits: 2,
        returns: 1,
        bytes,
        block_bytes: bytes,
        peak_bytes,
        ..Activity::default()
    };
    state.count_activity(peak_of_thread(0, 500));
    assert_eq!((state.in_use, state.peak_in_use), (1024, 1524));
    assert_eq!(state.counters.peak_active_bytes, 1500);
    // Whole blocks may be more than what was requested at any time.
    state.count_activity(Activity {
        block_bytes: 700,
        ..peak_of_thread(600, 600)
    });
    assert_eq!((state.in_use, state.peak_in_use), (1724, 1724));
    assert_eq!(state.active_blocks, 3);
}

#[test]
fn all_memory_that_comes_back_counts_as_a_change() {
    let mock = MockPool::of_segments();
    let [one, two] = [(); 2].map(|()| mock.unused(100));
    let large = mock.unused(32 * MIB);
    let mut state = mock.shared.state.lock();
    let changes = state.changes;
    state.deactivate(0, 0);
    assert_eq!(state.changes, changes + 1);
    state.put_back(one);
    assert_eq!(state.changes, changes + 2);
    state.transit.depart(2);
    assert!(!state.arrive(), "one is still in transit");
    assert!(state.arrive());
    assert_eq!(state.changes, changes + 4);
    // Too large for a bin.
    assert!(state.hold(large).1.is_none());
    assert_eq!(state.changes, changes + 5);
    drop(state);
    drop(two);
}

#[test]
fn a_block_that_does_not_fit_in_the_bins_goes_to_its_segment_with_its_view() {
    let mock = MockPool::of_segments();
    let [small, large] = [MIB, 32 * MIB].map(|bytes| mock.unused(bytes));
    let mut state = mock.shared.state.lock();
    assert!(state.hold(large).1.is_none());
    assert_eq!((state.bytes_in_bins(), state.transit.count()), (0, 0));
    assert!(state.hold(small).1.is_none());
    assert_eq!(
        (state.bytes_in_bins(), state.transit.count()),
        (MIB as u64, 0)
    );
}

#[test]
fn a_block_that_a_thread_has_too_many_of_goes_to_its_segment_though_bins_have_room() {
    let mock = MockPool::of_segments();
    let small = mock.unused(MIB);
    let mut state = mock.shared.state.lock();
    assert!(state.put_in_segment(small).is_none());
    assert_eq!((state.bytes_in_bins(), state.transit.count()), (0, 0));
}

#[test]
fn a_block_of_a_segment_with_many_views_gives_up_its_view_first() {
    let mock = MockPool::of_segments();
    {
        // Makes the segment for blocks of half a MiB have room for 132 of them.
        let mut state = mock.shared.state.lock();
        state
            .segments
            .grow(0, 4096, 1280 * MIB as u64, 256, 4096 * MIB as u64);
    }
    let mut blocks: Vec<_> = (0..100).map(|_| mock.unused(MIB / 2)).collect();
    let last = blocks.pop().unwrap();
    let mut state = mock.shared.state.lock();
    assert_eq!(state.managed_bytes(), 66 * MIB as u64);
    let room = usize::try_from(state.most_in_bins()).unwrap();
    for held in blocks.drain(..room / (MIB / 2)) {
        assert!(state.hold(held).1.is_none(), "it lies in a bin");
    }
    assert!(state.hold(last).1.is_some());
    assert_eq!(state.transit.count(), 1);
}

#[test]
fn blocks_whose_commands_have_ended_become_idle() {
    let mock = MockPool::of_blocks();
    let blocks = [100, 1000].map(|bytes| mock.pool.allocate(bytes).unwrap());
    let gate = mock.backend.create_user_event().unwrap();
    for block in &blocks {
        block
            .enqueue_fill(
                mock.queue.after(std::slice::from_ref(&gate)),
                0..100,
                &[1_u8],
            )
            .unwrap();
    }
    drop(blocks);
    mock.shared.catch_up();
    assert_eq!(mock.free_list_blocks(), 2);
    let outcome = binpool_allocators::Outcome::Complete;
    mock.backend.resolve_user_event(&gate, outcome).unwrap();
    mock.device.run();
    mock.shared.catch_up();
    assert_eq!(mock.free_list_blocks(), 0);
    let state = mock.shared.state.lock();
    assert_eq!(state.idle.blocks(), 2);
    assert!(state.idle.iter().all(|held| held.uses.is_empty()));
}

#[test]
fn memory_that_commands_may_still_use_is_counted() {
    let mock = MockPool::of_blocks();
    let key = mock.default_key();
    let other = mock.another_queue();
    let [used, pending, unused] = [256, 1024, 4096].map(|bytes| mock.unused(bytes));
    let mut state = mock.shared.state.lock();
    let other_key = state.enter(&other);
    let [use_, of_other] = [key, other_key].map(|key| state.queues.stamp(key));
    state.put_in_bin(unused);
    assert_eq!(state.held_back_bytes(None), 0);
    let uses = std::iter::once(use_).collect();
    state.put_in_bin(HeldBlock { uses, ..used });
    let uses = [use_, of_other].into_iter().collect();
    state.put_in_bin(HeldBlock { uses, ..pending });
    assert_eq!(state.held_back_bytes(None), 256 + 1024);
    // The queue that alone used a block need not wait for it.
    assert_eq!(state.held_back_bytes(Some(key)), 1024);
    assert_eq!(state.held_back_bytes(Some(other_key)), 256 + 1024);
    assert_eq!(state.held_bytes(), 256 + 1024 + 4096);
    assert_eq!(state.largest_held_bytes(), 4096);
    let pending = |state: &State<MockBackend>| {
        let statistics = state.statistics();
        (statistics.pending_blocks, statistics.pending_bytes)
    };
    assert_eq!(pending(&state), (1, 1024));
    // Then one queue in order may have it at once.
    let ended = [state.queues.note_ended(use_)];
    assert_eq!(pending(&state), (0, 0));
    assert_eq!(state.held_back_bytes(None), 1024);
    assert_eq!(state.held_back_bytes(Some(other_key)), 0);
    let all_ended = state.queues.note_ended(of_other);
    assert_eq!(state.held_back_bytes(None), 0);
    drop((state, ended, all_ended));
}

#[test]
fn only_blocks_of_at_most_one_queue_leave_the_bins_for_their_segments() {
    let mock = MockPool::of_segments();
    let key = mock.default_key();
    let other = mock.another_queue();
    let [unused, used, shared] = [(); 3].map(|()| mock.unused(MIB));
    let mut state = mock.shared.state.lock();
    let other_key = state.enter(&other);
    let [use_, of_other] = [key, other_key].map(|key| state.queues.stamp(key));
    state.put_in_bin(unused);
    let uses = std::iter::once(use_).collect();
    state.put_in_bin(HeldBlock { uses, ..used });
    let uses = [use_, of_other].into_iter().collect();
    state.put_in_bin(HeldBlock { uses, ..shared });
    state.empty_bins();
    assert_eq!(state.bytes_in_bins(), MIB as u64);
    assert_eq!(state.pending.blocks(), 1);
}

#[test]
fn with_several_threads_what_they_have_cached_counts_as_in_use() {
    let mock = MockPool::of_segments();
    let active = mock.pool.allocate(MIB).unwrap();
    let held = mock.unused(MIB);
    let mut state = mock.shared.state.lock();
    state.put_in_bin(held);
    state.in_use = 5;
    assert_eq!(state.bytes_in_use(), 5);
    let allowance = state.allowance(0);
    let cache = || ThreadCache::<MockBackend>::new(0, allowance, None, None);
    let _keys = [cache(), cache()].map(|cache| state.threads.add(cache));
    assert_eq!(state.bytes_in_use(), MIB as u64);
    drop(state);
    // What lies in the depot is not in use.
    let left = mock.cached(MIB);
    let slot = left.block.slot;
    mock.shared
        .depot
        .leave(0, mock.queue.id(), slot, vec![left]);
    assert_eq!(mock.shared.state.lock().bytes_in_use(), MIB as u64);
    drop(active);
}

#[test]
fn the_pages_of_a_block_that_grows_are_in_use() {
    let mock = MockPool::of_pages();
    let in_use = || mock.shared.state.lock().in_use;
    let mut block = mock.pool.growable_on(&mock.queue, 64 * MIB).unwrap();
    let before = in_use();
    block.grow(32 * MIB).unwrap();
    assert_eq!(in_use() - before, 32 << 20);
    block.shrink(32 * MIB).unwrap();
    mock.queue.finish().unwrap();
    assert_eq!(in_use(), before);
}

#[test]
fn a_fence_is_due_once_a_16th_of_all_segments_was_asked_for_and_several_queues_ask() {
    let mock = MockPool::of_segments();
    let key = mock.default_key();
    let block = mock.pool.allocate(64 * MIB).unwrap();
    let mut state = mock.shared.state.lock();
    assert_eq!(state.segments.bytes(), 64 << 20);
    assert!(
        !state.is_fence_due(key, request(64 * MIB)),
        "one queue asks"
    );
    state.enter(&mock.another_queue());
    assert!(!state.is_fence_due(key, request(4 * MIB)));
    assert!(state.is_fence_due(key, request(1)));
    assert!(!state.is_fence_due(key, request(4 * MIB)));
    drop(state);
    drop(block);
}

#[test]
fn caches_close_above_the_release_threshold_and_not_at_it() {
    let mock = MockPool::new(PoolOptions::new().retain(Retain::new().at_most(1 << 20)));
    let mut state = mock.shared.state.lock();
    assert_eq!(state.managed_bytes(), 0);
    state.count_managed(MIB);
    assert!(!state.is_above_threshold);
    state.count_managed(1);
    assert!(state.is_above_threshold);
}

#[test]
fn a_pool_that_had_nothing_in_use_regrets_nothing() {
    let mock = MockPool::of_blocks();
    let mut state = mock.shared.state.lock();
    assert!(!state.regrets(request(MIB)));
}

#[test]
fn pages_that_leave_a_block_that_shrinks_count_as_unmapped() {
    let mock = MockPool::of_pages();
    let counted = || {
        let counters = mock.shared.state.lock().counters;
        (counters.maps, counters.unmaps)
    };
    let mut block = mock.pool.growable_on(&mock.queue, 64 * MIB).unwrap();
    for grown in 1..=2 {
        block.grow(2 * MIB).unwrap();
        assert_eq!(counted(), (grown, 0));
    }
    for shrunk in 1..=2 {
        block.shrink(2 * MIB).unwrap();
        assert_eq!(counted(), (2, shrunk));
    }
}

#[test]
fn a_segment_or_pages_that_did_not_come_are_not_waited_for() {
    for mock in [MockPool::of_segments(), MockPool::of_pages()] {
        let fault = Fault::Backend(-5);
        for kind in [CallKind::CreateBuffer, CallKind::Map] {
            mock.device.fail_nth(kind, 1, fault, Persistence::Once);
        }
        mock.pool.allocate(100 * MIB).unwrap_err();
        assert_eq!(mock.shared.state.lock().transit.count(), 0);
    }
}

#[test]
fn a_thread_that_carves_for_another_queue_keeps_its_spare_leases() {
    let mock = MockPool::of_segments();
    let [one, other] = [mock.queue.clone(), mock.another_queue()];
    // Active blocks and spare leases.
    let entered = |queue: &MockQueue| {
        let state = mock.shared.state.lock();
        let key = state.queues.find(queue.id()).unwrap();
        state.queues.get(key).unwrap().active
    };
    // The first makes the segment, for which the cache is drained.
    let first = [(); 2].map(|()| mock.pool.allocate_on(&one, MIB / 2).unwrap());
    let before = entered(&one);
    assert!(before > 2, "it has spare leases");
    let second = mock.pool.allocate_on(&other, MIB / 2).unwrap();
    assert_eq!((entered(&one), entered(&other)), (before, before - 1));
    drop((first, second));
}
