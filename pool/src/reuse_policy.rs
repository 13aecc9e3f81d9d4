//! What a queue may take from another.

use crate::state::Origin;

/// How a pool reuses a free block for another queue than the one that used it, or for an out-of-order queue,
/// whose own order keeps nothing apart.
///
/// Under every policy, a block that only one in-order queue used goes to the next user on that queue at once,
/// with no call to the device: the queue itself runs the old commands first. The policies say what else is tried
/// before the device is asked for fresh memory. They are named after the reuse attributes of CUDA's
/// stream-ordered pools (`cudaMemPoolReuseAllowOpportunistic`, `cudaMemPoolReuseAllowInternalDependencies`).
///
/// A queue that runs out of memory looks further than its policy, before it gives up: see
/// [`MemoryPool`](crate::MemoryPool).
///
/// ```
/// # use binpool::{Backend, ImmediateAllocator, PoolOptions, QueueOrder};
/// # use binpool_mock::{Completion, MockDevice};
/// use binpool::ReusePolicy;
///
/// # let backend = MockDevice::builder().completion(Completion::Manual).build().backend();
/// # let [upload, compute] = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
/// for policy in ReusePolicy::ALL {
///     let pool = PoolOptions::new()
///         .segments(false)
///         .reuse(policy)
///         .build(ImmediateAllocator::new(&backend)?, &upload)?;
///     let block = pool.allocate_on(&upload, 4096)?;
///     block.enqueue_fill(&upload, 0..4096, &[7], &[])?; // Which has not run when the other queue asks.
///     drop(block);
///     drop(pool.allocate_on(&compute, 4096)?);
///     let now = pool.statistics();
///     let came_by = (now.misses, now.device_wait_hits, now.host_wait_hits);
///     match policy {
///         ReusePolicy::InsertWait => assert_eq!(came_by, (1, 1, 0)),
///         ReusePolicy::WaitOnHost => assert_eq!(came_by, (1, 0, 1)),
///         _ => assert_eq!(came_by, (2, 0, 0)), // More memory, and nobody waits.
///     }
/// }
/// # Ok::<(), binpool::PoolError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReusePolicy {
    /// Never cross: each queue reuses what it has used itself. A program that calls
    /// [`retire_queue`](crate::MemoryPool::retire_queue) when it is done with a queue gets its memory back.
    SameQueue,
    /// Cross where the commands of the former user have ended. It costs a marker on the queue that is asked, and
    /// a look at its event.
    #[default]
    Opportunistic,
    /// As [`Opportunistic`](Self::Opportunistic); and where the commands have not ended, cross at once, with a
    /// wait on the device: a barrier on the new user's queue, for a marker on the old one's. The host never
    /// waits.
    ///
    /// The new user's queue then waits for everything that was enqueued on the old one's so far. A program whose
    /// queues wait for the host (for user events that it resolves) must not have the host wait for the one queue
    /// before it lets the other go on.
    InsertWait,
    /// As [`Opportunistic`](Self::Opportunistic); and where the commands have not ended, the host waits for
    /// them. It needs the least memory, and keeps queues from overlapping.
    WaitOnHost,
}

impl ReusePolicy {
    /// All policies.
    pub const ALL: [Self; 4] = [
        Self::SameQueue,
        Self::Opportunistic,
        Self::InsertWait,
        Self::WaitOnHost,
    ];

    /// Whether a block may go to another queue than its own as long as the device has memory.
    pub(crate) const fn crosses(self) -> bool {
        !matches!(self, Self::SameQueue)
    }

    /// Where blocks are waited for that commands still use: how they come to their user then.
    pub(crate) const fn waits(self) -> Option<Origin> {
        match self {
            Self::SameQueue | Self::Opportunistic => None,
            Self::InsertWait => Some(Origin::DeviceWait),
            Self::WaitOnHost => Some(Origin::HostWait),
        }
    }
}
