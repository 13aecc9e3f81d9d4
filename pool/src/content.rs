//! The content of a buffer, in one word, so that a buffer is two words and is returned in registers.

#![expect(
    unsafe_code,
    reason = "the lowest bits of the address say what is there"
)]

use std::{
    marker::PhantomData,
    mem::ManuallyDrop,
    ptr::{self, NonNull},
    sync::Arc,
};

use binpool_allocators::Backend;

use crate::{
    block::Lease,
    shared::{Block, BlockBox, Body, LeasedBlock, Share, Shared},
};

/// The content of a buffer.
pub(crate) enum Content<B: Backend> {
    Block(LeasedBlock<B>),
    /// 0 bytes.
    Empty(Box<Empty<B>>),
    /// Nothing any more.
    GivenBack(Share<B>),
}

/// A buffer of 0 bytes.
pub(crate) struct Empty<B: Backend> {
    pub(crate) lease: Lease<B>,
    pub(crate) share: Share<B>,
}

/// A [`Content`], in one word. It is dropped only as what [`into_content`](Self::into_content) returns.
///
/// # Invariant
///
/// `word` is the address of what a `Content` owns, and its lowest bits, which are 0 in the address, say which one it is.
pub(crate) struct PackedContent<B: Backend> {
    word: NonNull<()>,
    content: PhantomData<Content<B>>,
}

// SAFETY: it owns a `Content`, and nothing else.
unsafe impl<B: Backend> Send for PackedContent<B> where Content<B>: Send {}
// SAFETY: a reference to it gives references to parts of the `Content`.
unsafe impl<B: Backend> Sync for PackedContent<B> where Content<B>: Sync {}

/// The lowest bits of the word.
const KIND: usize = 3;
const BLOCK: usize = 0;
const EMPTY: usize = 1;
const GIVEN_BACK: usize = 2;

impl<B: Backend> PackedContent<B> {
    const ADDRESSES_HAVE_ROOM: () = assert!(
        align_of::<Body<B>>() > KIND
            && align_of::<Empty<B>>() > KIND
            && align_of::<Shared<B>>() > KIND
    );

    #[inline]
    pub(crate) fn new(content: Content<B>) -> Self {
        let () = Self::ADDRESSES_HAVE_ROOM;
        let word = match content {
            Content::Block(block) => block.into_raw().cast(),
            Content::Empty(empty) => Self::packed(Box::into_raw(empty), EMPTY),
            Content::GivenBack(share) => Self::packed(Arc::into_raw(share), GIVEN_BACK),
        };
        Self {
            word,
            content: PhantomData,
        }
    }

    fn packed<T>(address: *const T, kind: usize) -> NonNull<()> {
        let word = address.map_addr(|address| address | kind).cast_mut().cast();
        // SAFETY: the kind is not 0.
        unsafe { NonNull::new_unchecked(word) }
    }

    #[inline]
    fn kind(&self) -> usize {
        self.word.addr().get() & KIND
    }

    fn address<T>(&self) -> *mut T {
        self.word
            .as_ptr()
            .map_addr(|address| address & !KIND)
            .cast()
    }

    pub(crate) fn into_content(self) -> Content<B> {
        match self.kind() {
            // SAFETY: the address is from `into_raw`, by the invariant, and `self` is gone.
            BLOCK => Content::Block(unsafe { LeasedBlock::from_raw(self.word.cast()) }),
            // SAFETY: as above.
            EMPTY => Content::Empty(unsafe { Box::from_raw(self.address()) }),
            // SAFETY: as above.
            _ => Content::GivenBack(unsafe { Arc::from_raw(self.address()) }),
        }
    }

    #[inline]
    fn body(&self) -> Option<&Body<B>> {
        // SAFETY: by the invariant this is the address of a block that is borrowed as `self` is.
        (self.kind() == BLOCK).then(|| unsafe { self.word.cast().as_ref() })
    }

    #[inline]
    pub(crate) fn block(&self) -> Option<&Block<B>> {
        self.body().map(Body::block)
    }

    pub(crate) fn block_mut(&mut self) -> Option<&mut Block<B>> {
        // SAFETY: as in `body`.
        let body = (self.kind() == BLOCK).then(|| unsafe { self.word.cast::<Body<B>>().as_mut() });
        body.map(Body::block_mut)
    }

    /// Returns the block by itself, if `may_leave` says so, and leaves a copy of the word here, which must not be used any more.
    ///
    /// # Safety
    ///
    /// Where this returns a block, neither this value nor a copy of it is used any more.
    #[inline]
    pub(crate) unsafe fn take_if(
        &self,
        may_leave: impl FnOnce(&Block<B>) -> bool,
    ) -> Option<LeasedBlock<B>> {
        // SAFETY: as in `into_content`; the caller does not use `self` again.
        may_leave(self.block()?).then(|| unsafe { LeasedBlock::from_raw(self.word.cast()) })
    }

    fn empty(&self) -> Option<&Empty<B>> {
        // SAFETY: by the invariant this is the address of a value that is borrowed as `self` is.
        (self.kind() == EMPTY).then(|| unsafe { &*self.address() })
    }

    pub(crate) fn lease(&self) -> Option<&Lease<B>> {
        let of_block = self.block().map(|block| &block.lease);
        of_block.or_else(|| Some(&self.empty()?.lease))
    }

    pub(crate) fn lease_mut(&mut self) -> Option<&mut Lease<B>> {
        if self.kind() == EMPTY {
            // SAFETY: as in `empty`.
            let empty: &mut Empty<B> = unsafe { &mut *self.address() };
            return Some(&mut empty.lease);
        }
        self.block_mut().map(|block| &mut block.lease)
    }

    pub(crate) fn shared(&self) -> &Shared<B> {
        match (self.body(), self.empty()) {
            // SAFETY: it is the body of a leased block, by the invariant.
            (Some(body), _) => unsafe { body.share() },
            (None, Some(empty)) => &empty.share,
            // SAFETY: the address is that of a pool that is kept, by the invariant.
            (None, None) => unsafe { &*self.address() },
        }
    }

    pub(crate) fn share(&self) -> Share<B> {
        match (self.body(), self.empty()) {
            // SAFETY: it is the body of a leased block, by the invariant.
            (Some(body), _) => Arc::clone(unsafe { body.share() }),
            (None, Some(empty)) => Arc::clone(&empty.share),
            (None, None) => {
                // SAFETY: the address is from `into_raw`, by the invariant. The word keeps its reference, since this one is not dropped.
                let share = ManuallyDrop::new(unsafe { Arc::from_raw(self.address()) });
                Share::clone(&share)
            }
        }
    }

    /// Takes the block out, if there is one, and keeps its reference to the pool.
    pub(crate) fn take_block(&mut self) -> Option<BlockBox<B>> {
        // SAFETY: the word is written below, where the copy is used.
        let block = unsafe { self.take_if(|_| true) }?;
        let (share, block) = block.split();
        // SAFETY: it replaces a word that is not used again.
        unsafe { ptr::write(self, Self::new(Content::GivenBack(share))) };
        Some(block)
    }

    /// Takes the block out, if there is one, with its reference to the pool.
    pub(crate) fn take_leased(&mut self) -> Option<LeasedBlock<B>> {
        let share = self.share();
        // SAFETY: the word is written below, where the copy is used.
        let block = unsafe { self.take_if(|_| true) }?;
        // SAFETY: it replaces a word that is not used again.
        unsafe { ptr::write(self, Self::new(Content::GivenBack(share))) };
        Some(block)
    }
}
