//! The source of a replay's blocks: a pool, or the allocator itself.

use binpool::{Allocator, Error, MemoryOf, MemoryPool, PoolError, PooledBuffer, QueueOf};

/// The source of a replay's blocks.
pub(crate) trait Source {
    type Allocator: Allocator;
    type Block;

    fn allocator(&self) -> &Self::Allocator;

    fn allocate(
        &self,
        queue: &QueueOf<Self::Allocator>,
        bytes: usize,
    ) -> Result<Self::Block, PoolError>;

    fn free(&self, block: Self::Block) -> Result<(), Error>;

    /// Returns the block's memory, for a command on `queue`; `None` for a block of 0 bytes.
    fn memory<'b>(
        block: &'b Self::Block,
        queue: &QueueOf<Self::Allocator>,
    ) -> Option<&'b MemoryOf<Self::Allocator>>;

    /// Returns the number of allocations that were served without the device.
    fn hits(&self) -> u64;

    /// Returns the number of blocks that this source counts as active; `None` where it keeps no count.
    fn active_blocks(&self) -> Option<u64>;

    /// Returns the most bytes that were live at once, as they were asked for; `None` where this source keeps no count.
    fn peak_live_bytes(&self) -> Option<u64>;

    /// Releases what is free.
    fn trim(&self) {}
}

impl<A: Allocator> Source for MemoryPool<A> {
    type Allocator = A;
    type Block = PooledBuffer<A>;

    fn allocator(&self) -> &A {
        Self::allocator(self)
    }

    fn allocate(&self, queue: &QueueOf<A>, bytes: usize) -> Result<PooledBuffer<A>, PoolError> {
        self.allocate_on(queue, bytes)
    }

    fn free(&self, block: PooledBuffer<A>) -> Result<(), Error> {
        block.release()
    }

    fn memory<'b>(block: &'b PooledBuffer<A>, queue: &QueueOf<A>) -> Option<&'b MemoryOf<A>> {
        block.memory_on(queue)
    }

    fn hits(&self) -> u64 {
        self.statistics().hits
    }

    fn active_blocks(&self) -> Option<u64> {
        Some(self.statistics().active_blocks)
    }

    fn peak_live_bytes(&self) -> Option<u64> {
        Some(self.statistics().peak_active_bytes)
    }

    fn trim(&self) {
        self.free_held();
    }
}

/// A source without a pool: every block is allocated from the device and released to it.
#[derive(Debug)]
pub(crate) struct Unpooled<A>(pub(crate) A);

impl<A: Allocator> Source for Unpooled<A> {
    type Allocator = A;
    type Block = Option<MemoryOf<A>>;

    fn allocator(&self) -> &A {
        &self.0
    }

    fn allocate(&self, _queue: &QueueOf<A>, bytes: usize) -> Result<Self::Block, PoolError> {
        if bytes == 0 {
            return Ok(None);
        }
        Ok(Some(self.0.allocate(bytes)?))
    }

    fn free(&self, block: Self::Block) -> Result<(), Error> {
        block.map_or(Ok(()), |memory| self.0.release(memory, &[]))
    }

    fn memory<'b>(block: &'b Self::Block, _queue: &QueueOf<A>) -> Option<&'b MemoryOf<A>> {
        block.as_ref()
    }

    fn hits(&self) -> u64 {
        0
    }

    fn active_blocks(&self) -> Option<u64> {
        None
    }

    fn peak_live_bytes(&self) -> Option<u64> {
        None
    }
}
