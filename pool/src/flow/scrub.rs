//! No user of a pool reads what another left: blocks are filled with zeros between their users.
//!
//! Under [`ScrubPolicy::OnFree`](crate::ScrubPolicy::OnFree) a held block is clean, or will be before any command that
//! comes after its uses. A block that could not be filled is *unscrubbed*:
//!
//! - a whole block is released, and memory from the allocator is filled before it becomes a block;
//! - a range of a segment would come back with its neighbours, so its block is kept unscrubbed, and [`Shared::flush`],
//!   which misses call, tries again.
//!
//! A fill that was enqueued can fail later. The pool keeps its event ([`Fills`](crate::free::fills::Fills)), and fills
//! again if the fill turns out to have failed when the block is handed out.

use std::collections::HashSet;

use binpool_allocators::{
    Backend, Error, Event, EventStatus, FailureOrder, Memory, Queue, QueueOrder, Region,
    contained::{contained, guarded},
};

use crate::{
    PooledBuffer,
    order::{fence::wait_for_event, queue_uses::QueueUses},
    rare::{Rare, reached},
    scrubber::Scrubber,
    shared::{Bins, Block, BlockBox, HeldBlock, Shared},
};

/// Returns whether a fill is known to have failed, so that the old bytes are still there.
fn has_failed<E: Event>(fill: &E) -> bool {
    !matches!(
        fill.status(),
        Ok(EventStatus::Pending | EventStatus::Complete)
    )
}

/// Enqueues a fill of all of `memory` with zeros.
fn fill<B: Backend>(backend: &B, queue: &B::Queue, memory: &B::Memory) -> Result<B::Event, Error> {
    backend.enqueue_fill(queue, memory, Region::first(memory.bytes()), &[0_u8])
}

impl<B: Backend> PooledBuffer<B> {
    /// Fills a block that is about to be handed out for `queue`, before the commands of its user.
    pub(crate) fn scrub_for(&self, queue: &B::Queue) -> Result<(), Error> {
        let Some(memory) = self.memory() else {
            return Ok(());
        };
        let filled = fill(self.backend(), queue, memory)?;
        self.shared().put_before_later(queue, filled)
    }

    /// Fills a block again that is about to be handed out for `queue`, if its last fill failed. A block that cannot be filled is freed,
    /// unscrubbed.
    ///
    /// The fill runs after the block's former commands. The host does not wait for it: those commands may wait for what the calling thread
    /// does next.
    pub(crate) fn scrub_after_a_failure(&mut self, queue: &B::Queue) -> Result<(), Error> {
        let fills = self.block().map(|block| self.shared().take_fills(block));
        if !fills.iter().flatten().any(has_failed) {
            return Ok(());
        }
        if let Err(error) = guarded("scrubbing a block", || self.scrub_for(queue)) {
            self.free_unscrubbed(&[])?;
            return Err(error);
        }
        let bytes = self.class_size();
        tracing::warn!(
            bytes,
            "filling a free block with zeros failed; filling it again"
        );
        Ok(())
    }

    /// Fills a block that is about to be freed, after everything that was enqueued on its queues. The fill is its only
    /// use then. Returns `None` for the block of 0 bytes.
    pub(crate) fn scrub(&mut self) -> Result<Option<B::Event>, Error> {
        if self.block().is_none() {
            return Ok(None);
        }
        let own = self.own_queue();
        let queue = own.as_ref().unwrap_or(&self.shared().default_queue).clone();
        // A barrier, not a wait list: a failure on another queue must not keep the fill from running.
        self.order_before(&queue)?;
        let Some(memory) = self.memory() else {
            return Ok(None);
        };
        let filled = fill(self.backend(), &queue, memory)?;
        if let Some(block) = self.block() {
            self.shared().keep_fill(block, &filled);
        }
        if let Some(lease) = self.lease_mut() {
            lease.take_others();
            if own.is_none() {
                lease.record(&queue);
            }
        }
        Ok(Some(filled))
    }

