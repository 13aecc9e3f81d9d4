//! Blocks that were freed while views of them were left.
//!
//! The program can still reach the bytes of such a block through its views ([`Memory::has_views`]), so no other user
//! may have them. The pool keeps the block as active. When the views are gone, the block is freed in the ordinary way.
//! The pool checks this ([`Shared::return_unviewed`]) when a request misses the thread cache, and before it looks at
//! all that it holds: for statistics, a sweep, or a release of memory. A block whose views are forgotten never comes
//! back.

use binpool_allocators::{Backend, Error, Event, Memory, Queue};
use parking_lot::MutexGuard;

use crate::{
    PooledBuffer,
    block::Lease,
    shared::{LeasedBlock, Shared, State, Viewed},
};

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
