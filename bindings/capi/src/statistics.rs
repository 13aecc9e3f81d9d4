//! The counters of a pool, as C has them.

use binpool::PoolStatistics;

/// The counters of a pool, all taken at the same moment. Sizes in bytes.
///
/// Active: in use by the program. Held: free, in the pool. Managed: both together, in whole blocks. Pending: held, but commands of a
/// former user may still run.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Statistics {
    /// Active blocks.
    pub active_blocks: u64,
    /// Active bytes, as they were requested.
    pub active_bytes: u64,
    /// The highest value of `active_bytes`.
    pub peak_active_bytes: u64,
    /// Free blocks in the pool. Free parts of segments do not count as blocks.
    pub held_blocks: u64,
    /// The sizes of the held blocks, and of the free parts of segments.
    pub held_bytes: u64,
    /// Held blocks that commands on several queues, or on an out-of-order queue, may still use.
    pub pending_blocks: u64,
    /// The sizes of the pending blocks, and of the free parts of segments that are pending in the same way.
    pub pending_bytes: u64,
    /// All bytes that the pool has from the device.
    pub managed_bytes: u64,
    /// The highest value of `managed_bytes`.
    pub peak_managed_bytes: u64,
    /// Allocations that a held block served.
    pub hits: u64,
    /// Hits by blocks that were carved from a segment that the pool had already.
    pub carved_hits: u64,
    /// Hits by blocks of another queue whose commands had ended.
    pub ended_hits: u64,
    /// Hits for which a queue waits on the device.
    pub device_wait_hits: u64,
    /// Hits for which the host waited.
    pub host_wait_hits: u64,
    /// Allocations that asked the device for memory.
    pub misses: u64,
    /// Allocations of 0 bytes.
    pub empty_allocations: u64,
    /// Allocations that failed for lack of memory.
    pub out_of_memory: u64,
    /// Free blocks or segments that went back to the device.
    pub released_blocks: u64,
    /// Calls that mapped pages, in a CUDA pool.
    pub maps: u64,
    /// Calls that unmapped pages.
    pub unmaps: u64,
    /// The time that pages took to move to other addresses, in nanoseconds.
    pub move_nanoseconds: u64,
    /// Active blocks that were released while views of them are in use.
    pub viewed_blocks: u64,
    /// The sizes of the viewed blocks, in whole blocks.
    pub viewed_bytes: u64,
    /// The blocks of a period, if the program repeats its work and the pool has a plan for it; 0 without one.
    pub planned_blocks: u64,
    /// The bytes of the segments with planned places.
    pub planned_bytes: u64,
    /// The most of the planned bytes that are in use at once.
    pub planned_peak_bytes: u64,
}

/// Copies the pool's fields.
macro_rules! copied {
    (gauges: { $($gauge:ident: $unit:ident, $gauge_text:literal;)* } counters: { $($counter:ident, $counter_text:literal;)* }) => {
        impl From<PoolStatistics> for Statistics {
            fn from(now: PoolStatistics) -> Self {
                Self { $($gauge: now.$gauge,)* $($counter: now.$counter),* }
            }
        }
    };
}

binpool::for_each_counter!(copied);
