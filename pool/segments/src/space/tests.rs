//! Ranges never overlap, nothing is lost, a range that fits is found, and a view serves exactly its own bytes.

#![allow(clippy::unwrap_used, reason = "a failing test panics")]

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::{BySize, Location, RangeNumber, SegmentKey, Space, Taken};
use binpool_allocators::Region;

/// The queue that a range was used on, 0 for none. Two neighbours may be joined if they name at most one queue.
type Queue = u8;

/// Views are known by the bytes that they show.
type View = (usize, Region);

const PAGE: usize = 10;

fn space() -> Space<View, Queue> {
    Space::new(|one, two| (one == two || *one == 0 || *two == 0).then_some(*one.max(two)))
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "uses are passed by reference, whatever they are"
)]
fn anywhere(_: &Queue, _: Location) -> bool {
    true
}

fn view(taken: &Taken<View, Queue>) -> View {
    (taken.segment, taken.region)
}

/// Does what a caller that takes a range must do before using it.
fn settle_in(space: &mut Space<View, Queue>, taken: &mut Taken<View, Queue>) {
    taken.overlapping.clear();
    if std::mem::take(&mut taken.has_excess) {
        space.shrink(taken.range, taken.region, taken.uses);
    }
}

fn take(space: &mut Space<View, Queue>, bytes: usize) -> Taken<View, Queue> {
    let mut taken = space.take(bytes, None, true, anywhere).unwrap();
    settle_in(space, &mut taken);
    taken
}

fn with_segments<const N: usize>(segments: [usize; N]) -> Space<View, Queue> {
    let mut space = space();
    for bytes in segments {
        space.add(bytes, false);
    }
    space
}

/// Checks the promises about ranges (S1 to S3, S5) and the counts, given the ranges in use and the cached views.
fn check(space: &Space<View, Queue>, live: &[View], cached: &[View]) {
    let (mut free, mut holes) = (Vec::new(), BTreeSet::new());
    for (key, segment) in &space.segments {
        let (mut end, mut before, mut apart_from) = (0, None, None);
        for (name, range) in space.ranges_of(key) {
            assert!(range.region.bytes > 0, "an empty range: {range:?}");
            assert_eq!((range.segment, range.is_small), (key, segment.is_small));
            assert_eq!((range.region.offset, range.before), (end, before));
            let uses = range.free.as_ref().map(|free| free.uses);
            let join = apart_from
                .zip(uses)
                .and_then(|(one, two)| (space.join)(&one, &two));
            assert_eq!(join, None, "neighbours that could be one: {range:?}");
            free.extend(uses.map(|_| (range.region.bytes, name)));
            holes.extend(range.is_hole.then_some((key, name)));
            (end, before, apart_from) = (end + range.region.bytes, Some(name), uses);
        }
        assert_eq!(end, segment.bytes);
        let of_segment = |view: &&View| view.0 == key;
        let live = live.iter().filter(of_segment);
        let cached = cached.iter().filter(of_segment);
        assert_eq!(
            (segment.taken, segment.cached),
            (live.count(), cached.count())
        );
    }
    free.sort_unstable();
    let mut known: Vec<_> = space.free.iter().flat_map(BySize::iter).collect();
    known.sort_unstable();
    assert_eq!((known, &space.holes), (free, &holes));
}

#[test]
fn free_neighbours_are_joined() {
    let mut space = with_segments([1000]);
    let taken = [300, 400, 300].map(|bytes| take(&mut space, bytes));
    assert_eq!(space.free_bytes(), 0);
    for index in [0, 2, 1] {
        space.give(taken[index].range, 0, None);
    }
    assert_eq!((space.largest_free(), space.idle().count()), (1000, 1));
}

#[test]
fn the_smallest_range_that_fits_is_taken() {
    let mut space = with_segments([500, 200, 300]);
    let taken = take(&mut space, 250);
    assert_eq!((taken.segment, taken.region.offset), (2, 0));
    assert_eq!(space.largest_free(), 500);
}

