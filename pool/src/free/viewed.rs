//! A freed block of which the program still has views.

use binpool_allocators::Backend;

use crate::free::cached::CachedBlock;

/// A freed block that the pool keeps as active, instead of its user, until its views are gone.
#[derive(Debug)]
pub(crate) struct Viewed<B: Backend, O> {
    pub(crate) cached_block: CachedBlock<B, O>,
    /// The bytes that its user requested.
    pub(crate) asked: usize,
    /// If it could not be filled with zeros: the events after which it is released, instead of coming back.
    pub(crate) release_after: Option<Vec<B::Event>>,
}
