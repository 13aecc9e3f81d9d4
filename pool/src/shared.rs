//! The data that the handles of a pool and its blocks share.

#[cfg(feature = "snapshot")]
use std::path::PathBuf;
use std::{fmt, sync::Arc};

use binpool_allocators::{Align, Allocator, Backend, FailureOrder, QueueId, adaptors::Budget};
use crossbeam_utils::CachePadded;
use parking_lot::Condvar;

use crate::{
    Retain, ReusePolicy, block, central, classes::Classes, free, hooks::Hooks,
    order::timestamps::Clock, scrubber::Scrubber, track::watch::TrackingFlag,
};
use binpool_lock::{biased::Own, per_thread::PoolId, spin_lock::Lock};
use binpool_segments::GrowthPolicy;

/// The reference to the pool that each active and each cached block has.
pub(crate) type Share<B> = Arc<Shared<B>>;

pub(crate) type Block<B> = block::Block<B>;
pub(crate) type Body<B> = block::Body<B, Share<B>>;
pub(crate) type BlockBox<B> = block::BlockBox<B, Share<B>>;
pub(crate) type LeasedBlock<B> = block::LeasedBlock<B, Share<B>>;
pub(crate) type Depot<B> = free::depot::Depot<B, Share<B>>;
pub(crate) type HeldBlock<B> = block::HeldBlock<B, Share<B>>;
pub(crate) type Bins<B> = free::bins::Bins<B, Share<B>>;
pub(crate) type Cached<B> = block::Cached<B, Share<B>>;
pub(crate) type CarvedHere<B> = free::spare_leases::CarvedHere<B, Share<B>>;
pub(crate) type ThreadCache<B> = free::thread_cache::ThreadCache<B, Share<B>>;
/// The cache of the running thread, which that thread alone enters without a lock.
pub(crate) type OwnCache<'a, B> = Own<'a, ThreadCache<B>>;
pub(crate) type Quarantined<B> = free::quarantine::Quarantined<B, Share<B>>;
pub(crate) type QueueStates<B> = central::queue_states::QueueStates<B, Share<B>>;
pub(crate) type State<B> = central::State<B, Share<B>>;
pub(crate) type Viewed<B> = block::Viewed<B, Share<B>>;

/// The data that the handles of a pool and its blocks share.
///
/// The lock is never held while the allocator, the device or a hook is called. Values whose drop calls the device (memory,
/// events, queues) are moved out, and dropped after the lock.
pub(crate) struct Shared<B: Backend> {
    pub(crate) id: PoolId<ThreadCache<B>>,
    /// As it was when the pool was made: a cached hit checks a queue without a call of the allocator.
    pub(crate) backend: B,
    /// It takes its bytes from the budget.
    pub(crate) allocator: Arc<dyn Allocator<Backend = B>>,
    /// The limit of the pool. `u64::MAX` bytes are no limit.
    pub(crate) budget: Budget,
    /// The name of the type that the program gave as the allocator.
    pub(crate) allocator_name: &'static str,
    pub(crate) default_queue: B::Queue,
    pub(crate) default_queue_id: QueueId,
    /// The alignment of all blocks.
    pub(crate) alignment: Align,
    pub(crate) classes: Classes,
    pub(crate) clock: Arc<Clock>,
    /// What the end of a device's event proves about the commands before it.
    pub(crate) failures: FailureOrder,
    /// Set if each thread caches free blocks.
    pub(crate) has_thread_caches: bool,
    pub(crate) policy: ReusePolicy,
    /// Set if blocks are carved from segments.
    pub(crate) carves: bool,
    pub(crate) growth: GrowthPolicy,
    pub(crate) retain: Retain,
    pub(crate) scrubber: Scrubber<B>,
    pub(crate) hooks: Hooks,
    pub(crate) tracking: TrackingFlag,
    /// The folder for snapshots that are written when memory runs out.
    #[cfg(feature = "snapshot")]
    pub(crate) snapshots: Option<PathBuf>,
    pub(crate) depot: Arc<Depot<B>>,
    /// On cache lines of its own, because threads that take the lock would slow down those that read the fields beside it.
    pub(crate) state: CachePadded<Lock<State<B>>>,
    /// Notified when nothing is left in transit.
    pub(crate) arrived: Condvar,
}

impl<B: Backend> fmt::Debug for Shared<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("allocator", &self.allocator)
            .field("default_queue", &self.default_queue)
            .finish_non_exhaustive()
    }
}
