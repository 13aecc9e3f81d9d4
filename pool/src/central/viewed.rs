//! Freed blocks of which the program still has views.

use binpool_allocators::{Backend, Memory};

use crate::{central::State, free::cached::Viewed};

impl<B: Backend, O> State<B, O> {
    /// Returns whether there are such blocks, some of which may have lost their views by now.
    pub(crate) fn has_viewed(&self) -> bool {
        self.viewed
            .as_ref()
            .is_some_and(|viewed| !viewed.is_empty())
    }

    /// The number of such blocks, and their bytes.
    pub(crate) fn count_viewed(&self) -> (u64, u64) {
        let viewed = self.viewed.iter().flatten();
        viewed.fold((0, 0), |(blocks, bytes), viewed| {
            (blocks + 1, bytes + viewed.block.bytes as u64)
        })
    }

    /// Takes out the blocks whose views are gone.
    pub(crate) fn take_unviewed(&mut self) -> Vec<Viewed<B, O>> {
        let viewed = self.viewed.iter_mut();
        viewed
            .flat_map(|viewed| viewed.extract_if(.., |viewed| !viewed.block.memory.has_views()))
            .collect()
    }
}
