//! Where a free block lies until its next user gets it.

use binpool_allocators::Backend;

use crate::{
    block::HeldBlock,
    central::{State, queue_state::QueueState},
    free::{bins::Bins, cached::Cached},
    order::queue_uses::QueueUses,
    order::timestamps::{QueueUse, last_of},
};

impl<B: Backend, O> State<B, O> {
    /// Keeps a free block where invariant I1 of [`State`] says.
    ///
    /// Returns, first, the uses that the order of the block's own queue does not cover. The caller makes a fence for each now:
    /// a fence that is made when the block is needed would have to wait for all that is enqueued in between.
    ///
    /// Returns, second, the block itself, if the bins are full and it has to give up its view before its range can go back to
    /// the segment. With segments the bins hold few bytes, because a held block keeps its neighbours from becoming one range.
    pub(crate) fn hold(&mut self, held: HeldBlock<B, O>) -> (QueueUses, Option<HeldBlock<B, O>>) {
        let queues = &self.queues;
        let has_room = |use_: &&QueueUse| {
            queues
                .get(use_.key)
                .is_some_and(QueueState::has_room_for_a_fence)
        };
        let unordered = match held.uses.first() {
            Some(first)
                if queues
                    .get(first.key)
                    .is_some_and(|queue_state| queue_state.is_ordered) =>
            {
                &held.uses[1..]
            }
            _ => &held.uses[..],
        };
        let unordered: QueueUses = unordered.iter().filter(has_room).copied().collect();
        if held.block.range.is_some() && self.has_room_in_bins(held.block.bytes) {
            self.put_in_bin(held);
            return (unordered, None);
        }
        (unordered, self.put_in_segment(held))
    }

    /// Puts the range of a free block in its segment, or a block without a range in a bin. Returns a block that has to give up its view
    /// first; it is in transit until then.
    pub(crate) fn put_in_segment(&mut self, held: HeldBlock<B, O>) -> Option<HeldBlock<B, O>> {
        if held.block.range.is_none() {
            self.put_in_bin(held);
            return None;
        }
        let held = self.put_in_segment_at_once(held)?;
        self.transit.depart(1);
        Some(held)
    }

    /// Puts the range of a free block in its segment. Returns the block if it has no range, or if its view has to be released first.
    fn put_in_segment_at_once(&mut self, held: HeldBlock<B, O>) -> Option<HeldBlock<B, O>> {
        match held.block.range {
            Some(range) if self.segments.may_keep_view(range) => {
                self.changes += 1;
                self.segments
                    .give(range, held.uses, Some(held.block.into_memory()));
                None
            }
            _ => Some(held),
        }
    }

    /// Puts the blocks of bins that at most one queue used in their segments.
    pub(crate) fn empty_bins(&mut self) {
        if !self.carves {
            return;
        }
        for held in self.take_bins(|held| held.uses.len() <= 1) {
            if let Some(held) = self.put_in_segment_at_once(held) {
                self.put_in_bin(held);
            }
        }
    }

    /// Keeps a free block that was in a thread cache or in the depot: in its segment or, if it has no range or would have to give up its
    /// view first, in a bin.
    pub(crate) fn keep_cached(&mut self, cached: Cached<B, O>) {
        let held = self.adopt(cached);
        if let Some(held) = self.put_in_segment_at_once(held) {
            self.put_in_bin(held);
        }
    }

    pub(crate) fn put_in_bin(&mut self, mut held: HeldBlock<B, O>) {
        held.since = self.sweeps;
        self.bins_for(&held.uses).push(held);
    }

    /// Returns the bins for a free block with these uses, as I1 says.
    pub(crate) fn bins_for(&mut self, uses: &[QueueUse]) -> &mut Bins<B, O> {
        match uses {
            [] => &mut self.idle,
            [only] => match self.queues.get_mut(only.key) {
                Some(queue_state) if queue_state.is_ordered => &mut queue_state.free_list,
                _ => &mut self.pending,
            },
            _ => &mut self.pending,
        }
    }

    /// Takes every free block out of the bins, so that its range can go back to its segment.
    pub(crate) fn take_cached(&mut self) -> Vec<HeldBlock<B, O>> {
        if !self.carves {
            return Vec::new();
        }
        let held = self.take_bins(|_| true);
        self.transit.depart(held.len());
        held
    }

    /// Returns whether there are blocks that have to be scrubbed before a request may have them.
    pub(crate) fn has_unscrubbed(&self) -> bool {
        let unscrubbed = self.unscrubbed.as_ref();
        unscrubbed.is_some_and(|bins| bins.blocks() > 0)
    }

    /// Takes out the unscrubbed blocks that no command uses.
    pub(crate) fn take_unscrubbed(&mut self) -> Vec<HeldBlock<B, O>> {
        let queues = &self.queues;
        let taken = self.unscrubbed.as_mut();
        let taken = taken.map(|bins| bins.take_all(|held| queues.are_over(&held.uses)));
        let taken = taken.unwrap_or_default();
        self.transit.depart(taken.len());
        taken
    }

    /// Takes out the `wanted` blocks of all bins that requests are served from.
    pub(crate) fn take_bins(
        &mut self,
        wanted: impl Fn(&HeldBlock<B, O>) -> bool,
    ) -> Vec<HeldBlock<B, O>> {
        let mut held = self.idle.take_all(&wanted);
        held.extend(self.pending.take_all(&wanted));
        for (_, queue_state) in self.queues.iter_mut() {
            held.extend(queue_state.free_list.take_all(&wanted));
        }
        held
    }

    /// Moves the blocks whose commands are known to have ended to the idle list, and joins free ranges that such commands kept
    /// apart.
    pub(crate) fn settle(&mut self) {
        let queues = &self.queues;
        self.segments.settle(|uses| queues.are_over(uses));
        let mut settled = self.pending.take_all(|held| queues.are_over(&held.uses));
        for (_, queue_state) in self.queues.iter_mut() {
            let ended = queue_state.ended;
            settled.extend(
                queue_state
                    .free_list
                    .take_all(|held| last_of(&held.uses) <= ended),
            );
        }
        for held in settled {
            self.add_to_idle(held);
        }
    }

    /// Puts a block back as the oldest of its bin, because the request could not have it after all.
    pub(crate) fn put_back(&mut self, held: HeldBlock<B, O>) {
        self.changes += 1;
        self.bins_for(&held.uses).push_oldest(held);
    }

    /// Takes out the `wanted` queue states, whose commands must have ended, and moves their blocks to the idle list. The caller
    /// drops them without the lock: that releases their queues, which is a call to the device.
    pub(crate) fn take_queues(
        &mut self,
        wanted: impl Fn(&QueueState<B, O>) -> bool,
    ) -> Vec<QueueState<B, O>> {
        let mut taken = self.queues.take(wanted);
        for queue_state in &mut taken {
            if queue_state.is_retired {
                // The gates were closed when the queue was retired.
                self.threads.open();
            }
            for held in queue_state.free_list.take_all(|_| true) {
                self.add_to_idle(held);
            }
        }
        taken
    }

    pub(crate) fn add_to_idle(&mut self, held: HeldBlock<B, O>) {
        self.idle.push(HeldBlock {
            uses: QueueUses::new(),
            ..held
        });
    }
}
