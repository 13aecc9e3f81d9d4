//! What a pool knows about one queue.

use std::collections::VecDeque;

use binpool_allocators::Backend;
use smallvec::SmallVec;

use crate::{
    free::bins::Bins,
    order::{
        fence::{Fence, Fences},
        timestamps::{QueueKey, QueueUse, Timestamp},
    },
};

/// The most fences that are remembered for a queue: one for each block that a deep pipeline may have on its way to another queue.
pub(crate) const MAX_FENCES: usize = 64;

/// What a pool knows about one queue.
///
/// # Invariants
///
/// - I1: blocks are in `free_list` only if the queue is in order and no other queue used them, oldest first.
/// - I2: `fences` has the oldest fences that have not been seen to end, and the youngest, oldest first.
#[derive(Debug)]
pub(crate) struct QueueState<B: Backend, O> {
    pub(crate) queue: B::Queue,
    /// Set if the order of the queue alone makes a block's new commands wait for its old ones.
    pub(crate) is_ordered: bool,
    /// The queue's free list: blocks that the next user on this queue may have at once.
    pub(crate) free_list: Bins<B, O>,
    /// The number of blocks that were allocated for the queue and are active, cached by a thread, or about to be. While there
    /// are any, the queue state stays, and its key means this queue.
    pub(crate) active: usize,
    /// Uses up to this moment belong to the queue state that previously had this key.
    pub(crate) began: Timestamp,
    /// The latest use of any block that came back to the pool.
    pub(crate) last_use: Timestamp,
    /// The latest use of any block that was released before its commands were seen to end.
    pub(crate) draining: Timestamp,
    /// All uses up to this moment have ended.
    pub(crate) ended: Timestamp,
    /// Set if the program is done with the queue. Any queue may have its blocks as soon as their commands have ended.
    pub(crate) is_retired: bool,
    fences: VecDeque<Fence<B>>,
    /// The bytes that requests for the queue have taken since its last fence.
    unfenced_bytes: u64,
    /// What the queue waits for on the device: the uses of other queues up to these moments end before any later command of this queue
    /// starts.
    behind: SmallVec<[QueueUse; 2]>,
}

impl<B: Backend, O> QueueState<B, O> {
    /// Makes the state of a queue that was not used up to and including the moment `now`.
    pub(crate) fn new(queue: &B::Queue, is_ordered: bool, now: Timestamp) -> Self {
        Self {
            queue: queue.clone(),
            is_ordered,
            free_list: Bins::default(),
            active: 0,
            began: now,
            last_use: now,
            draining: now,
            ended: now,
            is_retired: false,
            fences: VecDeque::new(),
            unfenced_bytes: 0,
            behind: SmallVec::new(),
        }
    }

    /// Returns whether no command on this queue uses a block that has come back to the pool.
    pub(crate) fn has_caught_up(&self) -> bool {
        self.last_use <= self.ended
    }

    /// The latest use or fence that is not known to have ended.
    ///
    /// Two threads may each add a fence after the same use. Once the first fence has ended, no use needs the second, so
    /// the pool would keep its event until the queue is used again.
    pub(crate) fn not_ended(&self, key: QueueKey) -> Option<QueueUse> {
        let youngest = self.fences.back();
        let timestamp = youngest.map_or(self.last_use, |fence| self.last_use.max(fence.timestamp));
        (timestamp > self.ended).then_some(QueueUse { key, timestamp })
    }

    /// Returns the moment up to which the uses of `other` end before any later command of this queue starts.
    pub(crate) fn behind(&self, other: QueueKey) -> Option<Timestamp> {
        let found = self.behind.iter().find(|use_| use_.key == other);
        found.map(|use_| use_.timestamp)
    }

    /// Records that the queue was made to wait for a fence.
    pub(crate) fn put_behind(&mut self, fence: QueueUse) {
        match self.behind.iter_mut().find(|use_| use_.key == fence.key) {
            Some(use_) => use_.timestamp = use_.timestamp.max(fence.timestamp),
            None => self.behind.push(fence),
        }
    }

