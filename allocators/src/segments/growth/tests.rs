//! The rules of growth as tables of numbers.

use super::Growth;
use crate::GrowthPolicy;
use crate::segments::{placement::MOST_TAKEN, space::Location};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// The rules of the default policy after so many MiB in use, with ample memory.
fn after(in_use_mib: usize) -> Growth {
    of(GrowthPolicy::Balanced, in_use_mib)
}

/// The rules of a policy after so many MiB in use, with ample memory.
fn of(policy: GrowthPolicy, in_use_mib: usize) -> Growth {
    let mut growth = Growth::new(policy);
    growth.reach((in_use_mib * MIB) as u64, u64::MAX);
    growth
}

/// The rules after so many MiB in use, where memory is tight.
fn tight_after(in_use_mib: usize) -> Growth {
    let mut growth = Growth::default();
    growth.reach((in_use_mib * MIB) as u64, (in_use_mib * MIB) as u64);
    growth
}

const fn bytes(mib: usize) -> u64 {
    (mib * MIB) as u64
}

#[test]
fn memory_is_tight_below_six_fifths_of_what_was_in_use() {
    let cases = [
        (100, bytes(100), true),
        (100, bytes(120) - 6, true),
        (100, bytes(120), false),
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
        (tight_after(96), 2),
        (tight_after(100), 4),
    ];
    for (growth, mib) in cases {
        assert_eq!(growth.general_size(), mib * MIB, "{growth:?}");
    }
}

#[test]
fn a_segment_holds_many_small_blocks_or_some_others_or_one_that_is_large() {
    // After 100 MiB, a segment has 6 MiB, and one for small blocks, of up to 24 KiB, has 384 KiB.
    let cases = [
        (after(0), 1, 128),
        (after(0), KIB, 128 * KIB),
        (after(0), 8 * KIB, 128 * KIB),
        (after(0), 8 * KIB + 1, 128 * (8 * KIB + 1)),
        (after(0), MIB, 2 * MIB),
        (after(0), MIB + 1, MIB + 1),
        (after(100), 2 * KIB, 256 * KIB),
        (after(100), 24 * KIB, 384 * KIB),
        (after(100), 24 * KIB + 1, 128 * (24 * KIB + 1)),
        // A whole number of blocks.
        (after(100), 1400 * KIB, 4 * 1400 * KIB),
        (after(100), 1536 * KIB, 6 * MIB),
        (after(100), 1536 * KIB + 1, 1536 * KIB + 1),
        (after(100), usize::MAX, usize::MAX),
        (of(GrowthPolicy::FewestCalls, 100), 3 * MIB, 6 * MIB),
        (of(GrowthPolicy::FewestCalls, 100), 3 * MIB + 1, 3 * MIB + 1),
        (of(GrowthPolicy::Dense, 100), MIB, 6 * MIB),
        (of(GrowthPolicy::Dense, 100), MIB + 1, MIB + 1),
        // With the densest policy, of up to 16 blocks.
        (of(GrowthPolicy::Dense, 600), 1536 * KIB, 24 * MIB),
        (of(GrowthPolicy::Dense, 100), 6 * KIB, 96 * KIB),
        (of(GrowthPolicy::Dense, 600), 1536 * KIB + 1, 1536 * KIB + 1),
    ];
    for (growth, block, segment) in cases {
        assert_eq!(growth.segment_for(block, 0), segment, "{block}, {growth:?}");
    }
    let dense = of(GrowthPolicy::Dense, 100);
    for (growth, most) in [
        (after(0), 8 * KIB),
        (after(100), 24 * KIB),
        (dense, 12 * KIB),
    ] {
        assert!(growth.is_small(most) && !growth.is_small(most + 1));
    }
}

#[test]
fn few_requests_make_a_segment_of_less_than_half_the_usual_for_one_block() {
    // Of the segments, 64 do not count.
    for (made, requests, is_own) in [
        (64, 0, true),
        (65, 399, false),
        (65, 400, true),
        (66, 400, false),
    ] {
        let mut growth = after(100);
        (0..made).for_each(|_| growth.accept(0));
        let own = growth.segment_for(2 * MIB, requests) == 2 * MIB;
        assert_eq!(own, is_own, "{made} segments, {requests} requests");
        assert_eq!(growth.segment_for(3 * MIB + 1, requests), 3 * MIB + 1);
    }
}

#[test]
fn with_the_densest_policy_only_segments_that_replaced_others_count() {
    for (replacements, requests, is_own) in [
        (64, 0, true),
        (65, 19, false),
        (65, 20, true),
        (66, 20, false),
    ] {
        let mut growth = of(GrowthPolicy::Dense, 100);
        (0..1000).for_each(|_| growth.accept(0));
        for _ in 0..replacements {
            growth.replaces_often(requests);
        }
        let own = growth.segment_for(2 * MIB, requests) == 2 * MIB;
        assert_eq!(own, is_own, "{replacements} of {requests} requests");
    }
}

