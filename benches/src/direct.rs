//! The allocator below the pool, by itself.

use binpool::{Allocator, Error, ImmediateAllocator};

use crate::{NullBackend, NullMemory, Subject};

/// The allocator that the pools of this crate work over, without a pool: what a request that no pool can serve costs at
/// least.
#[derive(Debug)]
pub struct Direct {
    allocator: ImmediateAllocator<NullBackend>,
}

impl Direct {
    /// The allocator on a device of its own.
    ///
    /// # Errors
    ///
    /// Those of the allocator.
    pub fn new() -> Result<Self, Error> {
        Ok(Self {
            allocator: ImmediateAllocator::new(&NullBackend::new())?,
        })
    }
}

/// A block of the allocator, which goes back to it.
#[derive(Debug)]
pub struct DirectBlock<'a> {
    allocator: &'a ImmediateAllocator<NullBackend>,
    memory: Option<NullMemory>,
}

impl<'a> Subject for &'a Direct {
    type Block = DirectBlock<'a>;

    const NAME: &'static str = "allocator";

    fn allocate(&self, bytes: usize) -> Option<DirectBlock<'a>> {
        let memory = self.allocator.allocate(bytes).ok()?;
        Some(DirectBlock {
            allocator: &self.allocator,
            memory: Some(memory),
        })
    }
}

impl Drop for DirectBlock<'_> {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            // This allocator's backend has no failures.
            let _ = self.allocator.release(memory, &[]);
        }
    }
}
