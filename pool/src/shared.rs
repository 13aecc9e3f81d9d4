//! What a pool and its blocks share.

use std::sync::Arc;

use binpool_allocators::{Align, Allocator, Backend, Error, EventOf, MemoryOf, QueueOf};
use parking_lot::{Condvar, Mutex};
use smallvec::SmallVec;

use crate::{
    PoolError, ReusePolicy, SizeClasses,
    bins::{Block, HeldBlock},
    decay::DecayClock,
    hooks::Hooks,
    lane::{Fences, LaneKey, Uses},
    request::Request,
    scrub::Scrubber,
    state::{Origin, State},
};

/// What the handles of a pool and all its blocks share.
///
/// The lock is never held while the allocator, the device or a hook is called. What has to be dropped by a
/// call to the device (memory, events) is carried out from under the lock first.
#[derive(Debug)]
pub(crate) struct Shared<A: Allocator> {
    pub(crate) allocator: A,
    pub(crate) home: QueueOf<A>,
    pub(crate) classes: Arc<dyn SizeClasses>,
    pub(crate) policy: ReusePolicy,
    /// Whether blocks are carved from segments.
    pub(crate) has_segments: bool,
    /// Above so many managed bytes, free memory goes back as soon as no command uses it.
    pub(crate) release_threshold: u64,
    pub(crate) scrubber: Scrubber<A>,
    pub(crate) hooks: Hooks,
    pub(crate) state: Mutex<State<A>>,
    /// Blocks that were on their way back to the allocator have arrived.
    pub(crate) arrived: Condvar,
}

impl<A: Allocator> Shared<A> {
    /// A block, and the lane of its queue, which stays until [`State::leave`] is called with it.
    pub(crate) fn allocate(
        &self,
        queue: &QueueOf<A>,
        request: Request,
    ) -> Result<(Block<A>, LaneKey), PoolError> {
        let mut state = self.state.lock();
        let lane = state.enter(queue);
        let is_sweep_due = state.clock.as_mut().is_some_and(DecayClock::allocation);
        if let Some(block) = state.pop(lane, request) {
            state.activate(request.asked, block.bytes, Origin::Stock);
            drop(state);
            if is_sweep_due {
                self.sweep();
            }
            return Ok((block, lane));
        }
        drop(state);
        if is_sweep_due {
            self.sweep();
        }
        match self.allocate_slowly(lane, request) {
            Ok((block, origin)) => {
                let mut state = self.state.lock();
                state.activate(request.asked, block.bytes, origin);
                Ok((block, lane))
            }
            Err(error) => {
                let mut state = self.state.lock();
                state.leave(Some(lane));
                if error.is_out_of_memory() {
                    state.count_out_of_memory();
                }
                Err(error)
            }
        }
    }

    /// Blocks that the policy lets the queue have, then the device, then everything that can be done about a full
    /// one.
    fn allocate_slowly(
        &self,
        lane: LaneKey,
        request: Request,
    ) -> Result<(Block<A>, Origin), PoolError> {
        if let Some(found) = self.reuse(lane, request) {
            return Ok(found);
        }
        self.retire_idle_lanes(!self.policy.crosses());
        let retired = self.state.lock().pop(lane, request);
        if let Some(block) = retired {
            return Ok((block, Origin::Ended));
        }
        match self.allocate_fresh(lane, request) {
            Ok(found) => Ok(found),
            Err(error) if error.is_out_of_memory() => self.reclaim(lane, request, error),
            Err(error) => Err(error.into()),
        }
    }

    /// What blocks start on. Views of segments start on what the device's buffers do, also where the allocator's own blocks
    /// may start on less.
    pub(crate) fn alignment(&self) -> Align {
        let alignment = self.allocator.alignment();
        if self.has_segments {
            alignment.max(self.allocator.backend().limits().alignment)
        } else {
            alignment
        }
    }

