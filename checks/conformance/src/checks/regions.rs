//! What every backend promises for regions of a block.

use binpool_allocators::{Backend, Event, InvalidRequest, Memory, Region};

use crate::{
    Fixture,
    bench::{Bench, numbered, refusal, refused_as_out_of_bounds},
    parts::every_part,
    sweep::on_threads,
};

/// Data that is written through a region is in the block, and the other way round.
pub fn a_region_is_a_window_into_its_block<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let start = bench.backend.limits().alignment.bytes();
    let block = bench.buffer(4 * start);
    let all = numbered(4 * start);
    bench.write(&block, &all);
    let region = bench.region(&block, Region::new(start, start + 1));
    assert_eq!(region.bytes(), start + 1);
    assert_eq!(region.kind(), block.kind());
    assert_ne!(region.id(), block.id());
    assert_eq!(bench.read(&region), all[start..=2 * start]);
    bench.write(&region, &vec![255; start + 1]);
    let mut expected = all;
    expected[start..=2 * start].fill(255);
    assert_eq!(bench.read(&block), expected);
}

/// Offsets of a region's region add up.
pub fn a_region_of_a_region_is_a_window_into_the_block<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let start = bench.backend.limits().alignment.bytes();
    let block = bench.buffer(4 * start);
    let all = numbered(4 * start);
    bench.write(&block, &all);
    let half = bench.region(&block, Region::new(start, 3 * start));
    let inner = bench.region(&half, Region::new(start, 10));
    assert_eq!(bench.read(&inner), all[2 * start..2 * start + 10]);
    refused_as_out_of_bounds(bench.backend.create_sub_region(&inner, Region::new(0, 11)));
}

/// The error is `OutOfBounds`, even if the end overflows.
pub fn a_region_must_lie_within_its_block<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let start = bench.backend.limits().alignment.bytes();
    let block = bench.buffer(2 * start);
    for region in [
        Region::new(0, 2 * start + 1),
        Region::new(start, start + 1),
        Region::new(2 * start, 1),
        Region::new(start, usize::MAX),
        Region::new(usize::MAX - start + 1, start),
    ] {
        refused_as_out_of_bounds(bench.backend.create_sub_region(&block, region));
    }
}

/// The error is `Misaligned`, with the required alignment.
pub fn a_region_must_be_aligned_and_the_error_says_how<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let alignment = bench.backend.limits().alignment;
    if alignment.bytes() == 1 {
        return;
    }
    let block = bench.buffer(4 * alignment.bytes());
    for offset in [1, alignment.bytes() / 2, alignment.bytes() + 1] {
        let region = Region::new(offset, 1);
        let refusal = refusal(bench.backend.create_sub_region(&block, region));
        assert_eq!(refusal, InvalidRequest::Misaligned { offset, alignment });
    }
}

/// The error is `ZeroSize`.
pub fn a_region_of_no_bytes_is_refused<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let block = bench.buffer(64);
    let refusal = refusal(bench.backend.create_sub_region(&block, Region::first(0)));
    assert_eq!(refusal, InvalidRequest::ZeroSize);
}

/// The block's own value is dropped.
pub fn a_region_keeps_its_block_alive<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let block = bench.filled(65_536, 8);
    let region = bench.region(&block, Region::first(1000));
    drop(block);
    let _other = bench.filled(65_536, 9);
    assert_eq!(bench.read(&region), [8; 1000]);
}

/// The block is released, and so is a region between the two.
pub fn a_region_outlives_the_release_of_its_block<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let block = bench.filled(65_536, 8);
    let half = bench.region(&block, Region::first(32_768));
    let region = bench.region(&half, Region::first(1000));
    bench.backend.release(half, &[]).unwrap();
    bench.backend.release(block, &[]).unwrap();
    let _others = [bench.filled(65_536, 9), bench.filled(32_768, 9)];
    assert_eq!(bench.read(&region), [8; 1000]);
    bench.write(&region, &[7; 1000]);
    assert_eq!(bench.read(&region), [7; 1000]);
}

/// [`Memory::has_views`] counts every region, and regions of regions, until the last is gone, on any thread: an
/// owner that hands blocks out again relies on it.
pub fn a_block_has_views_until_the_last_region_of_it_is_gone<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    has_views_until_the_last_region_is_gone(&bench, &bench.buffer(65_536));
}

pub(super) fn has_views_until_the_last_region_is_gone<B: Backend>(
    bench: &Bench<B>,
    block: &B::Memory,
) {
    assert!(!block.has_views(), "nothing was made of it yet");
    let half = bench.region(block, Region::first(block.bytes() / 2));
    assert!(block.has_views(), "a region of it is left");
    assert!(!half.has_views(), "a region is no view of itself");
    let inner = bench.region(&half, Region::first(100));
    assert!(half.has_views(), "a region of the region is left");
    bench.backend.release(half, &[]).unwrap();
    assert!(
        block.has_views(),
        "a region of a region that is gone is left"
    );
    on_threads([inner], drop);
    assert!(!block.has_views(), "all regions are gone");
    let again = bench.region(block, Region::first(100));
    assert!(block.has_views(), "there is a region again");
    drop(again);
    assert!(!block.has_views(), "that one is gone, too");
}

/// The alignment counts within the whole block, wherever the parent view starts.
pub fn a_region_of_a_region_is_aligned_within_the_whole_block<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let alignment = bench.backend.limits().alignment;
    if alignment.bytes() == 1 {
        return;
    }
    let start = alignment.bytes();
    let block = bench.buffer(4 * start);
    let half = bench.region(&block, Region::new(start, 3 * start));
    let region = Region::new(start - 1, 1);
    let refusal = refusal(bench.backend.create_sub_region(&half, region));
    assert!(
        matches!(refusal, InvalidRequest::Misaligned { alignment: wanted, .. } if wanted == alignment),
        "expected `Misaligned`, got {refusal:?}"
    );
}

/// To a copy, the two regions are different memory.
pub fn bytes_move_between_regions_of_one_block<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let start = bench.backend.limits().alignment.bytes();
    let size = start.min(100);
    let block = bench.filled(4 * start, 255);
    let source = bench.region(&block, Region::new(start, size));
    let target = bench.region(&block, Region::new(3 * start, size));
    bench.write(&source, &numbered(size));
    let (backend, queue) = (&bench.backend, &bench.queue);
    let copy = backend.enqueue_copy(queue, &source, .., &target, 0);
    copy.unwrap().wait().unwrap();
    let mut expected = vec![255; 4 * start];
    expected[start..start + size].copy_from_slice(&numbered(size));
    expected[3 * start..3 * start + size].copy_from_slice(&numbered(size));
    assert_eq!(bench.read(&block), expected);
}

/// Offsets of transfers count from the start of the part that they are given: a region, a part without a memory object of its own, or a
/// part of one of these.
pub fn transfers_keep_to_their_part<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let step = bench.backend.limits().alignment.bytes();
    every_part(&bench.backend, &bench.queue, &bench.buffer(3 * step + 1600));
}
