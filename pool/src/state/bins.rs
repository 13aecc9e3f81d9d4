//! Free blocks, sorted by size class.

use std::{collections::VecDeque, sync::Arc};

use binpool_allocators::{
    Allocator, MemoryOf,
    segments::{Leaving, RangeKey},
};

use crate::{
    seeing::life::Life,
    shared::Shared,
    state::{
        Origin,
        lane::{Use, Uses, together},
        tenure::Tenure,
    },
};

/// A block of device memory.
///
/// What a hit looks at comes first, and is not written: blocks go from thread to thread.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Block<A: Allocator> {
    /// Its size: what the allocator was asked for, hence what the pool answers for.
    pub(crate) bytes: usize,
    /// Who asks for more than this, and no more than `bytes`, gets a block like this.
    pub(crate) above: usize,
    /// The bin that it goes back to.
    pub(crate) bin: usize,
    /// The share in the pool that its next user needs, while it is in a bin, if it was at hand before: counting shares is
    /// slow where threads do so together.
    pub(crate) share: Option<Arc<Shared<A>>>,
    /// While it is in its user's hands, or at hand.
    pub(crate) tenure: Tenure<A>,
    /// The range of a segment that it is; `None` for a block of its own.
    pub(crate) range: Option<RangeKey>,
    /// Where it is written who has it; `None` where it was not handed out while the pool watched.
    pub(crate) life: Option<Arc<Life>>,
    pub(crate) memory: MemoryOf<A>,
}

/// A block for its next user, and how it came to them.
pub(crate) type Obtained<A> = (Box<Block<A>>, Origin);

/// A free block, and the commands of its former users.
#[derive(Debug)]
pub(crate) struct HeldBlock<A: Allocator> {
    pub(crate) block: Box<Block<A>>,
    pub(crate) uses: Uses,
    /// How many sweeps there had been when it came to its bin.
    pub(crate) since: u32,
}

impl<A: Allocator> HeldBlock<A> {
    pub(crate) fn new(block: Box<Block<A>>, uses: Uses) -> Self {
        Self {
            block,
            uses,
            since: 0,
        }
    }
}

/// A free block, or a segment, on its way to the allocator.
#[derive(Debug)]
pub(crate) struct Released<A: Allocator> {
    /// Views of a segment, which go first.
    pub(crate) views: Vec<MemoryOf<A>>,
    pub(crate) memory: MemoryOf<A>,
    pub(crate) bytes: usize,
    pub(crate) uses: Uses,
}

impl<A: Allocator> From<HeldBlock<A>> for Released<A> {
    fn from(HeldBlock { block, uses, .. }: HeldBlock<A>) -> Self {
        Self {
            views: Vec::new(),
            bytes: block.bytes,
            memory: block.memory,
            uses,
        }
    }
}

impl<A: Allocator> From<Leaving<MemoryOf<A>, Uses>> for Released<A> {
    fn from(leaving: Leaving<MemoryOf<A>, Uses>) -> Self {
        let Leaving {
            views,
            memory,
            bytes,
            uses,
        } = leaving;
        Self {
            views,
            memory,
            bytes,
            uses: uses
                .iter()
                .fold(Uses::new(), |all, uses| together(&all, uses)),
        }
    }
}

/// Free blocks, by age within each size class.
///
/// # Invariants
///
/// - I1: a block lies in the bin that it names.
/// - I2: `blocks` and `bytes` are the number and the sizes of all blocks in all bins.
/// - I3: every bin that has blocks has its bit in `occupied`, 64 bins a word. One that has none may have it, too.
///
/// All blocks of a bin have the size of its class, except in the bins whose class is larger than the device's
/// largest block: there each block has the exact size that was asked for.
#[derive(Debug)]
pub(crate) struct Bins<A: Allocator> {
    /// The free blocks of each bin, oldest first.
    classes: Vec<VecDeque<HeldBlock<A>>>,
    occupied: Vec<u64>,
    blocks: usize,
    bytes: u64,
}

impl<A: Allocator> Default for Bins<A> {
    fn default() -> Self {
        Self {
            classes: Vec::new(),
            occupied: Vec::new(),
            blocks: 0,
            bytes: 0,
        }
    }
}

