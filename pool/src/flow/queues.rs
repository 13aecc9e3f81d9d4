//! How a pool learns that commands on queues have ended, from markers that are made when it has to know; how it waits for them, and drops
//! queues that are no longer used.

use binpool_allocators::{
    Backend, Error, Event, EventStatus, FailureOrder, Queue, contained::guarded,
};
use smallvec::SmallVec;

use crate::{
    central::ladder::LOOKS,
    order::{
        fence::{Fence, Fences, NewFence, wait_for_status},
        queue_uses::QueueUses,
        timestamps::{QueueKey, QueueUse, Timestamp},
    },
    rare::{Rare, reached},
    request::HitKind,
    shared::{QueueStates, Shared},
    track::pool_event::{PoolEvent, What},
};
use binpool_lock::sync::{spin_loop, yield_now};

/// The most markers that a wait for a queue enqueues. A marker fails if it was pending when another command failed, and then the next one
/// does not.
const MARKERS: usize = 8;

/// What a fence says about the commands before it on its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FenceStatus {
    /// All of them have ended.
    Ended,
    /// The fence is still pending.
    Pending,
    /// Unknown: the fence has failed, and on this device a failed event proves nothing about earlier commands.
    Unknown,
}

impl<B: Backend> Shared<B> {
    /// Checks which commands of these uses have ended, and records it. Adds fences where no existing one would tell.
    pub(crate) fn check(&self, uses: &[QueueUse]) {
        for use_ in uses {
            if !self.check_fences(*use_)
                && let Some(fence) = self.add_fence_to(use_.key)
                && self.status_of(&fence) == FenceStatus::Ended
            {
                self.note_ended(fence.at());
            }
        }
    }

    /// Checks these uses, at most this many times, until commands of one of them have newly ended. Returns whether any have, and how often
    /// it looked.
    pub(crate) fn check_until_one_ends(&self, uses: &[QueueUse], most: u32) -> (bool, u32) {
        let ended = || -> SmallVec<[Option<Timestamp>; 4]> {
            let state = self.state.lock();
            let known = uses.iter().map(|use_| state.queues.get(use_.key));
            known.map(|known| Some(known?.ended)).collect()
        };
        let before = ended();
        for looks in 1..=most {
            self.check(uses);
            if ended() != before {
                return (true, looks);
            }
            // Later looks are worth less than what another thread could do with the processor.
            if looks < LOOKS && !cfg!(shuttle) {
                spin_loop();
            } else {
                yield_now();
            }
        }
        (false, most)
    }

    /// Checks every queue that holds memory back, and moves blocks whose commands have ended to the idle list.
    pub(crate) fn catch_up(&self) {
        self.drain_caches();
        let holding_back = self.state.lock().holding_back();
        self.check(&holding_back);
        self.state.lock().settle();
        self.unmap_stale();
    }

    /// Checks the fences of a queue, oldest first, until one is pending. Returns whether the use has ended or a fence
    /// follows it.
    fn check_fences(&self, use_: QueueUse) -> bool {
        loop {
            let fence = {
                let state = self.state.lock();
                let Some(queue_state) = state.queues.get(use_.key) else {
                    return true;
                };
                match queue_state.oldest_fence() {
                    _ if use_.timestamp <= queue_state.ended => return true,
                    Some(fence) => fence.clone(),
                    None => return false,
                }
            };
            match self.status_of(&fence) {
                FenceStatus::Ended => self.note_ended(fence.at()),
                FenceStatus::Unknown => self.forget(&fence),
                FenceStatus::Pending => {
                    let state = self.state.lock();
                    let queue_state = state.queues.get(use_.key);
                    return queue_state.is_none_or(|queue_state| {
                        queue_state.fence_after(use_.timestamp).is_some()
                            || !queue_state.has_room_for_a_fence()
                    });
                }
            }
        }
    }

    /// Returns the status of a fence without waiting. A status that cannot be read counts as pending.
    fn status_of(&self, fence: &Fence<B>) -> FenceStatus {
        match fence.event.status() {
            Ok(status) if self.failures.ends_all_before(status) => FenceStatus::Ended,
            Ok(EventStatus::Failed) => FenceStatus::Unknown,
            Ok(EventStatus::Pending | EventStatus::Complete) | Err(_) => FenceStatus::Pending,
        }
    }

