//! What a block that grows has: addresses, and the pages that are mapped to them.

use binpool_allocators::{Backend, Memory, Region};

use crate::order::queue_uses::QueueUses;

/// The addresses of a block that grows, and what is mapped to them.
#[derive(Debug)]
pub(crate) struct Growing<B: Backend> {
    /// The block's memory is a view of all of it.
    pub(crate) reservation: B::Memory,
    pub(crate) page_bytes: usize,
    /// From the start of the reservation on, without a hole.
    pub(crate) pieces: Vec<Piece<B>>,
    /// Set where the last look at spare pages found views, which may be used until they are gone.
    pub(crate) was_viewed: bool,
}

/// Pages that were mapped at once.
#[derive(Debug)]
pub(crate) struct Piece<B: Backend> {
    pub(crate) pages: B::Memory,
    pub(crate) offset: usize,
    /// The uses of the block at the moment when it became too small for these pages.
    pub(crate) spare: Option<QueueUses>,
}

impl<B: Backend> Piece<B> {
    pub(crate) fn region(&self) -> Region {
        Region::new(self.offset, self.pages.bytes())
    }
}
