//! Places for the blocks of a period, such that those that live at the same time do not overlap, in as few bytes as possible.
//!
//! Each block goes to the lowest place that is free for as long as it lives. The order decides: largest first needs least for most programs, longest
//! first or as they are taken for some. Then those that reach highest go first, as in Joslin and Clements, "Squeaky wheel optimization", 1999.

use std::{cmp::Reverse, iter};

/// How many numbers of a list are moved in the time in which one place is looked at.
const MOVED_PER_STEP: usize = 32;

/// How often those that reach highest go first.
const MOST_PASSES: usize = 24;

/// The blocks that reach into the last part of this of all bytes go first.
const TOP_PARTS: usize = 64;

/// About as many blocks begin in a part of the period.
const PART_BLOCKS: usize = 64;

/// The most parts of a period.
const MOST_PARTS: usize = 256;

/// A part has this many parts of the next level.
const LEVEL_PARTS: usize = 8;

/// A block to be placed, or one that has a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) bytes: usize,
    /// When it begins to live, before the end of the period.
    pub(super) start: usize,
    /// When it ends, less than a period later. The period begins again after its end.
    pub(super) end: usize,
    /// Blocks of different kinds share no bytes.
    pub(super) kind: u32,
}

impl Block {
    fn life(&self) -> usize {
        self.end - self.start
    }

    fn by_size(&self, _: usize) -> (usize, usize) {
        (self.bytes, self.life())
    }

    fn by_life(&self, _: usize) -> (usize, usize) {
        (self.life(), self.bytes)
    }

    /// In the order in which they are taken, after those that live on into the next period.
    fn by_time(&self, period: usize) -> (usize, usize) {
        (usize::from(self.lives_on(period)), period - self.start)
    }

    fn lives_on(&self, period: usize) -> bool {
        self.end > period
    }
}

/// A place that is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) low: usize,
    pub(super) high: usize,
    /// By this block for as long as it lives; always if there is none.
    pub(super) by: Option<Block>,
}

impl Taken {
    /// Returns whether a block must not lie here.
    fn is_in_the_way_of(&self, block: &Block, period: usize) -> bool {
        let Some(by) = self.by else { return true };
        let meet = |one: &Block, two: &Block, later: usize| {
            one.start < two.end + later && two.start + later < one.end
        };
        by.kind != block.kind
            || meet(&by, block, 0)
            || meet(&by, block, period)
            || meet(block, &by, period)
    }
}

/// The places of blocks, in their order, and the end of the highest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) places: Vec<usize>,
    pub(super) end: usize,
}

/// Returns places for these blocks of a period, which has as many blocks as `period`, beside those that are `taken`. An `end` of `good` bytes is good
/// enough, and one of more than `most` is of no use. Looks at this number of places. Returns `None` if it finds no layout.
pub(super) fn lay_out(
    blocks: &[Block],
    period: usize,
    taken: &[Taken],
    good: usize,
    most: usize,
    steps: usize,
) -> Option<Layout> {
    let others = taken.iter().filter_map(|it| it.by.as_ref());
    let mut kinds = blocks.iter().chain(others).map(|block| block.kind);
    let first = kinds.next();
    let mut search = Search {
        blocks,
        period,
        taken,
        is_one_kind: kinds.all(|kind| Some(kind) == first),
        steps,
        best: None,
    };
    let mut order: Vec<usize> = (0..blocks.len()).collect();
    for key in [Block::by_time, Block::by_size, Block::by_life] {
        order.sort_by_key(|number| Reverse(key(&blocks[*number], period)));
        let best = search.best.as_ref().map_or(most, |(best, _)| best.end);
        search.look_at(order.clone(), best);
        if search.is_over(good) {
            break;
        }
    }
    let best = search.best.clone();
    let mut last = best.or_else(|| search.look_at(order, usize::MAX));
    for _ in 0..MOST_PASSES {
        if search.is_over(good) {
            break;
        }
        let (layout, mut order) = last?;
        let high = layout.end - layout.end / TOP_PARTS;
        order.sort_by_key(|number| layout.places[*number] + blocks[*number].bytes <= high);
        last = search.look_at(order, usize::MAX);
    }
    let best = search.best.map(|(layout, _)| layout);
    best.filter(|layout| layout.end <= most)
}

