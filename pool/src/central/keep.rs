//! Where a freed block goes, until its next user gets it. The first of these that takes it:
//!
//! 1. The pool keeps it as active while [views](crate::PooledBuffer#views) of it are left.
//! 2. The cache of the thread that frees it, without the pool's lock, if only the block's own in-order queue used it. A full cache makes room: a
//!    batch of small blocks goes to the depot, and a large block back into its segment.
//! 3. The allocator, at once, if the pool [keeps nothing](crate::MemoryPool::stop_holding). A range goes back to its segment, which is
//!    released once all of it is free.
//! 4. `unscrubbed`, if it has to be filled with zeros and that failed.
//! 5. A bin ([`hold`](State::hold)): the free list of its queue, `pending` if several queues used it, or `idle` if no command uses it. With
//!    segments, only as long as the bins have room.
//! 6. Its segment, as a free range. If the segment keeps no view of it, its view is released first.
//!
//! A block that [grew](crate::GrowableBuffer) keeps its pages, in `dropped`, until no command uses them.
//!
//! A free block goes on from there when it is released (`central/release.rs`), or to the quarantine if the device neither frees it nor lets the pool wait
//! for its commands.

use binpool_allocators::{Backend, Memory};

use binpool_segments::RangeKey;

use crate::{
    block::{Cached, HeldBlock, Viewed},
    central::{State, queue_state::QueueState},
    free::bins::Bins,
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
        let may_keep = |range: RangeKey| !self.caches_only_small(range.arena());
        if held.block.range.is_some_and(may_keep) && self.has_room_in_bins(held.block.bytes) {
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

    /// Returns whether there are freed blocks whose views the program had, and may have dropped by now.
    pub(crate) fn has_viewed(&self) -> bool {
        self.viewed
            .as_ref()
            .is_some_and(|viewed| !viewed.is_empty())
    }

    /// The number of freed blocks with views, and their bytes.
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
