//! What a block that grows has: addresses, and the pages that are mapped to them, also after it is dropped.

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
    /// Set where the last look at pages to unmap found views, which may be used until they are gone.
    pub(crate) was_viewed: bool,
}

/// A block that grew and was dropped. It keeps its pages, which count as held, until no command and no view uses them.
#[derive(Debug)]
pub(crate) struct Dropped<B: Backend> {
    /// A view of the reservation.
    pub(crate) memory: B::Memory,
    pub(crate) growing: Growing<B>,
    pub(crate) uses: QueueUses,
}

impl<B: Backend> Dropped<B> {
    pub(crate) fn bytes(&self) -> u64 {
        let pages = self.growing.pieces.iter().map(Piece::region);
        pages.map(|region| region.bytes as u64).sum()
    }
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
