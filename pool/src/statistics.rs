//! The counters of a pool.

use std::fmt;

use binpool_allocators::words;

/// Counters of a pool, all taken at the same moment. Sizes in bytes.
///
/// Each thread has counters of its own, and reading adds them up. Where other threads use the pool, that takes a system call and a
/// few microseconds. The call is Linux's `membarrier`. If a program makes a pool and then enters a sandbox that refuses the call,
/// the pool cannot look into the caches of other threads. Then the free blocks in another thread's cache count as active, and no other
/// thread can use them, until that thread next misses, drops a block that its cache has no room for, or ends. A sandbox that is
/// entered before the pool is made has no such effect.
///
/// The words are `PyOpenCL`'s where it has them. *Active*: in use by the program. *Held*: free, in the pool. *Managed*: active and
/// held together, in whole blocks. *Pending*: held, but not reusable at once, since commands
/// on several queues, or on an out-of-order queue, may still use it. Empty blocks (of 0 bytes) take no
/// memory, and are counted only in [`empty_allocations`](Self::empty_allocations).
///
/// With [segments](crate::PoolOptions::segments), there are two kinds of free memory. A recently dropped block is a held
/// block. Later it becomes a free part of its segment and joins its neighbours: then it counts among the held bytes, but no
/// longer as a block. Also, the pool takes whole segments from its allocator. So a first block of 4 KiB makes it manage 128 KiB,
/// from which the next blocks are carved. `PyOpenCL`'s pool has no segments, and would manage 4 KiB.
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
///
/// With segments:
///
/// ```
/// # use binpool::{Backend, ImmediateAllocator, PoolOptions, QueueOrder};
/// # use binpool_mock::MockDevice;
/// # let backend = MockDevice::new().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let pool = PoolOptions::new()
///     .segments(true)
///     .build(ImmediateAllocator::new(&backend)?, &queue)?;
/// let small = pool.allocate(4096)?;
/// let now = pool.statistics();
/// assert_eq!(now.managed_bytes, 128 << 10); // A segment,
/// assert_eq!((now.held_blocks, now.held_bytes), (0, 124 << 10)); // of which this is free.
/// drop(small);
/// let now = pool.statistics();
/// assert_eq!((now.held_blocks, now.held_bytes), (1, 128 << 10)); // One part of it is a held block.
/// # Ok::<(), binpool::PoolError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "snapshot", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "snapshot", serde(default))]
#[non_exhaustive]
pub struct PoolStatistics {
    /// Active blocks.
    pub active_blocks: u64,
    /// Active bytes, as requested.
    pub active_bytes: u64,
    /// The highest value of `active_bytes`. With several threads it may be too low, or too high, by what they allocated or freed
    /// by themselves at that moment: at most 256 MiB and a block for each, and never above
    /// [`peak_managed_bytes`](Self::peak_managed_bytes).
    pub peak_active_bytes: u64,
    /// Active blocks that the program has dropped but still has views of ([`PooledBuffer`](crate::PooledBuffer#views)).
    /// A block that stays here has a view that the program forgot.
    pub viewed_blocks: u64,
    /// The sizes of the viewed blocks, in whole blocks.
    pub viewed_bytes: u64,
    /// Free blocks in the pool, including pending ones. Free parts of segments do not count as blocks.
    pub held_blocks: u64,
    /// The sizes of the held blocks, and of the free parts of segments.
    pub held_bytes: u64,
    /// Held blocks that commands may still use, on more than one queue or on an out-of-order queue. Blocks that only one in-order
    /// queue used are not counted: that queue may reuse them at once.
    pub pending_blocks: u64,
    /// The sizes of the pending blocks, and of the free parts of segments that are pending in the same way.
    pub pending_bytes: u64,
    /// All bytes that the pool has from its allocator: active blocks, in whole blocks, and [`held_bytes`](Self::held_bytes).
    pub managed_bytes: u64,
    /// The highest value of `managed_bytes`.
    pub peak_managed_bytes: u64,
    /// The blocks of a period, if the program repeats its work and the pool places its blocks by a plan; 0 without one. Small blocks are not counted.
    pub planned_blocks: u64,
    /// The bytes of the segments in which these blocks lie.
    pub planned_bytes: u64,
    /// The most bytes of these segments that are in use at once, by the plan.
    pub planned_peak_bytes: u64,
    /// Allocations served from held memory. With a [`ScrubPolicy`](crate::ScrubPolicy), hits and misses also count
    /// allocations that failed because the block could not be filled with zeros.
    pub hits: u64,
    /// Hits with blocks that another queue or an out-of-order queue had used, where the commands there had ended, or where the
    /// requesting queue already waited for them.
    pub ended_hits: u64,
    /// Hits for which the pool made the queue wait on the device ([`InsertWait`](crate::ReusePolicy::InsertWait)).
    pub device_wait_hits: u64,
    /// Hits for which the host waited ([`WaitOnHost`](crate::ReusePolicy::WaitOnHost)). On a device that
    /// [loses](binpool_allocators::FailureOrder::Lost) the order of commands, it also waits under
    /// [`InsertWait`](crate::ReusePolicy::InsertWait).
    pub host_wait_hits: u64,
    /// Hits with blocks carved from a segment that the pool already had
    /// ([`segments`](crate::PoolOptions::segments)).
    pub carved_hits: u64,
    /// Allocations that went to the allocator, for a block or a segment.
    pub misses: u64,
    /// Allocations of 0 bytes.
    pub empty_allocations: u64,
    /// Allocations that failed for lack of memory.
    pub out_of_memory: u64,
    /// Held blocks, or free segments or pages, that were released to the allocator.
    pub released_blocks: u64,
    /// Calls that mapped pages; 0 unless the allocator is a [`VirtualMemoryAllocator`](crate::VirtualMemoryAllocator).
    pub maps: u64,
    /// Calls that unmapped pages.
    pub unmaps: u64,
    /// The time that pages took to move to other addresses, in nanoseconds. A [budget](crate::PoolOptions::move_budget) bounds it.
    pub move_nanoseconds: u64,
}