    /// A block from a segment, or from the allocator.
    pub(crate) fn allocate_fresh(
        &self,
        lane: LaneKey,
        request: Request,
    ) -> Result<(Block<A>, Origin), Error> {
        if self.has_segments {
            return self.carve(lane, request);
        }
        let block = Block {
            memory: self.allocate_clean(request.bytes)?,
            bin: request.bin,
            bytes: request.bytes,
            range: None,
        };
        tracing::debug!(asked = request.asked, bytes = request.bytes, "miss");
        Ok((block, Origin::Fresh))
    }

    /// Takes a block back from its user, who used it on the queue of `lane`, unless that is `None`, and on `others`.
    /// Makes no call to the device where the pool holds the block and only one in-order queue used it.
    ///
    /// # Errors
    ///
    /// A failure of the device. The block is back all the same.
    pub(crate) fn give_back(
        &self,
        block: Block<A>,
        asked: usize,
        lane: Option<LaneKey>,
        others: &[QueueOf<A>],
    ) -> Result<(), Error> {
        let mut state = self.state.lock();
        if !state.holding {
            drop(state);
            return self.let_go(block, asked, lane, others, &[]);
        }
        let uses = state.take_back(&block, asked, lane, others);
        let (unordered, leaving) = state.hold(HeldBlock::new(block, uses));
        state.leave(lane);
        let is_sweep_due = state.clock.as_mut().is_some_and(DecayClock::release);
        let is_too_much = state.managed_bytes() > self.release_threshold;
        drop(state);
        if let Some(held) = leaving {
            self.return_to_segment(held);
        }
        for use_ in unordered {
            self.fence_off(use_);
        }
        if is_too_much {
            self.trim_unused_to(self.release_threshold);
        }
        if is_sweep_due {
            self.sweep();
        }
        Ok(())
    }

    /// Takes a block back from its user, and gives it to the allocator, to be freed after its uses and the events in
    /// `after`.
    ///
    /// # Errors
    ///
    /// A failure of the device. The block is gone all the same.
    pub(crate) fn let_go(
        &self,
        block: Block<A>,
        asked: usize,
        lane: Option<LaneKey>,
        others: &[QueueOf<A>],
        after: &[EventOf<A>],
    ) -> Result<(), Error> {
        let uses = {
            let mut state = self.state.lock();
            let uses = state.take_back(&block, asked, lane, others);
            if block.range.is_none() {
                state.send_off(block.bytes, &uses);
            }
            uses
        };
        let result = if block.range.is_some() {
            self.let_go_of_range(block, uses, after)
        } else {
            let result = self.release(block.memory, &uses, after);
            self.arrive();
            result
        };
        // Its key stands for the queue until its commands have been marked.
        self.state.lock().leave(lane);
        result
    }

    /// A block that was [in transit](State::in_transit) is back at the allocator.
    pub(crate) fn arrive(&self) {
        if self.state.lock().arrive() {
            self.arrived.notify_all();
        }
    }

    /// Gives memory back to the allocator, to be freed after the commands of these uses and the events in `after`.
    ///
    /// # Errors
    ///
    /// A failure of the device. The block is gone all the same.
    pub(crate) fn release(
        &self,
        memory: MemoryOf<A>,
        uses: &Uses,
        after: &[EventOf<A>],
    ) -> Result<(), Error> {
        let fences = if self.allocator.release_needs_events() {
            self.fences_after(uses, None)
        } else {
            Ok(Fences::<A>::new())
        };
        let (fences, failure) = match fences {
            Ok(fences) => (fences, None),
            Err(error) => {
                // Nobody can tell when its commands end, so they are waited for.
                uses.iter().try_for_each(|use_| self.wait_for(*use_))?;
                (Fences::<A>::new(), Some(error))
            }
        };
        let fences = fences.into_iter().map(|fence| fence.event);
        let events: SmallVec<[EventOf<A>; 2]> = fences.chain(after.iter().cloned()).collect();
        self.allocator.release(memory, &events)?;
        failure.map_or(Ok(()), Err)
    }
}
