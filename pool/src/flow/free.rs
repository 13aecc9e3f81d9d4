//! A block that its user frees.

use binpool_allocators::{
    Allocator, Backend, Error, Event, Memory, Queue,
    contained::{contained, guarded},
};
use parking_lot::MutexGuard;

use crate::{
    PooledBuffer,
    block::{Lease, Wanted},
    central::caches::DrainFrom,
    order::{
        fence::{is_ordered, wait_for_event},
        queue_uses::QueueUses,
    },
    retain::SweepClock,
    shared::{BlockBox, HeldBlock, LeasedBlock, Shared, State, Viewed},
    track::pool_event::{PoolEvent, What},
};

impl<B: Backend> Shared<B> {
    /// Returns whether this queue runs a block's old commands before its new ones.
    pub(crate) fn is_ordered(&self, queue: &B::Queue) -> bool {
        is_ordered(queue, self.failures)
    }

    /// Frees a block. Makes no call to the device if the pool holds the block and only one in-order queue used it.
    ///
    /// # Errors
    ///
    /// A failure of the device. The block is freed anyway.
    pub(crate) fn free_block(&self, mut block: BlockBox<B>, asked: usize) -> Result<(), Error> {
        let (queue_key, others) = (block.lease.key, block.lease.take_others());
        let mut state = self.lock_and_sync();
        if !state.holding && !state.keeps_addresses() {
            return self.release_after(state, block, asked, &others, &[]);
        }
        let uses = state.take_back(&block, asked, &others);
        let (unordered, to_segment) = state.hold(HeldBlock::new(block, uses));
        state.leave(queue_key);
        let is_sweep_due = state.sweep_clock.as_mut().is_some_and(SweepClock::free);
        let is_too_much = state.managed_bytes() > self.retain.release_threshold();
        drop(state);
        if let Some(held) = to_segment {
            self.return_to_segment(held);
        }
        for use_ in &unordered {
            self.add_fence_to(use_.key);
        }
        if is_too_much {
            self.trim_unused_to(self.retain.release_threshold());
        }
        if is_sweep_due {
            self.sweep();
        }
        Ok(())
    }

    /// Takes a block, which was also used on `others`, from its user, and releases it after its uses and the events in `after`.
    ///
    /// # Errors
    ///
    /// A failure of the device. The block has left the pool anyway.
    pub(crate) fn release_after(
        &self,
        mut state: MutexGuard<'_, State<B>>,
        block: BlockBox<B>,
        asked: usize,
        others: &[B::Queue],
        after: &[B::Event],
    ) -> Result<(), Error> {
        let queue_key = block.lease.key;
        let uses = state.take_back(&block, asked, others);
        if block.range.is_some() {
            drop(state);
            let result = self.release_range_after(block, uses, after);
            self.state.lock().leave(queue_key);
            return result;
        }
        state.begin_release(block.memory.id(), block.bytes, &uses);
        drop(state);
        let result = self.release(block.into_memory(), &uses, after);
        let mut state = self.state.lock();
        // The key has to stay valid until the queue's commands have been marked.
        state.leave(queue_key);
        if state.arrive() {
            self.arrived.notify_all();
        }
        result
    }

    /// Notes that a block that was in [transit](binpool_lock::transit) has arrived at the allocator.
    pub(crate) fn arrive(&self) {
        if self.state.lock().arrive() {
            self.arrived.notify_all();
        }
    }

    /// Releases views of segments, one after the other, even if the release of one panics.
    pub(crate) fn release_views(&self, views: Vec<B::Memory>) {
        for view in views {
            contained("Allocator::release_view", || {
                self.allocator.release_view(view);
            });
        }
    }

    /// Puts the range of a block back into its segment, and releases every segment that is now free.
    ///
    /// # Errors
    ///
    /// A wait for an event of `after` failed: then the range goes into the [quarantine](crate::free::quarantine).
    pub(crate) fn release_range_after(
        &self,
        block: BlockBox<B>,
        uses: QueueUses,
        after: &[B::Event],
    ) -> Result<(), Error> {
        let held = HeldBlock::new(block, uses);
        // A range stores timestamps, not events, so the host waits.
        if let Err(error) = guarded("a wait", || after.iter().try_for_each(wait_for_event)) {
            self.state.lock().quarantine.keep_range(held, after);
            return Err(error);
        }
        self.state.lock().transit.depart(1);
        self.return_to_segment(held);
        self.unmap_stale();
        let released = self.state.lock().release_all();
        self.release_each(released);
        Ok(())
    }