/// Gives a macro each field of [`PoolStatistics`], with a text for metrics: the one list from which metrics, C and Python take them. A field that is
/// missing here is an error of the compiler.
#[doc(hidden)]
#[macro_export]
macro_rules! for_each_counter {
    ($macro:ident) => {
        $macro! {
            gauges: {
                active_blocks: Count, "Blocks in use by the program.";
                active_bytes: Bytes, "Bytes in use by the program, as requested.";
                peak_active_bytes: Bytes, "Peak of the active bytes.";
                viewed_blocks: Count, "Blocks that the program has released but still has views of.";
                viewed_bytes: Bytes, "Bytes that the program has released but still has views of.";
                held_blocks: Count, "Free blocks in the pool: cached, not leaked.";
                held_bytes: Bytes, "Free bytes in the pool: cached, not leaked.";
                pending_blocks: Count, "The held blocks that commands may still use.";
                pending_bytes: Bytes, "The part of the held bytes that commands may still use.";
                managed_bytes: Bytes, "Bytes that the pool has from its allocator.";
                peak_managed_bytes: Bytes, "Peak of the managed bytes.";
                planned_blocks: Count, "Blocks that the program allocates again and again, and that have planned places.";
                planned_bytes: Bytes, "Bytes of the segments with planned places.";
                planned_peak_bytes: Bytes, "Peak of the planned bytes in use, by the plan.";
            }
            counters: {
                hits, "Allocations served from the pool's memory.";
                ended_hits, "Hits across queues with blocks whose commands had ended.";
                device_wait_hits, "Hits for which a queue was made to wait on the device.";
                host_wait_hits, "Hits for which the host waited.";
                carved_hits, "Hits with blocks carved from a segment.";
                misses, "Allocations that went to the allocator.";
                empty_allocations, "Allocations of 0 bytes.";
                out_of_memory, "Allocations that failed for lack of memory.";
                released_blocks, "Blocks, segments or pages released to the allocator.";
                maps, "Calls that mapped pages.";
                unmaps, "Calls that unmapped pages.";
                move_nanoseconds, "Time that pages took to move, in nanoseconds.";
            }
        }
    };
}

/// Fails to compile for a field that is not in the list.
macro_rules! complete {
    (gauges: { $($gauge:ident: $unit:ident, $gauge_text:literal;)* } counters: { $($counter:ident, $counter_text:literal;)* }) => {
        const _: fn(PoolStatistics) = |PoolStatistics { $($gauge: _,)* $($counter: _),* }| ();
    };
}

for_each_counter!(complete);
#[cfg(feature = "metrics")]
pub(crate) use for_each_counter;

impl PoolStatistics {
    /// The share of all allocations that were hits, from 0 to 1; 0 before the first allocation.
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
    /// // All allocations but the first of each size.
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

