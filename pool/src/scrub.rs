//! No tenant of a pool reads what another left: blocks are filled with zeros between their users.
//!
//! Under [`ScrubPolicy::OnFree`] a block that the pool holds is clean, or will be before anything runs that comes after
//! its uses. What could not be filled is *unscrubbed*:
//!
//! - a block of its own goes to the allocator, and what comes from there is filled before it is a block;
//! - a range of a segment would come back with its neighbours, so its block is set apart, and tried again by
//!   [`Shared::flush`], which whoever misses calls.

use binpool_allocators::{
    Allocator, Backend, Error, Event, EventOf, Memory, MemoryOf, QueueOf, QueueOrder, Region,
};

use crate::{
    PooledBuffer,
    shared::Shared,
    state::{
        bins::{Bins, Block, HeldBlock},
        fences::wait_for_event,
        lane::{Uses, is_in_order},
    },
};

/// Whether a pool fills blocks with zeros, so that none of its users reads what another left.
///
/// A fill is a command on the queue that the block is for, of all bytes of the block, those too that its class has more
/// than was asked for. The host waits for it only where memory is [fresh](Self::OnFree). The rule of [`PooledBuffer`]'s
/// queues holds for it as for the commands of former users: what is enqueued on another queue has to come
/// [after it](PooledBuffer::order_before).
///
/// A fill that is enqueued and then fails is not seen: `PoCL`, for one, fails all that is pending on a queue behind a
/// command that fails, as a program can have it do by a user event. Tenants who would do that on purpose are to have
/// queues, and pools, of their own. Memory that is [detached](PooledBuffer::detach) is the program's to fill.
///
/// ```
/// # use binpool::{Backend, ImmediateAllocator, PoolOptions, QueueOrder};
/// use binpool::ScrubPolicy;
/// use binpool_mock::{CallKind, MockDevice};
///
/// for policy in ScrubPolicy::ALL {
/// #   let device = MockDevice::new();
/// #   let backend = device.backend();
/// #   let queue = backend.create_queue(QueueOrder::InOrder)?;
///     let pool = PoolOptions::new()
///         .scrub(policy)
///         .build(ImmediateAllocator::new(&backend)?, &queue)?;
///     let fills = || device.call_count(CallKind::Fill);
///     drop(pool.allocate(4096)?);
///     let before = fills();
///     let block = pool.allocate(4096)?; // From what the pool holds.
///     let handed_out = fills();
///     drop(block);
///     let costs = (handed_out - before, fills() - handed_out);
///     match policy {
///         ScrubPolicy::OnHandOut => assert_eq!(costs, (1, 0)),
///         ScrubPolicy::OnFree => assert_eq!(costs, (0, 1)),
///         _ => assert_eq!(costs, (0, 0)),
///     }
/// }
/// # Ok::<(), binpool::PoolError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ScrubPolicy {
    /// Blocks are handed out as their last user left them, or as the driver gave them. Costs nothing.
    #[default]
    Never,
    /// A block is filled when it comes back, after everything that was enqueued on its queues; so what the pool holds,
    /// and what it gives back to its allocator, is zeros. Next users wait for no fill that was not there before they
    /// asked.
    ///
    /// A block that was used on other queues than its own has its own wait for those, on the device: a program whose
    /// queues wait for the host must not have the host wait for the one queue before it lets the other go on. A block
    /// that is for no queue is filled on the pool's home queue.
    ///
    /// Memory that comes from the allocator is filled once, before its first user has it, on a queue of the pool's own
    /// that the host waits for: a driver, or another user of the allocator, may hand out what was this pool's before.
    ///
    /// A block whose fill cannot be enqueued is handed to no other user: it goes back to the allocator, and as a part
    /// of a [segment](crate::PoolOptions::segments) it counts as held, but stays out of use until a later try
    /// succeeds. The last handle of the pool ends these tries: what is unscrubbed then goes to the allocator as it is.
    OnFree,
    /// A block is filled when it is handed out, on the queue that it is for, whether it was held or is fresh. A block
    /// of an out-of-order queue has a barrier behind its fill.
    ///
    /// Where the fill cannot be enqueued the allocation fails, and the block is held as before. What lies in the pool,
    /// and what goes back to the allocator, is as its last user left it.
    OnHandOut,
}

