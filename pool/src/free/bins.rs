//! Free blocks by size class.

use std::collections::{BTreeMap, VecDeque};

use binpool_allocators::Backend;

use crate::{block::HeldBlock, order::timestamps::QueueUse};

/// Free blocks, by age within each size class.
///
/// # Invariants
///
/// - I1: a block lies in the bin with its own bin number.
/// - I2: `blocks` and `bytes` are the number and the sizes of all blocks in all bins.
///
/// The bins are in a map, because the program's size classes number them: a fine scheme has millions of bins, few of them in use.
///
/// All blocks of a bin have the size of its class, except where the class is larger than the device's largest block: there each
/// block has the exact size that was requested.
#[derive(Debug)]
pub(crate) struct Bins<B: Backend, O> {
    /// The blocks of each bin, oldest first. An empty bin stays until [`take_all`](Self::take_all), so that the next block finds
    /// its memory.
    classes: BTreeMap<usize, VecDeque<HeldBlock<B, O>>>,
    blocks: usize,
    bytes: u64,
}

impl<B: Backend, O> Default for Bins<B, O> {
    fn default() -> Self {
        Self {
            classes: BTreeMap::new(),
            blocks: 0,
            bytes: 0,
        }
    }
}

impl<B: Backend, O> Bins<B, O> {
    pub(crate) fn blocks(&self) -> usize {
        self.blocks
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The number of blocks of a bin.
    pub(crate) fn blocks_of(&self, bin: usize) -> usize {
        self.classes.get(&bin).map_or(0, VecDeque::len)
    }

    /// The bins from `first` to `last` that have blocks.
    pub(crate) fn between(&self, first: usize, last: usize) -> impl Iterator<Item = usize> {
        // The map's `range` panics if the range ends before it begins.
        let bins = (first <= last).then(|| self.classes.range(first..=last));
        let bins = bins.into_iter().flatten();
        bins.filter(|(_, blocks)| !blocks.is_empty())
            .map(|(bin, _)| *bin)
    }

    /// Adds a block as the youngest of its bin.
    pub(crate) fn push(&mut self, held: HeldBlock<B, O>) {
        self.make_room(&held).push_back(held);
    }

    /// Adds a block as the oldest of its bin.
    pub(crate) fn push_oldest(&mut self, held: HeldBlock<B, O>) {
        self.make_room(&held).push_front(held);
    }

    fn make_room(&mut self, held: &HeldBlock<B, O>) -> &mut VecDeque<HeldBlock<B, O>> {
        self.blocks += 1;
        self.bytes += held.block.bytes as u64;
        self.classes.entry(held.block.bin).or_default()
    }

    /// Takes the youngest block of this bin that has at least `bytes` bytes.
    #[inline]
    pub(crate) fn pop_youngest(&mut self, bin: usize, bytes: usize) -> Option<HeldBlock<B, O>> {
        // The common case of a miss.
        if self.blocks == 0 {
            return None;
        }
        self.pop_youngest_of_some(bin, bytes)
    }

    fn pop_youngest_of_some(&mut self, bin: usize, bytes: usize) -> Option<HeldBlock<B, O>> {
        let blocks = self.classes.get_mut(&bin)?;
        let fits = |held: &HeldBlock<B, O>| held.block.bytes >= bytes;
        let held = if blocks.back().is_some_and(fits) {
            blocks.pop_back()?
        } else {
            let index = blocks.iter().rposition(fits)?;
            blocks.remove(index)?
        };
        Some(self.count_out(held))
    }

    /// The blocks of this bin that have at least `bytes` bytes, oldest first: their indices and their uses.
    pub(crate) fn oldest(
        &self,
        bin: usize,
        bytes: usize,
    ) -> impl Iterator<Item = (usize, &[QueueUse])> {
        let blocks = self.classes.get(&bin).into_iter().flatten();
        blocks
            .enumerate()
            .filter(move |(_, held)| held.block.bytes >= bytes)
            .map(|(index, held)| (index, &held.uses[..]))
    }

    /// Takes out the block at an index that [`oldest`](Self::oldest) returned.
    pub(crate) fn take(&mut self, bin: usize, index: usize) -> Option<HeldBlock<B, O>> {
        let held = self.classes.get_mut(&bin)?.remove(index)?;
        Some(self.count_out(held))
    }

    fn count_out(&mut self, held: HeldBlock<B, O>) -> HeldBlock<B, O> {
        self.blocks -= 1;
        self.bytes -= held.block.bytes as u64;
        held
    }

    /// Takes out the oldest block of the first bin whose oldest block has at least this many bytes.
    pub(crate) fn pop_covering(&mut self, bytes: u64) -> Option<HeldBlock<B, O>> {
        let covers = |blocks: &VecDeque<HeldBlock<B, O>>| {
            let oldest = blocks.front();
            oldest.is_some_and(|held| held.block.bytes as u64 >= bytes)
        };
        let mut bins = self.classes.iter();
        let (bin, _) = bins.find(|(_, blocks)| covers(blocks))?;
        let bin = *bin;
        self.take(bin, 0)
    }

    /// Takes out the largest block.
    pub(crate) fn pop_largest(&mut self) -> Option<HeldBlock<B, O>> {
        let (bin, _) = self.largest_bin()?;
        self.pop_youngest(bin, 0)
    }

    /// The last bin that has blocks, and its blocks.
    fn largest_bin(&self) -> Option<(usize, &VecDeque<HeldBlock<B, O>>)> {
        let mut bins = self.classes.iter().rev();
        let (bin, blocks) = bins.find(|(_, blocks)| !blocks.is_empty())?;
        Some((*bin, blocks))
    }

    /// The size of the largest block; 0 if there is none.
    pub(crate) fn largest_bytes(&self) -> usize {
        let largest = self.largest_bin().map(|(_, blocks)| blocks);
        let sizes = largest.into_iter().flatten().map(|held| held.block.bytes);
        sizes.max().unwrap_or(0)
    }

    /// All blocks.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &HeldBlock<B, O>> {
        self.classes.values().flatten()
    }

