//! A block of device memory, and its lease to a user.

#![expect(
    unsafe_code,
    reason = "a leased block always has a reference to its pool, and one that goes back to its segment leaves its host memory to the next"
)]

use std::{
    mem::MaybeUninit,
    ops::{Deref, DerefMut},
    ptr::{self, NonNull},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use binpool_allocators::{Backend, QueueId};
use parking_lot::Mutex;

use crate::{
    order::queue_uses::QueueUses,
    order::timestamps::{QueueKey, Timestamp},
    track::allocation_record::AllocationRecord,
};
use binpool_segments::{Leaving, RangeKey};

/// A block of device memory.
///
/// The fields that a hit reads come first. A hit does not write them, since the block may have come from another thread.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Block<B: Backend> {
    /// The size of the block, as the allocator was asked for it and as the pool counts it.
    pub(crate) bytes: usize,
    /// A request for more bytes than this, and at most `bytes`, is of the class of this block.
    pub(crate) above: usize,
    /// The lease of its user, or of the next user while the block is in a thread cache.
    pub(crate) lease: Lease<B>,
    /// The bin that it belongs to.
    pub(crate) bin: usize,
    /// The slot that it belongs to in a thread cache.
    pub(crate) slot: usize,
    /// Its range in a segment; `None` if it is an allocation of its own.
    pub(crate) range: Option<RangeKey>,
    /// The record of its allocation; `None` if it was not allocated while the pool was tracked.
    pub(crate) record: Option<Arc<AllocationRecord>>,
    pub(crate) memory: B::Memory,
}

/// A block in host memory, with its user's reference to the pool.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Body<B: Backend, O> {
    /// `Some` in a [`LeasedBlock`]. A block in a bin keeps it if it was in a thread cache before, because threads that change the reference
    /// count at the same time slow each other down.
    share: Option<O>,
    block: Block<B>,
}

impl<B: Backend, O> Body<B, O> {
    #[inline]
    pub(crate) fn block(&self) -> &Block<B> {
        &self.block
    }

    pub(crate) fn block_mut(&mut self) -> &mut Block<B> {
        &mut self.block
    }

    /// Returns the reference to the pool.
    ///
    /// # Safety
    ///
    /// This is the body of a [`LeasedBlock`].
    #[inline]
    pub(crate) unsafe fn share(&self) -> &O {
        // SAFETY: as the caller promises.
        unsafe { self.share.as_ref().unwrap_unchecked() }
    }
}

/// A block that no user has.
#[derive(Debug)]
pub(crate) struct BlockBox<B: Backend, O>(Box<Body<B, O>>);

impl<B: Backend, O> BlockBox<B, O> {
    pub(crate) fn new(block: Block<B>) -> Self {
        Self(Box::new(Body { share: None, block }))
    }

    /// Leases the block. It gets a reference to the pool from `share`, unless it has one.
    pub(crate) fn lease(mut self, lease: Lease<B>, share: impl FnOnce() -> O) -> LeasedBlock<B, O> {
        self.lease = lease;
        self.0.share.get_or_insert_with(share);
        LeasedBlock(self.0)
    }

    pub(crate) fn into_memory(self) -> B::Memory {
        self.0.block.memory
    }
}

impl<B: Backend, O> Deref for BlockBox<B, O> {
    type Target = Block<B>;

    fn deref(&self) -> &Block<B> {
        &self.0.block
    }
}

impl<B: Backend, O> DerefMut for BlockBox<B, O> {
    fn deref_mut(&mut self) -> &mut Block<B> {
        &mut self.0.block
    }
}

/// A block that a user has, or that is ready for the next user of its queue.
///
/// In a thread cache, too, it has what a user needs: its reference to the pool, and its count in
/// [`QueueState::active`](crate::central::queue_state::QueueState::active). So a hit changes neither of these two counters, which
/// all threads share.
///
/// # Invariant
///
/// It has a reference to the pool. Only this module sees that, and only [`split`](Self::split) takes it out.
#[derive(Debug)]
pub(crate) struct LeasedBlock<B: Backend, O>(Box<Body<B, O>>);

