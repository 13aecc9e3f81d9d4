//! The ranges of segments against a map of their bytes: what is taken has one owner, lies in its segment on the alignment,
//! and is the best fit; free neighbours are one; views are lost nowhere and overlap no block; what goes back was idle.
#![no_main]

use arbitrary::Arbitrary;
use binpool::Region;
use binpool_segments::{Carved, Leaving, RangeKey, Segments};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Program {
    alignment: u8,
    /// How many times the alignment there is memory for.
    capacity: u16,
    steps: Vec<Step>,
}

#[derive(Arbitrary, Debug)]
enum Step {
    /// Takes this many times the alignment for a queue, from what there is or from a new segment.
    Take {
        units: u16,
        queue: Option<u8>,
        anywhere: bool,
        may_grow: bool,
    },
    /// Gives a block back that a queue used, with or without its view.
    Give {
        block: u8,
        queue: u8,
        keeps_view: bool,
    },
    /// A queue has caught up, or all have.
    Settle {
        queue: Option<u8>,
    },
    Release {
        units: u16,
        queue: Option<u8>,
    },
    Sweep {
        queue: Option<u8>,
    },
}

const ALIGNMENTS: [usize; 4] = [1, 256, 4 << 10, 16 << 10];

const MOST_UNITS: usize = 4096;

/// The queue that keeps a range from other queues; 0 for none.
type Queue = u8;

fn queue(number: u8) -> Queue {
    number % 3
}

/// Returns whether a caller on this queue may have a range; without a queue every caller may.
fn may_have(wanted: Option<u8>) -> impl Fn(&Queue) -> bool {
    move |used| *used == 0 || wanted.is_none_or(|wanted| queue(wanted) == *used)
}

/// A segment, or a view of a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    segment: usize,
    region: Region,
}