/// A search for the best order.
struct Search<'a> {
    blocks: &'a [Block],
    period: usize,
    taken: &'a [Taken],
    /// Blocks of different kinds are in each other's way at any time.
    is_one_kind: bool,
    /// How many places may still be looked at.
    steps: usize,
    /// The best layout, and its order.
    best: Option<(Layout, Vec<usize>)>,
}

impl Search<'_> {
    /// Returns whether the best is good enough, or there is no time for a better one.
    fn is_over(&self, good: usize) -> bool {
        let best = self.best.as_ref();
        self.steps == 0 || best.is_some_and(|(best, _)| best.end <= good)
    }

    /// Places the blocks in this order, and keeps the result if it is the best. Returns it, too; `None` if it reaches beyond `most`, or if there is no
    /// time for it.
    fn look_at(&mut self, order: Vec<usize>, most: usize) -> Option<(Layout, Vec<usize>)> {
        let time = |number: &usize| Reverse(self.blocks[*number].by_time(self.period));
        // Then a block that has ended is in the way of none that comes.
        let is_in_time = self.is_one_kind && order.is_sorted_by_key(time);
        let has_parts = self.is_one_kind && !is_in_time;
        let mut placing = Placing::new(self.blocks, self.period, self.taken, has_parts);
        let mut layout = Layout {
            places: vec![0; self.blocks.len()],
            end: 0,
        };
        for number in &order {
            let block = self.blocks[*number];
            if is_in_time && !block.lives_on(self.period) {
                placing.forget_ended(block.start);
            }
            let low = placing.lowest(&block);
            if placing.steps > self.steps {
                self.steps = 0;
                return None;
            }
            let high = low + block.bytes;
            if high > most {
                self.steps -= placing.steps;
                return None;
            }
            placing.add(Taken {
                low,
                high,
                by: Some(block),
            });
            layout.places[*number] = low;
            layout.end = layout.end.max(high);
        }
        self.steps -= placing.steps;
        let best = self.best.as_ref();
        if best.is_none_or(|(best, _)| layout.end < best.end) {
            self.best = Some((layout.clone(), order.clone()));
        }
        Some((layout, order))
    }
}

/// Blocks that are being placed.
struct Placing {
    period: usize,
    taken: Vec<Taken>,
    /// From the shortest windows to one that is all of the period.
    levels: Vec<Level>,
    /// How many steps it took so far.
    steps: usize,
    /// How many were left when it last forgot those that have ended.
    left: usize,
}

/// The numbers of what is taken in each two parts of the period that follow each other, lowest first. A block that lives in no more than these
/// looks at no other places.
struct Level {
    windows: Vec<Vec<u32>>,
    /// The length of a part.
    part: usize,
}

impl Level {
    fn new(period: usize, parts: usize) -> Self {
        let part = period.div_ceil(parts.max(1)).max(1);
        Self {
            windows: vec![Vec::new(); period.div_ceil(part).max(1)],
            part,
        }
    }

    /// The part of a time. Those of the next period have further numbers.
    fn part_of(&self, time: usize, period: usize) -> usize {
        match time.checked_sub(period) {
            Some(later) => self.windows.len() + later / self.part,
            None => time / self.part,
        }
    }

    /// The parts in which a block lives, from the first to the last.
    fn parts_of(&self, block: &Block, period: usize) -> (usize, usize) {
        let part_of = |time| self.part_of(time, period);
        (part_of(block.start), part_of(block.end - 1))
    }

    /// The window in which a block lives, if there is one.
    fn window_of(&self, block: &Block, period: usize) -> Option<&Vec<u32>> {
        let (first, last) = self.parts_of(block, period);
        let is_in_one = last <= first + 1 || self.windows.len() == 1;
        self.windows.get(first).filter(|_| is_in_one)
    }
}