    /// The oldest fence that has not been seen to end.
    pub(crate) fn oldest_fence(&self) -> Option<&Fence<B>> {
        self.fences.front()
    }

    /// Counts a request of `bytes` bytes for this queue. Returns whether it is time for a fence: `most_bytes` were requested since the last
    /// one.
    pub(crate) fn is_fence_due(&mut self, bytes: usize, most_bytes: u64) -> bool {
        self.unfenced_bytes = self.unfenced_bytes.saturating_add(bytes as u64);
        let is_due = self.unfenced_bytes > most_bytes && self.has_room_for_a_fence();
        if is_due {
            self.unfenced_bytes = 0;
        }
        is_due
    }

    /// Returns whether one more fence can be remembered without forgetting another.
    pub(crate) fn has_room_for_a_fence(&self) -> bool {
        self.fences.len() < MAX_FENCES
    }

    /// Forgets a fence that failed, and so proves nothing. Returns it, to be dropped without the lock.
    pub(crate) fn forget_fence(&mut self, timestamp: Timestamp) -> Option<Fence<B>> {
        let index = self
            .fences
            .iter()
            .position(|fence| fence.timestamp == timestamp)?;
        self.fences.remove(index)
    }

    /// The oldest fence that comes after all uses up to this moment.
    pub(crate) fn fence_after(&self, timestamp: Timestamp) -> Option<&Fence<B>> {
        self.fences
            .iter()
            .find(|fence| fence.timestamp >= timestamp)
    }

    /// Remembers a fence. Returns the fence that it replaces, or itself if it is not needed, to be dropped without the lock.
    pub(crate) fn add_fence(&mut self, fence: Fence<B>) -> Option<Fence<B>> {
        if fence.timestamp <= self.ended {
            return Some(fence);
        }
        // Two threads may arrive here in a different order from that of their timestamps.
        let index = self
            .fences
            .partition_point(|other| other.timestamp < fence.timestamp);
        self.fences.insert(index, fence);
        // The oldest fences end first, and the youngest proves most, so one in between can go.
        if self.fences.len() > MAX_FENCES {
            self.fences.remove(MAX_FENCES - 1)
        } else {
            None
        }
    }

    /// Records that all uses up to this moment have ended. Returns the fences up to it, to be dropped without the lock.
    pub(crate) fn has_ended(&mut self, timestamp: Timestamp) -> Fences<B> {
        self.ended = self.ended.max(timestamp);
        let ended = self
            .fences
            .partition_point(|fence| fence.timestamp <= self.ended);
        self.fences.drain(..ended).collect()
    }
}

/// For proofs, which go from one state to many.
#[cfg(test)]
impl<B: Backend, O> QueueState<B, O> {
    /// Returns a copy without the free blocks.
    pub(crate) fn without_blocks(&self) -> Self {
        Self {
            queue: self.queue.clone(),
            free_list: Bins::default(),
            fences: self.fences.clone(),
            behind: self.behind.clone(),
            ..*self
        }
    }

    /// The fences, oldest first.
    pub(crate) fn fences(&self) -> impl Iterator<Item = &Fence<B>> {
        self.fences.iter()
    }
}

#[cfg(test)]
mod tests {
    use binpool_allocators::Backend;

    use super::*;
    use binpool_mock::MockBackend;

    use crate::{
        mock_pool::MockPool,
        order::{
            fence::Fence,
            timestamps::{QueueKey, Timestamp},
        },
        shared::Share,
    };

    fn new_state(mock: &MockPool) -> QueueState<MockBackend, Share<MockBackend>> {
        QueueState::new(&mock.queue, true, Timestamp::at(1))
    }

