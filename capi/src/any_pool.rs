//! What can be asked of a pool, whatever its backend.

use std::io::Write;

use binpool::{
    Allocator, LiveBlocks, MemoryPool, PoolRecording, PoolStatistics, RecordError, Snapshot,
    WatchOptions, adaptors::Limit,
};

/// A pool of any backend, with a limit in bytes that can be changed.
pub trait AnyPool: Send + Sync {
    /// Returns the pool's figures.
    fn statistics(&self) -> PoolStatistics;

    /// The most bytes that the pool may take from the device; [`u64::MAX`] where there is no limit.
    fn limit(&self) -> u64;

    /// Sets the most bytes that the pool may take from the device. What it has above that stays until it is freed.
    fn set_limit(&self, bytes: u64);

    /// Releases free memory until the pool has at most `bytes` bytes of the device, and returns the bytes released. Blocks in use stay.
    fn trim_to(&self, bytes: u64) -> u64;

    /// Releases free memory, and from now on each block when it is freed.
    fn stop_holding(&self);

    /// Returns the blocks in use by their tags and callers.
    fn live_blocks(&self) -> LiveBlocks;

    /// Returns what the pool has, block by block.
    fn snapshot(&self) -> Snapshot;

    /// Begins to write down every request.
    ///
    /// # Errors
    ///
    /// Those of [`MemoryPool::record`].
    fn record(&self, file: Box<dyn Write + Send>) -> Result<PoolRecording, RecordError>;

    /// Begins to note the tag and the age of each block.
    fn watch(&self, options: WatchOptions);

    /// Ends what [`watch`](Self::watch) began.
    fn stop_watching(&self);

    /// Returns whether the pool notes the tag of each request: it is watched or recorded.
    fn is_watching(&self) -> bool;
}

impl<A: Allocator + 'static> AnyPool for MemoryPool<Limit<A>> {
    fn statistics(&self) -> PoolStatistics {
        Self::statistics(self)
    }

    fn limit(&self) -> u64 {
        self.allocator().budget().max_bytes()
    }

    fn set_limit(&self, bytes: u64) {
        self.allocator().budget().set_max_bytes(bytes);
    }

    fn trim_to(&self, bytes: u64) -> u64 {
        Self::trim_to(self, bytes)
    }

    fn stop_holding(&self) {
        Self::stop_holding(self);
    }

    fn live_blocks(&self) -> LiveBlocks {
        Self::live_blocks(self)
    }

    fn snapshot(&self) -> Snapshot {
        Self::snapshot(self)
    }

    fn record(&self, file: Box<dyn Write + Send>) -> Result<PoolRecording, RecordError> {
        Self::record(self, file)
    }

    fn watch(&self, options: WatchOptions) {
        Self::watch(self, options);
    }

    fn stop_watching(&self) {
        Self::stop_watching(self);
    }

    fn is_watching(&self) -> bool {
        Self::is_watching(self)
    }
}