    /// Takes out the `wanted` blocks, oldest first within each bin, and removes the bins that are empty then.
    pub(crate) fn take_all(
        &mut self,
        wanted: impl Fn(&HeldBlock<B, O>) -> bool,
    ) -> Vec<HeldBlock<B, O>> {
        let mut taken = Vec::new();
        // The common case of a miss.
        if self.classes.is_empty() {
            return taken;
        }
        self.classes.retain(|_, blocks| {
            if blocks.iter().any(&wanted) {
                let (out, stay) = std::mem::take(blocks)
                    .into_iter()
                    .partition::<Vec<_>, _>(&wanted);
                *blocks = stay.into();
                taken.extend(out);
            }
            !blocks.is_empty()
        });
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
    use binpool_mock::MockBackend;

    use crate::{mock_pool::MockPool, shared::Bins};

    const SIZES: [usize; 4] = [256, 1 << 10, 1 << 20, 3 << 20];

    fn bins(mock: &MockPool) -> Bins<MockBackend> {
        let mut bins = Bins::default();
        for bytes in SIZES {
            bins.push(mock.unused(bytes));
        }
        bins
    }

    #[test]
    fn the_largest_block_is_popped_first() {
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
    fn bins_that_are_empty_after_taking_all_are_removed() {
        let mock = MockPool::of_blocks();
        let mut bins = bins(&mock);
        let large = bins.take_all(|held| held.block.bytes >= 1 << 20);
        assert_eq!(large.len(), 2);
        assert_eq!((bins.blocks(), bins.bytes()), (2, 1280));
        assert_eq!(bins.classes.len(), 2);
        assert_eq!(bins.take_all(|_| true).len(), 2);
        assert_eq!((bins.blocks(), bins.bytes()), (0, 0));
        assert_eq!(bins.classes.len(), 0);
    }

    #[test]
    fn only_bins_with_blocks_are_listed() {
        let mock = MockPool::of_blocks();
        let mut bins = Bins::default();
        for bin in [7, 5_000, usize::MAX] {
            let mut held = mock.unused(256);
            held.block.bin = bin;
            bins.push(held);
        }
        let between = |bins: &Bins<MockBackend>, first, last| -> Vec<usize> {
            bins.between(first, last).collect()
        };
        assert_eq!(between(&bins, 0, usize::MAX), [7, 5_000, usize::MAX]);
        assert_eq!(between(&bins, 8, 5_000), [5_000]);
        assert!(
            between(&bins, 5_001, 8).is_empty(),
            "it ends before it begins"
        );
        bins.pop_youngest(5_000, 0);
        assert_eq!(between(&bins, 7, 5_000), [7], "bin 5000 is empty by now");
    }

    #[test]
    fn blocks_of_one_bin_and_different_sizes_are_told_apart() {
        let mock = MockPool::of_blocks();
        let fresh = || {
            let mut bins = Bins::default();
            for bytes in [768, 256, 1024, 512] {
                let mut held = mock.unused(bytes);
                held.block.bin = 7;
                bins.push(held);
            }
            bins
        };
        let sizes = |bins: &Bins<MockBackend>| -> Vec<usize> {
            bins.iter().map(|held| held.block.bytes).collect()
        };
        let mut bins = fresh();
        assert_eq!(bins.largest_bytes(), 1024);
        let youngest = bins.pop_youngest(7, 600);
        assert_eq!(youngest.map(|held| held.block.bytes), Some(1024));
        let next = bins.pop_youngest(7, 600);
        assert_eq!(next.map(|held| held.block.bytes), Some(768));
        assert!(bins.pop_youngest(7, 600).is_none());
        assert_eq!((sizes(&bins), bins.bytes()), (vec![256, 512], 768));
        // The oldest of a bin covers as many bytes as it has.
        let mut bins = fresh();
        assert!(bins.pop_covering(769).is_none());
        let covering = bins.pop_covering(768);
        assert_eq!(covering.map(|held| held.block.bytes), Some(768));
        assert_eq!(sizes(&bins), [256, 1024, 512]);
    }
}