#[test]
fn small_blocks_lie_apart_unless_any_place_will_do() {
    let mut space = space();
    for (bytes, is_small) in [(100, false), (200, true)] {
        space.add(bytes, is_small);
    }
    assert_eq!(space.largest_free(), 200);
    assert!(space.take(150, Some(false), true, anywhere).is_none());
    let mut large = space.take(50, Some(false), true, anywhere).unwrap();
    settle_in(&mut space, &mut large);
    space.give(large.range, 0, Some(view(&large)));
    // Neither the smallest range that fits nor the cached view is for small blocks.
    let small = space.take(50, Some(true), true, anywhere).unwrap();
    assert_eq!((small.segment, small.view), (1, None));
    let any = space.take(50, None, true, anywhere).unwrap();
    assert_eq!((any.segment, any.view), (0, Some(view(&large))));
    assert!(space.take(150, None, true, anywhere).is_some());
}

#[test]
fn different_queues_keep_neighbours_apart_until_they_have_finished() {
    let mut space = with_segments([200]);
    let [one, two] = [(); 2].map(|()| take(&mut space, 100));
    space.give(one.range, 1, None);
    space.give(two.range, 2, None);
    assert_eq!(space.largest_free(), 100);
    assert!(
        space
            .take(100, None, true, |queue, _| *queue == 0)
            .is_none()
    );
    space.settle(|queue| *queue == 1);
    assert_eq!(space.largest_free(), 200, "one queue is left");
    space.settle(|_| true);
    let whole = |queue: &Queue, location: Location| *queue == 0 && location.whole == Some(200);
    assert!(space.take(200, None, true, whole).is_some());
}

#[test]
fn a_segment_is_idle_though_different_queues_used_its_ranges() {
    let mut space = with_segments([200]);
    let [one, two] = [(); 2].map(|()| take(&mut space, 100));
    space.give(one.range, 1, None);
    assert_eq!((space.idle().count(), space.remove(0)), (0, None));
    space.give(two.range, 2, None);
    assert_eq!(space.idle().count(), 1);
    assert_eq!(space.remove(0), Some((vec![1, 2], vec![])));
    assert_eq!((space.free_bytes(), space.largest_free()), (0, 0));
}

#[test]
fn a_cached_view_serves_the_next_block_of_its_place_and_size() {
    let mut space = with_segments([1000]);
    let [one, two, three] = [100, 200, 100].map(|bytes| take(&mut space, bytes));
    for taken in [&one, &two] {
        space.give(taken.range, 0, Some(view(taken)));
    }
    // The free range before the third block is one of 300 bytes, with both views in it.
    let again = take(&mut space, 100);
    assert_eq!((again.region, again.view), (one.region, Some(view(&one))));
    check(&space, &[view(&one), view(&three)], &[view(&two)]);
    space.give(again.range, 0, None);
    space.give(three.range, 0, None);
    assert_eq!(space.remove(0), Some((vec![0], vec![view(&two)])));
}

#[test]
fn a_view_that_overlaps_goes_before_the_range_behind_it_is_free() {
    let mut space = with_segments([400]);
    let taken = take(&mut space, 300);
    space.give(taken.range, 0, Some(view(&taken)));
    let mut part = space.take(100, None, true, anywhere).unwrap();
    assert_eq!(part.overlapping, [view(&taken)]);
    assert_eq!((space.free_bytes(), part.has_excess), (100, true));
    settle_in(&mut space, &mut part);
    assert_eq!((space.free_bytes(), space.largest_free()), (300, 300));
}

