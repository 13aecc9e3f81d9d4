//! Where a block is used.

use std::sync::atomic::{AtomicBool, Ordering};

use binpool_allocators::{Allocator, QueueId, QueueOf};
use parking_lot::Mutex;

use crate::state::lane::LaneKey;

/// For which queue a block is in its user's hands, and where it is used.
///
/// In this order, so that what each hit looks at lies together.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Tenure<A: Allocator> {
    /// The queue that it is for; `None` where it was unbound.
    pub(crate) queue: Option<QueueId>,
    /// The lane of that queue; `None` for the block of 0 bytes, too.
    pub(crate) lane: Option<LaneKey>,
    /// Whether the block may stay at hand when it comes back: whether it was used on its own queue only, and that is one
    /// whose blocks do.
    may_stay: AtomicBool,
    /// The queues that it was used on, apart from its own.
    others: Mutex<Vec<QueueOf<A>>>,
}

impl<A: Allocator> Tenure<A> {
    /// In the hands of somebody who uses it on `queue`. With a lane, it is a block of the pool's.
    pub(crate) fn on(queue: QueueId, lane: Option<LaneKey>, may_stay: bool) -> Self {
        Self {
            queue: Some(queue),
            lane,
            may_stay: AtomicBool::new(may_stay),
            ..Self::default()
        }
    }

    /// Takes note of a use on another queue than its own.
    pub(crate) fn record(&self, queue: &QueueOf<A>) {
        self.may_stay.store(false, Ordering::Relaxed);
        let mut others = self.others.lock();
        if !others.contains(queue) {
            others.push(queue.clone());
        }
    }

    #[inline]
    pub(crate) fn may_stay(&mut self) -> bool {
        *self.may_stay.get_mut()
    }

    /// Whether no queue but its own uses it.
    pub(crate) fn is_alone(&self) -> bool {
        self.others.lock().is_empty()
    }

    /// The queues that it was used on, apart from its own.
    pub(crate) fn others(&self) -> Vec<QueueOf<A>> {
        self.others.lock().clone()
    }

    /// The other queues, to be dropped without a lock: that may be a call to the device.
    pub(crate) fn take_others(&mut self) -> Vec<QueueOf<A>> {
        std::mem::take(self.others.get_mut())
    }
}

impl<A: Allocator> Default for Tenure<A> {
    /// For no queue, and used nowhere.
    fn default() -> Self {
        Self {
            queue: None,
            lane: None,
            may_stay: AtomicBool::new(false),
            others: Mutex::default(),
        }
    }
}
