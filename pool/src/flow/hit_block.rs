//! A block on its way from the pool to its next user.

use binpool_allocators::{Backend, Memory};

use crate::{
    order::timestamps::QueueKey,
    request::HitKind,
    shared::{BlockBox, HeldBlock, Shared},
};

/// A block for the next user of a queue. If it is dropped instead of [handed out](Self::hand_out), for example because
/// a `tracing` subscriber panics, it goes back to the pool.
#[derive(Debug)]
pub(crate) struct HitBlock<'a, B: Backend> {
    shared: &'a Shared<B>,
    queue_key: QueueKey,
    kind: HitKind,
    /// `None` only after [`hand_out`](Self::hand_out).
    block: Option<BlockBox<B>>,
}

impl<'a, B: Backend> HitBlock<'a, B> {
    pub(crate) fn new(
        shared: &'a Shared<B>,
        queue_key: QueueKey,
        block: BlockBox<B>,
        kind: HitKind,
    ) -> Self {
        Self {
            shared,
            queue_key,
            kind,
            block: Some(block),
        }
    }

    /// Returns the block and its kind. The caller must count it as [active](crate::central::State::activate).
    pub(crate) fn hand_out(mut self) -> Option<(BlockBox<B>, HitKind)> {
        let block = self.block.take();
        let kind = self.kind;
        std::mem::forget(self);
        Some((block?, kind))
    }
}

impl<B: Backend> Drop for HitBlock<'_, B> {
    fn drop(&mut self) {
        let Some(block) = self.block.take() else {
            return;
        };
        let shared = self.shared;
        let mut state = shared.state.lock();
        if self.kind == HitKind::Fresh && block.range.is_none() {
            state.manage(block.memory.id(), block.bytes);
        }
        // Its former uses come before all later commands of this queue, so one timestamp of the queue stands for them.
        let uses = std::iter::once(state.queues.stamp(self.queue_key)).collect();
        let (_, to_segment) = state.hold(HeldBlock::new(block, uses));
        drop(state);
        if let Some(held) = to_segment {
            shared.return_to_segment(held);
        }
        shared.release_unless_holding();
    }
}
