//! The source of a replay's blocks: a pool, or the allocator itself.

use binpool::{Allocator, Backend, Error, MemoryPool, PoolError, PoolStatistics, PooledBuffer};
use binpool_allocators::{MemoryOf, QueueOf};

type Queue<S> = <<S as Source>::Backend as Backend>::Queue;
type Memory<S> = <<S as Source>::Backend as Backend>::Memory;

/// The source of a replay's blocks.
pub(crate) trait Source {
    type Backend: Backend;
    type Block;

    fn backend(&self) -> &Self::Backend;

    fn allocate(&self, queue: &Queue<Self>, bytes: usize) -> Result<Self::Block, PoolError>;

    fn free(&self, block: Self::Block) -> Result<(), Error>;

    /// Returns the block's memory, for a command on `queue`; `None` for a block of 0 bytes.
    fn memory<'b>(block: &'b Self::Block, queue: &Queue<Self>) -> Option<&'b Memory<Self>>;

    /// Returns the pool's counters; `None` if this source is none.
    fn statistics(&self) -> Option<PoolStatistics> {
        None
    }

    /// Releases all free memory.
    fn trim(&self) {}
}

impl<B: Backend> Source for MemoryPool<B> {
    type Backend = B;
    type Block = PooledBuffer<B>;

    fn backend(&self) -> &B {
        Self::backend(self)
    }

    fn allocate(&self, queue: &B::Queue, bytes: usize) -> Result<PooledBuffer<B>, PoolError> {
        self.allocate_on(queue, bytes)
    }

    fn free(&self, block: PooledBuffer<B>) -> Result<(), Error> {
        block.release()
    }

    fn memory<'b>(block: &'b PooledBuffer<B>, queue: &B::Queue) -> Option<&'b B::Memory> {
        block.memory_on(queue)
    }

    fn statistics(&self) -> Option<PoolStatistics> {
        Some(Self::statistics(self))
    }

    fn trim(&self) {
        self.free_held();
    }
}

/// A source without a pool: every block is allocated from the device and released to it.
#[derive(Debug)]
pub(crate) struct Unpooled<A>(pub(crate) A);

impl<A: Allocator> Source for Unpooled<A> {
    type Backend = A::Backend;
    type Block = Option<MemoryOf<A>>;

    fn backend(&self) -> &A::Backend {
        self.0.backend()
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
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failing test panics")]
mod tests {
    use binpool::{DeferredAllocator, QueueOrder};
    use binpool_mock::MockDevice;

    use super::*;

    #[test]
    fn a_pool_says_how_many_of_its_blocks_are_in_use() {
        let backend = MockDevice::new().backend();
        let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
        let pool = MemoryPool::new(DeferredAllocator::new(&backend), &queue).unwrap();
        let statistics = || Source::statistics(&pool).unwrap();
        let block = Source::allocate(&pool, &queue, 100).unwrap();
        assert_eq!(statistics().active_blocks, 1);
        Source::free(&pool, block).unwrap();
        assert_eq!(statistics().active_blocks, 0);
        assert_eq!(statistics().peak_active_bytes, 100);
    }
}
