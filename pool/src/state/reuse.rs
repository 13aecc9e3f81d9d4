//! Which free block a queue gets, and what has to come first.

use binpool_allocators::{Allocator, Backend, Error, EventOf, Queue, QueueOf};
use smallvec::SmallVec;

use crate::{
    at_hand::gathering::Whose,
    request::Request,
    shared::Shared,
    state::{
        Origin, State,
        bins::{Block, Obtained},
        carve::Carved,
        lane::{Lane, LaneKey, Uses},
        ranges::Which,
    },
};

/// What a queue may have at once.
pub(crate) enum Found<A: Allocator> {
    Block(Box<Block<A>>, Origin),
    Range(Carved<A>),
    Nothing {
        /// Whose caches are to be looked into.
        whose: Whose,
        /// The commands that keep blocks of the bin from the queue.
        in_the_way: Uses,
        /// Whether there are queues to [let go of](Shared::retire_idle_lanes), and blocks of theirs to be had.
        has_idle_lanes: bool,
    },
}

impl<A: Allocator> Shared<A> {
    /// What the queue of `lane` may have at once: a free block of exactly this bin, or a range of a segment.
    pub(crate) fn find_free(
        &self,
        state: &mut State<A>,
        lane: LaneKey,
        request: Request,
    ) -> Found<A> {
        if let Some(block) = state.pop(lane, request) {
            return Found::Block(block, Origin::Stock);
        }
        if let Some(carved) = state.take_range(lane, request, Which::Free) {
            return Found::Range(carved);
        }
        let whose = state.whose_turn();
        if !self.has_segments {
            let place = self.classes.place(request.bin);
            if self.gather_from(state, whose, Some(place)) && whose == Whose::All {
                state.takings += 1;
            }
            if let Some(block) = state.pop(lane, request) {
                return Found::Block(block, Origin::Stock);
            }
        }
        let across = self.policy.crosses();
        if let Some(block) = state.pop_ready(lane, request, across) {
            return Found::Block(block, Origin::Ended);
        }
        let mut lanes = state.lanes.iter();
        Found::Nothing {
            whose,
            has_idle_lanes: lanes.any(|(_, lane)| self.is_idle(lane, !across)),
            in_the_way: state.in_the_way(lane, request, across),
        }
    }

    /// A free block of exactly this bin, as far as the policy goes without fresh memory, where these uses were in the way:
    /// one whose commands have ended, else one that the queue, or the host, is made to wait for.
    pub(crate) fn reuse(
        &self,
        lane: LaneKey,
        request: Request,
        in_the_way: &Uses,
    ) -> Option<Obtained<A>> {
        if in_the_way.is_empty() {
            return None;
        }
        self.look_at(in_the_way);
        let across = self.policy.crosses();
        let ready = self.state.lock().pop_ready(lane, request, across);
        ready
            .map(|block| (block, Origin::Ended))
            .or_else(|| self.reuse_after_a_wait(lane, request))
    }

    /// The block of exactly this bin that was used the longest ago, with a wait for the commands that use it, where
    /// the policy is to wait.
    pub(crate) fn reuse_after_a_wait(
        &self,
        lane: LaneKey,
        request: Request,
    ) -> Option<Obtained<A>> {
        let origin = self.policy.waits()?;
        let held = self.state.lock().take_oldest(lane, request)?;
        match self.wait_behind(lane, &held.uses, origin) {
            Ok(()) => Some((held.block, origin)),
            Err(error) => {
                tracing::warn!(%error, "a free block could not be waited for; it stays in the pool");
                self.state.lock().put_back(held);
                None
            }
        }
    }

    /// Has the queue of `lane`, or the host, wait for the commands of these uses.
    pub(crate) fn wait_behind(
        &self,
        lane: LaneKey,
        uses: &Uses,
        origin: Origin,
    ) -> Result<(), Error> {
        if origin == Origin::DeviceWait {
            self.put_behind(lane, uses)
        } else {
            uses.iter().try_for_each(|use_| self.wait_for(*use_))
        }
    }

    /// Makes the queue of `lane` wait, on the device, for the commands of these uses.
    fn put_behind(&self, lane: LaneKey, uses: &Uses) -> Result<(), Error> {
        let fences = self.fences_after(uses, Some(lane))?;
        if fences.is_empty() {
            return Ok(());
        }
        let events: SmallVec<[EventOf<A>; 2]> =
            fences.iter().map(|fence| fence.event.clone()).collect();
        let queue = self
            .state
            .lock()
            .lanes
            .get(lane)
            .map(|lane| lane.queue.clone());
        if let Some(queue) = queue {
            self.allocator.backend().enqueue_barrier(&queue, &events)?;
        }
        if let Some(lane) = self.state.lock().lanes.get_mut(lane) {
            for fence in &fences {
                lane.put_behind(fence.at());
            }
        }
        Ok(())
    }

    /// Whether a queue has no block in the user's hands; where so asked, only if the program is done with it, too.
    fn is_idle(&self, lane: &Lane<A>, retired_only: bool) -> bool {
        lane.active == 0 && lane.queue.id() != self.home_id && (lane.is_retired || !retired_only)
    }

    /// Looks at queues that have no block in the user's hands; where their commands have ended, moves their blocks
    /// to the common bins, and lets go of them; of those that the program is done with only, if so asked.
    pub(crate) fn retire_idle_lanes(&self, retired_only: bool) {
        let behind: Uses = {
            let state = self.state.lock();
            let lanes = state.lanes.iter();
            let idle = lanes.filter(|(_, lane)| self.is_idle(lane, retired_only));
            idle.filter_map(|(key, lane)| lane.not_ended(key)).collect()
        };
        self.look_at(&behind);
        let idle = self
            .state
            .lock()
            .take_lanes(|lane| self.is_idle(lane, retired_only) && lane.has_caught_up());
        if !idle.is_empty() {
            tracing::debug!(queues = idle.len(), "let go of idle queues");
        }
        drop(idle);
    }

    /// The program is done with this queue.
    pub(crate) fn retire_queue(&self, queue: &QueueOf<A>) {
        let mut state = self.state.lock();
        if let Some(key) = state.lanes.find(queue.id())
            && let Some(lane) = state.lanes.get_mut(key)
            && !lane.is_retired
        {
            lane.is_retired = true;
            // Until it has gone, or somebody asks for a block for it again, which nobody would notice who has one at hand.
            self.close(&mut state);
        }
        drop(state);
        self.retire_idle_lanes(true);
    }
}
