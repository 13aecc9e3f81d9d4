//! How a pool learns that commands have ended: markers, made when somebody asks.

use binpool_allocators::{Allocator, Backend, Error, Event, EventStatus, Queue};
use smallvec::SmallVec;

use crate::{
    shared::Shared,
    state::{
        lane::{Fence, Fences, LaneKey, Use},
        lanes::NewFence,
    },
};

impl<A: Allocator> Shared<A> {
    /// Looks whether the commands of these uses have ended.
    pub(crate) fn look_at(&self, uses: &[Use]) {
        for use_ in uses {
            if !self.look_at_fences(*use_)
                && let Some(fence) = self.fence_off(*use_)
                && has_ended(&fence.event)
            {
                self.note_ended(fence.at());
            }
        }
    }

    /// Looks at every queue that holds memory back, and takes note of what has ended.
    pub(crate) fn catch_up(&self) {
        self.gather();
        let holding_back = self.state.lock().holding_back();
        self.look_at(&holding_back);
        self.state.lock().settle();
    }

    /// Looks at the fences of a lane, oldest first, until one has not ended. Whether the use is over, or a fence will
    /// tell.
    fn look_at_fences(&self, use_: Use) -> bool {
        loop {
            let fence = {
                let state = self.state.lock();
                let Some(lane) = state.lanes.get(use_.lane) else {
                    return true;
                };
                match lane.oldest_fence() {
                    _ if use_.stamp <= lane.ended => return true,
                    Some(fence) => fence.clone(),
                    None => return false,
                }
            };
            if !has_ended(&fence.event) {
                let state = self.state.lock();
                let lane = state.lanes.get(use_.lane);
                return lane.is_none_or(|lane| {
                    lane.fence_after(use_.stamp).is_some() || !lane.has_room_for_a_fence()
                });
            }
            self.note_ended(fence.at());
        }
    }

    /// Has a fence follow this use. A queue that takes no marker is asked again by the next who wants to know.
    pub(crate) fn fence_off(&self, use_: Use) -> Option<Fence<A>> {
        let new = self.state.lock().lanes.begin_fence(use_.lane)?;
        let fence = self.enqueue_fence(new);
        if let Err(error) = &fence {
            tracing::warn!(%error, lane = use_.lane.get(), "a queue takes no marker");
        }
        fence.ok()
    }

    /// Events after which the commands of these uses have ended; where they are for the queue of a lane, only of
    /// those that its own order does not put first.
    pub(crate) fn fences_after(
        &self,
        uses: &[Use],
        lane: Option<LaneKey>,
    ) -> Result<Fences<A>, Error> {
        let mut fences = Fences::<A>::new();
        let mut missing: SmallVec<[NewFence<A>; 2]> = SmallVec::new();
        {
            let mut state = self.state.lock();
            for use_ in uses {
                let lanes = &mut state.lanes;
                if lane.map_or_else(|| lanes.is_over(*use_), |lane| lanes.is_before(*use_, lane)) {
                    continue;
                }
                let known = lanes
                    .get(use_.lane)
                    .and_then(|lane| lane.fence_after(use_.stamp));
                match known {
                    Some(fence) => fences.push(fence.clone()),
                    None => missing.extend(lanes.begin_fence(use_.lane)),
                }
            }
        }
        for new in missing {
            fences.push(self.enqueue_fence(new)?);
        }
        Ok(fences)
    }

    fn enqueue_fence(&self, new: NewFence<A>) -> Result<Fence<A>, Error> {
        let NewFence { queue, at } = new;
        let fence = Fence {
            lane: at.lane,
            stamp: at.stamp,
            event: self.allocator.backend().enqueue_marker(&queue, &[])?,
        };
        // It is looked at, or waited for on another queue; an unflushed queue need not get on by itself.
        queue.flush()?;
        let surplus = self.state.lock().lanes.add_fence(fence.clone());
        drop(surplus);
        Ok(fence)
    }

    /// Waits until the commands of this use have ended.
    ///
    /// # Errors
    ///
    /// Where that cannot be waited for. A command that failed has ended, and is no error.
    pub(crate) fn wait_for(&self, use_: Use) -> Result<(), Error> {
        let fence = self
            .fences_after(&[use_], None)
            .map(|fences| fences.into_iter().next());
        match fence {
            Ok(None) => {}
            Ok(Some(fence)) => wait_for_event(&fence.event)?,
            Err(error) => {
                let queue = self
                    .state
                    .lock()
                    .lanes
                    .get(use_.lane)
                    .map(|lane| lane.queue.clone());
                tracing::warn!(%error, ?queue, "a queue takes no marker; waiting for all of it instead");
                queue.map_or(Ok(()), |queue| queue.finish())?;
            }
        }
        self.note_ended(use_);
        Ok(())
    }

    pub(crate) fn note_ended(&self, use_: Use) {
        let ended = self.state.lock().lanes.note_ended(use_);
        drop(ended);
    }
}

impl<A: Allocator> Fence<A> {
    pub(crate) fn at(&self) -> Use {
        Use {
            lane: self.lane,
            stamp: self.stamp,
        }
    }
}

/// Whether a command has ended. One that failed has ended too: it touches nothing any more. One whose status
/// cannot be told counts as not ended.
pub(crate) fn has_ended<E: Event>(event: &E) -> bool {
    event.status().is_ok_and(EventStatus::has_ended)
}

/// Waits for the end of a command, good or bad.
pub(crate) fn wait_for_event<E: Event>(event: &E) -> Result<(), Error> {
    match event.wait() {
        Err(_) if has_ended(event) => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use binpool_allocators::Outcome;

    use super::*;
    use crate::mock_pool::MockPool;

    #[test]
    fn a_command_that_failed_has_ended() {
        let mock = MockPool::of_blocks();
        for outcome in [Outcome::Complete, Outcome::Failed] {
            let event = mock.backend.create_user_event().unwrap();
            assert!(!has_ended(&event));
            // Nobody is there who could end it.
            assert!(wait_for_event(&event).is_err());
            mock.backend.resolve_user_event(&event, outcome).unwrap();
            assert!(has_ended(&event), "{outcome:?}");
            assert!(wait_for_event(&event).is_ok(), "{outcome:?}");
        }
    }

    #[test]
    fn a_look_has_a_fence_follow_a_use_that_the_pending_ones_do_not_tell_of() {
        let mock = MockPool::of_blocks();
        let home = mock.home();
        let stamp = || mock.shared.state.lock().lanes.stamp(home);
        let has_fence_after = |use_: Use| {
            let state = mock.shared.state.lock();
            state
                .lanes
                .get(home)
                .unwrap()
                .fence_after(use_.stamp)
                .is_some()
        };
        let gate = mock.backend.create_user_event().unwrap();
        mock.backend
            .enqueue_barrier(&mock.queue, std::slice::from_ref(&gate))
            .unwrap();
        let first = stamp();
        mock.shared.look_at(&[first]);
        assert!(has_fence_after(first));
        let second = stamp();
        assert!(!has_fence_after(second));
        mock.shared.look_at(&[second]);
        assert!(has_fence_after(second));
        mock.backend
            .resolve_user_event(&gate, Outcome::Complete)
            .unwrap();
        mock.device.run();
        mock.shared.look_at(&[second]);
        assert!(mock.shared.state.lock().lanes.is_over(second));
    }
}