    /// Returns the planned bytes over those of them that are in use at most; `None` without a plan.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "a ratio for people; exact up to 8 PiB"
    )]
    pub fn planned_over_peak(&self) -> Option<f64> {
        let has_plan = self.planned_peak_bytes > 0;
        has_plan.then(|| self.planned_bytes as f64 / self.planned_peak_bytes as f64)
    }

    /// Returns after how many blocks the program repeats its work, and how densely they are planned, in words; `None` without a plan.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// for _ in 0..8 {
    ///     let mut live = Vec::new();
    ///     for number in 0..24 {
    ///         live.push(pool.allocate((7 * number * number % 61 + 5) << 20)?);
    ///         if live.len() > 2 {
    ///             live.remove(0);
    ///         }
    ///     }
    /// }
    /// let statistics = pool.statistics();
    /// let repetition = statistics.repetition().expect("planned by now");
    /// assert!(repetition.starts_with("repeats every 24 blocks, planned at 1.0"));
    /// assert!(statistics.planned_over_peak() < Some(1.05));
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    #[must_use]
    pub fn repetition(&self) -> Option<String> {
        let ratio = self.planned_over_peak()?;
        let blocks = words::blocks(self.planned_blocks);
        Some(format!(
            "repeats every {blocks}, planned at {ratio:.3} times what is live"
        ))
    }
}

/// A table for people.
///
/// ```
/// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
/// # use binpool_mock::MockDevice;
/// # let backend = MockDevice::new().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
/// let kept = pool.allocate(3_000_000)?;
/// drop(pool.allocate(5 << 20)?);
/// let expected = "\
/// in use        2.9 MiB   1 block; at most 7.9 MiB so far
/// rounded up    6.3 KiB   lost to rounding
/// cached        5.0 MiB   1 block, kept for the next requests
///   pending         0 B   not reusable yet: commands may use it
/// from device   7.9 MiB   at most 7.9 MiB so far
/// hit rate        0.0 %   of 2 allocations; 0 failed for lack of memory";
/// assert_eq!(pool.statistics().to_string(), expected);
/// # drop(kept);
/// # Ok::<(), binpool::PoolError>(())
/// ```
impl fmt::Display for PoolStatistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = self.active_bytes.saturating_add(self.held_bytes);
        let rounded_up = self.managed_bytes.saturating_sub(used);
        let held = if self.held_blocks == 0 && self.held_bytes > 0 {
            "free parts of segments".into()
        } else {
            words::blocks(self.held_blocks)
        };
        let at_most = |bytes| format!("at most {} so far", words::bytes(bytes));
        let rows = [
            (
                "in use",
                self.active_bytes,
                format!(
                    "{}; {}",
                    words::blocks(self.active_blocks),
                    at_most(self.peak_active_bytes)
                ),
            ),
            ("rounded up", rounded_up, "lost to rounding".into()),
            (
                "cached",
                self.held_bytes,
                format!("{held}, kept for the next requests"),
            ),
            (
                "  pending",
                self.pending_bytes,
                "not reusable yet: commands may use it".into(),
            ),
            (
                "from device",
                self.managed_bytes,
                at_most(self.peak_managed_bytes),
            ),
        ];
        for (what, bytes, remark) in rows {
            writeln!(f, "{what:<11} {:>9}   {remark}", words::bytes(bytes))?;
        }
        if let Some(repetition) = self.repetition() {
            let bytes = words::bytes(self.planned_bytes);
            writeln!(f, "planned     {bytes:>9}   {repetition}")?;
        }
        let percent = format!("{:.1} %", self.hit_rate() * 100.0);
        write!(
            f,
            "hit rate    {percent:>9}   of {} allocations; {} failed for lack of memory",
            self.hits + self.misses,
            self.out_of_memory
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hit_rate_is_the_share_of_hits_in_all_allocations() {
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

    #[test]
    fn bytes_that_are_held_in_no_block_are_free_parts_of_segments() {
        for (held_blocks, held_bytes, held) in [
            (0, 0, "0 blocks"),
            (0, 5, "free parts of segments"),
            (2, 5, "2 blocks"),
        ] {
            let statistics = PoolStatistics {
                held_blocks,
                held_bytes,
                ..PoolStatistics::default()
            };
            let text = statistics.to_string();
            let line = format!("{held_bytes} B   {held}, kept for the next requests\n");
            assert!(text.contains(&line), "{text}");
        }
    }

    #[test]
    fn a_plan_is_told_as_a_period_and_a_ratio() {
        let statistics = PoolStatistics {
            planned_blocks: 924,
            planned_bytes: 1020,
            planned_peak_bytes: 1000,
            ..PoolStatistics::default()
        };
        let line = "planned        1020 B   repeats every 924 blocks, planned at 1.020 times what is live\n";
        let text = statistics.to_string();
        assert!(text.contains(line), "{text}");
        assert!(!PoolStatistics::default().to_string().contains("planned"));
    }
}