    fn forget(&self, fence: &Fence<B>) {
        reached(Rare::ForgottenFence);
        let forgotten = {
            let mut state = self.state.lock();
            let queue_state = state.queues.get_mut(fence.key);
            queue_state.and_then(|queue_state| queue_state.forget_fence(fence.timestamp))
        };
        // After the lock, since this calls the device.
        drop(forgotten);
    }

    /// Enqueues a fence on the queue of `key` and returns it. Returns `None` if the queue takes no marker, which the next check tries
    /// again, or if a marker says nothing on this device.
    pub(crate) fn add_fence_to(&self, key: QueueKey) -> Option<Fence<B>> {
        let new = self.state.lock().queues.begin_fence(key)?;
        let fence = self.enqueue_fence(new);
        if let Err(error) = &fence {
            tracing::warn!(%error, queue_key = key.get(), "could not enqueue a marker");
        }
        fence.ok()
    }

    /// Returns fences after which the commands of these uses have ended. On a device where a marker says nothing, waits
    /// for the commands instead.
    pub(crate) fn fences_after(&self, uses: &[QueueUse]) -> Result<Fences<B>, Error> {
        if !self.failures.keeps_places() {
            uses.iter().try_for_each(|use_| self.wait_for(*use_))?;
        }
        self.fences_where(uses, QueueStates::is_over)
    }

    /// Returns fences after which the commands of these uses have ended, except for uses that the order of the queue
    /// `queue_key` already puts before its next commands.
    pub(crate) fn fences_before(
        &self,
        uses: &[QueueUse],
        queue_key: QueueKey,
    ) -> Result<Fences<B>, Error> {
        self.fences_where(uses, |queues, use_| queues.is_before(use_, queue_key))
    }

    /// Returns fences after these uses, except for the uses that are settled by `is_settled` and need none.
    fn fences_where(
        &self,
        uses: &[QueueUse],
        is_settled: impl Fn(&QueueStates<B>, QueueUse) -> bool,
    ) -> Result<Fences<B>, Error> {
        let mut fences = Fences::<B>::new();
        let mut missing: SmallVec<[NewFence<B>; 2]> = SmallVec::new();
        {
            let mut state = self.state.lock();
            for use_ in uses {
                let queues = &mut state.queues;
                if is_settled(queues, *use_) {
                    continue;
                }
                let known = queues
                    .get(use_.key)
                    .and_then(|queue_state| queue_state.fence_after(use_.timestamp));
                match known {
                    Some(fence) => fences.push(fence.clone()),
                    None => missing.extend(queues.begin_fence(use_.key)),
                }
            }
        }
        for new in missing {
            fences.push(self.enqueue_fence(new)?);
        }
        Ok(fences)
    }

    fn enqueue_fence(&self, new: NewFence<B>) -> Result<Fence<B>, Error> {
        let NewFence { queue, at } = new;
        let fence = Fence {
            key: at.key,
            timestamp: at.timestamp,
            event: self.backend.enqueue_marker(&queue)?,
        };
        // Its status is read, or another queue waits for it: without a flush the queue need not run it.
        queue.flush()?;
        reached(Rare::Fence);
        let surplus = self.state.lock().queues.add_fence(fence.clone());
        drop(surplus);
        Ok(fence)
    }

    /// Waits until the commands of this use have ended: for a fence where the device can tell, otherwise for the whole queue.
    ///
    /// # Errors
    ///
    /// The wait failed. A command that failed has ended, and is no error.
    pub(crate) fn wait_for(&self, use_: QueueUse) -> Result<(), Error> {
        if self.failures.keeps_places() {
            match self.fences_where(&[use_], QueueStates::is_over) {
                Ok(fences) => {
                    let Some(fence) = fences.into_iter().next() else {
                        return Ok(());
                    };
                    self.note_wait(use_.key);
                    let status = wait_for_status(&fence.event)?;
                    if self.failures.ends_all_before(status) {
                        self.note_ended(use_);
                        return Ok(());
                    }
                    self.forget(&fence);
                }
                Err(error) => {
                    tracing::warn!(%error, queue_key = use_.key.get(), "could not enqueue a marker; waiting for the whole queue instead");
                }
            }
        }
        let begun = {
            let mut state = self.state.lock();
            if state.queues.is_over(use_) {
                return Ok(());
            }
            state.queues.begin_finish(use_.key)
        };
        if let Some((queue, at)) = begun {
            self.note_wait(at.key);
            self.finish(&queue)?;
            self.note_ended(at);
        }
        Ok(())
    }

