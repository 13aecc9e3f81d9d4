//! What is measured.

use std::alloc::{GlobalAlloc, Layout, System};

use binpool::{
    Backend, ImmediateAllocator, MemoryPool, PoolError, PoolOptions, PooledBuffer, QueueOrder,
};
use binpool_mock::{MockBackend, MockDevice};

/// Anything that hands out blocks.
pub trait Subject {
    /// A block in its user's hands, given back when it is dropped.
    type Block;

    /// The name in reports.
    const NAME: &'static str;

    /// A block of at least `bytes` bytes; `None` where there is no memory, which ends a measurement.
    fn allocate(&self, bytes: usize) -> Option<Self::Block>;
}

/// The pool as its users hold it, over the mock device, which costs nothing where the pool serves a request.
#[derive(Debug)]
pub struct Pool {
    pool: MemoryPool<ImmediateAllocator<MockBackend>>,
}

impl Pool {
    /// A pool over a device of 64 GiB.
    ///
    /// # Errors
    ///
    /// Those of the pool.
    pub fn new() -> Result<Self, PoolError> {
        Self::with_options(PoolOptions::new())
    }

    fn with_options(options: PoolOptions) -> Result<Self, PoolError> {
        let device = MockDevice::builder().capacity_bytes(64 << 30).build();
        let backend = device.backend();
        let queue = backend.create_queue(QueueOrder::InOrder)?;
        Ok(Self {
            pool: options.build(ImmediateAllocator::new(&backend)?, &queue)?,
        })
    }

    /// The pool itself.
    #[must_use]
    pub fn pool(&self) -> &MemoryPool<ImmediateAllocator<MockBackend>> {
        &self.pool
    }
}

impl Subject for Pool {
    type Block = PooledBuffer<ImmediateAllocator<MockBackend>>;

    const NAME: &'static str = "binpool";

    fn allocate(&self, bytes: usize) -> Option<Self::Block> {
        self.pool.allocate(bytes).ok()
    }
}

/// The same without segments: bins alone.
#[derive(Debug)]
pub struct Bins(Pool);

impl Bins {
    /// A pool over a device of 64 GiB.
    ///
    /// # Errors
    ///
    /// Those of the pool.
    pub fn new() -> Result<Self, PoolError> {
        let options = PoolOptions::new().segments(false);
        Pool::with_options(options).map(Self)
    }
}

impl Subject for Bins {
    type Block = <Pool as Subject>::Block;

    const NAME: &'static str = "binpool, bins alone";

    fn allocate(&self, bytes: usize) -> Option<Self::Block> {
        self.0.allocate(bytes)
    }
}

/// The C library's `malloc` and `free`. Host memory, hence not the same service, but the price that everybody
/// knows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Malloc;

/// A block of host memory.
#[derive(Debug)]
pub struct HostBlock {
    address: *mut u8,
    layout: Layout,
}

impl Subject for Malloc {
    type Block = HostBlock;

    const NAME: &'static str = "malloc";

    fn allocate(&self, bytes: usize) -> Option<HostBlock> {
        let layout = Layout::from_size_align(bytes.max(1), 16).ok()?;
        // SAFETY: the layout's size is not zero.
        let address = unsafe { System.alloc(layout) };
        (!address.is_null()).then_some(HostBlock { address, layout })
    }
}

impl Drop for HostBlock {
    fn drop(&mut self) {
        // SAFETY: `address` came from this allocator with this layout, and is freed here only.
        unsafe { System.dealloc(self.address, self.layout) }
    }
}