impl Piece {
    fn overlaps(&self, other: &Self) -> bool {
        let [one, two] = [self.region, other.region];
        self.segment == other.segment
            && one.offset < two.offset + two.bytes
            && two.offset < one.offset + one.bytes
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cell {
    Free(Queue),
    Taken,
}

/// Segments, and the same as a map with a cell for each unit of the alignment.
struct Checked {
    alignment: usize,
    capacity: u64,
    segments: Segments<Piece, Queue>,
    /// `None` for those that are gone.
    map: Vec<Option<Vec<Cell>>>,
    live: Vec<(RangeKey, Piece)>,
    /// The views that the segments keep.
    kept: Vec<Piece>,
    /// The queues that ranges were used on since they had all caught up. With one of them, all free neighbours are one.
    used: [bool; 3],
}

impl Checked {
    fn new(alignment: usize, capacity: usize) -> Self {
        Self {
            alignment,
            capacity: (alignment * capacity) as u64,
            segments: Segments::new(|one, two| {
                (one == two || *one == 0 || *two == 0).then_some(*one.max(two))
            }),
            map: Vec::new(),
            live: Vec::new(),
            kept: Vec::new(),
            used: [false; 3],
        }
    }

    fn cells(&mut self, piece: Piece) -> &mut [Cell] {
        let (start, units) = (
            piece.region.offset / self.alignment,
            piece.region.bytes / self.alignment,
        );
        let segment = self.map[piece.segment]
            .as_mut()
            .expect("a segment that is there");
        &mut segment[start..start + units]
    }

    /// The lengths in bytes of the runs of free cells, whichever queues used them.
    fn runs(&self) -> impl Iterator<Item = usize> {
        let segments = self.map.iter().flatten();
        let runs = segments.flat_map(|cells| cells.split(|cell| *cell == Cell::Taken));
        runs.map(|run| run.len() * self.alignment)
    }

    /// The length of the free run around a piece that has just been taken.
    fn run_around(&self, piece: Piece) -> usize {
        let cells = self.map[piece.segment]
            .as_ref()
            .expect("a segment that is there");
        let start = piece.region.offset / self.alignment;
        let end = start + piece.region.bytes / self.alignment;
        let is_free = |cell: &&Cell| **cell != Cell::Taken;
        let before = cells[..start].iter().rev().take_while(is_free).count();
        let after = cells[end..].iter().take_while(is_free).count();
        (before + end - start + after) * self.alignment
    }

    fn keeps_nothing_apart(&self) -> bool {
        !(self.used[1] && self.used[2])
    }

    fn is_idle(&self, segment: usize) -> bool {
        let cells = self.map[segment].as_ref().expect("a segment that is there");
        !cells.contains(&Cell::Taken)
    }

    fn take(&mut self, bytes: usize, wanted: Option<u8>, anywhere: bool, may_grow: bool) {
        if !anywhere {
            self.join(bytes, may_grow);
        }
        let usable = may_have(wanted);
        let carved = if anywhere {
            self.segments.take_anywhere(bytes, &usable)
        } else {
            self.segments.take(0, bytes, &usable)
        };
        let best = self.runs().filter(|run| *run >= bytes).min();
        assert!(
            carved.is_none() || best.is_some(),
            "nothing fits {bytes} bytes"
        );
        let may_have_all = (1..=2).all(|queue| !self.used[usize::from(queue)] || usable(&queue));
        if anywhere && self.keeps_nothing_apart() && may_have_all {
            assert_eq!(carved.is_some(), best.is_some(), "{bytes} bytes are free");
        }
        match carved {
            Some(carved) => {
                let fit = carved.view.map_or(1, |_| 2);
                assert!(usable(&carved.uses));
                let piece = self.settle_in(carved, bytes);
                if anywhere && self.keeps_nothing_apart() && may_have_all {
                    let (run, best) = (self.run_around(piece), best.expect("looked at above"));
                    assert!(run <= fit * best, "{run} where {best} would do");
                }
            }
            None if may_grow => self.grow(bytes),
            None => {}
        }
    }

    /// At a low point, puts the segment of a plan in the place of idle ones, if that saves memory.
    fn join(&mut self, bytes: usize, may_grow: bool) {
        let most = if may_grow { usize::MAX } else { 0 };
        let unneeded = self.segments.take_unneeded(0, |_| true);
        self.see_off(unneeded, |_| true);
        let Some(review) = self.segments.review(0, bytes, most) else {
            return;
        };
        let reviewed = review.carry_out();
        let (segments, alignment) = (&mut self.segments, self.alignment);
        let all = |_: &Queue| true;
        let Some((plan, leaving)) = segments.join_idle(reviewed, bytes, alignment, all, all) else {
            return;
        };
        let size = plan.bytes;
        let before = self.segments.bytes();
        self.see_off(leaving, |_| true);
        let segment = self.map.len();
        self.map.push(Some(vec![Cell::Free(0); size / alignment]));
        let region = Region::first(size);
        let root = Piece { segment, region };
        self.segments.add_planned(plan, root);
        assert_eq!(self.segments.bytes(), before + size as u64);
    }

    fn grow(&mut self, bytes: usize) {
        let in_use = self
            .live
            .iter()
            .map(|(_, piece)| piece.region.bytes as u64)
            .sum();
        let (alignment, capacity) = (self.alignment, self.capacity);
        let (size, leaving) = self.segments.grow(0, bytes, in_use, alignment, capacity);
        assert!(
            size >= bytes && size.is_multiple_of(alignment),
            "a segment of {size} bytes"
        );
        self.see_off(leaving, |_| true);
        let bytes_left = capacity.saturating_sub(self.segments.bytes());
        for size in [size, bytes] {
            if size as u64 > bytes_left {
                self.segments.refuse(size);
                continue;
            }
            let segment = self.map.len();
            self.map.push(Some(vec![Cell::Free(0); size / alignment]));
            let root = Piece {
                segment,
                region: Region::first(size),
            };
            let carved = self
                .segments
                .add(0, root, size, bytes)
                .expect("it is free as a whole");
            let piece = self.settle_in(carved, bytes);
            assert_eq!((piece.segment, piece.region.offset), (segment, 0));
            return;
        }
    }

    /// What the owner of a range does before it uses it.
    fn settle_in(&mut self, carved: Carved<Piece, Queue>, bytes: usize) -> Piece {
        let piece = Piece {
            segment: carved.segment.segment,
            region: carved.region,
        };
        assert_eq!(piece.region.bytes, bytes);
        assert!(piece.region.offset.is_multiple_of(self.alignment));
        assert!(
            piece.region.offset + bytes <= carved.segment.region.bytes,
            "out of bounds"
        );
        for view in carved.overlapping.iter().chain(&carved.view) {
            let place = self.kept.iter().position(|kept| kept == view);
            self.kept
                .swap_remove(place.expect("only kept views are handed out"));
        }
        assert!(
            carved.view.is_none_or(|view| view == piece),
            "a view of other bytes"
        );
        assert!(
            !self.kept.iter().any(|kept| kept.overlaps(&piece)),
            "a kept view overlaps"
        );
        for cell in self.cells(piece) {
            match *cell {
                Cell::Free(queue) => assert!(queue == 0 || queue == carved.uses),
                Cell::Taken => panic!("{piece:?} has an owner already"),
            }
            *cell = Cell::Taken;
        }
        if carved.has_excess {
            self.segments
                .shrink(carved.range, carved.region, carved.uses);
        }
        self.live.push((carved.range, piece));
        piece
    }

    fn give(&mut self, block: usize, queue: Queue, keeps_view: bool) {
        let (range, piece) = self.live.swap_remove(block);
        let keeps_view = keeps_view && self.segments.may_keep_view(range);
        self.kept.extend(keeps_view.then_some(piece));
        self.used[usize::from(queue)] = true;
        self.cells(piece).fill(Cell::Free(queue));
        self.segments
            .give(range, queue, keeps_view.then_some(piece));
    }

    fn settle(&mut self, wanted: Option<u8>) {
        let is_over = |used: &Queue| wanted.is_none_or(|wanted| queue(wanted) == *used);
        self.segments.settle(is_over);
        for queue in 1..=2 {
            self.used[usize::from(queue)] &= !is_over(&queue);
        }
        for cell in self.map.iter_mut().flatten().flatten() {
            if let Cell::Free(used) = cell
                && is_over(used)
            {
                *used = 0;
            }
        }
    }

    /// Segments that go back are idle, have all their views with them, and no uses that were not wanted.
    fn see_off(&mut self, leaving: Vec<Leaving<Piece, Queue>>, wanted: impl Fn(&Queue) -> bool) {
        for Leaving {
            mut views,
            memory,
            bytes,
            uses,
            place,
        } in leaving
        {
            assert!(place.is_none(), "no pages are mapped here");
            assert!(self.is_idle(memory.segment), "{memory:?} is in use");
            assert!(uses.iter().all(&wanted));
            assert_eq!(bytes, memory.region.bytes);
            let mut kept: Vec<_> = self
                .kept
                .extract_if(.., |kept| kept.segment == memory.segment)
                .collect();
            for views in [&mut views, &mut kept] {
                views.sort_unstable_by_key(|view| view.region.offset);
            }
            assert_eq!(views, kept);
            self.map[memory.segment] = None;
        }
    }

    fn release(&mut self, enough: u64, wanted: Option<u8>) {
        let is_wanted = may_have(wanted);
        let leaving = self.segments.release(enough, &is_wanted);
        let sizes: Vec<u64> = leaving.iter().map(|leaving| leaving.bytes as u64).collect();
        assert!(
            sizes.is_sorted_by(|one, two| one >= two),
            "the largest go first"
        );
        let released: u64 = sizes.iter().sum();
        let last = sizes.last().copied().unwrap_or(0);
        assert!(
            last == 0 || released - last < enough,
            "more than enough went back"
        );
        self.see_off(leaving, &is_wanted);
        assert!(
            released >= enough || wanted.is_some() || self.segments.idle_bytes() == 0,
            "less than enough went back"
        );
    }

    fn check(&self) {
        let sizes = |cells: &Vec<Cell>| (cells.len() * self.alignment) as u64;
        let there = self.map.iter().flatten();
        assert_eq!(self.segments.bytes(), there.map(sizes).sum::<u64>());
        let free: usize = self.runs().sum();
        assert_eq!(self.segments.free_bytes(), free as u64);
        let mut uses = 0;
        self.segments.each_use(|_, bytes| uses += bytes);
        assert_eq!(uses, free);
        let idle = (0..self.map.len()).filter(|key| self.map[*key].is_some() && self.is_idle(*key));
        let idle: u64 = idle
            .map(|key| self.map[key].as_ref().map_or(0, sizes))
            .sum();
        assert_eq!(self.segments.idle_bytes(), idle);
        let longest = self.runs().max().unwrap_or(0);
        assert!(self.segments.largest_free() <= longest);
        if self.keeps_nothing_apart() {
            assert_eq!(
                self.segments.largest_free(),
                longest,
                "neighbours are not one"
            );
        }
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Take {
                units,
                queue,
                anywhere,
                may_grow,
            } => {
                let bytes = (1 + usize::from(units) % MOST_UNITS) * self.alignment;
                self.take(bytes, queue, anywhere, may_grow);
            }
            Step::Give {
                block,
                queue: number,
                keeps_view,
            } if !self.live.is_empty() => {
                self.give(
                    usize::from(block) % self.live.len(),
                    queue(number),
                    keeps_view,
                );
            }
            Step::Give { .. } => {}
            Step::Settle { queue } => self.settle(queue),
            Step::Release { units, queue } => {
                self.release(u64::from(units) * self.alignment as u64, queue);
            }
            Step::Sweep { queue } => {
                let leaving = self.segments.sweep(may_have(queue));
                self.see_off(leaving, may_have(queue));
            }
        }
    }

    fn end(mut self) {
        while !self.live.is_empty() {
            self.give(0, 0, false);
        }
        self.settle(None);
        self.check();
        self.release(u64::MAX, None);
        assert!(self.kept.is_empty() && self.map.iter().all(Option::is_none));
        let Self { segments, .. } = self;
        let left = (
            segments.bytes(),
            segments.free_bytes(),
            segments.largest_free(),
        );
        assert_eq!(left, (0, 0, 0));
    }
}

fuzz_target!(|program: Program| {
    let alignment = ALIGNMENTS[usize::from(program.alignment) % ALIGNMENTS.len()];
    let capacity = 1 + usize::from(program.capacity) % MOST_UNITS;
    let mut checked = Checked::new(alignment, capacity);
    for step in &program.steps {
        checked.run(step);
        checked.check();
    }
    checked.end();
});