#[test]
fn a_place_is_found_from_wherever_the_search_begins_and_only_if_all_of_it_is_free() {
    let mut space = with_segments([1000, 500]);
    let blocks = [200, 100, 300].map(|bytes| {
        let mut taken = space.take(bytes, None, true, |_, it| it.whole != Some(500));
        taken.take().unwrap()
    });
    space.give(blocks[1].range, 0, None);
    let segment = blocks[0].segment;
    let (hole, end) = (
        blocks[1].range,
        space.ranges[blocks[2].range].after.unwrap(),
    );
    let beside = space.segments[1 - segment].first;
    let gone = blocks[1].range + 100;
    for last in [
        None,
        Some(hole),
        Some(end),
        Some(blocks[2].range),
        Some(beside),
        Some(gone),
    ] {
        let at = |offset, bytes| space.free_at(last, segment, Region::new(offset, bytes));
        assert_eq!((at(200, 100), at(250, 50)), (Some(hole), Some(hole)));
        assert_eq!((at(600, 400), at(700, 1)), (Some(end), Some(end)));
        assert_eq!(
            (at(200, 101), at(100, 10), at(900, 101)),
            (None, None, None)
        );
        assert_eq!(at(1000, 1), None);
    }
}

#[test]
fn a_range_that_is_taken_ready_counts_as_taken() {
    let mut space = with_segments([400]);
    let taken = space.take_ready(300, false, anywhere).unwrap();
    assert_eq!(taken.region, Region::first(300));
    check(&space, &[(taken.segment, taken.region)], &[]);
}

#[test]
fn a_range_is_taken_ready_up_to_the_first_cached_view_of_it() {
    let mut space = with_segments([1000]);
    let [_, lead, shown] = [200, 100, 150].map(|bytes| take(&mut space, bytes));
    space.give(shown.range, 0, Some(view(&shown)));
    space.give(lead.range, 0, None);
    let mut ready = |bytes| {
        let taken = space.take_ready(bytes, false, anywhere)?;
        Some((taken.region, taken.view))
    };
    assert_eq!(ready(101), None);
    assert_eq!(ready(100), Some((lead.region, None)));
}

#[test]
fn a_range_that_has_no_more_than_it_keeps_stays_as_it_is() {
    let mut space = with_segments([400]);
    let taken = [300, 100].map(|bytes| take(&mut space, bytes));
    for taken in &taken {
        space.shrink(taken.range, taken.region, 0);
    }
    check(&space, &taken.each_ref().map(view), &[]);
}

#[test]
fn a_view_elsewhere_than_at_the_start_of_the_smallest_range_is_left_alone() {
    // In a larger segment, and at the end of the same one.
    for (segments, shown) in [([1000, 120], 1000), ([1000, 1100], 900)] {
        let mut space = with_segments(segments);
        let one = space.take(shown, None, true, |_, at| {
            at.whole.is_none_or(|whole| whole == 1000)
        });
        let one = one.unwrap();
        let rest = (shown < 1000).then(|| take(&mut space, 100));
        let kept = rest.as_ref().unwrap_or(&one);
        space.give(kept.range, 0, Some(view(kept)));
        if rest.is_some() {
            space.give(one.range, 0, None);
        }
        let tight = take(&mut space, 100);
        assert_eq!((tight.region.offset, tight.view), (0, None));
    }
}

#[test]
fn a_segment_keeps_few_views() {
    let mut space = with_segments([1000]);
    let taken: Vec<_> = (0..200).map(|_| take(&mut space, 5)).collect();
    let mut cached = 0;
    for taken in &taken {
        let view = space.may_cache(taken.range).then(|| view(taken));
        cached += usize::from(view.is_some());
        space.give(taken.range, 0, view);
    }
    assert_eq!(cached, super::MOST_VIEWS);
    assert_eq!(space.remove(0).unwrap().1.len(), cached);
}

/// What a step of a program does.
#[derive(Clone, Copy, Debug)]
enum Step {
    Take(usize),
    /// Gives the range at this index back, used on this queue, with or without its view to be cached.
    Give(usize, Queue, bool),
    Settle,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (1..120_usize).prop_map(Step::Take),
        // Few sizes, so that cached views serve.
        2 => prop::sample::select(vec![16, 24, 40]).prop_map(Step::Take),
        4 => (any::<usize>(), 0..3_u8, any::<bool>())
            .prop_map(|(index, queue, keep)| Step::Give(index, queue, keep)),
        1 => Just(Step::Settle),
    ]
}

