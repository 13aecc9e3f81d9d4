//! When the device says no: the ladder of what can be done about it.

use binpool_allocators::{Allocator, Backend, Error, EventOf, Queue, QueueOf, Scope};

use crate::{
    OutOfMemoryReport, PoolError, Verdict,
    bins::Block,
    hooks::{self, Shortage},
    pending::{Events, PendingBlock, have_ended},
    shared::{Request, Shared},
};

/// What reclaiming has come to so far.
struct Reclaim {
    request: Request,
    stock: usize,
    /// What the allocator said last.
    refusal: Error,
    released_bytes: u64,
    /// Whether a queue that holds memory back could not be waited for.
    stuck: bool,
}

impl<A: Allocator> Shared<A> {
    /// Gets a block from a device that is full, each rung tried only while the request still fails: a held
    /// block of the class or larger; one whose commands have ended; releasing held blocks, largest first, just
    /// enough, then all; the program's hooks; waiting for queues.
    pub(crate) fn reclaim(
        &self,
        stock: usize,
        request: Request,
        refusal: Error,
    ) -> Result<(Block<A>, bool), PoolError> {
        tracing::debug!(bytes = request.bytes, %refusal, "reclaiming");
        let mut reclaim = Reclaim {
            request,
            stock,
            refusal,
            released_bytes: 0,
            stuck: false,
        };
        if let Some(block) = self.find_held(&reclaim) {
            return Ok((block, true));
        }
        for enough in [request.bytes as u64, u64::MAX] {
            if self.release_idle(&mut reclaim, enough)
                && let Some(block) = self.retry(&mut reclaim)?
            {
                return Ok((block, false));
            }
        }
        let shortage = Shortage {
            bytes: request.bytes,
        };
        for hook in self.hooks.snapshot() {
            hooks::call(&hook, shortage);
            if let Some(found) = self.look_again(&mut reclaim)? {
                return Ok(found);
            }
        }
        if self.wait_for_queues(&mut reclaim)
            && let Some(found) = self.look_again(&mut reclaim)?
        {
            return Ok(found);
        }
        Err(self.give_up(reclaim))
    }

    /// A held block that is large enough and that no command uses, or only commands of the very queue that it
    /// is asked for.
    fn find_held(&self, reclaim: &Reclaim) -> Option<Block<A>> {
        let Request { bin, bytes, .. } = reclaim.request;
        let found = self.state.lock().pop_fitting(reclaim.stock, bin, bytes);
        found.or_else(|| {
            self.settle(|_| true);
            self.state.lock().pop_fitting(reclaim.stock, bin, bytes)
        })
    }

