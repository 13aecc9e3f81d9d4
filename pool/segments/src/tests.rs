//! Which segments are made and released, as numbers. Strings stand for memory, and a free range remembers its last queue.

use binpool_allocators::Region;

use super::{Carved, Leaving, NewPlan, Planned, RangeKey, RangeState, Segments};
use crate::{
    GrowthPolicy,
    arena::{Arena, Pages},
};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// The size of a page, where segments consist of pages.
const PAGE: usize = 2 * MIB;

/// Ample memory.
const PLENTY: u64 = 1 << 40;

type Queue = u8;

/// Returns whether a view of the block exists, and no other overlaps it.
fn is_ready(carved: &Carved<&str, Queue>) -> bool {
    carved.view.is_some() && carved.overlapping.is_empty() && !carved.has_excess
}

/// Neighbours that different queues used stay apart.
fn segments() -> Segments<&'static str, Queue> {
    Segments::new(|one: &Queue, two: &Queue| (one == two).then_some(*one))
}

/// The segments after this many MiB were in use.
fn after(in_use_mib: usize) -> Segments<&'static str, Queue> {
    let mut segments = segments();
    let in_use = (in_use_mib * MIB - 1) as u64;
    assert!(segments.grow(0, 1, in_use, 1, PLENTY).1.is_empty());
    segments
}

impl Segments<&'static str, Queue> {
    /// Adds a segment of `bytes` bytes that is taken as a whole.
    fn add_whole(&mut self, memory: &'static str, bytes: usize) -> Carved<&'static str, Queue> {
        self.add(0, memory, bytes, bytes).unwrap()
    }

    fn add_idle(&mut self, memory: &'static str, bytes: usize) {
        let carved = self.add_whole(memory, bytes);
        self.give(carved.range, 0, None);
    }

    /// The size to request for a block of `bytes` bytes, and the segments to release before, in order.
    fn growth(&mut self, bytes: usize, alignment: usize) -> (usize, Vec<&'static str>) {
        let (size, leaving) = self.grow(0, bytes, 0, alignment, PLENTY);
        (size, names(&leaving))
    }
}

/// What takes the place of idle segments for a request of `bytes` bytes, if the arena is at a low point and that saves memory.
fn join(
    segments: &mut Segments<&'static str, Queue>,
    bytes: usize,
    alignment: usize,
    largest: usize,
) -> Option<(NewPlan, Vec<Leaving<&'static str, Queue>>)> {
    let reviewed = segments.review(0, bytes, largest)?.carry_out();
    segments.join_idle(reviewed, bytes, alignment, |_| true, |_| true)
}