    /// Makes the queue (for [`HitKind::DeviceWait`]) or the host wait for the commands of these uses.
    pub(crate) fn wait_behind(
        &self,
        queue_key: QueueKey,
        uses: &QueueUses,
        kind: HitKind,
    ) -> Result<(), Error> {
        guarded("a wait", || {
            if kind == HitKind::DeviceWait {
                self.insert_wait(queue_key, uses)
            } else {
                uses.iter().try_for_each(|use_| self.wait_for(*use_))
            }
        })
    }

    /// Makes the queue wait, on the device, for the commands of these uses.
    fn insert_wait(&self, queue_key: QueueKey, uses: &QueueUses) -> Result<(), Error> {
        let fences = self.fences_before(uses, queue_key)?;
        if fences.is_empty() {
            return Ok(());
        }
        let events: SmallVec<[B::Event; 2]> =
            fences.iter().map(|fence| fence.event.clone()).collect();
        let queue = self
            .state
            .lock()
            .queues
            .get(queue_key)
            .map(|queue_state| queue_state.queue.clone());
        if let Some(queue) = queue {
            self.backend.enqueue_barrier(queue.after(&events))?;
        }
        if let Some(queue_state) = self.state.lock().queues.get_mut(queue_key) {
            for fence in &fences {
                queue_state.put_behind(fence.at());
            }
        }
        Ok(())
    }

    /// Retires idle queues whose commands have ended: their blocks become idle, and the pool drops the queues. With
    /// `retired_only`, only queues that the program retired.
    pub(crate) fn retire_idle_queues(&self, retired_only: bool) {
        let state = self.state.lock();
        let rules = state.rules;
        let may_go = |queue_state: &_| rules.may_retire(queue_state, retired_only);
        let queues = state.queues.iter();
        let idle = queues.filter(|(_, queue_state)| may_go(queue_state));
        let not_ended = idle.filter_map(|(key, queue_state)| queue_state.not_ended(key));
        let not_ended: QueueUses = not_ended.collect();
        drop(state);
        self.check(&not_ended);
        let mut state = self.state.lock();
        let idle = state.take_queues(|it| may_go(it) && it.has_caught_up());
        drop(state);
        if !idle.is_empty() {
            reached(Rare::QueuesRetired);
            tracing::debug!(queues = idle.len(), "released idle queues");
        }
        drop(idle);
    }

    /// Retires a queue that the program is done with.
    pub(crate) fn retire_queue(&self, queue: &B::Queue) {
        let mut state = self.state.lock();
        if let Some(key) = state.queues.find(queue.id())
            && let Some(queue_state) = state.queues.get_mut(key)
            && !queue_state.is_retired
        {
            queue_state.is_retired = true;
            // The caches stay closed until the queue state is gone or used again: a hit would not notice that the queue
            // is used again.
            self.close(&mut state);
        }
        drop(state);
        self.retire_idle_queues(true);
    }

    /// Waits until everything that was enqueued on `queue` has ended, and everything on other queues that comes before it.
    ///
    /// Where commands fail early, `queue` can be idle while the commands that its failed ones waited for still run. A marker that completes
    /// comes after those, too.
    ///
    /// # Errors
    ///
    /// A wait failed, or [`MARKERS`] markers did.
    pub(crate) fn finish(&self, queue: &B::Queue) -> Result<(), Error> {
        if self.failures != FailureOrder::FailsEarly {
            return queue.finish();
        }
        let mut waited = Ok(());
        for _ in 0..MARKERS {
            let marker = match self.backend.enqueue_marker(queue) {
                Ok(marker) => marker,
                Err(error) => {
                    tracing::warn!(%error, queue = queue.id().get(), "could not enqueue a marker; waiting for the queue's own commands only");
                    return queue.finish();
                }
            };
            waited = marker.wait();
            if !matches!(marker.status(), Ok(EventStatus::Failed)) {
                break;
            }
        }
        waited
    }