#[test]
fn where_there_is_little_room_a_segment_is_smaller_but_holds_whole_blocks() {
    // About one part in 32 of the high water: 3.125 MiB, or at most that with the densest policy.
    let cases = [
        (1, 128, 16),
        (KIB, 128 * KIB, 16 * KIB),
        (100 * KIB, 3200 * KIB, 1600 * KIB),
        (800 * KIB, 3200 * KIB, 3200 * KIB),
        (MIB, 3 * MIB, 3 * MIB),
        (1200 * KIB, 3600 * KIB, 1200 * KIB),
        (1300 * KIB, 2600 * KIB, 1300 * KIB),
        (5 * MIB, 5 * MIB, 5 * MIB),
        (usize::MAX, usize::MAX, usize::MAX),
    ];
    for (block, balanced, dense) in cases {
        for (policy, least) in [
            (GrowthPolicy::FewestCalls, balanced),
            (GrowthPolicy::Balanced, balanced),
            (GrowthPolicy::Dense, dense),
        ] {
            let growth = of(policy, 100);
            let usual = growth.segment_for(block, 0);
            let found = growth.least_segment_for(block, usual);
            assert_eq!(found, least, "{block}, {growth:?}");
        }
    }
}

#[test]
fn a_small_block_does_not_break_up_a_large_idle_segment() {
    let whole = |mib: usize| Location {
        whole: Some(mib * MIB),
        taken: 0,
    };
    // Of a free segment of 80 MiB, which is larger than the next one would be: a part by the policy, or half where memory is tight.
    for (growth, least) in [
        (of(GrowthPolicy::FewestCalls, 96), 30 * MIB),
        (of(GrowthPolicy::Balanced, 96), 48 * MIB),
        (of(GrowthPolicy::Dense, 96), 72 * MIB),
        (tight_after(96), 40 * MIB),
    ] {
        assert!(!growth.placement().range_filter(1)(whole(80)));
        assert!(!growth.placement().range_filter(least - 1)(whole(80)));
        assert!(growth.placement().range_filter(least)(whole(80)));
    }
    // A segment of the usual size serves every block.
    assert!(after(100).placement().range_filter(1)(whole(6)));
    assert!(!after(100).placement().range_filter(1)(whole(7)));
    // With the densest policy, one of up to half of that.
    assert!(of(GrowthPolicy::Dense, 100).placement().range_filter(1)(
        whole(3)
    ));
    assert!(!of(GrowthPolicy::Dense, 100).placement().range_filter(1)(
        whole(4)
    ));
    // So does one that is in use, up to a number of blocks.
    for (taken, may) in [(0, true), (MOST_TAKEN - 1, true), (MOST_TAKEN, false)] {
        let whole = None;
        assert_eq!(
            after(100).placement().range_filter(1)(Location { whole, taken }),
            may
        );
        let whole = Some(2 * MIB);
        assert_eq!(
            after(100).placement().range_filter(1)(Location { whole, taken }),
            may
        );
    }
}

#[test]
fn cacheable_bytes_and_merged_segments_are_parts_of_the_high_water() {
    for (policy, in_use, cached, merged) in [
        (GrowthPolicy::Balanced, 0, 2, 0),
        (GrowthPolicy::Balanced, 512, 2, 128),
        (GrowthPolicy::Balanced, 1024, 4, 256),
        (GrowthPolicy::Dense, 1024, 2, 256),
        (GrowthPolicy::Dense, 4096, 4, 1024),
    ] {
        let growth = of(policy, in_use);
        let found = (growth.cacheable_bytes(), growth.most_merged());
        assert_eq!(found, (bytes(cached), bytes(merged)), "{in_use} MiB");
    }
}

#[test]
fn segments_have_little_more_than_the_high_water() {
    for (in_use, most) in [(0, 2), (10, 12), (66, 68), (990, 1020)] {
        assert_eq!(after(in_use).most(), bytes(most), "{in_use} MiB");
    }
}

#[test]
fn segments_stay_below_what_was_refused_until_they_have_reached_it() {
    let mut growth = after(990);
    growth.refuse(bytes(500));
    assert_eq!(growth.most(), bytes(500) - 1);
    growth.accept(bytes(500) - 1);
    assert_eq!(growth.most(), bytes(500) - 1);
    growth.accept(bytes(500));
    assert_eq!(growth.most(), bytes(1020));
    // A refusal above the limit changes nothing, and the least limit is 0.
    growth.refuse(bytes(2000));
    assert_eq!(growth.most(), bytes(1020));
    growth.refuse(0);
    assert_eq!(growth.most(), 0);
}

#[test]
fn segments_replace_one_another_often_if_more_than_one_allocation_in_32_has_them_do_so() {
    for (allocations, few) in [(0, 12), (31, 12), (32, 13), (100, 15)] {
        let mut growth = of(GrowthPolicy::FewestCalls, 100);
        let often: Vec<_> = (0..=few + 1)
            .map(|_| growth.replaces_often(allocations))
            .collect();
        assert_eq!(often.iter().filter(|often| !**often).count(), few);
        assert!(often.is_sorted());
        // Where memory is tight, segments are never merged, and with other policies.
        growth.is_tight = true;
        assert!(!growth.replaces_often(allocations));
        let mut balanced = after(100);
        assert!((0..100).all(|_| !balanced.replaces_often(allocations)));
    }
}