fn names(leaving: &[Leaving<&'static str, Queue>]) -> Vec<&'static str> {
    leaving.iter().map(|leaving| leaving.memory).collect()
}

#[test]
fn the_figures_of_free_bytes_are_reported() {
    let mut segments = after(1024);
    assert_eq!(segments.largest_free(), 0);
    assert_eq!(segments.high_water(), 1024 * MIB as u64);
    assert_eq!(segments.cacheable_bytes(), 4 * MIB as u64);
    let carved = segments.add(0, "one", 1000, 300).unwrap();
    segments.add_whole("two", 500);
    assert_eq!((segments.bytes(), segments.free_bytes()), (1500, 700));
    assert_eq!((segments.largest_free(), segments.idle_bytes()), (700, 0));
    segments.give(carved.range, 0, None);
    assert_eq!(
        (segments.largest_free(), segments.idle_bytes()),
        (1000, 1000)
    );
}

#[test]
fn a_taken_range_has_a_place_in_its_segment() {
    let mut segments = segments();
    segments.add_whole("one", 1000);
    segments.add(0, "two", 1000, 300).unwrap();
    let range = segments.take(0, 200, |_| true).unwrap().range;
    let place = segments.place_of(range);
    let place = place.map(|(segment, region)| (*segment, region));
    assert_eq!(place, Some(("two", Region::new(300, 200))));
}

#[test]
fn a_range_is_ready_if_it_has_its_view_and_no_other() {
    let mut segments = segments();
    let carved = segments.add(0, "one", 1000, 400).unwrap();
    assert!(!is_ready(&carved), "no view");
    segments.give(carved.range, 0, Some("400 bytes"));
    let again = segments.take(0, 400, |_| true).unwrap();
    assert!(is_ready(&again));
    segments.give(again.range, 0, again.view);
    let part = segments.take(0, 100, |_| true).unwrap();
    assert_eq!(
        (part.overlapping.as_slice(), part.has_excess),
        (&["400 bytes"][..], true)
    );
    assert!(!is_ready(&part), "a view that has to go");
}

#[test]
fn uses_keep_neighbours_apart_until_they_are_over() {
    let mut segments = segments();
    let first = segments.add(0, "one", 200, 100).unwrap();
    let second = segments.take(0, 100, |_| true).unwrap();
    segments.give(first.range, 1, None);
    segments.give(second.range, 2, None);
    assert!(segments.take_anywhere(200, |_| true).is_none());
    segments.settle(|queue| *queue > 0);
    assert!(segments.take_anywhere(200, |queue| *queue == 0).is_some());
}

#[test]
fn a_view_may_be_cached_where_a_segment_has_few() {
    let mut segments = segments();
    let first = segments.add(0, "one", 1000, 10).unwrap();
    let few = if cfg!(any(shuttle, miri)) { 1 } else { 64 };
    for taken in 1..100 {
        assert_eq!(segments.may_keep_view(first.range), taken <= few, "{taken}");
        segments.take(0, 10, |_| true).unwrap();
    }
}

#[test]
fn the_least_idle_segment_that_is_enough_makes_room_or_else_the_largest() {
    // After 100 MiB, there may be 110 MiB.
    let cases: [(_, &[_]); 7] = [
        (40, &[]),
        (41, &["10"]),
        (50, &["10"]),
        (51, &["20"]),
        (70, &["40"]),
        (90, &["40", "10"]),
        (100, &["40", "20"]),
    ];
    for (mib, expected) in cases {
        let mut segments = after(100);
        for (name, mib) in [("20", 20), ("40", 40), ("10", 10)] {
            segments.add_idle(name, mib * MIB);
        }
        let (size, leaving) = segments.growth(mib * MIB, 1);
        assert_eq!((size, leaving.as_slice()), (mib * MIB, expected));
    }
}

#[test]
fn a_segment_is_no_larger_than_what_the_device_has_left() {
    let left = |bytes: usize, alignment| {
        let mut segments = segments();
        segments.add_whole("in use", 8 * MIB);
        let capacity = (8 * MIB + bytes) as u64;
        let in_use = 20 * MIB as u64;
        segments.grow(0, MIB, in_use, alignment, capacity).0
    };
    assert_eq!(left(4 * MIB, 256), 2 * MIB);
    assert_eq!(left(MIB + 1000, 1), MIB + 1000);
    assert_eq!(left(MIB + 1000, 256), MIB + 768);
    // A segment that may be refused, or not.
    assert_eq!(left(0, 256), MIB);
}

#[test]
fn idle_segments_go_sooner_where_others_have_most_of_the_device() {
    // Memory is tight below twice the high water: these segments, and what is free.
    for (free, leaving) in [(140, 0), (139, 1)] {
        let mut segments = after(100).with_growth(GrowthPolicy::Balanced);
        segments.growth(100 * MIB, 1);
        segments.add_idle("idle", 60 * MIB);
        segments.note_free((free * MIB) as u64);
        assert_eq!(
            segments.growth(50 * MIB, 1).1.len(),
            leaving,
            "{free} MiB free"
        );
    }
}

#[test]
fn what_was_refused_is_not_tried_again_while_idle_segments_can_go_first() {
    let growth = |refused: Option<usize>| {
        let mut segments = after(100);
        segments.add_whole("in use", 50 * MIB);
        segments.add_idle("idle", 10 * MIB);
        if let Some(mib) = refused {
            segments.refuse(mib * MIB);
        }
        segments.growth(20 * MIB, 1).1
    };
    assert!(growth(None).is_empty());
    assert!(growth(Some(21)).is_empty());
    assert_eq!(growth(Some(20)), ["idle"]);
}

/// A program that requests blocks and gives them back, each of this many MiB and by itself.
#[derive(Debug)]
struct Program {
    segments: Segments<&'static str, Queue>,
    /// How often it asked for a segment.
    asked: usize,
    /// The blocks of a round.
    live: Vec<RangeKey>,
}

impl Program {
    fn new(policy: GrowthPolicy) -> Self {
        Self {
            segments: segments().with_growth(policy),
            asked: 0,
            live: Vec::new(),
        }
    }

    /// Returns how many segments one pass over the sizes asks for.
    fn pass(&mut self, sizes: impl IntoIterator<Item = usize>) -> usize {
        let before = self.asked;
        for mib in sizes {
            let carved = self.carve(mib * MIB);
            self.segments.give(carved.range, 0, None);
        }
        self.asked - before
    }

    fn carve(&mut self, bytes: usize) -> Carved<&'static str, Queue> {
        let segments = &mut self.segments;
        drop(segments.take_unneeded(0, |_| true));
        if let Some((plan, _)) = join(segments, bytes, 1, usize::MAX) {
            segments.add_planned(plan, "planned");
            self.asked += 1;
        }
        if let Some(carved) = segments.take(0, bytes, |_| true) {
            return carved;
        }
        let (size, _) = segments.growth(bytes, 1);
        self.asked += 1;
        segments.add(0, "segment", size, bytes).unwrap()
    }

    fn mib(&self) -> u64 {
        self.segments.bytes() / MIB as u64
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes, for numbers alone")]
fn sizes_that_rise_again_and_again_replace_segments_and_are_planned_once() {
    let mut three = Program::new(GrowthPolicy::Balanced);
    let asked: Vec<_> = (0..20).map(|_| three.pass([64, 96, 160])).collect();
    assert!(
        asked[0] > 0 && asked[3..].iter().all(|asked| *asked == 0),
        "{asked:?}"
    );
    let mut many = Program::new(GrowthPolicy::Balanced);
    let asked: Vec<_> = (0..20).map(|_| many.pass(1..=100)).collect();
    assert!(
        asked[0] > 0 && asked[3..].iter().all(|asked| *asked == 0),
        "{asked:?}"
    );
    // The densest policy has little more than is in use, however often that costs a call.
    let mut dense = Program::new(GrowthPolicy::Dense);
    for _ in 0..20 {
        assert!(dense.pass([64, 96, 160]) >= 2);
        assert!(dense.mib() <= 162, "{} MiB", dense.mib());
    }
}

impl Program {
    /// One round of blocks of these MiB: each is taken, and given back two later, or at the end. Returns where they were.
    fn round(&mut self, sizes: &[usize]) -> Vec<(RangeKey, Region)> {
        let carved: Vec<_> = sizes
            .iter()
            .enumerate()
            .map(|(number, mib)| {
                let carved = self.carve(mib * MIB);
                let place = (carved.range, carved.region);
                if let Some(gone) = number.checked_sub(2) {
                    self.live.push(place.0);
                    let gone = self.live[gone];
                    self.segments.give(gone, 0, None);
                } else {
                    self.live.push(place.0);
                }
                place
            })
            .collect();
        for range in self.live.drain(..).skip(sizes.len() - 2) {
            self.segments.give(range, 0, None);
        }
        carved
    }
}

#[test]
fn a_planned_block_lies_where_it_lay_in_the_last_period() {
    let mut program = Program::new(GrowthPolicy::Balanced);
    let mut sizes: Vec<usize> = (0..24).map(|number| 7 * number * number % 61 + 5).collect();
    for _ in 0..8 {
        program.round(&sizes);
    }
    let asked = program.asked;
    let places = |program: &mut Program, sizes: &[usize]| {
        let carved = program.round(sizes).into_iter();
        carved.map(|(_, region)| region).collect::<Vec<_>>()
    };
    let before = places(&mut program, &sizes);
    assert_eq!(places(&mut program, &sizes), before);
    // Little more than the three that live at once.
    let most = sizes
        .windows(3)
        .map(|three| three.iter().sum::<usize>())
        .max();
    assert!(program.mib() <= most.unwrap() as u64 * 104 / 100);
    // One of another size changes nothing for the others.
    let former = std::mem::replace(&mut sizes[7], 1);
    let deviating = places(&mut program, &sizes);
    assert_eq!(deviating[..7], before[..7]);
    assert_eq!(deviating[12..], before[12..]);
    sizes[7] = former;
    assert_eq!(places(&mut program, &sizes), before);
    assert_eq!(program.asked, asked);
}

/// Segments with two idle ones of 60 MiB, at a low point of a program that has had two blocks of 50 MiB at once.
fn at_a_low_point() -> Segments<&'static str, Queue> {
    let mut segments = segments();
    segments.add_idle("one", 60 * MIB);
    segments.add_idle("two", 60 * MIB);
    for _ in 0..4 {
        let blocks = [(); 2].map(|()| segments.take_anywhere(50 * MIB, |_| true).unwrap());
        for block in blocks {
            segments.give(block.range, 0, None);
        }
    }
    assert!(segments.is_at_low_point(0, 20 * MIB));
    segments
}

#[test]
fn at_a_low_point_the_segment_of_a_plan_takes_the_place_of_idle_ones_that_have_more() {
    let mut segments = at_a_low_point();
    // What is small does not wait for it.
    assert!(!segments.is_at_low_point(0, 1));
    assert!(segments.take(0, 20 * MIB, |_| true).is_none());
    assert!(segments.arenas().take(0, 20 * MIB, |_| true).is_none());
    let (plan, leaving) = join(&mut segments, 20 * MIB, 1, usize::MAX).unwrap();
    assert_eq!(
        (plan.bytes, names(&leaving)),
        (100 * MIB, vec!["one", "two"])
    );
    // Meanwhile, another thread adds a segment of its own.
    segments.add_idle("own", 100 * MIB);
    assert_eq!(segments.planned(), Planned::default());
    segments.add_planned(plan, "joined");
    assert_eq!(segments.planned().bytes, 100 * MIB as u64);
    let block = segments.take(0, 50 * MIB, |_| true).unwrap();
    assert_eq!(*segments.place_of(block.range).unwrap().0, "joined");
    // A block that is larger than all before has room in it.
    let (plan, _) = join(&mut at_a_low_point(), 110 * MIB, 1, usize::MAX).unwrap();
    assert_eq!(plan.bytes, 110 * MIB);
}

#[test]
fn a_plan_for_which_the_allocator_has_no_segment_is_not_made() {
    let mut segments = at_a_low_point();
    assert!(join(&mut segments, MIB, MIB, 99 * MIB).is_none());
    assert_eq!(segments.bytes(), 120 * MIB as u64);
    // The device refuses it: the next segment has the place of no plan.
    let mut segments = at_a_low_point();
    let (plan, _) = join(&mut segments, 50 * MIB, 1, usize::MAX).unwrap();
    segments.refuse(plan.bytes);
    drop(plan);
    segments.add(0, "own", 50 * MIB, 50 * MIB).unwrap();
    assert!(!segments.watches_carves(0));
}

#[test]
fn an_arena_without_segments_forgets_its_low_points() {
    let mut segments = at_a_low_point();
    assert_eq!(segments.release(u64::MAX, |_| true).len(), 2);
    assert!(!segments.is_at_low_point(0, 20 * MIB));
}

#[test]
fn idle_segments_stay_where_memory_is_tight_or_has_to_stay() {
    let mut kept = at_a_low_point();
    kept.keep_addresses(true);
    let mut tight = at_a_low_point();
    tight.grow(0, MIB, 100 * MIB as u64, 1, 100 * MIB as u64);
    for mut segments in [kept, tight] {
        let before = segments.bytes();
        assert!(join(&mut segments, MIB, 1, usize::MAX).is_none());
        assert_eq!(segments.bytes(), before);
        assert!(segments.take(0, 55 * MIB, |_| true).is_some());
    }
}

#[test]
fn neighbours_stay_apart_from_when_it_is_said() {
    let mut segments = segments().with_arenas(2);
    let halves = |segments: &mut Segments<&'static str, Queue>, home, queues: [Queue; 2]| {
        let first = segments.add(home, "one", 4000, 2000).unwrap();
        let second = segments.take_anywhere(2000, |_| true).unwrap();
        segments.give(first.range, queues[0], None);
        segments.give(second.range, queues[1], None);
    };
    halves(&mut segments, 0, [1, 1]);
    assert_eq!(segments.largest_free(), 4000);
    segments.set_join(|one, two| (one == two && *one != 1).then_some(*one));
    // What is one range stays one.
    assert_eq!(segments.largest_free(), 4000);
    assert_eq!(segments.release(u64::MAX, |_| true).len(), 1);
    for home in [0, 1] {
        halves(&mut segments, home, [1, 1]);
        assert_eq!(segments.largest_free(), 2000, "arena {home}");
        segments.settle(|queue| *queue == 1);
        assert_eq!(segments.largest_free(), 4000, "arena {home}");
        assert_eq!(segments.release(u64::MAX, |_| true).len(), 1);
    }
}

#[test]
fn an_arena_grows_where_little_of_the_others_is_free_and_takes_from_them_where_much_is() {
    let mut segments = after(100).with_arenas(2);
    let first = segments.add(0, "zero", 100 * MIB, 80 * MIB).unwrap();
    // Together they may have 110 MiB before one takes from the other.
    assert!(segments.take(1, 10 * MIB, |_| true).is_none());
    let arenas = segments.arenas();
    assert!(arenas.take(1, 10 * MIB, |_| true).is_none());
    assert!(segments.take(0, 10 * MIB, |_| true).is_some());
    segments.give(first.range, 0, None);
    let taken = segments.take(1, 40 * MIB, |_| true).unwrap();
    assert_eq!(*taken.segment, "zero");
    // The same for a thread that has only the arenas.
    assert!(arenas.take(1, 10 * MIB, |_| true).is_some());
    let own = segments.add(1, "one", 20 * MIB, 20 * MIB).unwrap();
    assert_eq!(*own.segment, "one");
    let most = segments.take(1, 20 * MIB, |_| true).unwrap();
    assert_eq!(*most.segment, "zero", "the limit is reached");
}

#[test]
fn an_arena_takes_from_others_once_all_have_reached_their_limit() {
    // Together they may have 110 MiB, and less than a quarter of them is free.
    for (own, takes) in [(9 * MIB, false), (10 * MIB, true)] {
        let mut segments = after(100).with_arenas(2);
        segments.add(0, "zero", 100 * MIB, 90 * MIB).unwrap();
        segments.add(1, "one", own, own).unwrap();
        let taken = segments.take(1, 10 * MIB, |_| true);
        assert_eq!(taken.is_some(), takes, "{own} bytes of its own");
    }
}

#[test]
fn an_arena_that_may_grow_is_searched_itself() {
    for home in [0, 2] {
        let mut segments = after(100).with_arenas(2);
        segments.add(0, "zero", 90 * MIB, 80 * MIB).unwrap();
        segments.add(1, "one", 20 * MIB, 20 * MIB).unwrap();
        let taken = segments.take(home, 10 * MIB, |_| true);
        assert_eq!(taken.map(|taken| *taken.segment), Some("zero"));
    }
}

#[test]
fn homes_beyond_the_last_arena_go_round() {
    let mut segments = segments().with_arenas(2);
    segments.add(2, "zero", 3000, 1000).unwrap();
    segments.add(3, "one", 3000, 1000).unwrap();
    let arenas = segments.arenas();
    let found = [0, 1, 2, 3].map(|home| *arenas.take(home, 1000, |_| true).unwrap().segment);
    assert_eq!(found, ["zero", "one", "zero", "one"]);
}

#[test]
fn threads_find_nothing_once_the_segments_are_dropped() {
    let mut segments = segments();
    segments.add(0, "one", 3000, 1000).unwrap();
    let arenas = segments.arenas();
    assert!(arenas.take(0, 1000, |_| true).is_some());
    drop(segments);
    assert!(arenas.take(0, 1000, |_| true).is_none());
}

#[test]
fn an_arena_grows_like_a_program_of_its_part_of_the_segments() {
    let mut segments = after(1000).with_arenas(3);
    segments.add(0, "zero", 750 * MIB, 750 * MIB).unwrap();
    segments.add(1, "one", 250 * MIB, 250 * MIB).unwrap();
    let small = [0, 1, 2].map(|home| segments.small_bytes(home));
    assert_eq!(small, [152 * KIB, 56 * KIB, 8 * KIB]);
    let programs = [after(750), after(250), self::segments()];
    let as_a_program = programs.map(|segments| segments.small_bytes(0));
    assert_eq!(small, as_a_program);
}

#[test]
fn the_segments_of_all_arenas_count_and_go_together() {
    let mut segments = after(1).with_arenas(2);
    let [one, two] = [0, 1].map(|home| {
        let name = ["zero", "one"][home];
        segments.add(home, name, 10 * MIB, MIB).unwrap().range
    });
    assert_eq!(segments.bytes(), 20 * MIB as u64);
    assert_eq!(segments.free_bytes(), 18 * MIB as u64);
    segments.give(one, 1, None);
    segments.give(two, 2, None);
    assert_eq!(segments.idle_bytes(), 20 * MIB as u64);
    segments.settle(|queue| *queue == 2);
    assert_eq!(names(&segments.release(1, |queue| *queue == 0)), ["one"]);
    assert_eq!(names(&segments.release(u64::MAX, |_| true)), ["zero"]);
    assert_eq!((segments.bytes(), segments.free_bytes()), (0, 0));
}

#[test]
fn the_largest_idle_segments_are_released_until_they_are_enough() {
    let mut segments = segments();
    for (memory, mib) in [("one", 1), ("two", 2), ("three", 3)] {
        segments.add_idle(memory, mib * MIB);
    }
    let leaving = segments.release(4 * MIB as u64, |_| true);
    assert_eq!(names(&leaving), ["three", "two"]);
}

#[test]
fn segments_consist_of_pages_only_where_that_is_said() {
    assert!(!segments().has_pages());
    assert!(segments().with_pages(PAGE).has_pages());
}

/// An arena with a reservation, in which there are blocks of this many pages, one after the other.
fn with_blocks_of<const N: usize>(
    pages: [usize; N],
) -> (Arena<&'static str, Queue>, [RangeKey; N]) {
    let mut arena = Arena::new(0, |one, two| (one == two).then_some(*one));
    arena.add_reservation("addresses", 100 * PAGE, false);
    let blocks = pages.map(|pages| {
        let taken = arena.take_incomplete(pages * PAGE, false, PAGE, |_| true);
        taken.unwrap().range
    });
    (arena, blocks)
}

#[test]
fn a_reservation_whose_mapped_parts_are_apart_has_a_state_for_each() {
    let (mut arena, [_, second, third, _]) = with_blocks_of([1, 2, 3, 4]);
    arena.make_hole(second);
    arena.give(third, 5, None);
    let parts = arena.segments().map(|part| {
        let ranges = part.ranges.into_iter().map(|(region, state)| match state {
            RangeState::Free(queue) => (region, Some(*queue)),
            RangeState::Taken(_) => (region, None),
        });
        (*part.memory, ranges.collect())
    });
    let expected: [(_, Vec<_>); 2] = [
        ("addresses", vec![(Region::first(PAGE), None)]),
        (
            "addresses",
            vec![
                (Region::first(3 * PAGE), Some(5)),
                (Region::new(3 * PAGE, 4 * PAGE), None),
            ],
        ),
    ];
    assert_eq!(parts.collect::<Vec<_>>(), expected);
}

#[test]
fn addresses_that_pages_have_left_are_in_no_state() {
    let (mut arena, [_, second]) = with_blocks_of([1, 2]);
    let bytes = |arena: &Arena<&'static str, Queue>| {
        let ranges = arena.segments().flat_map(|part| part.ranges);
        ranges.map(|(region, _)| region.bytes).sum::<usize>()
    };
    assert_eq!(bytes(&arena), 3 * PAGE);
    arena.set_stale(second);
    assert_eq!(bytes(&arena), PAGE);
}