/// The bytes of all segments: taken or free, with the queue that keeps them from their next user.
struct Map(Vec<Vec<Option<Queue>>>);

impl Map {
    fn of(&mut self, (segment, region): View) -> &mut [Option<Queue>] {
        &mut self.0[segment][region.offset..region.offset + region.bytes]
    }

    /// Returns whether there are `bytes` free bytes in a row that no two queues keep apart.
    fn has_a_run_of(&self, bytes: usize) -> bool {
        self.0.iter().any(|segment| {
            segment.windows(bytes).any(|window| {
                let mut queues = window.iter().map(|byte| byte.filter(|queue| *queue > 0));
                window.iter().all(Option::is_some)
                    && queues.all(|queue| queue.is_none_or(|queue| queue == 1))
            })
        })
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(1000), ..ProptestConfig::default() })]

    /// Compares with a map of bytes: a taken range overlaps no other and has the requested bytes; a range that is free for the
    /// first queue is found; views are handed out for their own bytes, overlap no live view, and are not lost.
    #[test]
    #[cfg_attr(miri, ignore = "takes minutes, for numbers alone")]
    fn the_space_is_a_map_of_bytes(
        segments in prop::collection::vec(1..200_usize, 1..4),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut space = space();
        let mut map = Map(Vec::new());
        for bytes in &segments {
            prop_assert_eq!(space.add(*bytes, false), map.0.len());
            map.0.push(vec![Some(0); *bytes]);
        }
        let mut live: Vec<(Taken<View, Queue>, View)> = Vec::new();
        // The live views: those of taken ranges, and the cached ones.
        let mut cached: Vec<View> = Vec::new();
        for step in steps {
            match step {
                Step::Take(bytes) => {
                    let expected = map.has_a_run_of(bytes);
                    let taken = space.take(bytes, None, true, |queue, _| *queue <= 1);
                    // Ranges of the other queue may hide free bytes at their edges until they have been settled.
                    prop_assert!(taken.is_none() || expected);
                    if map.0.iter().flatten().all(|byte| byte.is_none_or(|queue| queue <= 1)) {
                        prop_assert_eq!(taken.is_some(), expected);
                    }
                    let Some(mut taken) = taken else { continue };
                    for view in taken.overlapping.iter().chain(&taken.view) {
                        let index = cached.iter().position(|cached| cached == view);
                        prop_assert!(index.is_some(), "{view:?} was not cached");
                        cached.swap_remove(index.unwrap());
                    }
                    settle_in(&mut space, &mut taken);
                    prop_assert_eq!(taken.region.bytes, bytes);
                    let view = view(&taken);
                    prop_assert!(taken.view.is_none_or(|cached| cached == view));
                    prop_assert!(map.of(view).iter().all(Option::is_some));
                    map.of(view).fill(None);
                    let overlaps = |other: &View| other.0 == view.0
                        && other.1.offset < view.1.offset + view.1.bytes
                        && view.1.offset < other.1.offset + other.1.bytes;
                    prop_assert!(!cached.iter().any(overlaps), "{view:?} among {cached:?}");
                    live.push((taken, view));
                }
                Step::Give(index, queue, keep) if !live.is_empty() => {
                    let (taken, view) = live.swap_remove(index % live.len());
                    map.of(view).fill(Some(queue));
                    cached.extend(keep.then_some(view));
                    space.give(taken.range, queue, keep.then_some(view));
                }
                Step::Give(..) => {}
                Step::Settle => {
                    space.settle(|_| true);
                    for byte in map.0.iter_mut().flatten() {
                        *byte = byte.map(|_| 0);
                    }
                }
            }
            let free = map.0.iter().flatten().filter(|byte| byte.is_some()).count();
            prop_assert_eq!(space.free_bytes(), free as u64);
            let in_use: Vec<View> = live.iter().map(|(_, view)| *view).collect();
            check(&space, &in_use, &cached);
        }
        for (taken, _) in live {
            space.give(taken.range, 0, None);
        }
        space.settle(|_| true);
        prop_assert_eq!(space.idle().count(), segments.len());
        let mut left: Vec<View> = Vec::new();
        for key in 0..segments.len() {
            let (queue, views) = space.remove(key).unwrap();
            prop_assert_eq!(queue, [0]);
            left.extend(views);
        }
        let in_order = |views: &mut Vec<View>| views.sort_by_key(|(segment, region)| (*segment, region.offset));
        in_order(&mut left);
        in_order(&mut cached);
        prop_assert_eq!(left, cached);
        prop_assert_eq!((space.free_bytes(), space.largest_free()), (0, 0));
    }
}

