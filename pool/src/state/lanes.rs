//! The queues of a pool, and what comes before what on them.

use std::sync::Arc;

use binpool_allocators::{Allocator, Queue, QueueId, QueueOf};
use slab::Slab;

use crate::state::{
    clock::Clock,
    lane::{Fence, Lane, LaneKey, Stamp, Use},
};

/// A fence that is about to be enqueued, without the lock.
#[derive(Debug)]
pub(crate) struct NewFence<A: Allocator> {
    pub(crate) queue: QueueOf<A>,
    pub(crate) at: Use,
}

/// The queues of a pool, and the clock that orders what happens on them.
///
/// No block needs an event of its own. A block that comes back is *stamped* with the clock of the pool, once for
/// each queue that it was used on. A *fence* is a marker on a queue: it takes the clock's value and moves the clock
/// on, so that every block stamped up to there was used by commands before the marker. One fence therefore answers
/// for any number of blocks, and none is made before somebody asks.
///
/// # Invariants
///
/// - L1: there is one lane for each queue.
/// - L2: a lane that has active blocks, or whose uses have not ended, stays.
/// - L3: a use whose lane has gone is over; and a lane that took its key had ended before it began, so that no
///   stamp of the old one counts there.
#[derive(Debug)]
pub(crate) struct Lanes<A: Allocator> {
    lanes: Slab<Lane<A>>,
    /// Tells the stamp of blocks that come back now. Moved on here alone.
    clock: Arc<Clock>,
}

impl<A: Allocator> Lanes<A> {
    pub(crate) fn new(clock: Arc<Clock>) -> Self {
        Self {
            lanes: Slab::new(),
            clock,
        }
    }

    pub(crate) fn get(&self, key: LaneKey) -> Option<&Lane<A>> {
        self.lanes.get(key.get())
    }

    pub(crate) fn get_mut(&mut self, key: LaneKey) -> Option<&mut Lane<A>> {
        self.lanes.get_mut(key.get())
    }

    /// The lane of a use; `None` where it has gone, whether another has its key now or not.
    pub(crate) fn lane_of(&self, use_: Use) -> Option<&Lane<A>> {
        self.get(use_.lane).filter(|lane| use_.stamp > lane.began)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (LaneKey, &Lane<A>)> {
        self.lanes
            .iter()
            .map(|(key, lane)| (LaneKey::new(key), lane))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (LaneKey, &mut Lane<A>)> {
        self.lanes
            .iter_mut()
            .map(|(key, lane)| (LaneKey::new(key), lane))
    }

    pub(crate) fn find(&self, queue: QueueId) -> Option<LaneKey> {
        self.iter()
            .find(|(_, lane)| lane.queue.id() == queue)
            .map(|(key, _)| key)
    }

    pub(crate) fn find_or_add(&mut self, queue: &QueueOf<A>) -> LaneKey {
        self.find(queue.id()).unwrap_or_else(|| {
            // What was stamped with the clock as it is now may be a use of the lane that had this key.
            let lane = Lane::new(queue, self.clock.move_on());
            LaneKey::new(self.lanes.insert(lane))
        })
    }

    /// Notes that a block comes back that was used on this queue.
    pub(crate) fn stamp(&mut self, key: LaneKey) -> Use {
        self.stamp_at(key, self.clock.now())
    }

    /// Notes that a block came back at this moment that was used on this queue.
    pub(crate) fn stamp_at(&mut self, key: LaneKey, stamp: Stamp) -> Use {
        if let Some(lane) = self.get_mut(key) {
            lane.last_use = lane.last_use.max(stamp);
        }
        Use { lane: key, stamp }
    }

    /// Whether the commands of this use are known to have ended.
    pub(crate) fn is_over(&self, use_: Use) -> bool {
        self.get(use_.lane)
            .is_none_or(|lane| use_.stamp <= lane.ended)
    }

    pub(crate) fn are_over(&self, uses: &[Use]) -> bool {
        uses.iter().all(|use_| self.is_over(*use_))
    }

    /// Whether the commands of this use end before anything runs that is enqueued on the queue of `lane` from now
    /// on.
    pub(crate) fn is_before(&self, use_: Use, lane: LaneKey) -> bool {
        self.is_over(use_)
            || self.get(lane).is_some_and(|lane_| {
                (use_.lane == lane && lane_.is_ordered())
                    || lane_
                        .is_behind(use_.lane)
                        .is_some_and(|stamp| use_.stamp <= stamp)
            })
    }

    /// The stamp of a new fence on this lane, and the queue to enqueue it on.
    pub(crate) fn begin_fence(&mut self, key: LaneKey) -> Option<NewFence<A>> {
        let queue = self.get(key)?.queue.clone();
        let stamp = self.clock.move_on();
        Some(NewFence {
            queue,
            at: Use { lane: key, stamp },
        })
    }

    /// Remembers a fence that was enqueued. What is returned is to be dropped without the lock.
    pub(crate) fn add_fence(&mut self, fence: Fence<A>) -> Option<Fence<A>> {
        match self.get_mut(fence.lane) {
            Some(lane) => lane.add_fence(fence),
            None => Some(fence),
        }
    }

    /// Notes that this use has ended, and everything before it. What is returned is to be dropped without the lock.
    #[must_use]
    pub(crate) fn note_ended(&mut self, use_: Use) -> impl Sized + use<A> {
        self.get_mut(use_.lane)
            .map(|lane| lane.has_ended(use_.stamp))
    }

    /// Takes out the lanes that `wanted` picks. Dropping them lets go of their queues, which is a call to the
    /// device.
    pub(crate) fn take(&mut self, wanted: impl Fn(&Lane<A>) -> bool) -> Vec<Lane<A>> {
        let keys: Vec<usize> = self
            .lanes
            .iter()
            .filter(|(_, lane)| wanted(lane))
            .map(|(key, _)| key)
            .collect();
        keys.into_iter().map(|key| self.lanes.remove(key)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock_pool::{Immediate, MockPool};

    #[test]
    fn a_use_of_a_lane_that_has_gone_is_none_of_the_lane_that_took_its_key() {
        let mock = MockPool::of_blocks();
        let mut lanes = Lanes::<Immediate>::new(Arc::default());
        let key = lanes.find_or_add(&mock.queue);
        let old = lanes.stamp(key);
        assert!(lanes.lane_of(old).is_some() && !lanes.is_over(old));
        assert_eq!(lanes.take(|_| true).len(), 1);
        assert!(lanes.lane_of(old).is_none() && lanes.is_over(old));
        assert_eq!(lanes.find_or_add(&mock.another_queue()), key);
        assert!(lanes.lane_of(old).is_none() && lanes.is_over(old));
        let new = lanes.stamp(key);
        assert!(lanes.lane_of(new).is_some() && !lanes.is_over(new));
    }
}
