//! What a pool and its blocks share.

use binpool_allocators::{Allocator, Backend, Error, Queue, QueueOf};
use parking_lot::Mutex;

use crate::{
    PoolError,
    bins::Block,
    hooks::Hooks,
    pending::{Events, PendingBlock, have_ended},
    state::{State, is_ordered},
};

/// A request in the terms of the pool's size classes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// The bytes asked for.
    pub(crate) asked: usize,
    pub(crate) bin: usize,
    /// The size of the block: the class's, or the exact one where the class is too large for the device.
    pub(crate) bytes: usize,
}

/// A block on its way to the user.
#[derive(Debug)]
pub(crate) struct Granted<A: Allocator> {
    pub(crate) block: Block<A>,
    /// The stock of the queue that it was allocated for.
    pub(crate) stock: usize,
}

/// What the handles of a pool and all its blocks share.
///
/// The lock is never held while the allocator, the device or a hook is called. What has to be dropped by a
/// call to the device (memory, events) is carried out from under the lock first.
#[derive(Debug)]
pub(crate) struct Shared<A: Allocator> {
    pub(crate) allocator: A,
    pub(crate) home: QueueOf<A>,
    pub(crate) hooks: Hooks,
    pub(crate) state: Mutex<State<A>>,
}

impl<A: Allocator> Shared<A> {
    pub(crate) fn allocate(
        &self,
        queue: &QueueOf<A>,
        request: Request,
    ) -> Result<Granted<A>, PoolError> {
        let stock = {
            let mut state = self.state.lock();
            let stock = state.enter(queue);
            if let Some(block) = state.pop(stock, request.bin, request.bytes) {
                state.activate(request.asked, block.bytes, true);
                return Ok(Granted { block, stock });
            }
            stock
        };
        match self.allocate_slowly(stock, request) {
            Ok((block, hit)) => {
                self.state.lock().activate(request.asked, block.bytes, hit);
                Ok(Granted { block, stock })
            }
            Err(error) => {
                let mut state = self.state.lock();
                state.leave(stock);
                if error.is_out_of_memory() {
                    state.count_out_of_memory();
                }
                Err(error)
            }
        }
    }

    /// Blocks whose events have ended since, then the device, then everything that can be done about a full
    /// one. The flag tells a held block from a fresh one.
    fn allocate_slowly(
        &self,
        stock: usize,
        request: Request,
    ) -> Result<(Block<A>, bool), PoolError> {
        if self.settle(|block| block.bin == request.bin) {
            let settled = self.state.lock().pop(stock, request.bin, request.bytes);
            if let Some(block) = settled {
                return Ok((block, true));
            }
        }
        match self.allocate_fresh(request) {
            Ok(block) => {
                tracing::debug!(asked = request.asked, bytes = request.bytes, "miss");
                Ok((block, false))
            }
            Err(error) if error.is_out_of_memory() => self.reclaim(stock, request, error),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn allocate_fresh(&self, request: Request) -> Result<Block<A>, Error> {
        Ok(Block {
            memory: self.allocator.allocate(request.bytes)?,
            bin: request.bin,
            bytes: request.bytes,
        })
    }

    /// Moves the pending blocks that `wanted` picks and no command uses any more to the common bins. Whether
    /// there were any.
    pub(crate) fn settle(&self, wanted: impl Fn(&Block<A>) -> bool) -> bool {
        let mut watched = self.state.lock().pending.watch(wanted);
        watched.retain(|(_, events)| have_ended(events));
        if watched.is_empty() {
            return false;
        }
        let mut ended = Vec::with_capacity(watched.len());
        let mut state = self.state.lock();
        for (id, _) in &watched {
            if let Some(PendingBlock {
                block,
                events,
                queues,
            }) = state.pending.take(*id)
            {
                state.common.push(block);
                ended.push((events, queues));
            }
        }
        drop(state);
        !ended.is_empty()
    }

    /// Takes a block back from its user, who used it on the queue of `stock`, and on `others`.
    ///
    /// # Errors
    ///
    /// A failure of the device. The block is back all the same.
    pub(crate) fn give_back(
        &self,
        block: Block<A>,
        asked: usize,
        stock: usize,
        others: Vec<QueueOf<A>>,
    ) -> Result<(), Error> {
        let mut queues = others;
        let mut state = self.state.lock();
        let holding = state.holding;
        if let Some(own) = state.stock_mut(stock) {
            if holding && queues.is_empty() && is_ordered(&own.queue) {
                own.bins.push(block);
                state.deactivate(stock, asked);
                return Ok(());
            }
            queues.push(own.queue.clone());
        }
        drop(state);
        self.give_back_slowly(block, asked, stock, queues)
    }

    /// The same for a block that more than the order of one queue keeps from its next user, or that the pool
    /// does not hold.
    fn give_back_slowly(
        &self,
        block: Block<A>,
        asked: usize,
        stock: usize,
        queues: Vec<QueueOf<A>>,
    ) -> Result<(), Error> {
        let needs_events = self.allocator.release_needs_events();
        let holding = self.state.lock().holding;
        let fenced = if holding || needs_events {
            self.fence(&queues)
        } else {
            Ok(Events::<A>::new())
        };
        let mut state = self.state.lock();
        state.deactivate(stock, asked);
        let events = match fenced {
            Ok(events) if holding && state.holding => {
                state.pending.push(PendingBlock {
                    block,
                    events,
                    queues: queues.into(),
                });
                return Ok(());
            }
            Ok(events) => Ok(events),
            Err(error) => Err(error),
        };
        state.forget(block.bytes);
        for queue in &queues {
            state.mark_draining(queue);
        }
        drop(state);
        match events {
            Ok(events) => self.allocator.release(block.memory, &events),
            Err(error) => {
                // Nobody can tell when its commands end, so nobody gets it. A runtime that does not keep
                // memory for its commands is waited for.
                if needs_events {
                    for queue in &queues {
                        queue.finish()?;
                    }
                }
                self.allocator.release(block.memory, &[])?;
                Err(error)
            }
        }
    }

    /// Events after which nothing that was enqueued on `queues` before still runs.
    pub(crate) fn fence(&self, queues: &[QueueOf<A>]) -> Result<Events<A>, Error> {
        let backend = self.allocator.backend();
        let mut events = Events::<A>::with_capacity(queues.len());
        for queue in queues {
            events.push(backend.enqueue_marker(queue, &[])?);
            // The events are looked at, never waited for, and an unflushed queue need not get on by itself.
            queue.flush()?;
        }
        Ok(events)
    }
}
