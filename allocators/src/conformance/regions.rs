//! Regions of blocks.

use super::{
    Fixture,
    bench::{Bench, numbered, refusal, refused_as_out_of_bounds},
};
use crate::{Backend, InvalidRequest, Memory, Region};

/// What is written through a region is in the block, and the other way round.
pub fn a_region_is_a_window_into_its_block<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let start = bench.backend.limits().alignment.bytes();
    let block = bench.buffer(4 * start);
    let all = numbered(4 * start);
    bench.write(&block, &all);
    let region = bench
        .backend
        .create_sub_region(&block, Region::new(start, start + 1))
        .unwrap();
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
    let half = bench
        .backend
        .create_sub_region(&block, Region::new(start, 3 * start))
        .unwrap();
    let inner = bench
        .backend
        .create_sub_region(&half, Region::new(start, 10))
        .unwrap();
    assert_eq!(bench.read(&inner), all[2 * start..2 * start + 10]);
    refused_as_out_of_bounds(bench.backend.create_sub_region(&inner, Region::new(0, 11)));
}

/// `OutOfBounds`, also where the end overflows.
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

/// `Misaligned`, with the alignment that would do.
pub fn a_region_must_be_aligned_and_the_error_says_how<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let alignment = bench.backend.limits().alignment;
    if alignment.bytes() == 1 {
        return;
    }
    let block = bench.buffer(4 * alignment.bytes());
    for offset in [1, alignment.bytes() / 2, alignment.bytes() + 1] {
        let refusal = refusal(
            bench
                .backend
                .create_sub_region(&block, Region::new(offset, 1)),
        );
        assert_eq!(refusal, InvalidRequest::Misaligned { offset, alignment });
    }
}

/// `ZeroSize`.
pub fn a_region_of_no_bytes_is_refused<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let block = bench.buffer(64);
    let refusal = refusal(bench.backend.create_sub_region(&block, Region::first(0)));
    assert_eq!(refusal, InvalidRequest::ZeroSize);
}

/// The block's own value may be dropped.
pub fn a_region_keeps_its_block_alive<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let block = bench.filled(65_536, 8);
    let region = bench
        .backend
        .create_sub_region(&block, Region::first(1000))
        .unwrap();
    drop(block);
    let _other = bench.filled(65_536, 9);
    assert_eq!(bench.read(&region), [8; 1000]);
}
