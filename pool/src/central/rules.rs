//! What decides what a request tries: the settings of a pool, and the limits of its allocator.

use binpool_allocators::{Backend, Error, OutOfMemory, Queue, QueueId, Scope};

use crate::{Retain, central::queue_state::QueueState, request::HitKind};

/// The settings of a pool that the ladder goes by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Set if memory may cross from one queue to another while the device has room.
    pub(crate) crosses: bool,
    /// How a request waits for memory that commands still use; `None` if it does not.
    pub(crate) wait: Option<HitKind>,
    pub(crate) retain: Retain,
    /// What segments are rounded up to, in bytes.
    pub(crate) alignment: usize,
    pub(crate) default_queue: QueueId,
    /// The most time that moves of pages may take, in percent.
    pub(crate) move_percent: u32,
}

impl Rules {
    /// Returns whether a queue has no active block and may be retired: any queue but the default one, or, with `retired_only`, only those that
    /// the program retired.
    pub(crate) fn may_retire<B: Backend, O>(
        self,
        it: &QueueState<B, O>,
        retired_only: bool,
    ) -> bool {
        it.active == 0 && it.queue.id() != self.default_queue && (it.is_retired || !retired_only)
    }
}

/// The limits of the pool's allocator, read before the pool's lock is taken.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits {
    /// The most bytes that the allocator gives in total.
    pub(crate) capacity: u64,
    /// The most bytes that it gives now.
    pub(crate) available: u64,
    /// The largest block that it gives.
    pub(crate) largest: usize,
}

impl Limits {
    /// The error of a request that the limits rule out, so that the allocator need not be asked.
    pub(crate) fn refusal(self, bytes: usize) -> Error {
        OutOfMemory::new(bytes, Scope::Limit)
            .with_available(self.available)
            .into()
    }
}
