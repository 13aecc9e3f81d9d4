//! The data under the pool's lock. Nothing here calls the device.

pub(crate) mod allowance;
pub(crate) mod caches;
pub(crate) mod counters;
pub(crate) mod find;
pub(crate) mod homes;
pub(crate) mod keep;
pub(crate) mod ladder;
mod move_budget;
pub(crate) mod queue_state;
pub(crate) mod queue_states;
pub(crate) mod ranges;
mod regret;
pub(crate) mod release;
pub(crate) mod rules;
pub(crate) mod watch;

use std::{collections::BTreeMap, sync::Arc};

use binpool_allocators::{Backend, FailureOrder, MemoryId};

use crate::{
    PoolStatistics,
    block::{Block, Viewed},
    central::{
        homes::Homes, move_budget::MoveBudget, queue_states::QueueStates, regret::Regret,
        rules::Rules,
    },
    free::{
        bins::Bins, depot::Depot, fills::Fills, quarantine::Quarantine, thread_cache::ThreadCache,
    },
    growing::Dropped,
    order::{
        queue_uses::{QueueUses, join_of_one_kind},
        timestamps::{Clock, QueueKey},
    },
    request::Request,
    retain::SweepClock,
    track::watch::Watch,
};
use binpool_lock::{biased::BiasedLocks, transit::Transit};
use binpool_segments::Segments;

/// A queue gets a fence each time requests for it have taken one part in this of the bytes of the segments.
const FENCE_PARTS: u64 = 16;

/// The queues that requests have used.
#[derive(Clone, Copy, Debug)]
enum AskingQueues {
    None,
    One(QueueKey),
    Several,
}

/// All data of a pool that changes.
///
/// # Invariants
///
/// - I1: a free block lies in one of these places:
///   - the free list of a queue, a thread cache or the depot: only this queue used it, and it is in order;
///   - `pending`: commands may use it on several queues, or on an out-of-order one;
///   - `idle`: no command uses it;
///   - `unscrubbed`: it has to be filled with zeros first;
///   - a segment, as a free range; or `quarantine`, as a range;
///   - `dropped`, if it grew.
/// - I2: the state of the default queue is never removed while the pool has a handle.
/// - I3: `managed_bytes` is the size of the active blocks, in whole blocks, plus `held_bytes`.
/// - I4: a block that has views is active: the program has it, or it is in `viewed`.
#[derive(Debug)]
pub(crate) struct State<B: Backend, O> {
    pub(crate) queues: QueueStates<B, O>,
    /// The thread caches.
    pub(crate) threads: BiasedLocks<ThreadCache<B, O>>,
    pub(crate) homes: Homes,
    /// Surplus blocks of thread caches.
    pub(crate) depot: Arc<Depot<B, O>>,
    /// How many requests took [blocks from other threads](Self::caches_to_drain).
    pub(crate) steals: u64,
    /// The idle list: blocks that no command uses, ready for any queue.
    pub(crate) idle: Bins<B, O>,
    /// The pending list: blocks that commands on several queues, or on an out-of-order one, may still use.
    pub(crate) pending: Bins<B, O>,
    /// Set if blocks are carved from segments; otherwise the allocator allocates each block on its own.
    pub(crate) carves: bool,
    pub(crate) rules: Rules,
    /// The segments that blocks are carved from. There are none in a pool that does not carve.
    pub(crate) segments: Segments<B::Memory, QueueUses>,
    /// The time that moves of pages may take.
    moves: MoveBudget,
    asking: AskingQueues,
    /// What bins released to keep to the high water, and what was requested again.
    regret: Regret,
    /// Blocks of segments that no request may have before they are filled with zeros; `None` once the last handle is gone, after which no
    /// request comes.
    pub(crate) unscrubbed: Option<Bins<B, O>>,
    /// The fills with zeros of held memory; empty if the pool does not scrub freed blocks.
    pub(crate) fills: Fills<B::Event>,
    /// Memory that could not be released yet.
    pub(crate) quarantine: Quarantine<B, O>,
    /// Freed blocks that the program still has views of; `None` once the last handle is gone, since no one can get them then.
    pub(crate) viewed: Option<Vec<Viewed<B, O>>>,
    /// Set while freed blocks are cached. Permanently unset once the last handle of the pool is gone.
    pub(crate) holding: bool,
    /// How many [values](crate::KeptAddresses) keep all memory where it is.
    kept_by: usize,
    pub(crate) transit: Transit,
    /// Decides when a sweep is due; `None` if free memory is kept without limit.
    pub(crate) sweep_clock: Option<SweepClock>,
    /// Set while the pool manages more than its [release threshold](crate::Retain::release_threshold), and so keeps the thread caches closed.
    is_above_threshold: bool,
    pub(crate) counters: PoolStatistics,
    /// How often requests have looked at commands since the pool last grew.
    looked: u32,
    /// How many requests took a segment or mapped pages.
    growths: u64,
    /// The number of sweeps so far.
    sweeps: u32,
    /// How many times memory came back to the pool or arrived at the allocator.
    pub(crate) changes: u64,
    /// The number of active blocks. May be negative for a moment: a thread that returned blocks has been [counted](Self::count_activity),
    /// but the thread that received them has not.
    pub(crate) active_blocks: i64,
    /// The bytes of the active blocks, as they were requested.
    pub(crate) active_bytes: i64,
    /// The bytes of the active blocks, in whole blocks.
    pub(crate) in_use: i64,
    /// The peak of `in_use`.
    pub(crate) peak_in_use: i64,
    /// Blocks that grew, were dropped, and still have their pages.
    pub(crate) dropped: Vec<Dropped<B>>,
    /// The pages of blocks that grow: the identity of the block's memory, where in it they are mapped, and their bytes.
    pub(crate) grown: BTreeMap<(MemoryId, usize), usize>,
    /// The records of active blocks, for tracking.
    pub(crate) watch: Watch,
}

