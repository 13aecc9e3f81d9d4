//! A small caching allocator, by the rules of PyTorch's.

use std::collections::BTreeMap;

use proptest::{prelude::*, sample::Index};

/// Blocks are multiples of this.
const UNIT: u64 = 512;
const MIB: u64 = 1 << 20;

#[derive(Clone, Debug)]
enum Step {
    Allocate {
        bytes: u64,
        pool: Pool,
        site: usize,
        which: Index,
    },
    /// Where it waits, other streams still use the block.
    Free {
        which: Index,
        waits: bool,
    },
    /// Other streams no longer use a block that waits for them.
    Complete(Index),
    /// Free memory goes back to the device.
    GiveBack(Index),
    Note(Note),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    Begin,
    End,
    Annotate,
    Snapshot,
}

/// The blocks of a segment are of one stream, and of one private pool or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pool {
    pub(crate) stream: usize,
    pub(crate) is_private: bool,
    is_small: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub(crate) address: u64,
    pub(crate) requested: u64,
    /// What it takes.
    pub(crate) bytes: u64,
    pub(crate) stream: usize,
    /// Where the program asked for it.
    pub(crate) site: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    /// Address and bytes.
    Taken(u64, u64, usize),
    GivenBack(u64, u64, usize),
    /// By the numbers of blocks.
    Allocated(usize),
    Requested(usize),
    Freed(usize),
    Refused {
        requested: u64,
        stream: usize,
        site: usize,
        device_free: u64,
    },
    Noted(Note),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    pub(crate) bytes: u64,
    pub(crate) block: Option<usize>,
    pub(crate) waits: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) bytes: u64,
    pub(crate) pool: Pool,
}

/// All that happened on a device, and what it has at the end.
#[derive(Clone, Debug)]
pub(crate) struct History {
    /// Blocks of this many bytes or more are not split.
    pub(crate) never_split: Option<u64>,
    /// Whether segments grow.
    pub(crate) is_expandable: bool,
    pub(crate) blocks: Vec<Block>,
    /// Each with its time in microseconds.
    pub(crate) happened: Vec<(u64, What)>,
    /// How many of these the recording has lost at its beginning.
    pub(crate) lost: usize,
    pub(crate) segments: BTreeMap<u64, Segment>,
    /// What each range of a segment has.
    pub(crate) ranges: BTreeMap<u64, Range>,
}

impl History {
    /// The same with only these of what happened, and without what there is at the end.
    pub(crate) fn keeping(mut self, is_kept: &[bool]) -> Self {
        let mut kept = is_kept.iter().cycle();
        self.happened.retain(|_| *kept.next().unwrap_or(&true));
        self.lost = 0;
        (self.segments, self.ranges) = (BTreeMap::new(), BTreeMap::new());
        self
    }

    pub(crate) fn recorded(&self) -> &[(u64, What)] {
        &self.happened[self.lost..]
    }
}

struct Allocator {
    history: History,
    now: u64,
    /// The most of the device, and of the program.
    capacity: u64,
    limit: u64,
    reserved: u64,
    /// Addresses that were given back, with their bytes.
    holes: Vec<(u64, u64)>,
    end: u64,
}

