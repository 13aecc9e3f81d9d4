//! What a pool has done and what it holds.

/// Counters of a pool, all taken at the same moment. Sizes in bytes.
///
/// Each thread counts by itself, and reading adds up: a system call and a few microseconds where other threads use the pool.
///
/// The words are `PyOpenCL`'s where it has them. *Active*: in the user's hands. *Held*: free, in the pool.
/// *Managed*: active and held together, in whole blocks. *Pending*: held, but commands of a former owner may
/// still run. Empty blocks (of 0 bytes) take no memory, and count nowhere but in
/// [`empty_allocations`](Self::empty_allocations).
///
/// ```
/// use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
/// # use binpool_mock::MockDevice;
/// # let backend = MockDevice::new().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
/// let kept = pool.allocate(3 << 20)?;
/// drop(pool.allocate(5 << 20)?);
/// let now = pool.statistics();
/// assert_eq!((now.active_bytes, now.held_bytes), (3 << 20, 5 << 20)); // In use, and cached.
/// assert_eq!(now.managed_bytes, now.active_bytes + now.held_bytes);
/// # drop(kept);
/// # Ok::<(), binpool::PoolError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "snapshot", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "snapshot", serde(default))]
#[non_exhaustive]
pub struct PoolStatistics {
    /// Blocks in the user's hands.
    pub active_blocks: u64,
    /// Bytes in the user's hands, as they were asked for.
    pub active_bytes: u64,
    /// The most `active_bytes` there have been. Where several threads use the pool, it may be less, or more, by what they had
    /// at hand just then.
    pub peak_active_bytes: u64,
    /// Free blocks in the pool, pending ones among them.
    pub held_blocks: u64,
    /// Their sizes.
    pub held_bytes: u64,
    /// Held blocks that commands may still use, on more than one queue or on an out-of-order queue. Those that one
    /// in-order queue used are not among them: that queue may have them at once.
    pub pending_blocks: u64,
    /// Their sizes.
    pub pending_bytes: u64,
    /// Active and held blocks together, in whole blocks: what the pool has from its allocator.
    pub managed_bytes: u64,
    /// The most `managed_bytes` there have been.
    pub peak_managed_bytes: u64,
    /// Allocations that a held block served.
    pub hits: u64,
    /// Hits by blocks that other queues used, or out-of-order ones, and that were free because the commands there
    /// had ended, or because the queue waited for them already.
    pub ended_hits: u64,
    /// Hits for which the queue was made to wait on the device ([`InsertWait`](crate::ReusePolicy::InsertWait)).
    pub device_wait_hits: u64,
    /// Hits for which the host waited ([`WaitOnHost`](crate::ReusePolicy::WaitOnHost)).
    pub host_wait_hits: u64,
    /// Hits by blocks that were carved from a segment which the pool had already
    /// ([`segments`](crate::PoolOptions::segments)).
    pub carved_hits: u64,
    /// Allocations that the allocator served.
    pub misses: u64,
    /// Allocations of 0 bytes.
    pub empty_allocations: u64,
    /// Allocations that failed for lack of memory.
    pub out_of_memory: u64,
    /// Held blocks that were given back to the allocator.
    pub released_blocks: u64,
}

impl PoolStatistics {
    /// The part of all allocations that a held block served, from 0 to 1; 0 before the first allocation.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// for _ in 0..10 {
    ///     drop((pool.allocate(64 << 20)?, pool.allocate(4096)?));
    /// }
    /// // All but the first of each size.
    /// assert_eq!(pool.statistics().hit_rate(), 0.9);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "a ratio for people; 2^53 allocations are exact"
    )]
    pub fn hit_rate(&self) -> f64 {
        match self.hits + self.misses {
            0 => 0.0,
            all => self.hits as f64 / all as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hit_rate_is_the_part_of_allocations_that_hit() {
        for (hits, misses, rate) in [(0, 0, 0.0), (0, 5, 0.0), (3, 1, 0.75), (7, 0, 1.0)] {
            let statistics = PoolStatistics {
                hits,
                misses,
                ..PoolStatistics::default()
            };
            let difference = statistics.hit_rate() - rate;
            assert!(
                difference.abs() < f64::EPSILON,
                "{hits} of {}",
                hits + misses
            );
        }
    }
}
