//! Blocks keep to themselves, are aligned, and come back.

use binpool_allocators::{
    Align, Allocator, Backend, Error, GrowthPolicy, InvalidRequest, Memory, ObjectKind, Region,
    SegmentAllocator, SvmBackend,
};
use binpool_mock::{CallKind, Fault, MockDevice, MockMemory, Persistence};

use crate::segment_allocator::{KIB, MIB, Rig, immediate, rig, svm};

#[test]
fn blocks_share_few_segments_and_keep_their_own_bytes() {
    let rig = rig(64 * MIB);
    let fresh = |mark: u8, step: usize| {
        let block = rig.allocator.allocate(1 + step * 7919 % 30_000).unwrap();
        let fill = rig.fill(0, &block, mark, &[]);
        (block, mark, fill)
    };
    let mut live: Vec<_> = (0..200_u8).map(|mark| fresh(mark, mark.into())).collect();
    let segments = rig.device.statistics().live_blocks;
    assert!(segments <= 10, "{segments} segments");
    for round in 0..400 {
        let (block, mark, fill) = live.swap_remove(round * 31 % live.len());
        assert_eq!(rig.read(&block, &fill), vec![mark; block.bytes()]);
        rig.allocator.release(block, &[]).unwrap();
        drop(fill);
        live.push(fresh(mark, round * 3));
    }
    for (block, mark, fill) in live {
        assert_eq!(rig.read(&block, &fill), vec![mark; block.bytes()]);
        rig.allocator.release(block, &[]).unwrap();
    }
    rig.ends_clean();
}

#[test]
fn free_neighbours_become_one_and_views_are_kept() {
    let rig = rig(64 * MIB);
    let blocks = [(); 20].map(|()| rig.allocator.allocate(100 * KIB).unwrap());
    let views = rig.device.call_count(CallKind::CreateSubRegion);
    let segments = rig.allocator.statistics().segment_bytes;
    for block in blocks {
        rig.allocator.release(block, &[]).unwrap();
    }
    for _ in 0..10 {
        let block = rig.allocator.allocate(100 * KIB).unwrap();
        rig.allocator.release(block, &[]).unwrap();
    }
    assert_eq!(rig.device.call_count(CallKind::CreateSubRegion), views);
    let large = rig.allocator.allocate(1000 * KIB).unwrap();
    assert_eq!(rig.allocator.statistics().segment_bytes, segments);
    rig.allocator.release(large, &[]).unwrap();
    rig.ends_clean();
}

/// The addresses of blocks of these sizes, with what the allocator says of their alignment.
fn addresses(device: &MockDevice, svm_alignment: usize, sizes: &[usize]) -> (usize, Vec<usize>) {
    let alignment = Align::new(svm_alignment).unwrap();
    let rig = Rig::over(device, |backend| {
        svm(backend).with_alignment(alignment).unwrap()
    });
    let grain = rig.allocator.alignment().bytes();
    let blocks: Vec<_> = sizes
        .iter()
        .map(|bytes| rig.allocator.allocate(*bytes).unwrap())
        .collect();
    assert_eq!(rig.device.statistics().live_blocks, 1);
    for (block, bytes) in blocks.iter().zip(sizes) {
        assert_eq!(block.bytes(), bytes.next_multiple_of(grain));
    }
    let address = |block: &MockMemory| rig.backend.svm_address(block).unwrap().addr().get();
    let addresses = blocks.iter().map(address).collect();
    for block in blocks {
        rig.allocator.release(block, &[]).unwrap();
    }
    rig.ends_clean();
    (grain, addresses)
}

#[test]
fn blocks_start_on_the_larger_of_both_alignments() {
    let sizes = [1, 600, 4097, 512, 3];
    let device = MockDevice::builder()
        .alignment(Align::new(512).unwrap())
        .build();
    let (grain, found) = addresses(&device, 4096, &sizes);
    assert_eq!(grain, 4096);
    assert!(found.iter().all(|address| address.is_multiple_of(4096)));
    let (grain, found) = addresses(&device, 64, &sizes);
    assert_eq!(grain, 512);
    let from_first = |address: &usize| (address - found[0]).is_multiple_of(512);
    assert!(found.iter().all(from_first), "{found:?}");
}