    /// Scrubs and frees a block. Returns the event of the fill.
    pub(crate) fn release_scrubbed(mut self, end: B::Event) -> Result<B::Event, Error> {
        match guarded("scrubbing a block", || self.scrub()) {
            Ok(filled) => {
                self.free_clean()?;
                Ok(filled.unwrap_or(end))
            }
            Err(error) => {
                self.free_unscrubbed(&[])?;
                Err(error)
            }
        }
    }

    /// Frees a block that could not be filled, so that no other user gets it as it is.
    pub(crate) fn free_unscrubbed(&mut self, after: &[B::Event]) -> Result<(), Error> {
        if self.has_views() {
            return self.free_viewed(Some(after));
        }
        let Some(block) = self.take_block() else {
            return Ok(());
        };
        self.shared()
            .release_unscrubbed_after(block, self.size(), after)
    }
}

impl<B: Backend> Shared<B> {
    /// Returns memory from the allocator, filled with zeros where the pool scrubs on free.
    pub(crate) fn zeroed_if_scrubbed(&self, bytes: usize) -> Result<B::Memory, Error> {
        let memory = self.allocator.allocate(bytes)?;
        if let Scrubber::OnFree { queue } = &self.scrubber
            && let Err(error) = guarded("scrubbing memory", || self.fill_now(queue, &memory))
        {
            if let Err(release) = self.release(memory, &QueueUses::new(), &[]) {
                tracing::error!(%release, bytes, "memory that could not be scrubbed was not released cleanly");
            }
            return Err(error);
        }
        Ok(memory)
    }

    /// Puts a command before all later commands of its queue.
    pub(crate) fn put_before_later(
        &self,
        queue: &B::Queue,
        command: B::Event,
    ) -> Result<(), Error> {
        if self.failures == FailureOrder::Lost {
            // On such a device only a wait for the queue does that.
            return queue.finish();
        }
        if queue.order() == QueueOrder::OutOfOrder {
            self.backend.enqueue_barrier(queue.after(&[command]))?;
        }
        Ok(())
    }

    /// Keeps the fill of a block that is about to be free, and drops fills that have completed once there are many.
    fn keep_fill(&self, block: &Block<B>, fill: &B::Event) {
        let (former, to_look_at) = {
            let mut state = self.state.lock();
            let Some((memory, region)) = state.bytes_of(block) else {
                return;
            };
            let former = state.fills.add(memory, region, fill.clone());
            (former, state.fills.to_look_at())
        };
        drop(former);
        if to_look_at.is_empty() {
            return;
        }
        let completed = to_look_at
            .iter()
            .filter(|fill| matches!(fill.status(), Ok(EventStatus::Complete)));
        let completed: HashSet<_> = completed.map(Event::id).collect();
        let forgotten = {
            let mut state = self.state.lock();
            state.fills.forget(|fill| completed.contains(&fill.id()))
        };
        drop(forgotten);
    }

    /// Removes and returns the fills of a block that is no longer free, except for those known to have completed.
    fn take_fills(&self, block: &Block<B>) -> Vec<B::Event> {
        let mut state = self.state.lock();
        let bytes = state.bytes_of(block);
        bytes.map_or_else(Vec::new, |(memory, region)| {
            state.fills.take(memory, region)
        })
    }

    /// Fills memory again that is about to be released, if its last fill failed and no command uses it. The host cannot wait for commands:
    /// they may wait for the host.
    pub(crate) fn scrub_before_release(
        &self,
        queue: &B::Queue,
        memory: &B::Memory,
        uses: &QueueUses,
    ) {
        let (id, bytes) = (memory.id(), memory.bytes());
        let fills = self.state.lock().fills.take(id, Region::first(bytes));
        if !fills.iter().any(has_failed) {
            return;
        }
        self.check(uses);
        let is_unused = self.state.lock().queues.are_over(uses);
        if !is_unused || guarded("scrubbing memory", || self.fill_now(queue, memory)).is_err() {
            tracing::error!(
                bytes,
                "memory was released unscrubbed: filling it with zeros failed"
            );
        }
    }

    /// Fills memory that no command uses, and waits for the fill.
    fn fill_now(&self, queue: &B::Queue, memory: &B::Memory) -> Result<(), Error> {
        fill(&self.backend, queue, memory)?.wait()
    }

