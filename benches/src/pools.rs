//! The pool, with segments and without.

use binpool::{
    Backend, ImmediateAllocator, MemoryPool, PoolError, PoolOptions, PooledBuffer, QueueOrder,
    Retain,
};

use crate::{NullBackend, Subject};

/// The pool as its users hold it, over a device that costs nothing.
#[derive(Debug)]
pub struct Pool {
    pool: MemoryPool<NullBackend>,
}

impl Pool {
    /// A pool with the default settings.
    ///
    /// # Errors
    ///
    /// Those of the pool.
    pub fn new() -> Result<Self, PoolError> {
        Self::with_options(PoolOptions::new())
    }

    fn with_options(options: PoolOptions) -> Result<Self, PoolError> {
        let backend = NullBackend::new();
        let queue = backend.create_queue(QueueOrder::InOrder)?;
        Ok(Self {
            pool: options.build(ImmediateAllocator::new(&backend)?, &queue)?,
        })
    }

    /// The pool itself.
    #[must_use]
    pub fn pool(&self) -> &MemoryPool<NullBackend> {
        &self.pool
    }
}

/// What becomes of an error. Out of line, since no pair that is measured has one.
#[cold]
#[inline(never)]
fn refused(_: PoolError) {}

impl Subject for Pool {
    type Block = PooledBuffer<NullBackend>;

    const NAME: &'static str = "binpool";

    /// Inline, as a program's own function calls the pool.
    #[inline]
    fn allocate(&self, bytes: usize) -> Option<Self::Block> {
        self.pool.allocate(bytes).map_err(refused).ok()
    }

    fn free_held(&self) {
        self.pool.free_held();
    }

    fn stop_holding(&self) {
        self.pool.stop_holding();
    }

    fn reclaim(&self) {
        let managed = self.pool.statistics().managed_bytes;
        self.pool.trim_to(managed / 2);
    }
}

/// The same without segments: bins alone, which keep every free block.
#[derive(Debug)]
pub struct Bins(Pool);

impl Bins {
    /// A pool without segments that keeps every free block.
    ///
    /// # Errors
    ///
    /// Those of the pool.
    pub fn new() -> Result<Self, PoolError> {
        let options = PoolOptions::new()
            .segments(false)
            .retain(Retain::new().at_least(u64::MAX));
        Pool::with_options(options).map(Self)
    }

    /// The pool itself.
    #[must_use]
    pub fn pool(&self) -> &MemoryPool<NullBackend> {
        self.0.pool()
    }
}

impl Subject for Bins {
    type Block = <Pool as Subject>::Block;

    const NAME: &'static str = "binpool-bins";

    #[inline]
    fn allocate(&self, bytes: usize) -> Option<Self::Block> {
        self.0.allocate(bytes)
    }

    fn free_held(&self) {
        self.0.free_held();
    }

    fn stop_holding(&self) {
        self.0.stop_holding();
    }

    fn reclaim(&self) {
        self.0.reclaim();
    }
}
