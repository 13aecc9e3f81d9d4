//! Which free block a queue gets, and which commands have to end first.

use binpool_allocators::{Backend, Error, Queue, contained::guarded};
use smallvec::SmallVec;

use crate::{
    central::{
        caches::DrainFrom,
        ranges::{Carved, RangeFilter},
    },
    flow::hit_block::HitBlock,
    free::cached::Wanted,
    order::{queue_uses::QueueUses, timestamps::QueueKey},
    rare::{Rare, reached},
    request::{HitKind, Request},
    shared::{BlockBox, QueueState, Shared, State},
};

/// The result of a lookup that makes no call to the device.
pub(crate) enum Lookup<B: Backend> {
    Block(BlockBox<B>, HitKind),
    Range(Carved<B>),
    Nothing {
        /// The caches to drain before the allocator is asked.
        drain_from: DrainFrom,
        /// The commands that keep the blocks of the bin from the queue.
        in_the_way: QueueUses,
        /// True if [retiring](Shared::retire_idle_queues) idle queues may free blocks.
        has_idle_queues: bool,
    },
}

impl<B: Backend> Shared<B> {
    /// Looks for a free block of exactly this bin, or a range of a segment, that the queue may have at once.
    pub(crate) fn find_free(
        &self,
        state: &mut State<B>,
        queue_key: QueueKey,
        request: Request,
    ) -> Lookup<B> {
        if let Some(block) = state.pop(queue_key, request) {
            return Lookup::Block(block, HitKind::Ready);
        }
        if let Some(carved) = state.take_range(queue_key, request, RangeFilter::Free) {
            return Lookup::Range(carved);
        }
        let drain_from = state.caches_to_drain();
        if !self.carves {
            let slot = self.classes.slot(request.bin);
            let drained = self.drain_caches_of(state, drain_from, Wanted::Slot(slot));
            if drained.threads_had_blocks && drain_from == DrainFrom::All {
                reached(Rare::Stolen);
                state.steals += 1;
            }
            if (drained.threads_had_blocks || drained.depot_had_blocks)
                && let Some(block) = state.pop(queue_key, request)
            {
                return Lookup::Block(block, HitKind::Ready);
            }
        }
        let across = self.policy.crosses();
        if let Some(block) = state.pop_ready(queue_key, request, across) {
            return Lookup::Block(block, HitKind::Ended);
        }
        let mut queues = state.queues.iter();
        Lookup::Nothing {
            drain_from,
            has_idle_queues: queues.any(|(_, queue_state)| self.is_idle(queue_state, !across)),
            in_the_way: state.in_the_way(queue_key, request, across),
        }
    }

    /// Returns a free block of exactly this bin, as far as the policy goes without fresh memory: one whose commands have ended, else one
    /// for which the queue, or the host, waits. `in_the_way` are the uses that have kept the queue from these blocks.
    pub(crate) fn reuse(
        &self,
        queue_key: QueueKey,
        request: Request,
        in_the_way: &QueueUses,
    ) -> Option<HitBlock<'_, B>> {
        if in_the_way.is_empty() {
            return None;
        }
        self.check(in_the_way);
        let across = self.policy.crosses();
        let ready = self.state.lock().pop_ready(queue_key, request, across);
        ready
            .map(|block| HitBlock::new(self, queue_key, block, HitKind::Ended))
            .or_else(|| self.reuse_after_a_wait(queue_key, request))
    }

    /// Waits for the block of exactly this bin with the oldest uses, if the policy waits, and returns it.
    pub(crate) fn reuse_after_a_wait(
        &self,
        queue_key: QueueKey,
        request: Request,
    ) -> Option<HitBlock<'_, B>> {
        let kind = self.policy.waits(self.failures)?;
        let held = self.state.lock().take_oldest(queue_key, request)?;
        match guarded("a wait", || self.wait_behind(queue_key, &held.uses, kind)) {
            Ok(()) => Some(HitBlock::new(self, queue_key, held.block, kind)),
            Err(error) => {
                self.state.lock().put_back(held);
                tracing::warn!(%error, "could not wait for a free block; it stays in the pool");
                None
            }
        }
    }

    /// Makes the queue (for [`HitKind::DeviceWait`]) or the host wait for the commands of these uses.
    pub(crate) fn wait_behind(
        &self,
        queue_key: QueueKey,
        uses: &QueueUses,
        kind: HitKind,
    ) -> Result<(), Error> {
        if kind == HitKind::DeviceWait {
            self.insert_wait(queue_key, uses)
        } else {
            uses.iter().try_for_each(|use_| self.wait_for(*use_))
        }
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

    /// Returns whether a queue has no active block and may be retired: any queue but the default one, or, with
    /// `retired_only`, only those that the program retired.
    fn is_idle(&self, queue_state: &QueueState<B>, retired_only: bool) -> bool {
        queue_state.active == 0
            && queue_state.queue.id() != self.default_queue_id
            && (queue_state.is_retired || !retired_only)
    }

    /// Retires idle queues whose commands have ended: their blocks become idle, and the pool drops the queues. With
    /// `retired_only`, only queues that the program retired.
    pub(crate) fn retire_idle_queues(&self, retired_only: bool) {
        let not_ended: QueueUses = {
            let state = self.state.lock();
            let queues = state.queues.iter();
            let idle = queues.filter(|(_, queue_state)| self.is_idle(queue_state, retired_only));
            idle.filter_map(|(key, queue_state)| queue_state.not_ended(key))
                .collect()
        };
        self.check(&not_ended);
        let idle = self.state.lock().take_queues(|queue_state| {
            self.is_idle(queue_state, retired_only) && queue_state.has_caught_up()
        });
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
}