impl Allocator {
    fn does(&mut self, what: What) {
        self.history.happened.push((self.now, what));
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Allocate {
                bytes,
                pool,
                site,
                which,
            } => self.allocate(*bytes, *pool, *site, *which),
            Step::Free { which, waits } => {
                let live = self.with(|range| range.block.is_some() && !range.waits);
                if let Some((address, block)) = choose(&live, *which) {
                    self.does(What::Requested(block.unwrap()));
                    if *waits {
                        self.history.ranges.get_mut(&address).unwrap().waits = true;
                    } else {
                        self.complete(address);
                    }
                }
            }
            Step::Complete(which) => {
                if let Some((address, _)) = choose(&self.with(|range| range.waits), *which) {
                    self.complete(address);
                }
            }
            Step::GiveBack(which) => {
                if let Some(address) = choose(&self.free_segments(), *which) {
                    self.give_back(address);
                }
            }
            Step::Note(note) => self.does(What::Noted(*note)),
        }
    }

    fn with(&self, is_it: impl Fn(&Range) -> bool) -> Vec<(u64, Option<usize>)> {
        let ranges = self.history.ranges.iter();
        let found = ranges.filter(|(_, range)| is_it(range));
        found
            .map(|(address, range)| (*address, range.block))
            .collect()
    }

    fn free_segments(&self) -> Vec<u64> {
        let is_free = |(address, segment): &(&u64, &Segment)| {
            let range = &self.history.ranges[*address];
            range.block.is_none() && range.bytes == segment.bytes
        };
        let free = self.history.segments.iter().filter(is_free);
        free.map(|(address, _)| *address).collect()
    }

    fn allocate(&mut self, requested: u64, pool: Pool, site: usize, which: Index) {
        let rounded = requested.max(1).next_multiple_of(UNIT);
        let pool = Pool {
            is_small: rounded <= MIB,
            ..pool
        };
        let found = self
            .find(pool, rounded, which)
            .or_else(|| self.take(pool, rounded));
        let found = found.or_else(|| {
            for (address, _) in self.with(|range| range.waits) {
                self.complete(address);
            }
            for address in self.free_segments() {
                self.give_back(address);
            }
            self.find(pool, rounded, which)
                .or_else(|| self.take(pool, rounded))
        });
        let Some(address) = found else {
            return self.does(What::Refused {
                requested,
                stream: pool.stream,
                site,
                device_free: self.capacity - self.reserved,
            });
        };
        let room = self.history.ranges[&address].bytes;
        let is_split = if pool.is_small || self.history.is_expandable {
            room > rounded
        } else {
            room - rounded > MIB && self.history.never_split.is_none_or(|most| rounded < most)
        };
        let bytes = if is_split { rounded } else { room };
        let number = self.history.blocks.len();
        let range = |bytes, block| Range {
            bytes,
            block,
            waits: false,
        };
        let ranges = &mut self.history.ranges;
        ranges.insert(address, range(bytes, Some(number)));
        if bytes < room {
            ranges.insert(address + bytes, range(room - bytes, None));
        }
        self.history.blocks.push(Block {
            address,
            requested,
            bytes,
            stream: pool.stream,
            site,
        });
        self.does(What::Allocated(number));
    }

    fn find(&self, pool: Pool, rounded: u64, which: Index) -> Option<u64> {
        let is_split = |range: &Range| match self.history.never_split {
            Some(most) if rounded < most => range.bytes < most,
            Some(_) => range.bytes < rounded + 20 * MIB,
            None => true,
        };
        let free =
            self.with(|range| range.block.is_none() && range.bytes >= rounded && is_split(range));
        let of_pool = |(address, _): &(u64, _)| {
            let (_, segment) = self.history.segments.range(..=*address).next_back()?;
            (segment.pool == pool).then_some(*address)
        };
        let own: Vec<u64> = free.iter().filter_map(of_pool).collect();
        choose(&own, which)
    }

    fn take(&mut self, pool: Pool, rounded: u64) -> Option<u64> {
        let bytes = match rounded {
            _ if pool.is_small => 2 * MIB,
            ..0xa0_0000 => 20 * MIB,
            _ => rounded.next_multiple_of(2 * MIB),
        };
        if self.reserved + bytes > self.limit {
            return None;
        }
        let hole = self.holes.iter().rposition(|(_, room)| *room >= bytes);
        let address = match hole {
            Some(hole) => self.holes.remove(hole).0,
            // Segments touch.
            None => self.end,
        };
        self.end = self.end.max(address + bytes);
        self.reserved += bytes;
        self.history
            .segments
            .insert(address, Segment { bytes, pool });
        let free = Range {
            bytes,
            block: None,
            waits: false,
        };
        self.history.ranges.insert(address, free);
        self.does(What::Taken(address, bytes, pool.stream));
        Some(address)
    }

    fn give_back(&mut self, address: u64) {
        let Segment { bytes, pool } = self.history.segments.remove(&address).unwrap();
        self.history.ranges.remove(&address);
        self.reserved -= bytes;
        self.holes.push((address, bytes));
        self.does(What::GivenBack(address, bytes, pool.stream));
    }

    /// Ends a block. Its room joins that of its free neighbours.
    fn complete(&mut self, address: u64) {
        let ranges = &mut self.history.ranges;
        let range = ranges.get_mut(&address).unwrap();
        let block = range.block.take().unwrap();
        range.waits = false;
        let (start, segment) = self.history.segments.range(..=address).next_back().unwrap();
        let bounds = *start..start + segment.bytes;
        let free = |range: &Range| range.block.is_none();
        if let Some((next, own)) = ranges.range(address + 1..bounds.end).next()
            && free(own)
        {
            let (next, bytes) = (*next, own.bytes);
            ranges.remove(&next);
            ranges.get_mut(&address).unwrap().bytes += bytes;
        }
        if let Some((before, own)) = ranges.range(bounds.start..address).next_back()
            && free(own)
        {
            let (before, bytes) = (*before, ranges[&address].bytes);
            ranges.remove(&address);
            ranges.get_mut(&before).unwrap().bytes += bytes;
        }
        self.does(What::Freed(block));
    }
}