#[test]
fn holes_are_known_wherever_ranges_are_cut_and_joined() {
    let mut space = space();
    let reservation = space.add_reservation(100 * PAGE, false);
    let take = |space: &mut Space<View, Queue>, pages| {
        let taken = space.take_incomplete(reservation, pages * PAGE, PAGE, |_| true);
        taken.unwrap()
    };
    let first = take(&mut space, 10);
    let second = take(&mut space, 10);
    let third = take(&mut space, 10);
    let live = |count| vec![(reservation, Region::first(1)); count];
    check(&space, &live(3), &[]);
    // Two holes with what is mapped between them, and then one.
    let at = second.region.offset;
    let holes = [
        Region::new(at, 2 * PAGE),
        Region::new(at + 5 * PAGE, 5 * PAGE),
    ];
    space.give_incomplete(second.range, &holes, &0);
    check(&space, &live(2), &[]);
    assert_eq!(
        (space.holes.len(), space.free_bytes()),
        (3, 3 * PAGE as u64)
    );
    let free = space.free_ranges_of(reservation, PAGE, |_| true).next();
    let (range, region, _) = free.unwrap();
    let mapped = space.take_region(reservation, range, region, |_| true);
    check(&space, &live(3), &[]);
    space.make_hole(mapped.unwrap().0);
    check(&space, &live(2), &[]);
    assert_eq!(space.holes.len(), 2);
    for range in [first.range, third.range] {
        space.make_hole(range);
    }
    check(&space, &[], &[]);
    assert_eq!(space.holes.len(), 1);
}

/// A reservation to which ranges of this many pages are mapped, one after the other. All of them are taken.
fn with_pages<const N: usize>(
    pages: [usize; N],
) -> (Space<View, Queue>, SegmentKey, [RangeNumber; N]) {
    let mut space = space();
    let reservation = space.add_reservation(100 * PAGE, false);
    let ranges = pages.map(|pages| {
        let taken = space.take_incomplete(reservation, pages * PAGE, PAGE, |_| true);
        taken.unwrap().range
    });
    (space, reservation, ranges)
}

fn pages(from: usize, count: usize) -> Region {
    Region::new(from * PAGE, count * PAGE)
}

#[test]
fn the_free_ranges_of_a_reservation_are_its_own() {
    let (mut space, reservation, [_, second]) = with_pages([1, 2]);
    space.add(8 * PAGE, false);
    let free = |space: &Space<View, Queue>, over: bool| {
        let ranges = space.free_ranges_of(reservation, PAGE, |_| over);
        ranges.map(|(_, region, _)| region).collect::<Vec<_>>()
    };
    assert_eq!(free(&space, true), []);
    space.give(second, 3, None);
    assert_eq!(free(&space, true), [pages(1, 2)]);
    assert_eq!(free(&space, false), []);
}

