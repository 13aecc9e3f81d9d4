//! How blocks go from one queue to another.

use binpool_allocators::FailureOrder;

use crate::request::HitKind;

/// How a pool reuses a free block for another queue than the one that used it, or for an out-of-order queue.
///
/// Under every policy, a block that only one in-order queue used goes to the next user on that queue at once, with no
/// call to the device: the queue itself runs the old commands first. The policy says what else is tried before the
/// pool allocates fresh memory. Policies are named after the reuse attributes of CUDA's stream-ordered pools
/// (`cudaMemPoolReuseAllowOpportunistic`, `cudaMemPoolReuseAllowInternalDependencies`).
///
/// When memory runs out, the pool looks further than its policy before it gives up: see
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
///     block.enqueue_fill(&upload, 0..4096, &[7_u8])?; // Still pending when the other queue requests a block.
///     drop(block);
///     drop(pool.allocate_on(&compute, 4096)?);
///     let now = pool.statistics();
///     let came_by = (now.misses, now.device_wait_hits, now.host_wait_hits);
///     match policy {
///         ReusePolicy::InsertWait => assert_eq!(came_by, (1, 1, 0)),
///         ReusePolicy::WaitOnHost => assert_eq!(came_by, (1, 0, 1)),
///         _ => assert_eq!(came_by, (2, 0, 0)), // More memory, and no wait.
///     }
/// }
/// # Ok::<(), binpool::PoolError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReusePolicy {
    /// Never cross: each queue reuses only what it has used itself. [`retire_queue`](crate::MemoryPool::retire_queue)
    /// frees the memory of a queue that the program is done with.
    SameQueue,
    /// Cross if the commands of the former user have ended. Costs a marker on the former user's queue, and a query of
    /// its event. A pool of segments or pages polls for about as long as fresh memory would take to allocate: a marker
    /// that it has just enqueued takes a few microseconds to end on an idle queue.
    #[default]
    Opportunistic,
    /// As [`Opportunistic`](Self::Opportunistic); if the commands have not ended, cross at once, with a wait on the
    /// device: a barrier on the new user's queue waits for a marker on the old one's. The host never waits.
    ///
    /// The new user's queue then waits for everything enqueued on the old queue so far. If those commands wait for user events
    /// of the program, the host must not wait for the new user's queue before it resolves them: that would be a
    /// deadlock.
    InsertWait,
    /// As [`Opportunistic`](Self::Opportunistic); if the commands have not ended, the host waits for them. Needs the
    /// least memory, and keeps queues from overlapping.
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

    /// The policy as one word, as in snapshots and recordings.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::SameQueue => "same_queue",
            Self::Opportunistic => "opportunistic",
            Self::InsertWait => "insert_wait",
            Self::WaitOnHost => "wait_on_host",
        }
    }

    /// Returns whether a block may go to another queue while the device still has memory.
    pub(crate) const fn crosses(self) -> bool {
        !matches!(self, Self::SameQueue)
    }

    /// Returns how the policy waits for blocks that commands still use, on a device with this order of failures; `None`
    /// if it does not wait.
    pub(crate) const fn waits(self, failures: FailureOrder) -> Option<HitKind> {
        match self {
            Self::SameQueue | Self::Opportunistic => None,
            Self::InsertWait if failures.keeps_places() => Some(HitKind::DeviceWait),
            Self::InsertWait | Self::WaitOnHost => Some(HitKind::HostWait),
        }
    }
}
