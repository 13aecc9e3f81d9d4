//! A block that its user frees.

use binpool_allocators::{Backend, Error, Memory};
use parking_lot::MutexGuard;

use crate::{
    order::fence::is_ordered,
    retain::SweepClock,
    shared::{BlockBox, HeldBlock, Shared, State},
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

    /// Notes that a block that was in [transit](crate::lock::transit) has arrived at the allocator.
    pub(crate) fn arrive(&self) {
        if self.state.lock().arrive() {
            self.arrived.notify_all();
        }
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
