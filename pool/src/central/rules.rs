//! The settings of a pool that decide what a request tries.

use binpool_allocators::{Backend, Queue, QueueId};

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
}

impl Rules {
    /// Returns whether a queue has no active block and may be retired: any queue but the default one where memory crosses, or else only those
    /// that the program retired.
    pub(crate) fn may_retire<B: Backend, O>(self, queue: &QueueState<B, O>, crosses: bool) -> bool {
        queue.active == 0 && queue.queue.id() != self.default_queue && (crosses || queue.is_retired)
    }
}