/// Two pages as a whole.
const TWO_PAGES: Pages<&str> = Pages {
    bytes: 2 * PAGE,
    memory: "pages",
};

#[test]
fn each_pages_visits_what_is_mapped_with_its_place() {
    let segments = segments().with_pages(PAGE);
    let (mut arena, [_, _block]) = with_blocks_of([1, 2]);
    arena.add_pages(false, PAGE, TWO_PAGES);
    *segments.arenas.to_add(0) = arena;
    let mut mapped = Vec::new();
    segments.each_pages(|reservation, region| mapped.push((*reservation, region)));
    assert_eq!(mapped, [("addresses", Region::new(PAGE, 2 * PAGE))]);
}

#[test]
fn the_pages_that_have_been_free_longest_come_first_and_of_these_the_largest() {
    let segments = segments().with_pages(PAGE);
    let (mut arena, [recent, _, oldest, _]) = with_blocks_of([2, 1, 3, 1]);
    for (offset, pages) in [(0, 2), (3, 1), (4, 2)] {
        let bytes = pages * PAGE;
        let memory = "pages";
        arena.add_pages(false, offset * PAGE, Pages { bytes, memory });
    }
    arena.give(oldest, 0, None);
    arena.give(recent, 0, None);
    *segments.arenas.to_add(0) = arena;
    let free = segments.free_pages(&|_| true);
    let offsets: Vec<_> = free.iter().map(|free| free.offset / PAGE).collect();
    assert_eq!(offsets, [4, 3, 0]);
}

#[test]
fn free_pages_are_taken_from_where_they_are_mapped() {
    let (mut arena, [_, block]) = with_blocks_of([1, 2]);
    arena.add_pages(false, PAGE, TWO_PAGES);
    arena.give(block, 3, None);
    let free = arena.free_pages(PAGE, &|_| true);
    let (place, memory, queue) = arena.take_pages(free[0], &|_| true).unwrap();
    assert_eq!((memory, queue), ("pages", 3));
    let region = Region::new(PAGE, 2 * PAGE);
    assert_eq!(
        (*place.reservation(), place.region()),
        ("addresses", region)
    );
}