    /// Puts every free block back into its segment, where free neighbours merge.
    pub(crate) fn flush(&self) {
        self.release_quarantined();
        self.scrub_again();
        let cached = {
            let mut state = self.state.lock();
            self.drain_caches_of(&mut state, DrainFrom::All, Wanted::All);
            let cached = state.take_cached();
            if !cached.is_empty() {
                state.note(|| {
                    let bytes: usize = cached.iter().map(|held| held.block.bytes).sum();
                    PoolEvent::did(
                        What::Flush,
                        bytes as u64,
                        format_args!("{} blocks", cached.len()),
                    )
                });
            }
            cached
        };
        self.return_to_segments(cached);
    }

    pub(super) fn return_to_segments(&self, all: Vec<HeldBlock<B>>) {
        for held in all {
            self.return_to_segment(held);
        }
    }

    /// Puts a block that is in transit back into its segment. Its view is kept for the next block of these bytes, or
    /// released first.
    pub(crate) fn return_to_segment(&self, held: HeldBlock<B>) {
        let HeldBlock { block, uses, .. } = held;
        let Some(range) = block.range else { return };
        let memory = block.into_memory();
        let mut state = self.state.lock();
        let view = if state.segments.may_keep_view(range) {
            Some(memory)
        } else {
            drop(state);
            self.release_views(vec![memory]);
            state = self.state.lock();
            None
        };
        if state.return_range(range, uses, view) {
            self.arrived.notify_all();
        }
    }
}

fn known_queues<B: Backend>(state: &State<B>) -> Vec<B::Queue> {
    let queues = state.queues.iter();
    queues
        .map(|(_, queue_state)| queue_state.queue.clone())
        .collect()
}

fn record_all<B: Backend>(lease: &Lease<B>, queues: &[B::Queue]) {
    for queue in queues {
        if lease.queue != Some(queue.id()) {
            lease.record(queue);
        }
    }
}

impl<B: Backend> PooledBuffer<B> {
    /// Returns whether the program can reach the block's bytes through views.
    pub(crate) fn has_views(&self) -> bool {
        self.memory().is_some_and(Memory::has_views)
    }

    /// Has the pool keep a block with views until they are gone: then it is freed, or, with events, released after
    /// these. If the last handle of the pool is gone, there is no next user to protect the bytes from, so the block is
    /// released at once, without a scrub.
    ///
    /// # Errors
    ///
    /// A failure of the device. The block has left the caller anyway.
    pub(crate) fn free_viewed(&mut self, release_after: Option<&[B::Event]>) -> Result<(), Error> {
        let Some(block) = self.take_leased() else {
            return Ok(());
        };
        let mut state = self.shared().lock_and_sync();
        let Some(viewed) = &mut state.viewed else {
            drop(state);
            let after = release_after.unwrap_or_default();
            let (shared, block) = block.split();
            return shared.release_unscrubbed_after(block, self.size(), after);
        };
        viewed.push(self.as_viewed(block, release_after.map(<[_]>::to_vec)));
        Ok(())
    }

    /// The block that was taken out of this buffer, to be kept until its views are gone.
    fn as_viewed(&self, block: LeasedBlock<B>, release_after: Option<Vec<B::Event>>) -> Viewed<B> {
        Viewed {
            block,
            asked: self.size(),
            release_after,
        }
    }
}

impl<B: Backend> Shared<B> {
    /// Records every queue that the pool knows as one that a block was used on.
    pub(crate) fn record_every_queue(&self, lease: &Lease<B>) {
        let queues = known_queues(&self.state.lock());
        record_all(lease, &queues);
    }