#[test]
fn of_all_holes_the_one_is_taken_in_which_the_least_has_to_be_mapped() {
    let (mut space, reservation, [first, _, last]) = with_pages([2, 2, 1]);
    space.make_hole(first);
    space.give(last, 0, None);
    // The first hole has room for both pages, and before the second one there is a free page.
    let taken = space.take_incomplete(reservation, 2 * PAGE, PAGE, |_| true);
    let taken = taken.unwrap();
    assert_eq!((taken.region, taken.missing), (pages(4, 2), pages(5, 1)));
}

#[test]
fn of_equal_holes_the_one_is_taken_with_the_least_room_around_it() {
    let (mut space, reservation, [_, wide, free, _, narrow, _]) = with_pages([1, 3, 2, 1, 3, 1]);
    space.make_hole(wide);
    space.give(free, 0, None);
    space.make_hole(narrow);
    let taken = space.take_incomplete(reservation, 3 * PAGE, PAGE, |_| false);
    assert_eq!(taken.unwrap().region, pages(7, 3));
}

#[test]
fn of_a_free_range_after_a_hole_only_what_is_needed_is_taken() {
    let (mut space, reservation, [before, hole, after, _]) = with_pages([4, 2, 3, 1]);
    space.make_hole(hole);
    space.give(before, 0, None);
    space.give(after, 1, None);
    // The least is missing between both neighbours, which are more than enough together.
    let taken = space.take_incomplete(reservation, 8 * PAGE, PAGE, |_| true);
    let taken = taken.unwrap();
    let found = (taken.region, taken.missing, taken.uses);
    assert_eq!(found, (pages(0, 8), pages(4, 2), 1));
    let free = space.free_ranges_of(reservation, PAGE, |used| *used == 1);
    assert_eq!(
        free.map(|(_, region, _)| region).collect::<Vec<_>>(),
        [pages(8, 1)]
    );
}

#[test]
fn a_free_range_is_as_old_as_the_last_part_of_it_that_became_free() {
    let (mut space, reservation, [first, between, second, third]) = with_pages([2, 1, 2, 2]);
    let since = |space: &Space<View, Queue>| {
        let free = space.free_ranges_of(reservation, PAGE, |_| true);
        let mut free: Vec<_> = free.map(|(_, region, since)| (since, region)).collect();
        free.sort_unstable_by_key(|(since, _)| *since);
        free.into_iter()
            .map(|(_, region)| region)
            .collect::<Vec<_>>()
    };
    space.give(second, 0, None);
    space.give(first, 0, None);
    assert_eq!(since(&space), [pages(3, 2), pages(0, 2)]);
    space.give(third, 0, None);
    assert_eq!(since(&space), [pages(0, 2), pages(3, 4)]);
    let taken = space.take(PAGE, Some(false), false, |_, _| true).unwrap();
    assert_eq!(taken.region, pages(0, 1));
    assert_eq!(
        since(&space),
        [pages(1, 1), pages(3, 4)],
        "the rest is as old as before"
    );
    space.give(between, 0, None);
    assert_eq!(since(&space), [pages(1, 6)]);
}

#[test]
fn a_hole_is_filled_between_free_ranges_whose_uses_can_be_joined() {
    for (queues, region, missing, uses) in [
        ([1, 0], pages(0, 6), pages(2, 2), 1),
        ([1, 2], pages(4, 6), pages(6, 4), 2),
    ] {
        let (mut space, reservation, [before, hole, after]) = with_pages([2, 2, 2]);
        space.make_hole(hole);
        space.give(before, queues[0], None);
        space.give(after, queues[1], None);
        let taken = space.take_incomplete(reservation, 6 * PAGE, PAGE, |_| true);
        let taken = taken.unwrap();
        let found = (taken.region, taken.missing, taken.uses);
        assert_eq!(found, (region, missing, uses), "queues {queues:?}");
    }
}