impl ScrubPolicy {
    /// All policies.
    pub const ALL: [Self; 3] = [Self::Never, Self::OnFree, Self::OnHandOut];
}

/// A policy, with what it takes.
#[derive(Debug)]
pub(crate) enum Scrubber<A: Allocator> {
    Never,
    /// The queue has nothing but fills of memory that no command uses, so that the host can wait for it.
    OnFree {
        queue: QueueOf<A>,
    },
    OnHandOut,
}

impl<A: Allocator> Scrubber<A> {
    /// What the policy takes.
    ///
    /// # Errors
    ///
    /// Where a queue cannot be made.
    pub(crate) fn new(policy: ScrubPolicy, backend: &A::Backend) -> Result<Self, Error> {
        Ok(match policy {
            ScrubPolicy::Never => Self::Never,
            ScrubPolicy::OnFree => Self::OnFree {
                queue: backend.create_queue(QueueOrder::InOrder)?,
            },
            ScrubPolicy::OnHandOut => Self::OnHandOut,
        })
    }

    pub(crate) const fn policy(&self) -> ScrubPolicy {
        match self {
            Self::Never => ScrubPolicy::Never,
            Self::OnFree { .. } => ScrubPolicy::OnFree,
            Self::OnHandOut => ScrubPolicy::OnHandOut,
        }
    }

    pub(crate) const fn is_on_free(&self) -> bool {
        matches!(self, Self::OnFree { .. })
    }

    pub(crate) const fn is_on_hand_out(&self) -> bool {
        matches!(self, Self::OnHandOut)
    }
}

/// Enqueues a fill of all of `memory`.
fn fill<B: Backend>(backend: &B, queue: &B::Queue, memory: &B::Memory) -> Result<B::Event, Error> {
    backend.enqueue_fill(queue, memory, Region::first(memory.bytes()), &[0], &[])
}

impl<A: Allocator> PooledBuffer<A> {
    /// Fills a block that is about to be handed out for `queue`, before whatever its user enqueues there.
    pub(crate) fn scrub_for(&self, queue: &QueueOf<A>) -> Result<(), Error> {
        let Some(memory) = self.memory() else {
            return Ok(());
        };
        let filled = fill(self.backend(), queue, memory)?;
        if !is_in_order(queue) {
            self.backend().enqueue_barrier(queue, &[filled])?;
        }
        Ok(())
    }

    /// Fills a block that is about to come back, after everything that was enqueued on its queues. The fill is its only
    /// use then. `None` for the block of 0 bytes.
    pub(crate) fn scrub(&mut self) -> Result<Option<EventOf<A>>, Error> {
        if self.block().is_none() {
            return Ok(None);
        }
        let own = self.own_queue();
        let queue = own.as_ref().unwrap_or(&self.shared.home).clone();
        // A barrier, no wait list: a failure on another queue must not keep the fill from running.
        self.order_before(&queue)?;
        let Some(memory) = self.memory() else {
            return Ok(None);
        };
        let filled = fill(self.backend(), &queue, memory)?;
        if let Some(tenure) = self.tenure_mut() {
            tenure.take_others();
            if own.is_none() {
                tenure.record(&queue);
            }
        }
        Ok(Some(filled))
    }

    /// Gives a block back by a fill. Its event.
    pub(crate) fn release_scrubbed(mut self, end: EventOf<A>) -> Result<EventOf<A>, Error> {
        match self.scrub() {
            Ok(filled) => {
                self.hand_back()?;
                Ok(filled.unwrap_or(end))
            }
            Err(error) => {
                self.give_back_unscrubbed(&[])?;
                Err(error)
            }
        }
    }

    /// Gives a block back that could not be filled, and that no other user may have as it is.
    pub(crate) fn give_back_unscrubbed(&mut self, after: &[EventOf<A>]) -> Result<(), Error> {
        let Some(block) = self.take_block() else {
            return Ok(());
        };
        self.shared.let_go_unscrubbed(block, self.size(), after)
    }
}