    /// Takes a block from its user as [`release_after`](Self::release_after) does, but keeps its range from all users
    /// while it is unscrubbed.
    pub(crate) fn release_unscrubbed_after(
        &self,
        mut block: BlockBox<B>,
        asked: usize,
        after: &[B::Event],
    ) -> Result<(), Error> {
        let (queue_key, others) = (block.lease.key, block.lease.take_others());
        if block.range.is_none() || !self.scrubber.is_on_free() {
            return self.release_after(self.lock_and_sync(), block, asked, &others, after);
        }
        let uses = {
            let mut state = self.state.lock();
            let uses = state.take_back(&block, asked, &others);
            state.transit.depart(1);
            uses
        };
        let held = HeldBlock::new(block, uses);
        // A range stores timestamps, not events, so the host waits.
        let waited = guarded("a wait", || after.iter().try_for_each(wait_for_event));
        if waited.is_ok() {
            self.keep_unscrubbed(held);
        } else {
            self.state.lock().quarantine.keep_range(held, after);
            self.arrive();
        }
        self.state.lock().leave(queue_key);
        waited
    }

    /// Keeps a block that is in transit from all users until it can be filled. If the pool is gone, puts it back into
    /// its segment.
    pub(crate) fn keep_unscrubbed(&self, held: HeldBlock<B>) {
        let mut state = self.state.lock();
        let Some(unscrubbed) = &mut state.unscrubbed else {
            drop(state);
            self.return_to_segment(held);
            self.release_all();
            return;
        };
        unscrubbed.push(held);
        reached(Rare::Unscrubbed);
        // No request can use this block, so it is not a change that waiting threads have to see.
        if state.transit.arrive() {
            self.arrived.notify_all();
        }
    }

    /// The uses of unscrubbed blocks that are not known to have ended.
    fn uses_of_unscrubbed(&self) -> QueueUses {
        let state = self.state.lock();
        let held = state.unscrubbed.iter().flat_map(Bins::iter);
        let uses = held.flat_map(|held| &held.uses);
        let not_over = uses.filter(|use_| !state.queues.is_over(**use_));
        not_over.copied().collect()
    }

    /// Waits for the commands that use unscrubbed blocks, on a device where no marker says that they have ended. Failures are logged.
    pub(crate) fn wait_for_unscrubbed(&self) {
        if self.failures.keeps_places() {
            return;
        }
        for use_ in &self.uses_of_unscrubbed() {
            if let Err(error) = guarded("a wait", || self.wait_for(*use_)) {
                tracing::warn!(%error, "a block stays unscrubbed: could not wait for the commands that use it");
            }
        }
    }

    /// Fills unscrubbed blocks that no command uses any more, and returns them to their segments.
    pub(crate) fn scrub_again(&self) {
        let Scrubber::OnFree { queue } = &self.scrubber else {
            return;
        };
        self.check(&self.uses_of_unscrubbed());
        let idle = self.state.lock().take_unscrubbed();
        for held in idle {
            match guarded("scrubbing memory", || {
                self.fill_now(queue, &held.block.memory)
            }) {
                Ok(()) => self.return_to_segment(held),
                Err(error) => {
                    let bytes = held.block.bytes;
                    self.keep_unscrubbed(held);
                    // A subscriber that panics must not lose the blocks that are still to come.
                    contained("a subscriber", || {
                        tracing::warn!(%error, bytes, "a free block could not be scrubbed; it stays out of use");
                    });
                }
            }
        }
    }

    /// Puts unscrubbed blocks back into their segments as they are. Called when the last handle is gone, so there is no
    /// next user.
    pub(crate) fn stop_scrubbing_again(&self) {
        self.scrub_again();
        let rest = {
            let mut state = self.state.lock();
            let mut rest = state.unscrubbed.take();
            let rest = rest.as_mut().map(|bins| bins.take_all(|_| true));
            let rest = rest.unwrap_or_default();
            state.transit.depart(rest.len());
            rest
        };
        for held in rest {
            let bytes = held.block.bytes;
            self.return_to_segment(held);
            contained("a subscriber", || {
                tracing::error!(
                    bytes,
                    "a block was released unscrubbed: scrubbing it failed"
                );
            });
        }
    }
}