    /// Records that the host waits for a queue.
    fn note_wait(&self, key: QueueKey) {
        if !self.tracking.is_on() {
            return;
        }
        let mut state = self.state.lock();
        let queue = state.queues.get(key).map(|known| known.queue.id().get());
        state.note(|| match queue {
            Some(queue) => PoolEvent::did(What::Wait, 0, format_args!("for queue {queue}")),
            None => PoolEvent::did(What::Wait, 0, ""),
        });
    }

    pub(crate) fn note_ended(&self, use_: QueueUse) {
        let ended = self.state.lock().queues.note_ended(use_);
        drop(ended);
    }
}

#[cfg(test)]
mod tests {
    use binpool_allocators::Outcome;

    use super::*;
    use crate::{
        mock_pool::MockPool,
        order::{fence::wait_for_event, timestamps::QueueUse},
    };

    #[test]
    fn a_command_that_failed_has_ended() {
        let mock = MockPool::of_blocks();
        for outcome in [Outcome::Complete, Outcome::Failed] {
            let event = mock.backend.create_user_event().unwrap();
            assert!(!event.has_ended());
            // No other thread could end it, so a wait would last forever.
            assert!(wait_for_event(&event).is_err());
            mock.backend.resolve_user_event(&event, outcome).unwrap();
            assert!(event.has_ended(), "{outcome:?}");
            assert!(wait_for_event(&event).is_ok(), "{outcome:?}");
        }
    }

    #[test]
    fn a_check_adds_a_fence_behind_a_use_that_no_pending_fence_covers() {
        let mock = MockPool::of_blocks();
        let default_queue = mock.default_key();
        let use_now = || mock.shared.state.lock().queues.stamp(default_queue);
        let has_fence_after = |use_: QueueUse| {
            let state = mock.shared.state.lock();
            state
                .queues
                .get(default_queue)
                .unwrap()
                .fence_after(use_.timestamp)
                .is_some()
        };
        let gate = mock.backend.create_user_event().unwrap();
        mock.backend
            .enqueue_barrier(mock.queue.after(std::slice::from_ref(&gate)))
            .unwrap();
        let first = use_now();
        mock.shared.check(&[first]);
        assert!(has_fence_after(first));
        let second = use_now();
        assert!(!has_fence_after(second));
        mock.shared.check(&[second]);
        assert!(has_fence_after(second));
        mock.backend
            .resolve_user_event(&gate, Outcome::Complete)
            .unwrap();
        mock.device.run();
        mock.shared.check(&[second]);
        assert!(mock.shared.state.lock().queues.is_over(second));
    }

    #[test]
    fn a_fence_that_two_threads_added_after_one_use_goes_with_the_free_blocks() {
        let mock = MockPool::of_blocks();
        let default_queue = mock.default_key();
        let use_ = mock.shared.state.lock().queues.stamp(default_queue);
        let before = mock.device.live_events();
        for _ in 0..2 {
            assert!(mock.shared.add_fence_to(use_.key).is_some());
        }
        mock.device.run();
        mock.shared.check(&[use_]);
        assert_eq!(mock.device.live_events(), before + 1);
        mock.shared.free_held();
        assert_eq!(mock.device.live_events(), before);
    }

    #[test]
    fn a_request_looks_again_until_commands_of_a_use_have_ended_and_not_too_often() {
        let mock = MockPool::of_blocks();
        let key = mock.default_key();
        let use_ = mock.shared.state.lock().queues.stamp(key);
        let gate = mock.backend.create_user_event().unwrap();
        mock.backend
            .enqueue_barrier(mock.queue.after(std::slice::from_ref(&gate)))
            .unwrap();
        let look = |most| mock.shared.check_until_one_ends(&[use_], most);
        assert_eq!(look(3), (false, 3));
        mock.backend
            .resolve_user_event(&gate, Outcome::Complete)
            .unwrap();
        mock.device.run();
        assert_eq!(look(3), (true, 1));
        assert_eq!(look(3), (false, 3), "they had ended before");
    }
}
