//! What a pool and its blocks share.

#[cfg(feature = "snapshot")]
use std::path::PathBuf;
use std::sync::Arc;

use binpool_allocators::{Align, Allocator, Error, EventOf, MemoryOf, Queue, QueueId, QueueOf};
use crossbeam_utils::CachePadded;
use parking_lot::{Condvar, MutexGuard};
use smallvec::SmallVec;

use crate::{
    PoolError, PooledBuffer, ReusePolicy,
    at_hand::{gathering::Whose, threads::PoolId},
    classes::Classes,
    decay::DecayClock,
    hooks::Hooks,
    request::Request,
    scrub::Scrubber,
    seeing::watch::Notes,
    state::{
        Origin, State,
        bins::{Block, HeldBlock, Obtained},
        clock::Clock,
        lane::{Fences, LaneKey, Uses},
        lock::Lock,
        reuse::Found,
        tenure::Tenure,
    },
};

/// What the handles of a pool and all its blocks share.
///
/// The lock is never held while the allocator, the device or a hook is called. What has to be dropped by a
/// call to the device (memory, events) is carried out from under the lock first.
#[derive(Debug)]
pub(crate) struct Shared<A: Allocator> {
    pub(crate) id: PoolId<A>,
    pub(crate) allocator: A,
    pub(crate) home: QueueOf<A>,
    pub(crate) home_id: QueueId,
    /// What blocks start on.
    pub(crate) alignment: Align,
    pub(crate) classes: Classes,
    pub(crate) clock: Arc<Clock>,
    /// Whether each thread keeps free blocks at hand.
    pub(crate) has_thread_caches: bool,
    pub(crate) policy: ReusePolicy,
    /// Whether blocks are carved from segments.
    pub(crate) has_segments: bool,
    /// Above so many managed bytes, free memory goes back as soon as no command uses it.
    pub(crate) release_threshold: u64,
    pub(crate) scrubber: Scrubber<A>,
    pub(crate) hooks: Hooks,
    pub(crate) notes: Notes,
    /// Where snapshots are written to when memory runs out.
    #[cfg(feature = "snapshot")]
    pub(crate) snapshots: Option<PathBuf>,
    /// On cache lines of its own: what is beside it is read all the time.
    pub(crate) state: CachePadded<Lock<State<A>>>,
    /// Blocks that were on their way back to the allocator have arrived.
    pub(crate) arrived: Condvar,
}

impl<A: Allocator> Shared<A> {
    /// A block that this thread does not have at hand.
    pub(crate) fn allocate(
        self: &Arc<Self>,
        queue: &QueueOf<A>,
        request: Request,
    ) -> Result<PooledBuffer<A>, PoolError> {
        self.join();
        let mut state = self.lock_and_tell();
        if let Some(grant) = self.take_over(&mut state, queue.id(), request) {
            return Ok(PooledBuffer::from_hand(grant, request.asked));
        }
        let granted = self.allocate_for_lane(state, queue, request)?;
        Ok(PooledBuffer::new(self, queue, request.asked, Some(granted)))
    }

    /// A block, and the lane of its queue, which stays until [`State::leave`] is called with it.
    fn allocate_for_lane(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State<A>>,
        queue: &QueueOf<A>,
        request: Request,
    ) -> Result<(Box<Block<A>>, LaneKey), PoolError> {
        let lane = state.enter(queue);
        let is_sweep_due = state.clock.as_mut().is_some_and(DecayClock::allocation);
        let found = self.find_free(&mut state, lane, request);
        // What needs no call to the device is done under this lock.
        match &found {
            Found::Block(block, origin) => {
                state.activate(request.asked, block.bytes, *origin);
                self.take_along(&mut state, lane, request);
            }
            Found::Range(carved) if carved.is_ready() => {
                state.activate(request.asked, request.bytes, Origin::Carved);
            }
            Found::Range(_) | Found::Nothing { .. } => {}
        }
        drop(state);
        if is_sweep_due {
            self.sweep();
        }
        let found = match found {
            Found::Block(block, _) => return Ok((block, lane)),
            Found::Range(carved) => {
                let is_ready = carved.is_ready();
                let block = self.view(lane, request, carved);
                if is_ready && let Ok(block) = block {
                    return Ok((block, lane));
                }
                block
                    .map(|block| (block, Origin::Carved))
                    .map_err(PoolError::from)
            }
            Found::Nothing {
                whose,
                in_the_way,
                has_idle_lanes,
            } => self.allocate_slowly(lane, request, whose, &in_the_way, has_idle_lanes),
        };
        self.conclude(lane, request, found)
    }

