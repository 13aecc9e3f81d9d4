//! The leases that blocks leave when they go back to their segments, for the next blocks.

use binpool_allocators::Backend;

use crate::{
    block::Shell,
    order::{
        queue_uses::QueueUses,
        timestamps::{QueueKey, Timestamp},
    },
};
use binpool_segments::{Arenas, Ready};

/// The most spare leases of a queue: enough for the blocks that a backward pass frees in a row, since a block without room for its lease
/// takes the pool's lock when it is freed. Each takes some 200 bytes of host memory. Fewer under `shuttle` and Miri, whose programs are
/// short.
pub(crate) const MAX_SPARE_LEASES: usize = if cfg!(any(shuttle, miri)) { 2 } else { 256 };

/// The arenas of a pool's segments.
pub(crate) type PoolArenas<B> = Arenas<<B as Backend>::Memory, QueueUses>;

/// The leases that blocks of a queue leave when they go back to their segments, for the next blocks that are carved for this queue.
///
/// Each stands for one count in [`QueueState::active`](crate::central::queue_state::QueueState::active), and has a reference to the pool.
/// So carving a block changes neither of these two counters, which all threads share.
#[derive(Debug)]
pub(crate) struct SpareLeases<B: Backend, O> {
    /// The key of the queue's state, which is valid while there are leases.
    pub(crate) queue_key: QueueKey,
    pub(crate) all: Vec<SpareLease<B, O>>,
    /// The last use of a block that was returned.
    pub(crate) last_use: Timestamp,
}

/// The lease of one block.
#[derive(Debug)]
pub(crate) struct SpareLease<B: Backend, O> {
    /// The reference to the pool.
    pub(crate) share: O,
    /// `None` if it comes from no block.
    pub(crate) shell: Option<Shell<B, O>>,
}

/// A range that a thread took from its own arena, with the lease of its block.
pub(crate) struct CarvedHere<B: Backend, O> {
    pub(crate) ready: Ready<B::Memory>,
    pub(crate) queue_key: QueueKey,
    pub(crate) lease: SpareLease<B, O>,
}

impl<B: Backend, O> SpareLeases<B, O> {
    /// Returns none, of the queue of this state.
    pub(crate) fn none(queue_key: QueueKey) -> Self {
        Self {
            queue_key,
            all: Vec::new(),
            last_use: Timestamp::default(),
        }
    }

    pub(crate) fn add(&mut self, queue_key: QueueKey, lease: SpareLease<B, O>) {
        // The queue's state may have gone and come back while there was no lease.
        if self.all.is_empty() {
            self.queue_key = queue_key;
        }
        self.all.push(lease);
    }
}
