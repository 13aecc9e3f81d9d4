//! Watching a pool: it tracks which caller has which block.

use binpool_allocators::Backend;

use crate::{MemoryPool, track::watch::WatchOptions};

/// # Watching
impl<B: Backend> MemoryPool<B> {
    /// Begins to track which caller has which block: the tag and the line of the program that requested it, and the
    /// time. [`live_blocks`](Self::live_blocks) and [snapshots](Self::snapshot) show this. Blocks that
    /// are in use already are counted there, without a caller.
    ///
    /// Costs a few nanoseconds per allocation, and nothing while it is off. The first pool of a process that watches
    /// waits up to 0.2 seconds for its clock.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder, WatchOptions};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// let before = pool.allocate(4096)?;
    /// assert!(!pool.is_watching());
    /// pool.watch(WatchOptions::new());
    /// let block = pool.allocate(4096)?;
    /// let live = pool.live_blocks();
    /// assert_eq!((live.groups.len(), live.unknown_blocks), (1, 1));
    ///
    /// pool.stop_watching();
    /// assert_eq!(pool.live_blocks().unknown_blocks, 2); // Counted as ever, and no longer known.
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    pub fn watch(&self, options: WatchOptions) {
        self.handle()
            .change_watch(|watch| watch.options = Some(options));
    }

    /// Stops watching and forgets the callers of all blocks, unless a [recording](Self::record) goes on.
    pub fn stop_watching(&self) {
        self.handle().change_watch(|watch| watch.options = None);
    }

    /// Returns whether the pool tracks which caller has which block.
    #[must_use]
    pub fn is_watching(&self) -> bool {
        self.handle().tracking.is_on()
    }
}
