//! The cheapest neighbouring blocks that would make room for a request if they were freed.

use serde::Serialize;

/// Neighbouring blocks of one segment that would make room for a failed request if they were freed. Sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Neighbours {
    /// The index of the segment.
    pub segment: usize,
    /// The offset in the segment at which the room begins.
    pub offset: u64,
    /// The size of the room: the blocks, and what is free between them and beside them.
    pub room_bytes: u64,
    /// The size of the blocks together.
    pub bytes: u64,
    /// The blocks, by offset.
    pub blocks: Vec<Neighbour>,
}

/// A block that stands in the way of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Neighbour {
    /// Its index among the blocks of a trace; `None` in a snapshot.
    pub block: Option<usize>,
    /// Its offset in the segment.
    pub offset: u64,
    /// The bytes that it takes of the segment.
    pub bytes: u64,
    /// Its group.
    pub group: Option<String>,
}

/// A part of a segment with nothing in it but blocks that can end, by offset, and free ranges.
#[derive(Debug)]
pub(crate) struct Stretch {
    pub(crate) segment: usize,
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) blocks: Vec<Neighbour>,
}

impl Neighbours {
    /// Returns the neighbours with the fewest bytes whose end makes room for `bytes`; of several, the first. `None` if no
    /// stretch is large enough.
    pub(crate) fn cheapest(
        stretches: impl IntoIterator<Item = Stretch>,
        bytes: u64,
    ) -> Option<Self> {
        let found = stretches
            .into_iter()
            .filter_map(|stretch| stretch.cheapest(bytes));
        found.min_by_key(|neighbours| neighbours.bytes)
    }
}

impl Stretch {
    /// Each block is tried as the first one, with as few after it as make enough room: more would only add bytes.
    fn cheapest(&self, bytes: u64) -> Option<Neighbours> {
        let blocks = &self.blocks;
        let (mut count, mut taken) = (0, 0_u64);
        let mut best: Option<(usize, usize, u64)> = None;
        for first in 0..blocks.len() {
            while count == 0 || self.room(first, count) < bytes {
                let Some(next) = blocks.get(first + count) else {
                    return best.map(|(first, count, taken)| self.neighbours(first, count, taken));
                };
                taken = taken.saturating_add(next.bytes);
                count += 1;
            }
            if best.is_none_or(|(.., least)| taken < least) {
                best = Some((first, count, taken));
            }
            taken = taken.saturating_sub(blocks[first].bytes);
            count -= 1;
        }
        best.map(|(first, count, taken)| self.neighbours(first, count, taken))
    }

    /// The end of the block before this one, where the room that it leaves begins.
    fn start(&self, first: usize) -> u64 {
        let before = first.checked_sub(1).map(|before| &self.blocks[before]);
        before.map_or(self.from, |block| block.offset.saturating_add(block.bytes))
    }

    fn room(&self, first: usize, count: usize) -> u64 {
        let behind = self.blocks.get(first + count);
        let end = behind.map_or(self.to, |block| block.offset);
        end.saturating_sub(self.start(first))
    }

    fn neighbours(&self, first: usize, count: usize, bytes: u64) -> Neighbours {
        Neighbours {
            segment: self.segment,
            offset: self.start(first),
            room_bytes: self.room(first, count),
            bytes,
            blocks: self.blocks[first..first + count].to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The sizes of the free range before each block and of the block, and that of the free range at the end.
    type Sizes = (Vec<(u64, u64)>, u64);

    fn stretches(sizes: &[Sizes]) -> Vec<Stretch> {
        let stretch = |(segment, (sizes, rest)): (usize, &Sizes)| {
            let mut end = 0;
            let mut blocks = Vec::new();
            for (free, bytes) in sizes {
                let offset = end + free;
                end = offset + bytes;
                blocks.push(Neighbour {
                    block: Some(blocks.len()),
                    offset,
                    bytes: *bytes,
                    group: None,
                });
            }
            Stretch {
                segment,
                from: 0,
                to: end + rest,
                blocks,
            }
        };
        sizes.iter().enumerate().map(stretch).collect()
    }

    /// The fewest bytes of all runs of blocks that make room.
    fn by_brute_force(stretches: &[Stretch], bytes: u64) -> Option<u64> {
        let mut least = None;
        for Stretch { to, blocks, .. } in stretches {
            for first in 0..blocks.len() {
                for last in first..blocks.len() {
                    let run = &blocks[first..=last];
                    let before = blocks[..first].iter();
                    let start = before.map(|it| it.offset + it.bytes).max().unwrap_or(0);
                    let behind = blocks[last + 1..].iter();
                    let end = behind.map(|it| it.offset).min().unwrap_or(*to);
                    let taken = run.iter().map(|it| it.bytes).sum();
                    if end - start >= bytes && least.is_none_or(|least| taken < least) {
                        least = Some(taken);
                    }
                }
            }
        }
        least
    }

    proptest! {
        #[test]
        fn none_are_cheaper(
            sizes in proptest::collection::vec((proptest::collection::vec((0..20_u64, 1..50_u64), 0..8), 0..20_u64), 1..4),
            bytes in 1..200_u64,
        ) {
            let all = stretches(&sizes);
            let least = by_brute_force(&all, bytes);
            let found = Neighbours::cheapest(all, bytes);
            prop_assert_eq!(found.as_ref().map(|found| found.bytes), least);
            if let Some(found) = found {
                let of = &sizes[found.segment].0;
                let taken: u64 = found.blocks.iter().map(|it| it.bytes).sum();
                prop_assert_eq!(taken, found.bytes);
                prop_assert!(found.room_bytes >= bytes);
                let numbers: Vec<usize> = found.blocks.iter().filter_map(|it| it.block).collect();
                prop_assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1));
                prop_assert!(numbers.iter().all(|number| *number < of.len()));
            }
        }
    }
}