fn choose<T: Copy>(from: &[T], which: Index) -> Option<T> {
    (!from.is_empty()).then(|| from[which.index(from.len())])
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![
        3 => 0..4 * UNIT,
        2 => 400_000..1_100_000_u64,
        2 => MIB..12 * MIB,
        1 => 10 * MIB..45 * MIB,
    ];
    let which = || any::<Index>();
    let pool = (0..3_usize, prop::bool::weighted(0.2));
    let allocate = (bytes, pool, 0..3_usize, which()).prop_map(
        |(bytes, (stream, is_private), site, which)| {
            let pool = Pool {
                stream,
                is_private,
                is_small: false,
            };
            Step::Allocate {
                bytes,
                pool,
                site,
                which,
            }
        },
    );
    let notes = [Note::Begin, Note::End, Note::Annotate, Note::Snapshot];
    prop_oneof![
        8 => allocate,
        6 => (which(), prop::bool::weighted(0.4)).prop_map(|(which, waits)| Step::Free { which, waits }),
        3 => which().prop_map(Step::Complete),
        2 => which().prop_map(Step::GiveBack),
        1 => prop::sample::select(notes.to_vec()).prop_map(Step::Note),
    ]
}

/// What happens on a device whose memory begins at `base`.
fn on_device(base: u64, never_split: Option<u64>) -> impl Strategy<Value = History> {
    let steps = prop::collection::vec((step(), 0..100_000_u64), 1..80);
    let limits = (30 * MIB..400 * MIB, 0..3_u64);
    let lost = prop_oneof![Just(0.0), 0.0..1.0];
    (
        steps,
        limits,
        prop::bool::weighted(0.3),
        lost,
        0..1_000_000_000_u64,
    )
        .prop_map(move |(steps, (limit, more), is_expandable, lost, now)| {
            let mut allocator = Allocator {
                history: History {
                    never_split,
                    is_expandable,
                    blocks: Vec::new(),
                    happened: Vec::new(),
                    lost: 0,
                    segments: BTreeMap::new(),
                    ranges: BTreeMap::new(),
                },
                now,
                capacity: limit + more * 16 * MIB,
                limit,
                reserved: 0,
                holes: Vec::new(),
                end: base,
            };
            for (step, later) in steps {
                allocator.now += 1 + later;
                allocator.step(&step);
            }
            let happened = allocator.history.happened.len();
            allocator.history.lost = share(happened, lost);
            allocator.history
        })
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a part of a small number"
)]
fn share(of: usize, part: f64) -> usize {
    (of as f64 * part) as usize
}

fn never_split() -> impl Strategy<Value = Option<u64>> {
    prop::option::weighted(0.3, Just(24 * MIB))
}

/// What happens on a device.
pub(crate) fn history() -> impl Strategy<Value = History> {
    never_split().prop_flat_map(|most| on_device(1 << 40, most))
}

/// What happens on one device or several, whose addresses may be the same.
pub(crate) fn histories() -> impl Strategy<Value = Vec<History>> {
    let several = never_split().prop_flat_map(|most| {
        let devices = [1 << 40, 2 << 40, 1 << 40];
        devices
            .into_iter()
            .map(|base| on_device(base, most))
            .collect::<Vec<_>>()
    });
    prop_oneof![3 => history().prop_map(|only| vec![only]), 1 => several]
}
