//! What a pool knows of one queue.

use std::{collections::VecDeque, num::NonZeroUsize};

use binpool_allocators::{Allocator, EventOf, Queue, QueueOf, QueueOrder};
use smallvec::SmallVec;

use crate::state::bins::Bins;

/// A moment in the life of a pool. Grows with each [`Fence`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stamp(u64);

impl Stamp {
    pub(crate) const fn at(moment: u64) -> Self {
        Self(moment)
    }
}

/// Finds a lane: its key and one more, so that none is 0. It may find another one once its own has gone: stamps tell (invariant L3 of
/// [`Lanes`](crate::state::lanes::Lanes)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LaneKey(NonZeroUsize);

impl LaneKey {
    pub(crate) fn new(key: usize) -> Self {
        Self(NonZeroUsize::MIN.saturating_add(key))
    }

    pub(crate) fn get(self) -> usize {
        self.0.get() - 1
    }
}

/// A free block was used on the queue of this lane, by commands that were enqueued before this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Use {
    pub(crate) lane: LaneKey,
    pub(crate) stamp: Stamp,
}

/// The queues that a free block was used on: mostly one. The first is the one it was allocated for.
pub(crate) type Uses = SmallVec<[Use; 1]>;

/// The uses of two free ranges that lie next to each other, if they may be one range: those that different queues keep
/// from their next user stay apart.
pub(crate) fn join(one: &Uses, two: &Uses) -> Option<Uses> {
    // Nearly all free ranges have one use or none.
    match (&one[..], &two[..]) {
        ([], uses) | (uses, []) if uses.len() <= 1 => Some(Uses::from(uses)),
        ([one], [two]) if one.lane != two.lane => None,
        _ => {
            let uses = together(one, two);
            (uses.len() <= 1).then_some(uses)
        }
    }
}

/// All of these uses, the latest of each lane.
pub(crate) fn together(one: &[Use], two: &[Use]) -> Uses {
    let mut uses = Uses::from(one);
    for use_ in two {
        add_to(&mut uses, *use_);
    }
    uses
}

/// Adds one to uses of which each lane has one at most.
pub(crate) fn add_to(uses: &mut Uses, use_: Use) {
    match uses.iter_mut().find(|other| other.lane == use_.lane) {
        Some(other) => other.stamp = other.stamp.max(use_.stamp),
        None => uses.push(use_),
    }
}

/// A marker on a queue. When its event has ended, so has every command that was enqueued there before `stamp`.
#[derive(Debug)]
pub(crate) struct Fence<A: Allocator> {
    pub(crate) lane: LaneKey,
    pub(crate) stamp: Stamp,
    pub(crate) event: EventOf<A>,
}

impl<A: Allocator> Clone for Fence<A> {
    fn clone(&self) -> Self {
        Self {
            event: self.event.clone(),
            ..*self
        }
    }
}

/// Fences of a few queues.
pub(crate) type Fences<A> = SmallVec<[Fence<A>; 2]>;

/// How many fences of a lane are remembered: as many hand-overs as a deep pipeline has under way.
pub(crate) const MOST_FENCES: usize = 64;

/// What a pool knows of one queue.
///
/// # Invariants
///
/// - I1: blocks are in `stock` only if the queue is in order and was their only user, oldest first.
/// - I2: `fences` are the youngest and the oldest that have not been seen to end, oldest first.
#[derive(Debug)]
pub(crate) struct Lane<A: Allocator> {
    pub(crate) queue: QueueOf<A>,
    /// Free blocks that are ready for the next user on the queue.
    pub(crate) stock: Bins<A>,
    /// Blocks that were allocated for the queue and are in the user's hands, or on their way there. While there
    /// are any, the lane stays, and its key stands for this queue.
    pub(crate) active: usize,
    /// Uses up to here are of the lane that had this one's key before.
    pub(crate) began: Stamp,
    /// The latest use of a block that came back to the pool.
    pub(crate) last_use: Stamp,
    /// The latest use of a block that went back to the allocator before its commands were seen to end.
    pub(crate) draining: Stamp,
    /// Everything stamped up to here has ended.
    pub(crate) ended: Stamp,
    /// The program is done with the queue: its blocks are anybody's as soon as their commands have ended.
    pub(crate) is_retired: bool,
    fences: VecDeque<Fence<A>>,
    /// What the queue waits for on the device: the uses of these lanes up to these stamps come before whatever is
    /// enqueued on this queue from now on.
    behind: SmallVec<[Use; 2]>,
}

impl<A: Allocator> Lane<A> {
    /// A lane without any use up to `now`, and that moment included.
    pub(crate) fn new(queue: &QueueOf<A>, now: Stamp) -> Self {
        Self {
            queue: queue.clone(),
            stock: Bins::default(),
            active: 0,
            began: now,
            last_use: now,
            draining: now,
            ended: now,
            is_retired: false,
            fences: VecDeque::new(),
            behind: SmallVec::new(),
        }
    }

    /// Whether the queue itself keeps a block's old commands from its new ones.
    pub(crate) fn is_ordered(&self) -> bool {
        is_in_order(&self.queue)
    }

    /// Whether no command uses a block that came back to the pool.
    pub(crate) fn has_caught_up(&self) -> bool {
        self.last_use <= self.ended
    }

    /// The latest use that is not known to have ended.
    pub(crate) fn not_ended(&self, key: LaneKey) -> Option<Use> {
        (!self.has_caught_up()).then_some(Use {
            lane: key,
            stamp: self.last_use,
        })
    }

    /// The moment up to which the uses of `other` come before what is enqueued on this lane's queue from now on.
    pub(crate) fn is_behind(&self, other: LaneKey) -> Option<Stamp> {
        let found = self.behind.iter().find(|use_| use_.lane == other);
        found.map(|use_| use_.stamp)
    }

