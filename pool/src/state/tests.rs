use binpool_allocators::Backend;

use super::*;
use crate::mock_pool::MockPool;

const MIB: usize = 1 << 20;

#[test]
fn what_is_in_use_is_counted_in_whole_blocks() {
    let mock = MockPool::of_blocks();
    let mut state = mock.shared.state.lock();
    state.activate(1000, 1024, Origin::Stock);
    state.activate(100, 256, Origin::Stock);
    assert_eq!((state.in_use, state.active_bytes), (1280, 1100));
    state.deactivate(1000, 1024);
    assert_eq!((state.in_use, state.active_bytes), (256, 100));
    state.deactivate(100, 256);
    assert_eq!((state.in_use, state.active_bytes), (0, 0));
}

#[test]
fn whatever_comes_back_is_a_change() {
    let mock = MockPool::of_segments();
    let [one, two] = [(); 2].map(|()| mock.unused(100));
    let large = mock.unused(32 * MIB);
    let mut state = mock.shared.state.lock();
    let changes = state.changes;
    state.deactivate(0, 0);
    assert_eq!(state.changes, changes + 1);
    state.put_back(one);
    assert_eq!(state.changes, changes + 2);
    state.in_transit += 2;
    assert!(!state.arrive(), "another one is on its way");
    assert!(state.arrive());
    assert_eq!(state.changes, changes + 4);
    // Too large for a bin.
    assert!(state.hold(large).1.is_none());
    assert_eq!(state.changes, changes + 5);
    drop(state);
    drop(two);
}

#[test]
fn a_block_that_bins_have_no_room_for_goes_to_its_segment_with_its_view() {
    let mock = MockPool::of_segments();
    let [small, large] = [MIB, 32 * MIB].map(|bytes| mock.unused(bytes));
    let mut state = mock.shared.state.lock();
    assert!(state.hold(large).1.is_none());
    assert_eq!((state.binned_bytes(), state.in_transit), (0, 0));
    assert!(state.hold(small).1.is_none());
    assert_eq!((state.binned_bytes(), state.in_transit), (MIB as u64, 0));
}

#[test]
fn a_block_of_a_segment_with_many_views_gives_up_its_own_first() {
    let mock = MockPool::of_segments();
    {
        // So that half a MiB has a segment of 128 blocks.
        let mut state = mock.shared.state.lock();
        let segments = state.segments.as_mut().unwrap();
        segments.grow(4096, 1280 * MIB as u64, 256, 0, 4096 * MIB as u64);
    }
    let mut blocks: Vec<_> = (0..100).map(|_| mock.unused(MIB / 2)).collect();
    let last = blocks.pop().unwrap();
    let mut state = mock.shared.state.lock();
    assert_eq!(state.managed_bytes(), 64 * MIB as u64);
    let room = state.most_in_bins(state.segments.as_ref().unwrap());
    let room = usize::try_from(room).unwrap();
    for held in blocks.drain(..room / (MIB / 2)) {
        assert!(state.hold(held).1.is_none(), "it lies in a bin");
    }
    assert!(state.hold(last).1.is_some());
    assert_eq!(state.in_transit, 1);
}

#[test]
fn blocks_whose_commands_have_ended_are_remembered_without_them() {
    let mock = MockPool::of_blocks();
    let blocks = [100, 1000].map(|bytes| mock.pool.allocate(bytes).unwrap());
    let gate = mock.backend.create_user_event().unwrap();
    for block in &blocks {
        block
            .enqueue_fill(&mock.queue, 0..100, &[1], std::slice::from_ref(&gate))
            .unwrap();
    }
    drop(blocks);
    mock.shared.catch_up();
    assert_eq!(mock.stocked(), 2);
    let outcome = binpool_allocators::Outcome::Complete;
    mock.backend.resolve_user_event(&gate, outcome).unwrap();
    mock.device.run();
    mock.shared.catch_up();
    assert_eq!(mock.stocked(), 0);
    let state = mock.shared.state.lock();
    assert_eq!(state.common.blocks(), 2);
    assert!(state.common.iter().all(|held| held.uses.is_empty()));
}

#[test]
fn what_commands_hold_back_is_told() {
    let mock = MockPool::of_blocks();
    let home = mock.home();
    let [stocked, pending, unused] = [256, 1024, 4096].map(|bytes| mock.unused(bytes));
    let mut state = mock.shared.state.lock();
    let use_ = state.lanes.stamp(home);
    state.put_in_bin(unused);
    assert_eq!(state.held_back_bytes(), 0);
    let uses = std::iter::once(use_).collect();
    state.put_in_bin(HeldBlock { uses, ..stocked });
    let uses = std::iter::once(use_).collect();
    state.pending.push(HeldBlock { uses, ..pending });
    assert_eq!(state.held_back_bytes(), 256 + 1024);
    assert_eq!(state.held_bytes(), 256 + 1024 + 4096);
    assert_eq!(state.largest_held_bytes(), 4096);
    let statistics = state.statistics();
    assert_eq!(
        (statistics.pending_blocks, statistics.pending_bytes),
        (1, 1024)
    );
    let ended = state.lanes.note_ended(use_);
    assert_eq!(state.held_back_bytes(), 0);
    let statistics = state.statistics();
    assert_eq!(
        (statistics.pending_blocks, statistics.pending_bytes),
        (0, 0)
    );
    drop((state, ended));
}