    /// Takes note of how an allocation went.
    fn conclude(
        &self,
        lane: LaneKey,
        request: Request,
        found: Result<Obtained<A>, PoolError>,
    ) -> Result<(Box<Block<A>>, LaneKey), PoolError> {
        match found {
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
        whose: Whose,
        in_the_way: &Uses,
        has_idle_lanes: bool,
    ) -> Result<Obtained<A>, PoolError> {
        if let Some(found) = self.reuse(lane, request, in_the_way) {
            return Ok(found);
        }
        if has_idle_lanes {
            self.retire_idle_lanes(!self.policy.crosses());
            let retired = self.state.lock().pop(lane, request);
            if let Some(block) = retired {
                return Ok((block, Origin::Ended));
            }
        }
        match self.allocate_fresh(lane, request, whose) {
            Ok(found) => Ok(found),
            Err(error) if error.is_out_of_memory() => self.reclaim(lane, request, error),
            Err(error) => Err(error.into()),
        }
    }

    /// A block from a segment, once these caches have been looked into, or from the allocator.
    pub(crate) fn allocate_fresh(
        &self,
        lane: LaneKey,
        request: Request,
        whose: Whose,
    ) -> Result<Obtained<A>, Error> {
        if self.has_segments {
            return self.carve(lane, request, whose);
        }
        let block = Box::new(Block {
            memory: self.allocate_clean(request.bytes)?,
            bin: request.bin,
            bytes: request.bytes,
            above: self.classes.below(request.bin, self.alignment),
            range: None,
            life: None,
            share: None,
            tenure: Tenure::default(),
        });
        tracing::debug!(asked = request.asked, bytes = request.bytes, "miss");
        Ok((block, Origin::Fresh))
    }

    /// Takes a block back from its user. Makes no call to the device where the pool holds the block and only one in-order
    /// queue used it.
    ///
    /// # Errors
    ///
    /// A failure of the device. The block is back all the same.
    pub(crate) fn give_back(&self, mut block: Box<Block<A>>, asked: usize) -> Result<(), Error> {
        let (lane, others) = (block.tenure.lane, block.tenure.take_others());
        let mut state = self.lock_and_tell();
        if !state.holding {
            return self.let_go(state, block, asked, &others, &[]);
        }
        let uses = state.take_back(&block, asked, &others);
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

    /// Takes a block back from its user, who used it on `others` too, and gives it to the allocator, to be freed after its
    /// uses and the events in `after`.
    ///
    /// # Errors
    ///
    /// A failure of the device. The block is gone all the same.
    pub(crate) fn let_go(
        &self,
        mut state: MutexGuard<'_, State<A>>,
        block: Box<Block<A>>,
        asked: usize,
        others: &[QueueOf<A>],
        after: &[EventOf<A>],
    ) -> Result<(), Error> {
        let lane = block.tenure.lane;
        let uses = state.take_back(&block, asked, others);
        if block.range.is_some() {
            drop(state);
            let result = self.let_go_of_range(block, uses, after);
            self.state.lock().leave(lane);
            return result;
        }
        state.send_off(block.bytes, &uses);
        drop(state);
        let result = self.release(block.memory, &uses, after);
        let mut state = self.state.lock();
        // Its key stands for the queue until its commands have been marked.
        state.leave(lane);
        if state.arrive() {
            self.arrived.notify_all();
        }
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
    /// A failure of the device. The block is gone all the same, or goes [later](crate::stranded).
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
                if let Err(error) = uses.iter().try_for_each(|use_| self.wait_for(*use_)) {
                    self.state.lock().strand.keep(memory, uses, after);
                    return Err(error);
                }
                (Fences::<A>::new(), Some(error))
            }
        };
        let fences = fences.into_iter().map(|fence| fence.event);
        let events: SmallVec<[EventOf<A>; 2]> = fences.chain(after.iter().cloned()).collect();
        self.allocator.release(memory, &events)?;
        failure.map_or(Ok(()), Err)
    }
}