    /// The queue has been made to wait for a fence.
    pub(crate) fn put_behind(&mut self, fence: Use) {
        match self.behind.iter_mut().find(|use_| use_.lane == fence.lane) {
            Some(use_) => use_.stamp = use_.stamp.max(fence.stamp),
            None => self.behind.push(fence),
        }
    }

    /// The oldest fence that has not been seen to end.
    pub(crate) fn oldest_fence(&self) -> Option<&Fence<A>> {
        self.fences.front()
    }

    /// Whether one more fence would tell more.
    pub(crate) fn has_room_for_a_fence(&self) -> bool {
        self.fences.len() < MOST_FENCES
    }

    /// The oldest fence that comes after this moment.
    pub(crate) fn fence_after(&self, stamp: Stamp) -> Option<&Fence<A>> {
        self.fences.iter().find(|fence| fence.stamp >= stamp)
    }

    /// Remembers a fence. What is returned is to be dropped without the lock.
    pub(crate) fn add_fence(&mut self, fence: Fence<A>) -> Option<Fence<A>> {
        if fence.stamp <= self.ended {
            return Some(fence);
        }
        // Two threads may come here in another order than they took their stamps in.
        let place = self
            .fences
            .partition_point(|other| other.stamp < fence.stamp);
        self.fences.insert(place, fence);
        // The oldest tell first, the youngest tells most.
        if self.fences.len() > MOST_FENCES {
            self.fences.remove(MOST_FENCES - 1)
        } else {
            None
        }
    }

    /// Everything stamped up to here has ended. What is returned is to be dropped without the lock.
    pub(crate) fn has_ended(&mut self, stamp: Stamp) -> Fences<A> {
        self.ended = self.ended.max(stamp);
        let ended = self
            .fences
            .partition_point(|fence| fence.stamp <= self.ended);
        self.fences.drain(..ended).collect()
    }
}

/// Whether the queue runs its commands one after the other.
pub(crate) fn is_in_order<Q: Queue>(queue: &Q) -> bool {
    queue.order() == QueueOrder::InOrder
}

#[cfg(test)]
mod tests {
    use binpool_allocators::Backend;

    use super::*;
    use crate::mock_pool::{Immediate, MockPool};

    fn uses(of: &[(usize, u64)]) -> Uses {
        let uses = of.iter().map(|(lane, moment)| Use {
            lane: LaneKey::new(*lane),
            stamp: Stamp::at(*moment),
        });
        uses.collect()
    }

    #[test]
    fn neighbours_join_if_one_queue_at_most_keeps_them_from_their_next_user() {
        let none: &[_] = &[];
        let programs = [
            (none, none, Some(none)),
            (&[(1, 5)], none, Some(&[(1, 5)])),
            (&[(1, 5)], &[(1, 7)], Some(&[(1, 7)])),
            (&[(1, 5)], &[(2, 5)], None),
            (none, &[(1, 5), (2, 5)], None),
            (&[(1, 5)], &[(1, 5), (2, 5)], None),
        ];
        for (one, two, joined) in programs {
            let (one, two, joined) = (uses(one), uses(two), joined.map(uses));
            assert_eq!(join(&one, &two), joined, "{one:?} {two:?}");
            assert_eq!(join(&two, &one), joined, "{two:?} {one:?}");
        }
    }

    fn lane(mock: &MockPool) -> Lane<Immediate> {
        Lane::new(&mock.queue, Stamp::at(1))
    }

    /// The moment of the fence that is returned, if one is.
    fn add_fence(mock: &MockPool, lane: &mut Lane<Immediate>, moment: u64) -> Option<Stamp> {
        let returned = lane.add_fence(Fence {
            lane: LaneKey::new(0),
            stamp: Stamp::at(moment),
            event: mock.backend.create_user_event().unwrap(),
        });
        returned.map(|fence| fence.stamp)
    }

    fn fences(lane: &Lane<Immediate>) -> Vec<Stamp> {
        lane.fences.iter().map(|fence| fence.stamp).collect()
    }

    fn moments(of: impl IntoIterator<Item = u64>) -> Vec<Stamp> {
        of.into_iter().map(Stamp::at).collect()
    }

    #[test]
    fn fences_are_remembered_in_the_order_of_their_moments() {
        let mock = MockPool::of_blocks();
        let mut lane = lane(&mock);
        for moment in [5, 3, 9, 4, 7] {
            assert_eq!(add_fence(&mock, &mut lane, moment), None);
        }
        assert_eq!(fences(&lane), moments([3, 4, 5, 7, 9]));
        assert_eq!(
            add_fence(&mock, &mut lane, 1),
            Some(Stamp::at(1)),
            "it is over"
        );
        assert_eq!(lane.has_ended(Stamp::at(5)).len(), 3);
        assert_eq!(fences(&lane), moments([7, 9]));
    }

    #[test]
    fn of_too_many_fences_the_oldest_are_remembered_and_the_youngest() {
        let mock = MockPool::of_blocks();
        let mut lane = lane(&mock);
        for moment in 2..66 {
            assert!(lane.has_room_for_a_fence(), "{moment}");
            assert_eq!(add_fence(&mock, &mut lane, moment), None);
        }
        assert_eq!(fences(&lane).len(), MOST_FENCES);
        assert!(!lane.has_room_for_a_fence());
        for moment in 66..70 {
            let before = Stamp::at(moment - 1);
            assert_eq!(add_fence(&mock, &mut lane, moment), Some(before));
        }
        assert_eq!(fences(&lane), moments((2..65).chain([69])));
    }
}
