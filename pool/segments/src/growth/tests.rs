//! The rules of growth as tables of numbers.

use super::{Growth, LEAST_SEGMENT};
use crate::GrowthPolicy;
use crate::{placement::MOST_TAKEN, space::Location};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// The rules of the default policy after this many MiB in use, with ample memory.
fn after(in_use_mib: usize) -> Growth {
    of(GrowthPolicy::Balanced, in_use_mib)
}

/// The rules of a policy after this many MiB in use, with ample memory.
fn of(policy: GrowthPolicy, in_use_mib: usize) -> Growth {
    let mut growth = Growth::new(policy);
    growth.reach((in_use_mib * MIB) as u64, u64::MAX);
    growth
}

/// The rules after this many MiB in use, where memory is tight.
fn tight_after(in_use_mib: usize) -> Growth {
    let mut growth = Growth::default();
    growth.reach((in_use_mib * MIB) as u64, (in_use_mib * MIB) as u64);
    growth
}

const fn bytes(mib: usize) -> u64 {
    (mib * MIB) as u64
}

#[test]
fn memory_is_tight_where_more_than_half_of_it_was_in_use() {
    let cases = [
        (100, bytes(100), true),
        (100, bytes(200) - 1, true),
        (100, bytes(200), false),
        (100, u64::MAX, false),
        (0, 0, false),
    ];
    for (in_use, capacity, is_tight) in cases {
        let mut growth = Growth::default();
        growth.reach(bytes(in_use), capacity);
        assert_eq!(growth.is_tight, is_tight, "{in_use} MiB in {capacity}");
        // The high water counts, not what is in use now.
        growth.reach(0, capacity);
        assert_eq!(growth.is_tight, is_tight, "{in_use} MiB in {capacity}");
    }
}

#[test]
fn segments_are_a_part_of_what_was_in_use_and_whole_steps_of_the_least() {
    let cases = [
        (after(0), 2),
        (after(40), 2),
        (after(41), 4),
        (after(100), 6),
        (tight_after(100), 6),
    ];
    for (growth, mib) in cases {
        assert_eq!(growth.general_size(), mib * MIB, "{growth:?}");
    }
}

#[test]
fn a_segment_holds_many_small_blocks_or_some_others_or_one_that_is_large() {
    // After 100 MiB, a segment has 6 MiB, and one for small blocks, of up to 24 KiB, has 384 KiB.
    for policy in GrowthPolicy::ALL {
        let (new, later) = (of(policy, 0), of(policy, 100));
        let is_dense = policy == GrowthPolicy::Dense;
        // The densest policy has segments for one block above 1 MiB, and above 1/20 of a usual segment.
        let shared = |blocks: usize| if is_dense { 1 } else { blocks };
        let cases = [
            (new, 1, 128 * KIB),
            (new, 8 * KIB, 128 * KIB),
            (new, 8 * KIB + 1, 255 * (8 * KIB + 1)),
            (new, MIB, 2 * MIB),
            (new, 3 * MIB, 3 * MIB),
            (later, 24 * KIB, 384 * KIB),
            (later, 24 * KIB + 1, 255 * (24 * KIB + 1)),
            // A whole number of blocks.
            (later, 1400 * KIB, shared(4) * 1400 * KIB),
            (later, MIB, 6 * MIB),
            (of(policy, 600), 1536 * KIB, 20 * 1536 * KIB),
            (of(policy, 600), 1537 * KIB, shared(19) * 1537 * KIB),
            (later, 3 * MIB + 1, 3 * MIB + 1),
            (later, 6 * MIB, 6 * MIB),
            (later, usize::MAX, usize::MAX),
        ];
        for (growth, block, segment) in cases {
            assert_eq!(growth.segment_for(block), segment, "{block}, {growth:?}");
        }
        for (growth, most) in [(new, 8 * KIB), (later, 24 * KIB)] {
            assert!(growth.is_small(most) && !growth.is_small(most + 1));
        }
    }
}