#[test]
fn a_region_is_taken_if_all_of_it_is_free_and_its_uses_are_over() {
    let (mut space, reservation, [range, _]) = with_pages([4, 1]);
    space.give(range, 1, None);
    let mut take = |region, queue| {
        let taken = space.take_region(reservation, range, region, |used| *used == queue);
        taken.map(|(_, uses)| uses)
    };
    assert_eq!(take(pages(1, 2), 2), None, "queue 1 may still use it");
    assert_eq!(take(pages(3, 2), 1), None, "its last page is taken");
    assert_eq!(take(pages(1, 2), 1), Some(1));
}

/// What a step of a program on pages does.
#[derive(Clone, Copy, Debug)]
enum PageStep {
    /// Maps this many pages of a reservation, which are taken.
    Map(usize, usize),
    /// Makes the range at this index a hole.
    Unmap(usize),
    /// Gives the range at this index back, used on this queue.
    Give(usize, Queue),
    /// Takes this many bytes of neighbours that no queue used, or this one only.
    TakeRun(usize, Queue),
    /// Forgets the uses of this queue.
    Settle(Queue),
}

fn page_step() -> impl Strategy<Value = PageStep> {
    prop_oneof![
        3 => (0..3_usize, 1..5_usize).prop_map(|(of, pages)| PageStep::Map(of, pages)),
        1 => any::<usize>().prop_map(PageStep::Unmap),
        5 => (any::<usize>(), 0..3_u8).prop_map(|(index, queue)| PageStep::Give(index, queue)),
        4 => (1..60_usize, 0..3_u8).prop_map(|(bytes, queue)| PageStep::TakeRun(bytes, queue)),
        1 => (1..3_u8).prop_map(PageStep::Settle),
    ]
}

/// What a byte of a reservation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Byte {
    Hole,
    Taken,
    Free(Queue),
}

/// The runs of free bytes that no queue used or only this one, as far as they go.
fn runs(bytes: &[Byte], queue: Queue) -> Vec<Region> {
    let mut runs: Vec<Region> = Vec::new();
    let usable = |byte: &Byte| matches!(byte, Byte::Free(used) if [0, queue].contains(used));
    for offset in (0..bytes.len()).filter(|offset| usable(&bytes[*offset])) {
        match runs.last_mut() {
            Some(run) if run.offset + run.bytes == offset => run.bytes += 1,
            _ => runs.push(Region::new(offset, 1)),
        }
    }
    runs
}

