//! A range is not handed out again while views of its block are left.

use std::{slice::from_ref, thread};

use binpool_allocators::{Allocator, Backend, Error, Memory, Region, SegmentAllocator};
use binpool_mock::MockBackend;

use crate::segment_allocator::{KIB, MIB, Rig, immediate, manual, rig, svm};

/// A view is used after its block was released, while others allocate.
fn a_viewed_range_is_not_reused<A: Allocator<Backend = MockBackend>>(rig: Rig<A>) {
    let block = rig.allocator.allocate(4096).unwrap();
    let half = Region::new(2048, 2048);
    let view = rig.backend.create_sub_region(&block, half).unwrap();
    let inner = rig.backend.create_sub_region(&view, Region::first(256));
    let inner = inner.unwrap();
    rig.allocator.release(block, &[]).unwrap();
    let kept = rig.fill(0, &inner, 1, &[]);
    drop(view);
    let next = rig.allocator.allocate(4096).unwrap();
    let filled = rig.fill(1, &next, 2, &[]);
    rig.device.run();
    assert_eq!(rig.device.violations(), []);
    assert_eq!(rig.read(&inner, &kept), [1; 256]);
    let statistics = rig.allocator.statistics();
    let pending = (statistics.pending_bytes, statistics.live_blocks);
    assert_eq!(pending, (4096, 1));

    // The last view is gone: the range is as free as any other.
    thread::scope(|scope| drop(scope.spawn(move || drop(inner))));
    rig.allocator.free_idle();
    assert_eq!(rig.allocator.statistics().pending_bytes, 0);
    rig.allocator.release(next, from_ref(&filled)).unwrap();
    rig.allocator.free_idle();
    drop((kept, filled));
    rig.ends_clean();
}

#[test]
fn a_range_is_not_reused_before_its_views_are_gone() {
    a_viewed_range_is_not_reused(Rig::over(&manual(64 * MIB), immediate));
    a_viewed_range_is_not_reused(Rig::over(&manual(64 * MIB), svm));
}

#[test]
fn a_viewed_range_waits_for_its_events_too() {
    let rig = rig(MIB);
    let gate = rig.gate();
    let block = rig.allocator.allocate(100).unwrap();
    let view = rig.backend.create_sub_region(&block, Region::first(100));
    rig.allocator.release(block, from_ref(&gate)).unwrap();
    drop(view.unwrap());
    rig.allocator.free_idle();
    assert_eq!(rig.allocator.statistics().pending_bytes, 256);
    rig.open(&gate);
    drop(gate);
    rig.allocator.free_idle();
    rig.ends_clean();
}

#[test]
fn a_shortage_does_not_wait_for_views_and_looks_whether_they_are_gone() {
    let rig = rig(MIB);
    let block = rig.allocator.allocate(MIB).unwrap();
    let view = rig.backend.create_sub_region(&block, Region::first(256));
    let view = view.unwrap();
    rig.allocator.release(block, &[]).unwrap();
    let refused = rig.allocator.allocate(MIB);
    assert!(matches!(refused, Err(Error::OutOfMemory(_))), "{refused:?}");
    drop(view);
    let block = rig.allocator.allocate(MIB).unwrap();
    assert_eq!(rig.allocator.statistics().segments_made, 1);
    rig.allocator.release(block, &[]).unwrap();
    rig.ends_clean();
}

#[test]
fn a_forgotten_view_keeps_its_range_out_of_use_for_good_and_no_other() {
    let rig = rig(MIB);
    let block = rig.allocator.allocate(4 * KIB).unwrap();
    let (lost, view) = (
        block.handle(),
        rig.backend.create_sub_region(&block, Region::first(256)),
    );
    std::mem::forget(view.unwrap());
    rig.allocator.release(block, &[]).unwrap();
    for _ in 0..100 {
        let next = rig.allocator.allocate(4 * KIB).unwrap();
        assert_ne!(next.handle(), lost);
        rig.fill(0, &next, 1, &[]);
        rig.allocator.release(next, &[]).unwrap();
    }
    let statistics = rig.allocator.statistics();
    assert_eq!(statistics.pending_bytes, 4 * KIB as u64);
    assert_eq!(statistics.segments_made, 1);
}

/// The allocator below gets a segment of which a view is left, and that is an allocator that hands memory out again, too.
#[test]
fn a_view_that_outlives_the_allocator_keeps_its_bytes_in_the_one_below() {
    let rig = rig(64 * MIB);
    let upper = SegmentAllocator::new(rig.allocator.clone());
    let block = upper.allocate(4096).unwrap();
    let view = rig.backend.create_sub_region(&block, Region::first(4096));
    let view = view.unwrap();
    let kept = rig.fill(0, &view, 1, &[]);
    upper.release(block, &[]).unwrap();
    drop(upper);
    for _ in 0..10 {
        let next = rig.allocator.allocate(MIB).unwrap();
        rig.fill(0, &next, 2, &[]);
        rig.allocator.release(next, &[]).unwrap();
    }
    assert_eq!(rig.read(&view, &kept), [1; 4096]);
    assert!(rig.allocator.statistics().pending_bytes >= view.bytes() as u64);
    drop(view);
    rig.allocator.free_idle();
    drop(kept);
    rig.ends_clean();
}