impl<A: Allocator> Shared<A> {
    /// Memory from the allocator, which no user left anything in.
    pub(crate) fn allocate_clean(&self, bytes: usize) -> Result<MemoryOf<A>, Error> {
        let memory = self.allocator.allocate(bytes)?;
        if let Scrubber::OnFree { queue } = &self.scrubber
            && let Err(error) = self.fill_now(queue, &memory)
        {
            if let Err(release) = self.allocator.release(memory, &[]) {
                tracing::error!(%release, bytes, "memory that could not be scrubbed was not released cleanly");
            }
            return Err(error);
        }
        Ok(memory)
    }

    /// Fills memory that no command uses, and waits until that is done.
    fn fill_now(&self, queue: &QueueOf<A>, memory: &MemoryOf<A>) -> Result<(), Error> {
        fill(self.allocator.backend(), queue, memory)?.wait()
    }

    /// Takes a block back from its user as [`let_go`](Self::let_go) does, where its contents may be anybody's next.
    fn let_go_unscrubbed(
        &self,
        mut block: Box<Block<A>>,
        asked: usize,
        after: &[EventOf<A>],
    ) -> Result<(), Error> {
        let (lane, others) = (block.tenure.lane, block.tenure.take_others());
        if block.range.is_none() || !self.scrubber.is_on_free() {
            return self.let_go(self.lock_and_tell(), block, asked, &others, after);
        }
        let uses = {
            let mut state = self.state.lock();
            let uses = state.take_back(&block, asked, &others);
            state.in_transit += 1;
            uses
        };
        let held = HeldBlock::new(block, uses);
        // Ranges know queues, not events.
        let waited = after.iter().try_for_each(wait_for_event);
        if waited.is_ok() {
            self.set_apart(held);
        } else {
            self.state.lock().strand.keep_range(held, after);
            self.arrive();
        }
        self.state.lock().leave(lane);
        waited
    }

    /// Keeps a block that is in transit from all users, while there are any.
    pub(crate) fn set_apart(&self, held: HeldBlock<A>) {
        let mut state = self.state.lock();
        let Some(unscrubbed) = &mut state.unscrubbed else {
            drop(state);
            self.return_to_segment(held);
            self.release_all();
            return;
        };
        unscrubbed.push(held);
        // Nobody can have more than before, so that this is none of the changes that others wait for.
        state.in_transit -= 1;
        self.arrived.notify_all();
    }

    /// Fills what could not be filled when it came back, and that no command uses any more.
    pub(crate) fn scrub_again(&self) {
        let Scrubber::OnFree { queue } = &self.scrubber else {
            return;
        };
        let not_over: Uses = {
            let state = self.state.lock();
            let held = state.unscrubbed.iter().flat_map(Bins::iter);
            let uses = held.flat_map(|held| &held.uses);
            let not_over = uses.filter(|use_| !state.lanes.is_over(**use_));
            not_over.copied().collect()
        };
        self.look_at(&not_over);
        let idle = self.state.lock().take_unscrubbed();
        for held in idle {
            match self.fill_now(queue, &held.block.memory) {
                Ok(()) => self.return_to_segment(held),
                Err(error) => {
                    let bytes = held.block.bytes;
                    tracing::warn!(%error, bytes, "a free block could not be scrubbed; it stays out of use");
                    self.set_apart(held);
                }
            }
        }
    }

    /// Ends the tries: nobody is left who could have what is unscrubbed.
    pub(crate) fn stop_scrubbing_again(&self) {
        self.scrub_again();
        let rest = {
            let mut state = self.state.lock();
            let mut rest = state.unscrubbed.take();
            let rest = rest.as_mut().map(|bins| bins.take_all(|_| true));
            let rest = rest.unwrap_or_default();
            state.in_transit += rest.len();
            rest
        };
        for held in rest {
            let bytes = held.block.bytes;
            tracing::error!(
                bytes,
                "a block goes to the allocator as its user left it: it could not be scrubbed"
            );
            self.return_to_segment(held);
        }
    }
}