impl<B: Backend, O> LeasedBlock<B, O> {
    #[inline]
    pub(crate) fn share(&self) -> &O {
        // SAFETY: it is the body of a leased block.
        unsafe { self.0.share() }
    }

    /// Takes the block from its user, with its reference to the pool.
    pub(crate) fn split(mut self) -> (O, BlockBox<B, O>) {
        // SAFETY: by the invariant there is one, and this value is gone.
        let share = unsafe { self.0.share.take().unwrap_unchecked() };
        (share, BlockBox(self.0))
    }

    /// Takes the block from its user. It keeps its reference to the pool for the next user.
    pub(crate) fn end(self) -> BlockBox<B, O> {
        BlockBox(self.0)
    }

    #[inline]
    pub(crate) fn into_raw(self) -> NonNull<Body<B, O>> {
        // SAFETY: a box is not null.
        unsafe { NonNull::new_unchecked(Box::into_raw(self.0)) }
    }

    /// # Safety
    ///
    /// The address is from [`into_raw`](Self::into_raw), and is not used again.
    #[inline]
    pub(crate) unsafe fn from_raw(body: NonNull<Body<B, O>>) -> Self {
        // SAFETY: as the caller promises.
        Self(unsafe { Box::from_raw(body.as_ptr()) })
    }
}

impl<B: Backend, O> Deref for LeasedBlock<B, O> {
    type Target = Block<B>;

    #[inline]
    fn deref(&self) -> &Block<B> {
        &self.0.block
    }
}

impl<B: Backend, O> DerefMut for LeasedBlock<B, O> {
    fn deref_mut(&mut self) -> &mut Block<B> {
        &mut self.0.block
    }
}

/// The host memory of a former block, for the next block.
#[derive(Debug)]
pub(crate) struct Shell<B: Backend, O>(Box<MaybeUninit<Body<B, O>>>);

impl<B: Backend, O> Shell<B, O> {
    pub(crate) fn new() -> Self {
        Self(Box::new_uninit())
    }

    /// Takes the device memory and the reference to the pool out of a block's host memory. The rest of the block is dropped in place, since
    /// moving it takes longer.
    pub(crate) fn of(mut block: LeasedBlock<B, O>) -> (B::Memory, O, Self) {
        let Block {
            lease,
            record,
            bytes: _,
            above: _,
            bin: _,
            slot: _,
            range: _,
            memory: _,
        } = &mut block.0.block;
        *record = None;
        drop(lease.take_others());
        let body = block.into_raw();
        // SAFETY: the address is that of a valid body, which no other reference shows.
        let of = unsafe { body.as_ref() };
        // SAFETY: it is read once: from here on all that is there counts as uninitialized, nothing else of it has to be dropped, and nothing
        // in this function could panic.
        let memory = unsafe { ptr::read(&raw const of.block.memory) };
        // SAFETY: it is the body of a leased block.
        let share = unsafe { of.share() };
        // SAFETY: as for `memory`.
        let share = unsafe { ptr::read(share) };
        // SAFETY: the address is from a box with the same layout, and no other box is made of it.
        let shell = unsafe { Box::from_raw(body.as_ptr().cast()) };
        (memory, share, Self(shell))
    }

    pub(crate) fn fill(self, share: O, block: Block<B>) -> LeasedBlock<B, O> {
        let share = Some(share);
        LeasedBlock(Box::write(self.0, Body { share, block }))
    }
}

/// A free block, and its uses by former users.
#[derive(Debug)]
pub(crate) struct HeldBlock<B: Backend, O> {
    pub(crate) block: BlockBox<B, O>,
    pub(crate) uses: QueueUses,
    /// The number of sweeps before it came to its bin.
    pub(crate) since: u32,
}

impl<B: Backend, O> HeldBlock<B, O> {
    pub(crate) fn new(block: BlockBox<B, O>, uses: QueueUses) -> Self {
        Self {
            block,
            uses,
            since: 0,
        }
    }
}

/// A free block that only its own in-order queue used, ready for the next user on that queue, and when it came back.
#[derive(Debug)]
pub(crate) struct Cached<B: Backend, O> {
    pub(crate) block: LeasedBlock<B, O>,
    /// The moment at which it came back. It is not in the block, because a thread that drops blocks of another thread would then
    /// write to a cache line of that thread.
    pub(crate) since: Timestamp,
}

