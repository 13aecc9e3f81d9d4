//! The rules of growth as tables of numbers.

use super::{Growth, Location, MOST_TAKEN};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// The rules after so many MiB in use, with ample memory.
fn after(in_use_mib: usize) -> Growth {
    let mut growth = Growth::default();
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
        (after(100), 3 * MIB, 6 * MIB),
        (after(100), 3 * MIB + 1, 3 * MIB + 1),
        (after(100), usize::MAX, usize::MAX),
    ];
    for (growth, block, segment) in cases {
        assert_eq!(growth.segment_for(block), segment, "{block}, {growth:?}");
    }
    for (growth, most) in [(after(0), 8 * KIB), (after(100), 24 * KIB)] {
        assert!(growth.is_small(most) && !growth.is_small(most + 1));
    }
}

#[test]
fn where_there_is_little_room_a_segment_is_smaller_but_holds_its_block() {
    // One part in 32 of the high water: 3.125 MiB.
    let cases = [
        (MIB, 1, 3200 * KIB),
        (MIB, MIB, 3 * MIB),
        (5 * MIB, MIB, 5 * MIB),
        (KIB, MIB, 128 * KIB),
    ];
    for (block, alignment, least) in cases {
        assert_eq!(after(100).least_segment_for(block, alignment), least);
    }
}

#[test]
fn a_small_block_does_not_break_up_a_large_idle_segment() {
    let whole = |mib: usize| Location {
        whole: Some(mib * MIB),
        taken: 0,
    };
    // Of a free segment of 80 MiB, which is larger than the next one would be: three eighths, or half where memory is tight.
    for (growth, least) in [(after(96), 30 * MIB), (tight_after(96), 40 * MIB)] {
        assert!(!growth.range_filter(1)(whole(80)));
        assert!(!growth.range_filter(least - 1)(whole(80)));
        assert!(growth.range_filter(least)(whole(80)));
    }
    // A segment of the usual size serves every block.
    assert!(after(100).range_filter(1)(whole(6)));
    assert!(!after(100).range_filter(1)(whole(7)));
    // So does one that is in use, up to a number of blocks.
    for (taken, may) in [(0, true), (MOST_TAKEN - 1, true), (MOST_TAKEN, false)] {
        let whole = None;
        assert_eq!(after(100).range_filter(1)(Location { whole, taken }), may);
        let whole = Some(2 * MIB);
        assert_eq!(after(100).range_filter(1)(Location { whole, taken }), may);
    }
}

#[test]
fn cacheable_bytes_and_merged_segments_are_parts_of_the_high_water() {
    for (in_use, cached, merged) in [(0, 2, 0), (512, 2, 128), (1024, 4, 256)] {
        let growth = after(in_use);
        let found = (growth.cacheable_bytes(), growth.most_merged());
        assert_eq!(found, (bytes(cached), bytes(merged)), "{in_use} MiB");
    }
}

#[test]
fn segments_have_little_more_than_the_high_water() {
    for (in_use, most) in [(0, 2), (10, 12), (40, 42), (1000, 1050)] {
        assert_eq!(after(in_use).most(), bytes(most), "{in_use} MiB");
    }
}

#[test]
fn segments_stay_below_what_was_refused_until_they_have_reached_it() {
    let mut growth = after(1000);
    growth.refuse(bytes(500));
    assert_eq!(growth.most(), bytes(500) - 1);
    growth.accept(bytes(500) - 1);
    assert_eq!(growth.most(), bytes(500) - 1);
    growth.accept(bytes(500));
    assert_eq!(growth.most(), bytes(1050));
    // A refusal above the limit changes nothing, and the least limit is 0.
    growth.refuse(bytes(2000));
    assert_eq!(growth.most(), bytes(1050));
    growth.refuse(0);
    assert_eq!(growth.most(), 0);
}

#[test]
fn segments_replace_one_another_often_if_more_than_one_allocation_in_32_has_them_do_so() {
    for (allocations, few) in [(0, 12), (31, 12), (32, 13), (100, 15)] {
        let mut growth = after(100);
        let often: Vec<_> = (0..=few + 1)
            .map(|_| growth.replaces_often(allocations))
            .collect();
        assert_eq!(often.iter().filter(|often| !**often).count(), few);
        assert!(often.is_sorted());
        // Where memory is tight, segments are never merged.
        growth.is_tight = true;
        assert!(!growth.replaces_often(allocations));
    }
}