#[test]
fn sizes_that_never_fit_are_refused_and_the_largest_is_not() {
    let device = MockDevice::builder().largest_block_bytes(1000).build();
    let rig = Rig::over(&device, immediate);
    let refusal = |bytes| match rig.allocator.allocate(bytes) {
        Err(Error::InvalidRequest(refusal)) => refusal,
        other => panic!("{other:?}"),
    };
    assert_eq!(refusal(0), InvalidRequest::ZeroSize);
    let (requested, largest) = (1001, 1000);
    let too_large = InvalidRequest::TooLarge { requested, largest };
    assert_eq!(refusal(1001), too_large);
    assert_eq!(rig.device.call_count(CallKind::CreateBuffer), 0);
    // No multiple of the alignment, over and over, between others.
    for _ in 0..3 {
        let blocks = [999, 1000, 100, 700].map(|bytes| rig.allocator.allocate(bytes).unwrap());
        let sizes = blocks.each_ref().map(Memory::bytes);
        assert_eq!(sizes, [999, 1000, 256, 768]);
        for block in blocks {
            rig.allocator.release(block, &[]).unwrap();
        }
    }
    rig.ends_clean();
}

#[test]
fn failures_other_than_of_memory_are_passed_on_at_once_and_lose_nothing() {
    for kind in [
        CallKind::CreateBuffer,
        CallKind::Commit,
        CallKind::CreateSubRegion,
    ] {
        let rig = rig(MIB);
        let first = rig.allocator.allocate(100).unwrap();
        rig.device
            .fail_nth(kind, 1, Fault::Backend(-5), Persistence::Once);
        // More than a usual segment has.
        let error = rig.allocator.allocate(300 * KIB).unwrap_err();
        assert!(
            matches!(&error, Error::Backend(failure) if failure.code == Some(-5)),
            "{error}"
        );
        rig.allocator.release(first, &[]).unwrap();
        rig.ends_clean();
    }
}

#[test]
fn foreign_memory_is_refused_and_dropped() {
    let rig = rig(MIB);
    let block = rig.allocator.allocate(100).unwrap();
    let part = rig
        .backend
        .create_sub_region(&block, Region::first(10))
        .unwrap();
    let other = SegmentAllocator::new(immediate(&rig.backend));
    for foreign in [
        immediate(&rig.backend).allocate(100).unwrap(),
        other.allocate(100).unwrap(),
        part,
    ] {
        let error = rig.allocator.release(foreign, &[]).unwrap_err();
        let kind = ObjectKind::Memory;
        let expected = InvalidRequest::ForeignObject { kind };
        assert!(matches!(error, Error::InvalidRequest(found) if found == expected));
    }
    drop(other);
    let statistics = rig.device.statistics();
    assert_eq!(
        (statistics.live_blocks, statistics.live_sub_regions),
        (1, 1)
    );
    rig.allocator.release(block, &[]).unwrap();
    rig.ends_clean();
}

#[test]
fn what_came_back_is_in_use_no_more_and_segments_stay_small() {
    let rig = rig(64 * MIB);
    for _ in 0..500 {
        let block = rig.allocator.allocate(MIB / 2).unwrap();
        rig.allocator.release(block, &[]).unwrap();
    }
    let blocks = [(); 5].map(|()| rig.allocator.allocate(MIB / 2).unwrap());
    assert_eq!(rig.allocator.statistics().segment_bytes, 4 * MIB as u64);
    for block in blocks {
        rig.allocator.release(block, &[]).unwrap();
    }
    rig.ends_clean();
}

/// The segments that are made in each of twenty rounds for blocks of three sizes that rise, one after the other, and the bytes of
/// all segments after them.
fn segments_for_rising_blocks(policy: GrowthPolicy) -> (Vec<u64>, u64) {
    let mut rig = rig(64 * MIB);
    rig.allocator = rig.allocator.with_growth(policy);
    let made = |_| {
        let before = rig.allocator.statistics().segments_made;
        for mib in [8, 12, 20] {
            let block = rig.allocator.allocate(mib * MIB).unwrap();
            rig.allocator.release(block, &[]).unwrap();
        }
        rig.allocator.statistics().segments_made - before
    };
    let made = (0..20).map(made).collect();
    let bytes = rig.allocator.statistics().segment_bytes;
    rig.ends_clean();
    (made, bytes)
}

#[test]
fn segments_that_replace_one_another_again_and_again_stay_except_with_the_densest_policy() {
    for policy in [GrowthPolicy::FewestCalls, GrowthPolicy::Balanced] {
        let (made, bytes) = segments_for_rising_blocks(policy);
        assert_eq!(made[0], 3, "{policy:?}");
        assert_eq!(made[2..], [0; 18], "{policy:?}");
        assert!(bytes <= 25 * MIB as u64, "{bytes} with {policy:?}");
    }
    let (made, bytes) = segments_for_rising_blocks(GrowthPolicy::Dense);
    assert!(made.iter().all(|made| *made >= 2), "{made:?}");
    assert!(bytes <= 22 * MIB as u64, "{bytes}");
}
