//! The data that the handles of a pool and its blocks share.

#[cfg(feature = "snapshot")]
use std::path::PathBuf;
use std::{fmt, sync::Arc};

use binpool_allocators::{
    Align, Allocator, FailureOrder, GrowthPolicy, QueueId, QueueOf, spin_lock::Lock,
};
use crossbeam_utils::CachePadded;
use parking_lot::Condvar;

use crate::{
    HighWater, ReusePolicy, block, central,
    classes::Classes,
    free,
    hooks::Hooks,
    lock::{biased::Owner, per_thread::PoolId},
    order::clock::Clock,
    scrubber::Scrubber,
    track::watch::TrackingFlag,
};

/// The reference to the pool that each active and each cached block has.
pub(crate) type Share<A> = Arc<Shared<A>>;

pub(crate) type Block<A> = block::Block<A, Share<A>>;
pub(crate) type Depot<A> = free::depot::Depot<A, Share<A>>;
pub(crate) type HeldBlock<A> = block::HeldBlock<A, Share<A>>;
pub(crate) type Bins<A> = free::bins::Bins<A, Share<A>>;
pub(crate) type Cached<A> = free::cached::Cached<A, Share<A>>;
pub(crate) type CachedBlock<A> = free::cached::CachedBlock<A, Share<A>>;
pub(crate) type CarvedHere<A> = free::spare_leases::CarvedHere<A, Share<A>>;
pub(crate) type ThreadCache<A> = free::thread_cache::ThreadCache<A, Share<A>>;
/// The cache of the running thread, which that thread alone enters without a lock.
pub(crate) type OwnCache<A> = Owner<ThreadCache<A>>;
pub(crate) type Quarantined<A> = free::quarantine::Quarantined<A, Share<A>>;
pub(crate) type QueueState<A> = central::queue_state::QueueState<A, Share<A>>;
pub(crate) type QueueStates<A> = central::queue_states::QueueStates<A, Share<A>>;
pub(crate) type State<A> = central::State<A, Share<A>>;
pub(crate) type Viewed<A> = free::viewed::Viewed<A, Share<A>>;

/// The data that the handles of a pool and its blocks share.
///
/// The lock is never held while the allocator, the device or a hook is called. Values whose drop calls the device (memory,
/// events, queues) are moved out, and dropped after the lock.
pub(crate) struct Shared<A: Allocator> {
    pub(crate) id: PoolId<ThreadCache<A>>,
    pub(crate) allocator: A,
    pub(crate) default_queue: QueueOf<A>,
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
    pub(crate) has_segments: bool,
    pub(crate) growth: GrowthPolicy,
    /// Above this many managed bytes, free memory is released as soon as no command uses it.
    pub(crate) release_threshold: u64,
    /// How much a pool without segments manages.
    pub(crate) high_water: HighWater,
    pub(crate) scrubber: Scrubber<A>,
    pub(crate) hooks: Hooks,
    pub(crate) tracking: TrackingFlag,
    /// The folder for snapshots that are written when memory runs out.
    #[cfg(feature = "snapshot")]
    pub(crate) snapshots: Option<PathBuf>,
    pub(crate) depot: Arc<Depot<A>>,
    /// On cache lines of its own, because threads that take the lock would slow down those that read the fields beside it.
    pub(crate) state: CachePadded<Lock<State<A>>>,
    /// Notified when nothing is left in transit.
    pub(crate) arrived: Condvar,
}

impl<A: Allocator> fmt::Debug for Shared<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("allocator", &self.allocator)
            .field("default_queue", &self.default_queue)
            .finish_non_exhaustive()
    }
}