    /// Frees the blocks whose views are gone.
    ///
    /// The program can no longer [record](PooledBuffer::record_use) on which queues it used the views, so they count as
    /// used on every queue that the pool knows.
    pub(crate) fn return_unviewed(&self) {
        let state = self.state.lock();
        if state.has_viewed() {
            self.return_unviewed_from(state);
        }
    }

    /// Frees the blocks whose views are gone.
    #[cold]
    #[inline(never)]
    pub(crate) fn return_unviewed_from(&self, mut state: MutexGuard<'_, State<B>>) {
        let unviewed = state.take_unviewed();
        if unviewed.is_empty() {
            return;
        }
        let queues = known_queues(&state);
        drop(state);
        for viewed in unviewed {
            record_all(&viewed.block.lease, &queues);
            self.free_or_release(viewed);
        }
    }

    fn free_or_release(&self, viewed: Viewed<B>) {
        let mut buffer = PooledBuffer::of_leased(viewed.block, viewed.asked);
        let Some(after) = viewed.release_after else {
            // The drop of `buffer` frees it.
            return;
        };
        if !after.iter().all(Event::has_ended)
            && let Some(viewed) = &mut self.state.lock().viewed
        {
            // This thread must not wait: the events may depend on what it does next.
            if let Some(block) = buffer.take_leased() {
                viewed.push(buffer.as_viewed(block, Some(after)));
            }
            return;
        }
        if let Err(error) = buffer.free_unscrubbed(&after) {
            let bytes = buffer.size();
            tracing::error!(%error, bytes, "a block without views left could not be released cleanly");
        }
    }

    /// Frees or releases all blocks that are kept because of views, and those that grew. Called when the last handle is gone, so there is no
    /// next user.
    pub(crate) fn stop_keeping_viewed(&self) {
        self.return_unviewed();
        // Each is freed by its drop, after the lock.
        let viewed = self.state.lock().viewed.take();
        for viewed in viewed.into_iter().flatten() {
            self.free_or_release(viewed);
        }
        // With events, so that nothing here waits for their commands.
        self.release_dropped();
    }
}

#[cfg(test)]
mod tests {
    use binpool_mock::{CallKind, Fault, Persistence};

    use crate::{PoolOptions, Retain, mock_pool::MockPool};

    const MIB: usize = 1 << 20;

    fn at_most(mib: usize, segments: bool) -> MockPool {
        let retain = Retain::new().at_most((mib * MIB) as u64);
        MockPool::new(PoolOptions::new().segments(segments).retain(retain))
    }

    fn are_closed(mock: &MockPool) -> bool {
        mock.shared.state.lock().threads.is_closed()
    }

    #[test]
    fn threads_have_caches_while_the_pool_manages_no_more_than_its_release_threshold() {
        for segments in [false, true] {
            let mock = at_most(64, segments);
            let below = mock.pool.allocate(16 * MIB).unwrap();
            assert!(!are_closed(&mock));
            let above = mock.pool.allocate(64 * MIB).unwrap();
            assert!(are_closed(&mock), "segments: {segments}");
            drop(above);
            mock.device.run();
            drop(mock.pool.allocate(MIB).unwrap()); // Sees that no command uses it.
            assert!(mock.pool.managed_bytes() <= 64 * MIB as u64);
            assert!(!are_closed(&mock));
            drop(below);
            assert!(mock.pool.managed_bytes() >= 16 * MIB as u64, "it stays");
            mock.pool.free_held();
            assert!(!are_closed(&mock));
        }
    }

    #[test]
    fn a_request_that_fails_above_the_release_threshold_leaves_nothing_there() {
        let mock = at_most(8, true);
        drop(mock.pool.allocate(1000).unwrap());
        mock.device.fail_nth(
            CallKind::CreateSubRegion,
            1,
            Fault::Backend(-5),
            Persistence::Once,
        );
        mock.pool.allocate(64 * MIB).unwrap_err();
        assert_eq!(mock.device.call_count(CallKind::CreateSubRegion), 2);
        for _ in 0..2 {
            drop(mock.pool.allocate(1000).unwrap());
            mock.device.run();
        }
        assert!(mock.pool.managed_bytes() <= 8 * MIB as u64);
    }
}