    fn retry(&self, reclaim: &mut Reclaim) -> Result<Option<Block<A>>, PoolError> {
        match self.allocate_fresh(reclaim.request) {
            Ok(block) => Ok(Some(block)),
            Err(error) if error.is_out_of_memory() => {
                reclaim.refusal = error;
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// What has become free meanwhile, in the pool or outside it.
    fn look_again(&self, reclaim: &mut Reclaim) -> Result<Option<(Block<A>, bool)>, PoolError> {
        if let Some(block) = self.find_held(reclaim) {
            return Ok(Some((block, true)));
        }
        self.release_idle(reclaim, u64::MAX);
        Ok(self.retry(reclaim)?.map(|block| (block, false)))
    }

    /// Releases held blocks of `enough` bytes together, or all. Whether there were any.
    fn release_idle(&self, reclaim: &mut Reclaim, enough: u64) -> bool {
        let released = self.release_largest(enough);
        reclaim.released_bytes += released;
        released > 0
    }

    /// Gives held blocks back to the allocator, largest first, until they have `enough` bytes together. The
    /// bytes given back.
    fn release_largest(&self, enough: u64) -> u64 {
        let (taken, bytes) = {
            let mut state = self.state.lock();
            let taken = state.take_largest(enough);
            let bytes = taken.iter().map(|(block, _)| block.bytes as u64).sum();
            state.count_released(taken.len(), bytes);
            (taken, bytes)
        };
        let mut queues: Vec<&QueueOf<A>> = Vec::new();
        for queue in taken.iter().filter_map(|(_, queue)| queue.as_ref()) {
            if !queues.contains(&queue) {
                queues.push(queue);
            }
        }
        let fences = self.fences(&queues);
        for (block, queue) in taken {
            let fence = fences
                .iter()
                .find(|(fenced, _)| Some(fenced) == queue.as_ref());
            self.release_quietly(block, fence.map_or(&[], |(_, events)| events));
        }
        bytes
    }

    /// A fence for each queue, where the allocator wants to know what blocks wait for.
    fn fences(&self, queues: &[&QueueOf<A>]) -> Vec<(QueueOf<A>, Events<A>)> {
        if !self.allocator.release_needs_events() {
            return Vec::new();
        }
        let fence = |queue: &&QueueOf<A>| {
            let queue = *queue;
            let events = self.fence(std::slice::from_ref(queue)).or_else(|error| {
                tracing::warn!(%error, ?queue, "no marker could be enqueued; waiting for the queue instead");
                queue.finish().map(|()| Events::<A>::new())
            });
            if let Err(error) = &events {
                tracing::error!(%error, ?queue, "a queue can neither be marked nor waited for");
            }
            (queue.clone(), events.unwrap_or_default())
        };
        queues.iter().map(fence).collect()
    }

    /// Gives one block back. A failure leaves nothing to be done but to say so.
    fn release_quietly(&self, block: Block<A>, after: &[EventOf<A>]) {
        if let Err(error) = self.allocator.release(block.memory, after) {
            tracing::error!(%error, bytes = block.bytes, "a held block could not be released cleanly");
        }
    }

    /// Waits for the queues that hold memory back. Whether there were any.
    fn wait_for_queues(&self, reclaim: &mut Reclaim) -> bool {
        let queues = self.state.lock().queues_that_hold_back();
        for queue in &queues {
            tracing::debug!(?queue, "waiting for a queue that holds memory back");
            match queue.finish() {
                Ok(()) => {
                    let drained = self.state.lock().caught_up(queue);
                    drop(drained);
                }
                Err(error) => {
                    tracing::warn!(%error, ?queue, "a queue that holds memory back cannot be waited for");
                    reclaim.stuck = true;
                }
            }
        }
        !queues.is_empty()
    }

    fn give_up(&self, reclaim: Reclaim) -> PoolError {
        let mut report = self.report(reclaim.request);
        let bytes = reclaim.request.bytes as u64;
        let is_limit = |error: &Error| matches!(error, Error::OutOfMemory(refusal) if refusal.scope == Scope::Limit);
        report.verdict = if bytes > report.capacity_bytes {
            Verdict::NeverFits
        } else if reclaim.stuck || report.pending_bytes >= bytes {
            Verdict::Pending
        } else if report.held_bytes >= bytes {
            Verdict::Fragmented
        } else if is_limit(&reclaim.refusal) {
            Verdict::Limited
        } else {
            Verdict::DeviceFull
        };
        report.released_bytes = reclaim.released_bytes;
        report.source = Some(reclaim.refusal);
        let error = PoolError::OutOfMemory(Box::new(report));
        tracing::warn!(%error, "giving up");
        error
    }

    /// The error for a block that this device never gives.
    pub(crate) fn never_fits(&self, request: Request) -> PoolError {
        self.state.lock().count_out_of_memory();
        PoolError::OutOfMemory(Box::new(self.report(request)))
    }

    /// What the pool knows now, with the verdict of a block that never fits.
    fn report(&self, request: Request) -> OutOfMemoryReport {
        let (statistics, largest_held) = {
            let state = self.state.lock();
            (state.statistics(), state.largest_held_bytes())
        };
        OutOfMemoryReport {
            requested_bytes: request.asked,
            class_bytes: request.bytes,
            active_bytes: statistics.active_bytes,
            active_blocks: statistics.active_blocks,
            managed_bytes: statistics.managed_bytes,
            held_bytes: statistics.held_bytes,
            pending_bytes: statistics.pending_bytes,
            largest_held_bytes: largest_held as u64,
            released_bytes: 0,
            largest_block_bytes: self.allocator.largest_block(),
            capacity_bytes: self.allocator.backend().limits().capacity_bytes,
            verdict: Verdict::NeverFits,
            source: None,
        }
    }

    /// Gives every held block back to the allocator, pending ones too, and lets go of queues that no block
    /// needs. The bytes given back.
    pub(crate) fn release_all(&self) -> u64 {
        let mut bytes = self.release_largest(u64::MAX);
        let pending = {
            let mut state = self.state.lock();
            let pending = state.pending.drain();
            let pending_bytes = pending
                .iter()
                .map(|pending| pending.block.bytes as u64)
                .sum();
            state.count_released(pending.len(), pending_bytes);
            for queue in pending.iter().flat_map(|pending| &pending.queues) {
                state.mark_draining(queue);
            }
            bytes += pending_bytes;
            pending
        };
        for PendingBlock { block, events, .. } in pending {
            self.release_quietly(block, &events);
        }
        self.let_go_of_queues();
        bytes
    }

    /// Lets go of queues that no block needs. One whose commands may keep released memory from being freed is
    /// remembered until they have ended, to be waited for when memory runs out.
    fn let_go_of_queues(&self) {
        let (idle, mut drains) = {
            let mut state = self.state.lock();
            let idle = state.take_idle_stocks(self.home.id());
            (idle, std::mem::take(&mut state.drains))
        };
        for stock in idle.into_iter().filter(|stock| stock.draining) {
            // A queue that takes no marker any more is not to be waited for either.
            if let Ok(events) = self.fence(std::slice::from_ref(&stock.queue)) {
                drains.push((stock.queue, events));
            }
        }
        drains.retain(|(_, events)| !have_ended(events));
        self.state.lock().drains.extend(drains);
    }
}
