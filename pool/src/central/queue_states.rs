//! The queue states of a pool, and which uses come before which.

use std::sync::Arc;

use binpool_allocators::{Backend, FailureOrder, Queue, QueueId};
use slab::Slab;

use crate::{
    central::queue_state::QueueState,
    order::{
        fence::{Fence, NewFence, is_ordered},
        timestamps::{Clock, QueueKey, QueueUse, Timestamp},
    },
};

/// With fewer queues it is not worth looking for idle ones.
const MANY: usize = 64;

/// The queue states of a pool, and the clock that orders what happens on the queues.
///
/// No block needs an event of its own. A block that comes back gets a *timestamp* of the pool's clock for each queue that it
/// was used on. A *fence* is a marker on a queue. It takes the clock's value as its timestamp and moves the clock on, so all
/// blocks with timestamps up to its own were used by commands before the marker. So one fence answers for any number of blocks,
/// and is made only when the answer is needed.
///
/// # Invariants
///
/// - L1: each queue has at most one queue state.
/// - L2: a queue state that has active blocks, or whose uses have not ended, stays.
/// - L3: a use whose queue state is gone has ended. If a new queue state took over the key, all timestamps of the old one are
///   at most its `began`, so they are not taken for uses of the new one.
#[derive(Debug)]
pub(crate) struct QueueStates<B: Backend, O> {
    by_key: Slab<QueueState<B, O>>,
    failures: FailureOrder,
    /// Gives the timestamp of blocks that come back now. Advanced only in this file.
    clock: Arc<Clock>,
    /// With this many queues, idle ones are looked for.
    many: usize,
}

impl<B: Backend, O> QueueStates<B, O> {
    pub(crate) fn new(failures: FailureOrder, clock: Arc<Clock>) -> Self {
        Self {
            by_key: Slab::new(),
            failures,
            clock,
            many: MANY,
        }
    }

    pub(crate) fn get(&self, key: QueueKey) -> Option<&QueueState<B, O>> {
        self.by_key.get(key.get())
    }

    pub(crate) fn get_mut(&mut self, key: QueueKey) -> Option<&mut QueueState<B, O>> {
        self.by_key.get_mut(key.get())
    }