#[test]
fn where_memory_is_tight_a_small_block_does_not_break_up_a_large_idle_segment() {
    let whole = |mib: usize| Location {
        whole: Some(mib * MIB),
        taken: 0,
    };
    let serves = |growth: Growth, bytes, mib| growth.placement().range_filter(bytes)(whole(mib));
    assert!(serves(after(100), 1, 80));
    for growth in [of(GrowthPolicy::Dense, 100), tight_after(100)] {
        assert!(!serves(growth, 72 * MIB - 1, 80));
        assert!(serves(growth, 72 * MIB, 80));
        // One of up to half the usual size serves every block.
        assert!(serves(growth, 1, 3));
        assert!(!serves(growth, 1, 4));
    }
    // So does one that is in use, up to a number of blocks.
    for (taken, may) in [(0, true), (MOST_TAKEN - 1, true), (MOST_TAKEN, false)] {
        for whole in [None, Some(2 * MIB)] {
            let location = Location { whole, taken };
            assert_eq!(after(100).placement().range_filter(1)(location), may);
        }
    }
}

#[test]
fn cacheable_bytes_are_a_part_of_the_high_water() {
    for (policy, in_use, cached) in [
        (GrowthPolicy::Balanced, 0, 2),
        (GrowthPolicy::Balanced, 512, 2),
        (GrowthPolicy::Balanced, 1024, 4),
        (GrowthPolicy::Dense, 1024, 4),
    ] {
        let growth = of(policy, in_use);
        assert_eq!(growth.cacheable_bytes(), bytes(cached), "{in_use} MiB");
    }
}

#[test]
fn while_some_are_idle_segments_have_little_more_than_the_high_water() {
    // MiB in use, and the MiB that there may be by each policy: at least 2 MiB more.
    for (in_use, most) in [(0, [2, 2]), (100, [110, 102]), (1000, [1100, 1010])] {
        for (policy, most) in GrowthPolicy::ALL.into_iter().zip(most) {
            let found = of(policy, in_use).most(LEAST_SEGMENT).div_ceil(bytes(1));
            assert_eq!(found, most, "{in_use} MiB");
        }
    }
    assert_eq!(tight_after(1000).most(LEAST_SEGMENT), bytes(1010));
}

#[test]
fn pages_are_a_power_of_two_below_a_part_of_the_high_water() {
    // In MiB: one part in 128 of the high water, and at least a page of 2 MiB.
    for (in_use, pages) in [
        (0, 2),
        (511, 2),
        (512, 4),
        (2047, 8),
        (2048, 16),
        (64 << 10, 512),
    ] {
        assert_eq!(
            after(in_use).new_pages(2 * MIB),
            pages * MIB,
            "{in_use} MiB"
        );
    }
}

#[test]
fn mapped_pages_exceed_the_high_water_of_pages_in_use_by_thousandths_of_it() {
    let mut growth = after(1000);
    assert_eq!(growth.most_mapped(1000), 0);
    growth.reach_pages(2_000_000);
    growth.reach_pages(1_000_000);
    for (slack, most) in [(0, 2_000_000), (20, 2_040_000), (u64::MAX, u64::MAX)] {
        assert_eq!(growth.most_mapped(slack), most);
    }
}

#[test]
fn segments_stay_below_what_was_refused_until_they_have_reached_it() {
    let mut growth = after(1000);
    growth.refuse(bytes(500));
    assert_eq!(growth.most(LEAST_SEGMENT), bytes(500) - 1);
    growth.accept(bytes(500) - 1);
    assert_eq!(growth.most(LEAST_SEGMENT), bytes(500) - 1);
    growth.accept(bytes(500));
    assert_eq!(growth.most(LEAST_SEGMENT), bytes(1100));
    // A refusal above the limit changes nothing, and the least limit is 0.
    growth.refuse(bytes(2000));
    assert_eq!(growth.most(LEAST_SEGMENT), bytes(1100));
    growth.refuse(0);
    assert_eq!(growth.most(LEAST_SEGMENT), 0);
}