impl<B: Backend, O> Cached<B, O> {
    pub(crate) fn bytes(&self) -> usize {
        self.block.bytes
    }
}

/// Which blocks are taken out of the caches of threads and the depot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    All,
    /// Those of one slot.
    Slot(usize),
    /// Those with more bytes than this.
    LargerThan(usize),
}

impl Wanted {
    pub(crate) fn has<B: Backend>(self, block: &Block<B>) -> bool {
        match self {
            Self::All => true,
            Self::Slot(slot) => block.slot == slot,
            Self::LargerThan(bytes) => block.bytes > bytes,
        }
    }
}

/// The bytes of some blocks.
pub(crate) fn bytes_of<B: Backend, O>(cached: &[Cached<B, O>]) -> usize {
    cached.iter().map(Cached::bytes).sum()
}

/// A freed block that the pool keeps as active, instead of its user, until its views are gone.
#[derive(Debug)]
pub(crate) struct Viewed<B: Backend, O> {
    pub(crate) block: LeasedBlock<B, O>,
    /// The bytes that its user requested.
    pub(crate) asked: usize,
    /// If it could not be filled with zeros: the events after which it is released, instead of coming back.
    pub(crate) release_after: Option<Vec<B::Event>>,
}

/// A free block, a segment or pages to be released.
pub(crate) type Released<B> = Leaving<<B as Backend>::Memory, QueueUses>;

impl<B: Backend, O> From<HeldBlock<B, O>> for Released<B> {
    fn from(HeldBlock { block, uses, .. }: HeldBlock<B, O>) -> Self {
        Self {
            views: Vec::new(),
            bytes: block.bytes,
            memory: block.into_memory(),
            uses: vec![uses],
            place: None,
        }
    }
}

/// The queue that a block is allocated for, and the queues that it is used on.
///
/// The fields are in this order so that those that each hit reads lie together.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Lease<B: Backend> {
    /// The queue that it is allocated for; `None` if it was unbound.
    pub(crate) queue: Option<QueueId>,
    /// The key of that queue's state; `None` also for a block of 0 bytes.
    pub(crate) key: Option<QueueKey>,
    /// Set if a thread may cache the block when it comes back: only its own queue used it, and blocks of that queue may be cached.
    may_be_cached: AtomicBool,
    /// The other queues that it was used on.
    others: Mutex<Vec<B::Queue>>,
}

impl<B: Backend> Lease<B> {
    /// Returns the lease of a user on `queue`. It has a `queue_key` if the pool counts the block among those of that queue.
    pub(crate) fn on(queue: QueueId, queue_key: Option<QueueKey>, may_be_cached: bool) -> Self {
        Self {
            queue: Some(queue),
            key: queue_key,
            may_be_cached: AtomicBool::new(may_be_cached),
            ..Self::default()
        }
    }

    /// Records a use on a queue other than its own.
    pub(crate) fn record(&self, queue: &B::Queue) {
        self.may_be_cached.store(false, Ordering::Relaxed);
        let mut others = self.others.lock();
        if !others.contains(queue) {
            others.push(queue.clone());
        }
    }

    #[inline]
    pub(crate) fn may_be_cached(&self) -> bool {
        self.may_be_cached.load(Ordering::Relaxed)
    }

    /// Returns whether only its own queue used it.
    pub(crate) fn is_alone(&self) -> bool {
        self.others.lock().is_empty()
    }

    /// The other queues that it was used on.
    pub(crate) fn others(&self) -> Vec<B::Queue> {
        self.others.lock().clone()
    }

    /// Takes the other queues out. The caller drops them without a lock, since that may call the device.
    pub(crate) fn take_others(&mut self) -> Vec<B::Queue> {
        std::mem::take(self.others.get_mut())
    }
}

impl<B: Backend> Default for Lease<B> {
    /// Returns the lease of a block that is for no queue and was not used.
    fn default() -> Self {
        Self {
            queue: None,
            key: None,
            may_be_cached: AtomicBool::new(false),
            others: Mutex::default(),
        }
    }
}