/// The bytes of a segment as the space has them.
fn bytes_of(space: &Space<View, Queue>, segment: usize, bytes: usize) -> Vec<Byte> {
    let mut found = vec![Byte::Hole; bytes];
    for (_, region, uses) in space.states_of(segment) {
        let byte = uses.map_or(Byte::Taken, |queue| Byte::Free(*queue));
        found[region.offset..region.offset + region.bytes].fill(byte);
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(1000), ..ProptestConfig::default() })]

    /// Compares with a table of bytes: what is taken are the first bytes of neighbours that are free and usable, as few together as
    /// any that are enough; all other bytes are what they were; and nothing is taken only where there is no such run.
    #[test]
    #[cfg_attr(miri, ignore = "takes minutes, for numbers alone")]
    fn a_run_of_usable_neighbours_is_the_least_that_is_enough(
        steps in prop::collection::vec(page_step(), 1..80),
    ) {
        const BYTES: usize = 12 * PAGE;

        // Ranges of different queues, and unused ones, stay apart.
        let mut space: Space<View, Queue> = Space::new(|one, two| (one == two).then_some(*one));
        // Of a reservation for small blocks and of a segment, nothing is taken.
        let is_small = [false, false, true];
        let reservations = is_small.map(|is_small| space.add_reservation(BYTES, is_small));
        let segment = space.add(BYTES, false);
        let mut table = [(); 3].map(|()| vec![Byte::Hole; BYTES]);
        let mut live: Vec<(usize, View)> = Vec::new();
        for step in steps {
            match step {
                PageStep::Map(of, pages) => {
                    let bytes = pages * PAGE;
                    let mapped = space.take_incomplete(reservations[of], bytes, PAGE, |_| false);
                    let Some(mapped) = mapped else { continue };
                    prop_assert_eq!((mapped.region.bytes, mapped.missing), (bytes, mapped.region));
                    table[of][mapped.region.offset..][..bytes].fill(Byte::Taken);
                    live.push((mapped.range, (of, mapped.region)));
                }
                PageStep::Unmap(index) if !live.is_empty() => {
                    let (range, (of, region)) = live.swap_remove(index % live.len());
                    // Only whole pages are unmapped.
                    if region.offset % PAGE + region.bytes % PAGE == 0 {
                        space.make_hole(range);
                        table[of][region.offset..][..region.bytes].fill(Byte::Hole);
                    } else {
                        live.push((range, (of, region)));
                    }
                }
                PageStep::Give(index, queue) if !live.is_empty() => {
                    let (range, (of, region)) = live.swap_remove(index % live.len());
                    space.give(range, queue, None);
                    table[of][region.offset..][..region.bytes].fill(Byte::Free(queue));
                }
                PageStep::Unmap(_) | PageStep::Give(..) => {}
                PageStep::TakeRun(bytes, queue) => {
                    let fitting = |of: usize| {
                        let runs = runs(&table[of], queue).into_iter();
                        runs.filter(move |run| run.bytes >= bytes).map(move |run| (of, run))
                    };
                    let fitting: Vec<_> = (0..2).flat_map(fitting).collect();
                    let least = fitting.iter().map(|(_, run)| run.bytes).min();
                    let taken = space.take_run(bytes, false, |used| [0, queue].contains(used));
                    prop_assert_eq!(taken.is_some(), least.is_some());
                    let Some(taken) = taken else { continue };
                    let of = reservations.iter().position(|key| *key == taken.segment).unwrap();
                    let run = fitting
                        .iter()
                        .find(|(place, run)| (*place, run.offset) == (of, taken.region.offset));
                    prop_assert_eq!(run.map(|(_, run)| run.bytes), least);
                    prop_assert_eq!(taken.region.bytes, bytes);
                    prop_assert!(taken.overlapping.is_empty() && taken.view.is_none() && !taken.has_excess);
                    let taken_bytes = &mut table[of][taken.region.offset..][..bytes];
                    // The uses are those of the last range of it.
                    prop_assert_eq!(taken_bytes.last(), Some(&Byte::Free(taken.uses)));
                    taken_bytes.fill(Byte::Taken);
                    live.push((taken.range, (of, taken.region)));
                }
                PageStep::Settle(queue) => {
                    space.settle(|used| *used == queue);
                    for byte in table.iter_mut().flatten() {
                        if *byte == Byte::Free(queue) {
                            *byte = Byte::Free(0);
                        }
                    }
                }
            }
            for (reservation, table) in reservations.iter().zip(&table) {
                prop_assert_eq!(&bytes_of(&space, *reservation, BYTES), table);
            }
            let is_free = |byte: &&Byte| matches!(byte, Byte::Free(_));
            let free = table.iter().flatten().filter(is_free).count();
            prop_assert_eq!(space.free_bytes(), (free + BYTES) as u64);
            prop_assert_eq!(bytes_of(&space, segment, BYTES), vec![Byte::Free(0); BYTES]);
            let views: Vec<View> = live.iter().map(|(_, (of, region))| (reservations[*of], *region)).collect();
            check(&space, &views, &[]);
        }
        // All of it can be taken and given back.
        for (range, _) in live {
            space.give(range, 0, None);
        }
        space.settle(|_| true);
        for of in [0, 1] {
            let all = runs(&bytes_of(&space, reservations[of], BYTES), 0);
            if let Some(largest) = all.iter().map(|run| run.bytes).max() {
                let taken = space.take_run(largest, false, |_| true).unwrap();
                prop_assert!(taken.region.bytes >= largest);
            }
        }
    }
}
