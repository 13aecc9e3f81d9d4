//! Segments of pages: every block lies in mapped pages, whatever fails, and pages that commands may use stay where they are.

mod world;

use binpool_allocators::Region;
use proptest::prelude::*;

use world::{PAGE, Queue, World};

#[derive(Clone, Debug)]
enum Step {
    Take {
        home: usize,
        bytes: usize,
        queue: Queue,
    },
    Give {
        block: usize,
        queue: Queue,
    },
    Settle {
        queue: Queue,
    },
    Release {
        pages: u64,
        sweeps: bool,
    },
    /// The calls with these numbers from now on fail.
    Fail {
        calls: Vec<usize>,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![
        3 => 1..=64 * PAGE,
        2 => 1..=2 * PAGE,
        1 => 256..=64_usize << 10,
    ];
    prop_oneof![
        6 => (0..3_usize, bytes, 1..3_u8)
            .prop_map(|(home, bytes, queue)| Step::Take { home, bytes: bytes.next_multiple_of(256), queue }),
        5 => (any::<usize>(), 0..3_u8).prop_map(|(block, queue)| Step::Give { block, queue }),
        1 => (1..3_u8).prop_map(|queue| Step::Settle { queue }),
        1 => (0..100_u64, any::<bool>()).prop_map(|(pages, sweeps)| Step::Release { pages, sweeps }),
    ]
}

fn play(world: &mut World, steps: Vec<Step>) {
    for step in steps {
        match step {
            Step::Take { home, bytes, queue } => drop(world.take(home, bytes, queue)),
            Step::Give { block, queue } => world.give(block, queue),
            Step::Settle { queue } => world.settle(queue),
            Step::Release { pages, sweeps } => world.release(pages * PAGE as u64, sweeps),
            Step::Fail { calls } => world.fail(calls),
        }
        world.check();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Against what is on paper: blocks are apart and mapped, pages in use stay, and all bytes are accounted for.
    #[test]
    fn blocks_lie_apart_in_mapped_pages(
        steps in prop::collection::vec(step(), 1..120),
        capacity in 40..400_u64,
        aliases: bool,
    ) {
        play(&mut World::new(capacity * PAGE as u64, aliases), steps);
    }

    /// The same where calls fail. What was mapped before a failed call is mapped after it.
    #[test]
    fn a_failed_call_leaves_blocks_where_they_are(
        steps in prop::collection::vec(
            prop_oneof![
                4 => step(),
                1 => prop::collection::vec(1..30_usize, 1..4).prop_map(|calls| Step::Fail { calls }),
            ],
            1..120,
        ),
        capacity in 40..400_u64,
        aliases: bool,
    ) {
        play(&mut World::new(capacity * PAGE as u64, aliases), steps);
    }
}

#[test]
fn a_map_that_fails_leaves_everything_as_it_was() {
    let mut world = World::new(100 * PAGE as u64, true);
    assert!(world.take(0, 90 * PAGE, 1));
    assert!(world.take(0, 8 * PAGE, 1));
    world.give(0, 0);
    // It is free, but lies apart from where 95 pages are wanted, so pages have to move. Each call of that fails in turn.
    let before = world.places();
    for failing in 1.. {
        world.fail([failing]);
        let succeeded = world.take(0, 92 * PAGE, 1);
        world.check();
        world.fail([]);
        if succeeded {
            assert!(failing > 2, "no call failed");
            break;
        }
        assert_eq!(world.places(), before, "after call {failing}");
    }
    assert_eq!(world.segments.bytes(), 100 * PAGE as u64);
    world.check();
}

#[test]
fn pages_that_could_not_be_mapped_are_free_and_idle_until_a_block_gets_them() {
    let mut world = World::new(1 << 40, true);
    assert!(world.take(0, PAGE, 1));
    // The pages are created, and mapping them fails.
    world.fail([2]);
    assert!(!world.take(0, PAGE, 1));
    let page = PAGE as u64;
    let figures = |world: &World| {
        let segments = &world.segments;
        [
            segments.spare_bytes(),
            segments.idle_bytes(),
            segments.free_bytes(),
            segments.bytes(),
        ]
    };
    assert_eq!(figures(&world), [page, page, page, 2 * page]);
    assert!(world.take(0, PAGE, 1));
    assert_eq!(figures(&world), [0, 0, 0, 2 * page]);
    world.check();
}

#[test]
fn free_pages_after_a_hole_stay_free_if_mapping_to_its_end_fails() {
    let mut world = World::new(1 << 40, true);
    for _ in 0..3 {
        assert!(world.take(0, 10 * PAGE, 1));
    }
    // The first becomes a hole, and then the second is free.
    world.give(0, 0);
    world.release(u64::MAX, false);
    world.give(1, 0);
    assert_eq!(world.segments.bytes(), 20 * PAGE as u64);
    // The pages are created, and mapping them before the free ones fails.
    world.fail([2]);
    assert!(!world.take(0, 12 * PAGE, 1));
    world.check();
    assert_eq!(world.segments.largest_free(), 10 * PAGE);
    assert!(world.take(0, 12 * PAGE, 1));
    world.check();
}

#[test]
fn pages_stay_where_they_are_while_addresses_are_kept() {
    let mut world = World::new(100 * PAGE as u64, true);
    assert!(world.take(0, 90 * PAGE, 1));
    assert!(world.take(0, 8 * PAGE, 1));
    world.give(0, 0);
    for (keeps, serves) in [(true, false), (false, true)] {
        world.segments.keep_addresses(keeps);
        assert_eq!(world.take(0, 92 * PAGE, 1), serves);
        world.check();
    }
}

/// A device of four pages, which queue 1 has used.
fn four_used_pages(aliases: bool) -> World {
    let mut world = World::new(4 * PAGE as u64, aliases);
    assert!(world.take(0, 4 * PAGE, 1));
    world.give(0, 1);
    world
}

/// Takes three pages for queue 1, which lie apart: one before a page in use, and two after it.
fn take_three_of_four(world: &mut World) -> bool {
    assert!(world.take(0, PAGE, 1));
    assert!(world.take(0, PAGE, 1));
    world.give(0, 1);
    world.take(0, 3 * PAGE, 1)
}

#[test]
fn pages_get_second_addresses_while_old_ones_are_less_than_the_capacity() {
    let mut world = four_used_pages(true);
    for old_addresses in 0..5 {
        let serves = take_three_of_four(&mut world);
        assert_eq!(serves, old_addresses < 4, "of {old_addresses} pages");
        world.check();
        while !world.blocks.is_empty() {
            world.give(0, 1);
        }
    }
    // They are unmapped once the commands have ended.
    assert_eq!(world.places(), 8);
    world.settle(1);
    assert_eq!(world.places(), 4);
    assert!(take_three_of_four(&mut world));
}

#[test]
fn a_second_address_is_not_tried_again_where_it_was_refused() {
    let mut world = four_used_pages(false);
    assert!(!take_three_of_four(&mut world));
    assert!(!world.take(0, 3 * PAGE, 1));
    assert_eq!(world.refused_aliases, 1);
}

/// Plans fail at two calls each: at one, and at one that would make it as it was. Nothing is lost, and the memory serves again.
#[test]
fn what_cannot_be_undone_stays_in_use() {
    for first in 1..20 {
        for second in first + 1..first + 8 {
            let mut world = World::new(100 * PAGE as u64, true);
            for pages in [1; 10].into_iter().chain([80, 10]) {
                assert!(world.take(0, pages * PAGE, 1));
            }
            // Ten pages in a row that move one by one, and one block at the other end.
            for number in [11, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0] {
                world.give(number, 0);
            }
            world.fail([first, second]);
            assert!(!world.take(0, 20 * PAGE, 1), "{first} {second}");
            world.check();
            world.release(u64::MAX, false);
            world.check();
            world.fail([]);
            assert!(world.take(0, 18 * PAGE, 1), "{first} {second}");
            world.check();
            while !world.blocks.is_empty() {
                world.give(0, 0);
            }
            world.release(u64::MAX, false);
            assert_eq!(world.segments.bytes(), 0, "{first} {second}");
        }
    }
}

#[test]
fn where_the_device_has_no_memory_there_is_no_block() {
    assert!(!World::new(0, true).take(0, PAGE, 1));
}

#[test]
fn pages_that_commands_may_use_do_not_move() {
    let mut world = World::new(16 * PAGE as u64, true);
    assert!(world.take(0, 8 * PAGE, 1));
    assert!(world.take(0, 8 * PAGE, 1));
    world.give(0, 1);
    // Queue 2 may not have them, and they may not be unmapped.
    assert!(!world.take(0, 8 * PAGE, 2));
    world.settle(1);
    assert!(world.take(0, 8 * PAGE, 2));
    world.check();
}

#[test]
fn free_pages_move_before_more_is_taken_than_the_program_needs() {
    let mut world = World::new(1 << 40, true);
    // Blocks with gaps between them, half of which are free afterwards.
    for _ in 0..64 {
        assert!(world.take(0, 16 * PAGE, 1));
    }
    for number in 0..32 {
        world.give(number, 0);
    }
    // No gap has room for a block twice as large.
    for _ in 0..16 {
        assert!(world.take(0, 32 * PAGE, 1));
    }
    world.check();
    let high_water = 64 * 16 * PAGE as u64;
    assert!(world.segments.bytes() <= high_water + high_water / 33 + PAGE as u64);
}

#[test]
fn a_block_grows_out_of_the_free_range_before_a_hole() {
    let mut world = World::new(1 << 40, true);
    assert!(world.take(0, 10 * PAGE, 1));
    world.give(0, 0);
    assert!(world.take(0, 12 * PAGE, 1));
    // Two pages were mapped after the ten.
    assert_eq!(world.blocks[0].region, Region::first(12 * PAGE));
    assert_eq!(world.segments.bytes(), 12 * PAGE as u64);
}

#[test]
fn a_sweep_releases_pages_that_were_free_at_the_last_one() {
    let mut world = World::new(1 << 40, true);
    assert!(world.take(0, 10 * PAGE, 1));
    assert!(world.take(0, 10 * PAGE, 1));
    // The two blocks are given back, one before each of the first two sweeps.
    for (free, left) in [(10, 20), (20, 10), (10, 0)] {
        world.give(0, 0);
        assert_eq!(world.segments.idle_bytes(), free * PAGE as u64);
        world.release(0, true);
        assert_eq!(world.segments.bytes(), left * PAGE as u64);
    }
    world.check();
}

#[test]
fn free_neighbours_of_different_uses_serve_a_block_of_their_own_arena_first() {
    // Another arena serves it, too, where a quarter of all pages is free: of 32 pages there are 14 free, or 2.
    for (blocks, others_serve) in [([3, 2], true), ([1, 0], false)] {
        let mut world = World::new(1 << 40, true);
        for home in [0, 1] {
            for pages in [1, 1, 6, 8] {
                assert!(world.take(home, pages * PAGE, 1));
            }
        }
        world
            .segments
            .set_join(|one, two| (one == two).then_some(*one));
        // Neighbours in the first arena: one that queue 1 used, and an unused one.
        world.give(blocks[0], 1);
        world.give(blocks[1], 0);
        let bytes = 2 * PAGE;
        let more = world.segments.take_run(0, 20 * PAGE, |_| true);
        assert!(more.is_none(), "no run has this many pages");
        let taken = world.segments.take_run(1, bytes, |_| true);
        assert_eq!(taken.is_some(), others_serve, "{blocks:?}");
        if let Some(taken) = taken {
            world.segments.give(taken.range, 0, None);
        }
        let own = world.segments.take_run(0, bytes, |_| true).unwrap();
        assert_eq!(own.region.bytes, bytes);
        world.segments.give(own.range, 0, None);
    }
}

/// A program of one queue: rounds of the same steps, each of which takes a block or gives back the oldest, and sometimes one more step.
fn rounds(world: &mut World, steps: &[Option<usize>], extra: &[Option<usize>], rounds: usize) {
    for round in 0..rounds {
        let more = extra.get(round).copied().flatten();
        for (number, step) in steps.iter().enumerate() {
            let more = more.filter(|_| number == round % steps.len());
            let more = more.map(|more| Some(more % 9 + 1));
            for pages in [Some(*step), more].into_iter().flatten() {
                match pages {
                    Some(pages) => drop(world.take(0, pages * PAGE, 1)),
                    None if world.blocks.is_empty() => {}
                    None => world.give(0, 1),
                }
                world.check();
            }
            // Commands end after a while.
            if number % 8 == 0 {
                world.settle(1);
            }
        }
        while !world.blocks.is_empty() {
            world.give(0, 1);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// A program that repeats itself, with deviations: whatever is planned, blocks lie apart in mapped pages.
    #[test]
    fn blocks_of_a_program_that_nearly_repeats_lie_apart_in_mapped_pages(
        steps in prop::collection::vec(prop::option::weighted(0.6, 1..40_usize), 4..40),
        extra in prop::collection::vec(prop::option::weighted(0.3, any::<usize>()), 12),
        capacity in 100..2000_u64,
        aliases: bool,
    ) {
        rounds(&mut World::new(capacity * PAGE as u64, aliases), &steps, &extra, 12);
    }
}

#[test]
fn a_program_that_repeats_is_planned_and_its_pages_stay_where_they_are() {
    let mut world = World::new(1 << 40, true);
    let sizes = (0..60).map(|number| 7 * number * number % 61 + 5);
    let steps = sizes.enumerate().flat_map(|(number, pages)| {
        let gone = (number > 3).then_some(None);
        [Some(Some(pages)), gone].into_iter().flatten()
    });
    let steps: Vec<Option<usize>> = steps.collect();
    rounds(&mut world, &steps, &[], 2);
    let before = world.segments.bytes();
    assert_eq!(world.plans, 0);
    rounds(&mut world, &steps, &[], 12);
    let after = world.segments.bytes();
    assert!(
        world.plans > 0 && after < before / 10 * 9,
        "{} plans, {after} of {before}",
        world.plans
    );
    let now = |world: &World| {
        (
            world.plans,
            world.maps(),
            world.places(),
            world.segments.bytes(),
        )
    };
    let planned = now(&world);
    rounds(&mut world, &steps, &[], 12);
    assert_eq!(now(&world), planned);
}
