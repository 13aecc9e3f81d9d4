//! Free blocks in the caches of threads and in the depot.

use binpool_allocators::Backend;

use crate::{
    block::{Block, LeasedBlock},
    order::timestamps::Timestamp,
};

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