impl Placing {
    fn new(blocks: &[Block], period: usize, taken: &[Taken], has_parts: bool) -> Self {
        let most_parts = if has_parts { MOST_PARTS } else { 1 };
        let parts = (blocks.len() / PART_BLOCKS).clamp(1, most_parts);
        let levels = iter::successors(Some(parts), |parts| {
            (*parts > 1).then_some(parts / LEVEL_PARTS)
        });
        let levels = levels.map(|parts| Level::new(period, parts));
        let mut placing = Self {
            period,
            taken: Vec::with_capacity(taken.len() + blocks.len()),
            levels: levels.collect(),
            steps: 0,
            left: 0,
        };
        for taken in taken {
            placing.add(*taken);
        }
        placing
    }

    /// Forgets the blocks that have ended, unless they live on into the next period: in the order of time, no other one meets them. Does so once
    /// the list is twice as long as what was left the last time.
    fn forget_ended(&mut self, now: usize) {
        let list = &mut self.levels[0].windows[0];
        if list.len() < 2 * self.left {
            return;
        }
        self.steps += list.len();
        list.retain(|number| {
            let by = self.taken[*number as usize].by;
            by.is_none_or(|by| by.end > now || by.lives_on(self.period))
        });
        self.left = list.len();
    }

    /// Returns the lowest place for a block.
    fn lowest(&mut self, block: &Block) -> usize {
        let mut levels = self.levels.iter();
        let near = levels.find_map(|level| level.window_of(block, self.period));
        let mut low = 0;
        for number in near.into_iter().flatten() {
            self.steps += 1;
            let taken = &self.taken[*number as usize];
            if taken.low >= low + block.bytes {
                break;
            }
            if taken.high > low && taken.is_in_the_way_of(block, self.period) {
                low = taken.high;
            }
        }
        low
    }