    /// Adds a fence of this moment. Returns the moment of the fence that is returned, if there is one.
    fn add_fence(
        mock: &MockPool,
        queue_state: &mut QueueState<MockBackend, Share<MockBackend>>,
        moment: u64,
    ) -> Option<Timestamp> {
        let returned = queue_state.add_fence(Fence {
            key: QueueKey::new(0),
            timestamp: Timestamp::at(moment),
            event: mock.backend.create_user_event().unwrap(),
        });
        returned.map(|fence| fence.timestamp)
    }

    fn fences(queue_state: &QueueState<MockBackend, Share<MockBackend>>) -> Vec<Timestamp> {
        queue_state
            .fences
            .iter()
            .map(|fence| fence.timestamp)
            .collect()
    }

    fn moments(of: impl IntoIterator<Item = u64>) -> Vec<Timestamp> {
        of.into_iter().map(Timestamp::at).collect()
    }

    #[test]
    fn fences_are_ordered_by_their_timestamps() {
        let mock = MockPool::of_blocks();
        let mut queue_state = new_state(&mock);
        for moment in [5, 3, 9, 4, 7] {
            assert_eq!(add_fence(&mock, &mut queue_state, moment), None);
        }
        assert_eq!(fences(&queue_state), moments([3, 4, 5, 7, 9]));
        assert_eq!(
            add_fence(&mock, &mut queue_state, 1),
            Some(Timestamp::at(1)),
            "its uses have ended"
        );
        assert_eq!(queue_state.has_ended(Timestamp::at(5)).len(), 3);
        assert_eq!(fences(&queue_state), moments([7, 9]));
    }

    #[test]
    fn of_too_many_fences_the_oldest_and_the_youngest_are_remembered() {
        let mock = MockPool::of_blocks();
        let mut queue_state = new_state(&mock);
        for moment in 2..66 {
            assert!(queue_state.has_room_for_a_fence(), "{moment}");
            assert_eq!(add_fence(&mock, &mut queue_state, moment), None);
        }
        assert_eq!(fences(&queue_state).len(), MAX_FENCES);
        assert!(!queue_state.has_room_for_a_fence());
        for moment in 66..70 {
            let before = Timestamp::at(moment - 1);
            assert_eq!(add_fence(&mock, &mut queue_state, moment), Some(before));
        }
        assert_eq!(fences(&queue_state), moments((2..65).chain([69])));
    }

    #[test]
    fn the_latest_use_or_fence_is_pending_until_it_has_ended() {
        let mock = MockPool::of_blocks();
        let key = QueueKey::new(0);
        let mut queue_state = new_state(&mock);
        assert_eq!(
            queue_state.not_ended(key),
            None,
            "it ended when the queue was new"
        );
        let pending = |moment| {
            let timestamp = Timestamp::at(moment);
            Some(QueueUse { key, timestamp })
        };
        queue_state.last_use = Timestamp::at(3);
        assert_eq!(queue_state.not_ended(key), pending(3));
        assert_eq!(add_fence(&mock, &mut queue_state, 5), None);
        assert_eq!(queue_state.not_ended(key), pending(5));
        assert_eq!(queue_state.has_ended(Timestamp::at(5)).len(), 1);
        assert_eq!(queue_state.not_ended(key), None);
    }

    #[test]
    fn a_fence_is_due_once_more_was_requested_than_the_limit_since_the_last_one() {
        let mock = MockPool::of_blocks();
        let mut queue_state = new_state(&mock);
        for _ in 0..2 {
            assert!(!queue_state.is_fence_due(60, 100));
            assert!(!queue_state.is_fence_due(40, 100));
            assert!(queue_state.is_fence_due(1, 100));
        }
        for moment in 2..66 {
            assert_eq!(add_fence(&mock, &mut queue_state, moment), None);
        }
        assert!(!queue_state.is_fence_due(1000, 100), "there are enough");
        assert_eq!(queue_state.has_ended(Timestamp::at(2)).len(), 1);
        assert!(
            queue_state.is_fence_due(0, 100),
            "what was requested meanwhile counts"
        );
    }
}