impl<A: Allocator> Bins<A> {
    pub(crate) fn blocks(&self) -> usize {
        self.blocks
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many blocks a bin has.
    pub(crate) fn blocks_of(&self, bin: usize) -> usize {
        self.classes.get(bin).map_or(0, VecDeque::len)
    }

    /// One more than the largest bin that was ever used.
    pub(crate) fn bin_count(&self) -> usize {
        self.classes.len()
    }

    /// Adds a block as the youngest of its bin.
    pub(crate) fn push(&mut self, held: HeldBlock<A>) {
        self.make_room(&held).push_back(held);
    }

    /// Adds a block as the oldest of its bin.
    pub(crate) fn push_oldest(&mut self, held: HeldBlock<A>) {
        self.make_room(&held).push_front(held);
    }

    fn make_room(&mut self, held: &HeldBlock<A>) -> &mut VecDeque<HeldBlock<A>> {
        let bin = held.block.bin;
        if self.classes.len() <= bin {
            self.classes.resize_with(bin + 1, VecDeque::new);
            self.occupied.resize(bin / 64 + 1, 0);
        }
        self.occupied[bin / 64] |= 1 << (bin % 64);
        self.blocks += 1;
        self.bytes += held.block.bytes as u64;
        &mut self.classes[bin]
    }

    /// The youngest block of this bin, if it has `bytes` bytes, else the youngest that has.
    pub(crate) fn pop_youngest(&mut self, bin: usize, bytes: usize) -> Option<HeldBlock<A>> {
        let blocks = self.classes.get_mut(bin)?;
        let fits = |held: &HeldBlock<A>| held.block.bytes >= bytes;
        let held = if blocks.back().is_some_and(fits) {
            blocks.pop_back()?
        } else {
            let index = blocks.iter().rposition(fits)?;
            blocks.remove(index)?
        };
        Some(self.count_out(held))
    }

    /// The oldest blocks of this bin that have `bytes` bytes, with their places.
    pub(crate) fn oldest(&self, bin: usize, bytes: usize) -> impl Iterator<Item = (usize, &[Use])> {
        let blocks = self.classes.get(bin).into_iter().flatten();
        blocks
            .enumerate()
            .filter(move |(_, held)| held.block.bytes >= bytes)
            .map(|(index, held)| (index, &held.uses[..]))
    }

    /// Takes out the block at a place that [`oldest`](Self::oldest) gave.
    pub(crate) fn take(&mut self, bin: usize, index: usize) -> Option<HeldBlock<A>> {
        let held = self.classes.get_mut(bin)?.remove(index)?;
        Some(self.count_out(held))
    }

    fn count_out(&mut self, held: HeldBlock<A>) -> HeldBlock<A> {
        self.blocks -= 1;
        self.bytes -= held.block.bytes as u64;
        held
    }

    /// The bins that may have blocks, smallest first.
    fn occupied(&self) -> impl DoubleEndedIterator<Item = usize> {
        let words = self.occupied.iter().enumerate();
        words
            .filter(|(_, bits)| **bits != 0)
            .flat_map(|(word, bits)| {
                let bits = *bits;
                (0..64)
                    .filter(move |bit| bits >> bit & 1 == 1)
                    .map(move |bit| word * 64 + bit)
            })
    }

    /// The largest block.
    pub(crate) fn pop_largest(&mut self) -> Option<HeldBlock<A>> {
        let bin = self.largest_bin()?;
        self.pop_youngest(bin, 0)
    }

    fn largest_bin(&self) -> Option<usize> {
        let mut bins = self.occupied().rev();
        bins.find(|bin| !self.classes[*bin].is_empty())
    }

    /// The size of the largest block, 0 where there is none.
    pub(crate) fn largest_bytes(&self) -> usize {
        let largest = self.largest_bin().map(|bin| &self.classes[bin]);
        let sizes = largest.into_iter().flatten().map(|held| held.block.bytes);
        sizes.max().unwrap_or(0)
    }

    /// Every block.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &HeldBlock<A>> {
        self.occupied().flat_map(|bin| &self.classes[bin])
    }

    /// Takes out every block that `wanted` picks, oldest first within each bin.
    pub(crate) fn take_all(&mut self, wanted: impl Fn(&HeldBlock<A>) -> bool) -> Vec<HeldBlock<A>> {
        let mut taken = Vec::new();
        for (word, bits) in self.occupied.iter_mut().enumerate() {
            let mut rest = *bits;
            while rest != 0 {
                let bit = rest.trailing_zeros();
                rest &= rest - 1;
                let blocks = &mut self.classes[word * 64 + bit as usize];
                if blocks.iter().any(&wanted) {
                    let (out, stay) = std::mem::take(blocks)
                        .into_iter()
                        .partition::<Vec<_>, _>(&wanted);
                    *blocks = stay.into();
                    taken.extend(out);
                }
                if blocks.is_empty() {
                    *bits &= !(1 << bit);
                }
            }
        }
        self.blocks -= taken.len();
        self.bytes -= taken
            .iter()
            .map(|held| held.block.bytes as u64)
            .sum::<u64>();
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock_pool::{Immediate, MockPool};

    const SIZES: [usize; 4] = [256, 1 << 10, 1 << 20, 3 << 20];

    fn bins(mock: &MockPool) -> Bins<Immediate> {
        let mut bins = Bins::default();
        for bytes in SIZES {
            bins.push(mock.unused(bytes));
        }
        bins
    }

    #[test]
    fn the_largest_block_is_told_and_goes_first() {
        let mock = MockPool::of_blocks();
        let mut bins = bins(&mock);
        for bytes in SIZES.into_iter().rev() {
            assert_eq!(bins.largest_bytes(), bytes);
            assert_eq!(bins.pop_largest().map(|held| held.block.bytes), Some(bytes));
        }
        assert_eq!(bins.largest_bytes(), 0);
        assert!(bins.pop_largest().is_none());
    }

    #[test]
    fn bins_that_everything_was_taken_out_of_are_not_looked_at_again() {
        let mock = MockPool::of_blocks();
        let mut bins = bins(&mock);
        let large = bins.take_all(|held| held.block.bytes >= 1 << 20);
        assert_eq!(large.len(), 2);
        assert_eq!((bins.blocks(), bins.bytes()), (2, 1280));
        assert_eq!(bins.occupied().count(), 2);
        assert_eq!(bins.take_all(|_| true).len(), 2);
        assert_eq!((bins.blocks(), bins.bytes()), (0, 0));
        assert_eq!(bins.occupied().count(), 0);
    }
}