    fn add(&mut self, taken: Taken) {
        let number = u32::try_from(self.taken.len()).unwrap_or(u32::MAX);
        self.taken.push(taken);
        for level in &mut self.levels {
            let count = level.windows.len();
            let all = (0, count);
            let by = taken.by.as_ref();
            let (first, last) = by.map_or(all, |by| level.parts_of(by, self.period));
            // The window before its first part reaches into that.
            for window in (first + count - 1..=last + count).take(count) {
                let list = &mut level.windows[window % count];
                let is_lower = |other: &u32| self.taken[*other as usize].low < taken.low;
                let at = list.partition_point(is_lower);
                self.steps += (list.len() - at) / MOVED_PER_STEP;
                list.insert(at, number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STEPS: usize = 1 << 20;

    fn block(bytes: usize, start: usize, end: usize) -> Block {
        Block {
            bytes,
            start,
            end,
            kind: 0,
        }
    }

    /// Returns whether no block lies where another one is, or something that is taken, at the same time.
    fn is_valid(blocks: &[Block], period: usize, taken: &[Taken], layout: &Layout) -> bool {
        let lives = |it: &Block, time: usize| {
            (it.start..it.end).contains(&time) || (it.start..it.end).contains(&(time + period))
        };
        let meet = |one: &Block, two: &Block| {
            one.kind != two.kind || (0..period).any(|time| lives(one, time) && lives(two, time))
        };
        let apart = |one: (usize, usize), two: (usize, usize)| one.1 <= two.0 || two.1 <= one.0;
        let of = |number: usize| {
            let low = layout.places[number];
            (low, low + blocks[number].bytes)
        };
        (0..blocks.len()).all(|one| {
            of(one).1 <= layout.end
                && (0..one).all(|two| !meet(&blocks[one], &blocks[two]) || apart(of(one), of(two)))
                && taken.iter().all(|it| {
                    let meets = it.by.is_none_or(|by| meet(&by, &blocks[one]));
                    !meets || apart(of(one), (it.low, it.high))
                })
        })
    }

    #[test]
    fn blocks_that_live_one_after_the_other_share_a_place() {
        let blocks = [block(10, 0, 1), block(10, 1, 2), block(4, 0, 2)];
        let layout = lay_out(&blocks, 2, &[], 0, usize::MAX, STEPS).unwrap();
        assert_eq!(
            layout,
            Layout {
                places: vec![0, 0, 10],
                end: 14
            }
        );
    }

    #[test]
    fn a_period_begins_again_after_its_end() {
        // The first one lives until the second one of the next period has come.
        let blocks = [block(10, 2, 5), block(10, 1, 2), block(10, 0, 1)];
        let layout = lay_out(&blocks, 3, &[], 0, usize::MAX, STEPS).unwrap();
        assert_eq!(layout.end, 20);
        assert!(is_valid(&blocks, 3, &[], &layout));
    }

    #[test]
    fn blocks_of_different_queues_share_nothing() {
        let other = Block {
            kind: 1,
            ..block(10, 1, 2)
        };
        let layout = lay_out(&[block(10, 0, 1), other], 2, &[], 0, usize::MAX, STEPS).unwrap();
        assert_eq!(layout.end, 20);
    }

    #[test]
    fn those_that_reach_highest_go_first_next_time() {
        // By size or by life, the small ones are left for the end, and need a place above the others.
        let blocks = [
            block(6, 0, 3),
            block(4, 2, 6),
            block(6, 5, 8),
            block(5, 3, 5),
        ];
        let layout = lay_out(&blocks, 8, &[], 10, usize::MAX, STEPS).unwrap();
        assert!(layout.end <= 11, "{layout:?}");
    }

    #[test]
    fn blocks_that_grow_are_placed_as_they_are_taken() {
        // Each takes the place of the one seven before it. Largest first, smaller ones lie above them.
        let blocks: Vec<Block> = (0..400).map(|it| block(10 + it / 7, it, it + 8)).collect();
        let layout = lay_out(&blocks, 410, &[], 0, usize::MAX, STEPS).unwrap();
        let last: usize = blocks[392..].iter().map(|it| it.bytes).sum();
        assert!(layout.end * 8 <= last * 9, "{} of {last}", layout.end);
    }

    #[test]
    fn a_layout_of_no_use_is_not_returned() {
        let blocks = [block(10, 0, 2), block(10, 1, 2)];
        let ends = [19, 20].map(|most| lay_out(&blocks, 2, &[], 0, most, STEPS).map(|it| it.end));
        assert_eq!(ends, [None, Some(20)]);
    }

    #[test]
    fn too_many_blocks_have_no_layout() {
        // All live at once, so each looks at all others.
        let blocks = vec![block(1, 0, 90); 90];
        let ends = [90 * 90, 90]
            .map(|steps| lay_out(&blocks, 90, &[], 0, usize::MAX, steps).map(|it| it.end));
        assert_eq!(ends, [Some(90), None]);
    }

    proptest! {
        #[test]
        fn no_block_lies_where_another_one_is(
            blocks in prop::collection::vec((1_usize..64, 0_usize..200, 0_usize..200, 0_u32..8), 1..300),
            taken in prop::collection::vec((0_usize..300, 1_usize..9, any::<bool>()), 0..9),
            two_queues: bool,
        ) {
            let period = 200;
            let blocks: Vec<Block> = blocks.into_iter().map(|(bytes, start, life, kind)| Block {
                bytes,
                start,
                end: start + 1 + life % if life % 3 == 0 { 199 } else { 9 },
                kind: u32::from(two_queues && kind == 0),
            }).collect();
            let taken: Vec<Taken> = taken.into_iter().map(|(low, bytes, always)| Taken {
                low,
                high: low + bytes,
                by: (!always).then_some(block(bytes, low % period, low % period + 50)),
            }).collect();
            let layout = lay_out(&blocks, period, &taken, 0, usize::MAX, STEPS).unwrap();
            prop_assert!(is_valid(&blocks, period, &taken, &layout));
            // No more than if they lived at the same time.
            let all: usize = blocks.iter().map(|it| it.bytes).sum();
            prop_assert!(layout.end <= all + taken.iter().map(|it| it.high + 64).max().unwrap_or(0));
        }
    }
}
