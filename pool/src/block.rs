//! A block of device memory, and its lease to a user.

#![expect(
    unsafe_code,
    reason = "a block that goes back to its segment leaves its host memory to the next one"
)]

use std::{
    mem::MaybeUninit,
    ptr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use binpool_allocators::{Backend, QueueId};
use binpool_segments::{Leaving, Place, RangeKey};
use parking_lot::Mutex;

use crate::{
    order::queue_uses::{QueueUses, together},
    order::timestamps::QueueKey,
    track::allocation_record::AllocationRecord,
};

/// A block of device memory.
///
/// The fields that a hit reads come first. A hit does not write them, since the block may have come from another thread.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Block<B: Backend, O> {
    /// The size of the block: what the allocator was asked for, and what the pool counts.
    pub(crate) bytes: usize,
    /// A request for more bytes than this, and at most `bytes`, is of the class of this block.
    pub(crate) above: usize,
    /// The bin that it belongs to.
    pub(crate) bin: usize,
    /// The slot that it belongs to in a thread cache.
    pub(crate) slot: usize,
    /// The reference to the pool that its next user needs. A block in a bin has one if it was in a thread cache before: threads
    /// that change the reference count at the same time slow each other down.
    pub(crate) share: Option<O>,
    /// The lease of its user, or of the next user while the block is in a thread cache.
    pub(crate) lease: Lease<B>,
    /// Its range in a segment; `None` for a whole block of the allocator.
    pub(crate) range: Option<RangeKey>,
    /// The record of its allocation; `None` if it was not allocated while the pool was tracked.
    pub(crate) record: Option<Arc<AllocationRecord>>,
    pub(crate) memory: B::Memory,
}

/// The host memory of a block that is no more, for the next block.
#[derive(Debug)]
pub(crate) struct Shell<B: Backend, O>(Box<MaybeUninit<Block<B, O>>>);

impl<B: Backend, O> Shell<B, O> {
    pub(crate) fn new() -> Self {
        Self(Box::new_uninit())
    }

    /// Takes the device memory of a block out of its host memory. All else of the block is dropped where it is, since moving it
    /// takes longer.
    pub(crate) fn of(mut block: Box<Block<B, O>>) -> (B::Memory, Self) {
        let Block {
            share,
            lease,
            record,
            bytes: _,
            above: _,
            bin: _,
            slot: _,
            range: _,
            memory: _,
        } = &mut *block;
        (*share, *record) = (None, None);
        drop(lease.take_others());
        // SAFETY: the memory of the block is valid, and is read once: the next line ends the block without dropping it, and no
        // line between could panic. From here on the host memory counts as uninitialized.
        let memory = unsafe { ptr::read(&raw const block.memory) };
        // SAFETY: the address is from `into_raw` of a box with the same layout, and no other box is made of it.
        let shell = unsafe { Box::from_raw(Box::into_raw(block).cast()) };
        (memory, Self(shell))
    }

    #[expect(
        clippy::unnecessary_box_returns,
        reason = "the box is what this is for"
    )]
    pub(crate) fn fill(self, block: Block<B, O>) -> Box<Block<B, O>> {
        Box::write(self.0, block)
    }
}

/// A free block, and its uses by former users.
#[derive(Debug)]
pub(crate) struct HeldBlock<B: Backend, O> {
    pub(crate) block: Box<Block<B, O>>,
    pub(crate) uses: QueueUses,
    /// The number of sweeps before it came to its bin.
    pub(crate) since: u32,
}

impl<B: Backend, O> HeldBlock<B, O> {
    pub(crate) fn new(block: Box<Block<B, O>>, uses: QueueUses) -> Self {
        Self {
            block,
            uses,
            since: 0,
        }
    }
}

/// A free block or a segment that is to be released.
#[derive(Debug)]
pub(crate) struct Released<B: Backend> {
    /// Views of a segment, which are dropped before it.
    pub(crate) views: Vec<B::Memory>,
    pub(crate) memory: B::Memory,
    pub(crate) bytes: usize,
    pub(crate) uses: QueueUses,
    /// Where pages are mapped. They are unmapped first.
    pub(crate) place: Option<Place<B::Memory>>,
}

impl<B: Backend, O> From<HeldBlock<B, O>> for Released<B> {
    fn from(HeldBlock { block, uses, .. }: HeldBlock<B, O>) -> Self {
        Self {
            views: Vec::new(),
            bytes: block.bytes,
            memory: block.memory,
            uses,
            place: None,
        }
    }
}

impl<B: Backend> From<Leaving<B::Memory, QueueUses>> for Released<B> {
    fn from(leaving: Leaving<B::Memory, QueueUses>) -> Self {
        let Leaving {
            views,
            memory,
            bytes,
            uses,
            place,
        } = leaving;
        Self {
            views,
            memory,
            bytes,
            uses: uses
                .iter()
                .fold(QueueUses::new(), |all, uses| together(&all, uses)),
            place,
        }
    }
}

/// The queue that a block is allocated for, and the queues that it is used on.
///
/// The fields are in this order so that those which each hit reads lie together.
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

    /// Records a use on another queue than its own.
    pub(crate) fn record(&self, queue: &B::Queue) {
        self.may_be_cached.store(false, Ordering::Relaxed);
        let mut others = self.others.lock();
        if !others.contains(queue) {
            others.push(queue.clone());
        }
    }

    #[inline]
    pub(crate) fn may_be_cached(&mut self) -> bool {
        *self.may_be_cached.get_mut()
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
