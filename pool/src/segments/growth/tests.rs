//! The rules of growth as tables of numbers.

use super::Growth;
use crate::segments::GrowthPolicy;
use crate::segments::{placement::MOST_TAKEN, space::Location};

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
        assert_eq!(growth.segment_for(block), segment, "{block}, {growth:?}");
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
fn where_there_is_little_room_a_segment_is_smaller_but_holds_whole_blocks() {
    // About one part in 32 of the high water: 3.125 MiB.
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
            let usual = growth.segment_for(block);
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
fn cacheable_bytes_are_a_part_of_the_high_water() {
    for (policy, in_use, cached) in [
        (GrowthPolicy::Balanced, 0, 2),
        (GrowthPolicy::Balanced, 512, 2),
        (GrowthPolicy::Balanced, 1024, 4),
        (GrowthPolicy::Dense, 1024, 2),
        (GrowthPolicy::Dense, 4096, 4),
    ] {
        let growth = of(policy, in_use);
        assert_eq!(growth.cacheable_bytes(), bytes(cached), "{in_use} MiB");
    }
}

#[test]
fn segments_have_little_more_than_the_high_water() {
    for (in_use, most) in [(0, 2), (10, 12), (66, 68), (990, 1020)] {
        assert_eq!(after(in_use).most(), bytes(most), "{in_use} MiB");
    }
}

#[test]
fn pages_are_a_power_of_two_below_a_part_of_the_high_water() {
    // In MiB: one part in 128 of the high water, or in 512, at least a page of 2 MiB, and at most 128 MiB.
    for (policy, in_use, pages) in [
        (GrowthPolicy::Balanced, 0, 2),
        (GrowthPolicy::Balanced, 511, 2),
        (GrowthPolicy::Balanced, 512, 4),
        (GrowthPolicy::Balanced, 2047, 8),
        (GrowthPolicy::Balanced, 2048, 16),
        (GrowthPolicy::Balanced, 64 << 10, 128),
        (GrowthPolicy::Dense, 2048, 4),
    ] {
        let found = of(policy, in_use).new_pages(2 * MIB);
        assert_eq!(found, pages * MIB, "{policy:?}, {in_use} MiB");
    }
}

#[test]
fn mapped_pages_exceed_the_high_water_of_pages_in_use_by_a_part_of_what_has_moved() {
    // MiB beyond a high water of 2000: a fiftieth, and one part in 32 of what has moved, up to a twentieth.
    for (policy, moved, beyond) in [
        (GrowthPolicy::Balanced, 0, 40),
        (GrowthPolicy::Balanced, 32 * 40, 40),
        (GrowthPolicy::Balanced, 32 * 70, 70),
        (GrowthPolicy::Balanced, 32 * 101, 100),
        (GrowthPolicy::Dense, 32 * 70, 40),
    ] {
        let mut growth = of(policy, 1000);
        assert_eq!(growth.most_mapped(), 0);
        growth.reach_pages(bytes(2000));
        growth.reach_pages(bytes(1000));
        growth.moves(bytes(moved));
        assert_eq!(growth.most_mapped(), bytes(2000 + beyond), "{policy:?}");
        let mut tight = growth;
        tight.reach(0, bytes(1000));
        assert_eq!(tight.most_mapped(), bytes(2040));
        // It is forgotten like all that was regretted.
        (0..64).for_each(|_| growth.sweep());
        assert_eq!(growth.most_mapped(), bytes(2040));
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

/// The rules of a policy after some MiB in use, and after some bytes went back and were asked for again.
fn regretted(policy: GrowthPolicy, in_use_mib: usize, again: u64) -> Growth {
    let mut growth = of(policy, in_use_mib);
    growth.replace(again);
    growth.reach(0, u64::MAX);
    growth.asked_for_a_segment(again);
    growth
}

/// The same where memory is tight.
fn regretted_when_tight(policy: GrowthPolicy, in_use_mib: usize, again: u64) -> Growth {
    let mut growth = regretted(policy, in_use_mib, again);
    growth.reach(0, bytes(in_use_mib));
    growth
}

#[test]
fn a_large_idle_segment_serves_smaller_blocks_the_more_was_regretted() {
    let whole = Location {
        whole: Some(80 * MIB),
        taken: 0,
    };
    // The least block for which 80 MiB are broken up, in bytes, after 96 MiB in use.
    let cases = [
        (GrowthPolicy::FewestCalls, [30 * MIB, 16 * MIB, 1]),
        (GrowthPolicy::Balanced, [48 * MIB, 16 * MIB, 1]),
        (GrowthPolicy::Dense, [72 * MIB; 3]),
    ];
    for (policy, [least, repeated, often]) in cases {
        for (again, least) in [
            (0, least),
            (bytes(96) - 1, least),
            (bytes(96), repeated),
            (bytes(4 * 96) - 1, repeated),
            (bytes(4 * 96), often),
            (u64::MAX, often),
        ] {
            let growth = regretted(policy, 96, again);
            let serves = |bytes| growth.placement().range_filter(bytes)(whole);
            assert!(serves(least), "{policy:?}, {again} regretted");
            assert_eq!(
                serves(least - 1),
                least == 1,
                "{policy:?}, {again} regretted"
            );
            // Where memory is tight, half of it, whatever was regretted.
            let tight = regretted_when_tight(policy, 96, again).placement();
            assert!(tight.range_filter(40 * MIB)(whole));
            assert!(!tight.range_filter(40 * MIB - 1)(whole));
        }
    }
}

#[test]
fn before_anything_was_in_use_nothing_is_broken_up_for_regret() {
    let growth = regretted(GrowthPolicy::Balanced, 0, bytes(1));
    let placement = growth.placement();
    assert_eq!(placement, of(GrowthPolicy::Balanced, 0).placement());
    assert_eq!(growth.most(), bytes(2));
}

#[test]
fn memory_may_pass_the_high_water_by_what_was_regretted_up_to_a_part_of_it() {
    // MiB beyond a high water of 3300 MiB: 3 % and 15 %, 5 % and 50 %, or always 1 %.
    let cases = [
        (GrowthPolicy::Balanced, 0, 100),
        (GrowthPolicy::Balanced, 100, 100),
        (GrowthPolicy::Balanced, 101, 101),
        (GrowthPolicy::Balanced, 495, 495),
        (GrowthPolicy::Balanced, 496, 495),
        (GrowthPolicy::Balanced, 100 * 3300, 495),
        (GrowthPolicy::FewestCalls, 0, 165),
        (GrowthPolicy::FewestCalls, 166, 166),
        (GrowthPolicy::FewestCalls, 1650, 1650),
        (GrowthPolicy::FewestCalls, 1651, 1650),
        (GrowthPolicy::Dense, 0, 33),
        (GrowthPolicy::Dense, 100, 33),
        (GrowthPolicy::Dense, 100 * 3300, 33),
    ];
    let beyond = |most: u64| (most - bytes(3300)) / bytes(1);
    for (policy, again, expected) in cases {
        let growth = regretted(policy, 3300, bytes(again));
        assert_eq!(beyond(growth.most()), expected, "{policy:?}, {again} MiB");
        // Where memory is tight, no more than without regret.
        let tight = regretted_when_tight(policy, 3300, bytes(again));
        assert_eq!(tight.most(), of(policy, 3300).most());
    }
}

#[test]
fn what_commands_hold_back_again_and_again_may_stay_too() {
    // MiB beyond a high water of 1600 MiB, after so many times that was asked for while as much was held back: 3 %, and 1/16 of what is
    // beyond 8 times.
    for (times, beyond) in [
        (0, 48),
        (8, 48),
        (9, 100),
        (16, 800),
        (24, 1600),
        (100, 1600),
    ] {
        let mut growth = after(1600);
        (0..times).for_each(|_| growth.asked_for_what_is_held_back(bytes(1600)));
        assert_eq!(
            (growth.most() - bytes(1600)) / bytes(1),
            beyond,
            "{times} times"
        );
        let mut tight = growth;
        tight.reach(0, bytes(1600));
        assert_eq!((tight.most() - bytes(1600)) / bytes(1), 48);
        // It is forgotten like all that was regretted.
        (0..64).for_each(|_| growth.sweep());
        assert_eq!((growth.most() - bytes(1600)) / bytes(1), 48);
    }
    let mut dense = of(GrowthPolicy::Dense, 1600);
    dense.asked_for_what_is_held_back(bytes(100 * 1600));
    assert_eq!(dense.most(), of(GrowthPolicy::Dense, 1600).most());
}

#[test]
fn a_segment_for_a_block_that_raises_the_high_water_is_not_regretted() {
    let regret = |in_use| {
        let mut growth = after(1000);
        growth.replace(bytes(100));
        growth.reach(in_use, u64::MAX);
        growth.asked_for_a_segment(bytes(100));
        growth.most() - growth.high_water()
    };
    assert_eq!(regret(bytes(1000)), bytes(100));
    assert_eq!(regret(bytes(1000) + 1), bytes(1000).div_euclid(33));
}

#[test]
fn what_was_regretted_never_passes_what_was_refused() {
    let mut growth = regretted(GrowthPolicy::FewestCalls, 1000, bytes(9000));
    growth.refuse(bytes(1100));
    assert_eq!(growth.most(), bytes(1100) - 1);
}

#[test]
fn a_program_that_grows_has_regretted_less_of_it() {
    let mut growth = regretted(GrowthPolicy::Balanced, 96, bytes(4 * 96));
    assert_eq!(growth.placement().large, usize::MAX);
    growth.reach(bytes(97), u64::MAX);
    assert!(growth.placement().large < usize::MAX);
    growth.reach(bytes(4 * 96 + 1), u64::MAX);
    let plain = of(GrowthPolicy::Balanced, 4 * 96 + 1);
    assert_eq!(growth.placement(), plain.placement());
}

#[test]
fn sweeps_without_regret_bring_the_rules_back() {
    for policy in [GrowthPolicy::FewestCalls, GrowthPolicy::Balanced] {
        let plain = of(policy, 96);
        let mut growth = regretted(policy, 96, bytes(4 * 96));
        // What was regretted before the first sweep counts until the second one.
        for times in [4, 2, 1] {
            growth.sweep();
            let expected = regretted(policy, 96, bytes(times * 96));
            assert_eq!(growth.placement(), expected.placement(), "{times} times");
        }
        growth.sweep();
        assert_eq!(growth.placement(), plain.placement());
        (0..64).for_each(|_| growth.sweep());
        assert_eq!(growth.most(), plain.most());
        // It counts anew from there.
        growth.asked_for_a_segment(bytes(96));
        assert_eq!(growth.most(), plain.most(), "nothing went back");
    }
}

#[test]
fn an_arena_has_regretted_as_large_a_part_as_it_has_of_the_segments() {
    // A few bytes less than it takes to break segments up for any block.
    let all = regretted(GrowthPolicy::Balanced, 1000, bytes(4000) - 100);
    let part = all.of_arena(bytes(10), bytes(1000));
    let expected = regretted(GrowthPolicy::Balanced, 10, bytes(40) - 1);
    assert_eq!(part.placement(), expected.placement());
    let enough = regretted(GrowthPolicy::Balanced, 1000, bytes(4000));
    let part = enough.of_arena(bytes(10), bytes(1000));
    assert_eq!(part.placement().large, usize::MAX);
}
