//! Free blocks, sorted by size class.

use binpool_allocators::{Allocator, MemoryOf};

/// A block of device memory between its users.
#[derive(Debug)]
pub(crate) struct Block<A: Allocator> {
    pub(crate) memory: MemoryOf<A>,
    /// The bin that it goes back to.
    pub(crate) bin: usize,
    /// Its size: what the allocator was asked for, hence what the pool answers for.
    pub(crate) bytes: usize,
}

/// Free blocks, last in first out within each size class.
///
/// # Invariants
///
/// - I1: a block lies in the bin that it names.
/// - I2: `blocks` and `bytes` are the number and the sizes of all blocks in all bins.
///
/// All blocks of a bin have the size of its class, except in the bins whose class is larger than the device's
/// largest block: there each block has the exact size that was asked for.
#[derive(Debug)]
pub(crate) struct Bins<A: Allocator> {
    /// The free blocks of each bin.
    classes: Vec<Vec<Block<A>>>,
    blocks: usize,
    bytes: u64,
}

impl<A: Allocator> Default for Bins<A> {
    fn default() -> Self {
        Self {
            classes: Vec::new(),
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

    pub(crate) fn push(&mut self, block: Block<A>) {
        if self.classes.len() <= block.bin {
            self.classes.resize_with(block.bin + 1, Vec::new);
        }
        self.blocks += 1;
        self.bytes += block.bytes as u64;
        self.classes[block.bin].push(block);
    }

    /// The block of this bin that was freed last, if it has `bytes` bytes, else another that has.
    pub(crate) fn pop(&mut self, bin: usize, bytes: usize) -> Option<Block<A>> {
        let blocks = self.classes.get_mut(bin)?;
        let fits = |block: &Block<A>| block.bytes >= bytes;
        let block = if blocks.last().is_some_and(fits) {
            blocks.pop()?
        } else {
            let index = blocks.iter().rposition(fits)?;
            blocks.remove(index)
        };
        self.blocks -= 1;
        self.bytes -= block.bytes as u64;
        Some(block)
    }

    /// The least bin, `bin` or above, that has a block of at least `bytes` bytes.
    pub(crate) fn least_fitting(&self, bin: usize, bytes: usize) -> Option<usize> {
        let fits = |block: &Block<A>| block.bytes >= bytes;
        (bin..self.classes.len()).find(|bin| self.classes[*bin].iter().any(fits))
    }

    /// The largest block.
    pub(crate) fn pop_largest(&mut self) -> Option<Block<A>> {
        let bin = self.classes.iter().rposition(|blocks| !blocks.is_empty())?;
        self.pop(bin, 0)
    }

    /// The size of the largest block, 0 where there is none.
    pub(crate) fn largest_bytes(&self) -> usize {
        let largest = self.classes.iter().rev().find(|blocks| !blocks.is_empty());
        largest
            .and_then(|blocks| blocks.iter().map(|block| block.bytes).max())
            .unwrap_or(0)
    }
}