    /// Returns the queue state of a use; `None` if it is gone, even if another one has its key now.
    pub(crate) fn state_of(&self, use_: QueueUse) -> Option<&QueueState<B, O>> {
        self.get(use_.key)
            .filter(|queue_state| use_.timestamp > queue_state.began)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (QueueKey, &QueueState<B, O>)> {
        self.by_key
            .iter()
            .map(|(key, queue_state)| (QueueKey::new(key), queue_state))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (QueueKey, &mut QueueState<B, O>)> {
        self.by_key
            .iter_mut()
            .map(|(key, queue_state)| (QueueKey::new(key), queue_state))
    }

    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(crate) fn find(&self, queue: QueueId) -> Option<QueueKey> {
        self.iter()
            .find(|(_, queue_state)| queue_state.queue.id() == queue)
            .map(|(key, _)| key)
    }

    pub(crate) fn find_or_add(&mut self, queue: &B::Queue) -> QueueKey {
        self.find(queue.id()).unwrap_or_else(|| {
            // Uses with the clock's present value may belong to the queue state that had this key (L3).
            let is_ordered = is_ordered(queue, self.failures);
            let queue_state = QueueState::new(queue, is_ordered, self.clock.move_on());
            QueueKey::new(self.by_key.insert(queue_state))
        })
    }

    /// Returns, once until the next [`take`](Self::take), whether there are twice as many queues as that left. Programs create queues, and
    /// threads that have some, and do not say when they are done with them.
    pub(crate) fn have_doubled(&mut self) -> bool {
        let have = self.by_key.len() >= self.many;
        if have {
            self.many = usize::MAX;
        }
        have
    }

    /// Returns a use of this queue up to now, for a block that comes back.
    pub(crate) fn stamp(&mut self, key: QueueKey) -> QueueUse {
        self.stamp_at(key, self.clock.now())
    }

    /// Returns a use of this queue up to the moment `timestamp`, for a block that came back then.
    pub(crate) fn stamp_at(&mut self, key: QueueKey, timestamp: Timestamp) -> QueueUse {
        if let Some(queue_state) = self.get_mut(key) {
            queue_state.last_use = queue_state.last_use.max(timestamp);
        }
        QueueUse { key, timestamp }
    }

    /// Returns whether the commands of this use are known to have ended.
    pub(crate) fn is_over(&self, use_: QueueUse) -> bool {
        self.get(use_.key)
            .is_none_or(|queue_state| use_.timestamp <= queue_state.ended)
    }

    pub(crate) fn are_over(&self, uses: &[QueueUse]) -> bool {
        uses.iter().all(|use_| self.is_over(*use_))
    }

    /// Returns the queue that may have free memory with these uses at once, because its order alone keeps other queues from it: all uses
    /// that are not over are on this queue, which is in order.
    pub(crate) fn ready_for(&self, uses: &[QueueUse]) -> Option<&QueueState<B, O>> {
        let mut open = uses.iter().filter(|use_| !self.is_over(**use_));
        let only = open.next().filter(|_| open.next().is_none())?;
        self.get(only.key)
            .filter(|queue_state| queue_state.is_ordered)
    }

    /// Returns whether free memory with these uses is pending: no queue may have it at once.
    pub(crate) fn are_pending(&self, uses: &[QueueUse]) -> bool {
        !self.are_over(uses) && self.ready_for(uses).is_none()
    }

    /// Returns whether each of these uses [is before](Self::is_before) later commands of a queue.
    pub(crate) fn are_before(&self, uses: &[QueueUse], queue_key: QueueKey) -> bool {
        uses.iter().all(|use_| self.is_before(*use_, queue_key))
    }

    /// Returns whether the commands of this use have ended, or end before any later command of the queue of `queue_key` starts.
    pub(crate) fn is_before(&self, use_: QueueUse, queue_key: QueueKey) -> bool {
        self.is_over(use_)
            || self.get(queue_key).is_some_and(|own_state| {
                (use_.key == queue_key && own_state.is_ordered)
                    || own_state
                        .behind(use_.key)
                        .is_some_and(|moment| use_.timestamp <= moment)
            })
    }

    /// Returns what is needed to enqueue a new fence on this queue; `None` on a device where a marker proves nothing.
    pub(crate) fn begin_fence(&mut self, key: QueueKey) -> Option<NewFence<B>> {
        if !self.failures.keeps_places() {
            return None;
        }
        let (queue, at) = self.begin_finish(key)?;
        Some(NewFence { queue, at })
    }

    /// Returns the queue, for the caller to wait for, and the uses that will have ended after that wait. Moves the clock on, so
    /// that later uses are not among them.
    pub(crate) fn begin_finish(&mut self, key: QueueKey) -> Option<(B::Queue, QueueUse)> {
        let queue = self.get(key)?.queue.clone();
        let timestamp = self.clock.move_on();
        Some((queue, QueueUse { key, timestamp }))
    }

    /// Remembers a fence that was enqueued. Returns a fence to be dropped without the lock.
    pub(crate) fn add_fence(&mut self, fence: Fence<B>) -> Option<Fence<B>> {
        match self.get_mut(fence.key) {
            Some(queue_state) => queue_state.add_fence(fence),
            None => Some(fence),
        }
    }

    /// Records that this use, and every earlier one of the queue, has ended. Returns fences to be dropped without the lock.
    #[must_use]
    pub(crate) fn note_ended(&mut self, use_: QueueUse) -> impl Sized + use<B, O> {
        self.get_mut(use_.key)
            .map(|queue_state| queue_state.has_ended(use_.timestamp))
    }

    /// Takes out the `wanted` queue states. The caller drops them without the lock: that releases their queues, which is a call to
    /// the device.
    pub(crate) fn take(
        &mut self,
        wanted: impl Fn(&QueueState<B, O>) -> bool,
    ) -> Vec<QueueState<B, O>> {
        let keys: Vec<usize> = self
            .by_key
            .iter()
            .filter(|(_, queue_state)| wanted(queue_state))
            .map(|(key, _)| key)
            .collect();
        let taken = keys.into_iter().map(|key| self.by_key.remove(key));
        let taken = taken.collect();
        self.many = MANY.max(2 * self.by_key.len());
        taken
    }
}

/// For proofs, which go from one state to many.
#[cfg(test)]
impl<B: Backend, O> QueueStates<B, O> {
    /// Returns a copy without the free blocks, with another clock.
    pub(crate) fn without_blocks(&self, clock: Arc<Clock>) -> Self {
        let by_key = self.by_key.iter();
        Self {
            by_key: by_key
                .map(|(key, queue_state)| (key, queue_state.without_blocks()))
                .collect(),
            failures: self.failures,
            clock,
            many: self.many,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use binpool_mock::MockBackend;

    use crate::{mock_pool::MockPool, shared::QueueStates};

    #[test]
    fn a_use_of_a_queue_state_that_is_gone_does_not_count_for_the_one_that_took_its_key() {
        let mock = MockPool::of_blocks();
        let mut queues = QueueStates::<MockBackend>::new(FailureOrder::Kept, Arc::default());
        let key = queues.find_or_add(&mock.queue);
        let old = queues.stamp(key);
        assert!(queues.state_of(old).is_some() && !queues.is_over(old));
        assert_eq!(queues.take(|_| true).len(), 1);
        assert!(queues.state_of(old).is_none() && queues.is_over(old));
        assert_eq!(queues.find_or_add(&mock.another_queue()), key);
        assert!(queues.state_of(old).is_none() && queues.is_over(old));
        let new = queues.stamp(key);
        assert!(queues.state_of(new).is_some() && !queues.is_over(new));
    }
}