impl<B: Backend, O> State<B, O> {
    pub(crate) fn new(
        default_queue: &B::Queue,
        failures: FailureOrder,
        clock: Arc<Clock>,
        carves: bool,
        segments: Segments<B::Memory, QueueUses>,
        rules: Rules,
    ) -> Self {
        let mut queues = QueueStates::new(failures, clock);
        queues.find_or_add(default_queue);
        Self {
            queues,
            threads: BiasedLocks::default(),
            homes: Homes::default(),
            depot: Arc::default(),
            steals: 0,
            idle: Bins::default(),
            pending: Bins::default(),
            carves,
            rules,
            segments,
            moves: MoveBudget::default(),
            asking: AskingQueues::None,
            regret: Regret::default(),
            unscrubbed: Some(Bins::default()),
            fills: Fills::default(),
            quarantine: Quarantine::default(),
            viewed: Some(Vec::new()),
            holding: true,
            kept_by: 0,
            sweep_clock: rules.retain.sweep_clock(),
            is_above_threshold: false,
            counters: PoolStatistics::default(),
            looked: 0,
            growths: 0,
            sweeps: 0,
            changes: 0,
            active_blocks: 0,
            active_bytes: 0,
            in_use: 0,
            peak_in_use: 0,
            transit: Transit::default(),
            dropped: Vec::new(),
            grown: BTreeMap::new(),
            watch: Watch::default(),
        }
    }

    /// Counts an active block of this queue. Returns the key of the queue's state, which stays until [`leave`](Self::leave) is
    /// called with it.
    pub(crate) fn enter(&mut self, queue: &B::Queue) -> QueueKey {
        let key = self.queues.find_or_add(queue);
        self.note_asking(key);
        if let Some(queue_state) = self.queues.get_mut(key) {
            queue_state.active += 1;
            // A retired queue keeps the gates closed, so that a new request for it is seen here.
            if std::mem::take(&mut queue_state.is_retired) {
                self.threads.open();
            }
        }
        key
    }

    /// Returns whether the queue of a request is to get a fence before its next commands. Other queues can have its memory once a fence
    /// after the last use has ended, and a fence that is made only when a request needs the memory ends after everything that is pending by
    /// then.
    pub(crate) fn is_fence_due(&mut self, key: QueueKey, request: Request) -> bool {
        if !self.have_several_queues_asked() {
            return false;
        }
        let managed = self.segments.bytes();
        let queue_state = self.queues.get_mut(key);
        managed > 0
            && queue_state.is_some_and(|it| it.is_fence_due(request.bytes, managed / FENCE_PARTS))
    }

    pub(crate) fn have_several_queues_asked(&self) -> bool {
        matches!(self.asking, AskingQueues::Several)
    }

    /// Keeps pages that no command uses apart from those of queues, once there is a second queue that could have them.
    fn note_asking(&mut self, key: QueueKey) {
        self.asking = match self.asking {
            AskingQueues::None => AskingQueues::One(key),
            AskingQueues::One(other) if other != key => AskingQueues::Several,
            AskingQueues::One(_) | AskingQueues::Several => return,
        };
        if self.have_several_queues_asked() && self.segments.has_pages() {
            self.segments.set_join(join_of_one_kind);
        }
    }

    /// Undoes one [`enter`](Self::enter).
    pub(crate) fn leave(&mut self, key: Option<QueueKey>) {
        if let Some(queue_state) = key.and_then(|key| self.queues.get_mut(key)) {
            queue_state.active -= 1;
        }
    }

    /// Returns the uses, up to now, of a block that was allocated for the queue of `queue_key`, if it has one, and that was also used on
    /// `others`.
    pub(crate) fn stamp(&mut self, queue_key: Option<QueueKey>, others: &[B::Queue]) -> QueueUses {
        let mut uses: QueueUses = queue_key
            .map(|queue_key| self.queues.stamp(queue_key))
            .into_iter()
            .collect();
        for queue in others {
            let other = self.queues.find_or_add(queue);
            uses.push(self.queues.stamp(other));
        }
        uses
    }

    /// Counts and tracks a block that its user frees. Returns its uses.
    pub(crate) fn take_back(
        &mut self,
        block: &Block<B>,
        asked: usize,
        others: &[B::Queue],
    ) -> QueueUses {
        self.record_free(block);
        let uses = self.stamp(block.lease.key, others);
        self.deactivate(asked, block.bytes);
        uses
    }
}

#[cfg(test)]
mod clock_model;
#[cfg(test)]
mod every_way_up;
#[cfg(test)]
mod exhaustive;
#[cfg(test)]
mod tests;
