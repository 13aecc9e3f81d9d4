//! Which free memory is released to the allocator.

use std::mem;

use binpool_allocators::{Backend, Memory, MemoryId, Queue};

use crate::{
    block::{HeldBlock, Released},
    central::{State, counters::unsigned, queue_states::QueueStates},
    free::bins::Bins,
    growing::Dropped,
    order::queue_uses::{QueueUses, add_to, together},
    order::timestamps::QueueUse,
    request::Request,
};

impl<B: Backend, O> State<B, O> {
    /// Keeps all memory where it is until [stopped](Self::stop_keeping_addresses) as many times.
    pub(crate) fn keep_addresses(&mut self) {
        self.kept_by += 1;
        self.tell_segments();
    }

    pub(crate) fn stop_keeping_addresses(&mut self) {
        self.kept_by -= 1;
        self.tell_segments();
    }

    fn tell_segments(&mut self) {
        self.segments.keep_addresses(self.kept_by > 0);
    }

    /// Returns whether no memory may leave the pool.
    pub(crate) fn keeps_addresses(&self) -> bool {
        self.kept_by > 0
    }

    /// Takes out every free block, or every idle segment, to be released.
    pub(crate) fn release_all(&mut self) -> Vec<Released<B>> {
        if self.carves {
            let has_pages = self.segments.has_pages();
            return self
                .release_segments(u64::MAX, |queues, uses| !has_pages || queues.are_over(uses));
        }
        if self.keeps_addresses() {
            return Vec::new();
        }
        let released: Vec<_> = self
            .take_bins(|_| true)
            .into_iter()
            .map(HeldBlock::into)
            .collect();
        self.count_released(&released);
        released
    }

    /// Takes out blocks, or idle segments, that no command uses, to be released: the largest first, until they have `enough` bytes
    /// together.
    pub(crate) fn release_largest(&mut self, enough: u64) -> Vec<Released<B>> {
        if self.carves {
            return self.release_segments(enough, QueueStates::are_over);
        }
        self.release_idle(enough, |idle, _| idle.pop_largest())
    }

    /// Takes out blocks that no command uses, to be released: the smallest that has `enough` bytes, or else the largest, until they have as
    /// many together.
    pub(crate) fn release_tightly(&mut self, enough: u64) -> Vec<Released<B>> {
        self.release_idle(enough, |idle, bytes| {
            idle.pop_covering(bytes).or_else(|| idle.pop_largest())
        })
    }

    /// Takes blocks out of the idle list, to be released, until they have `enough` bytes together. `pop` gets the list and the number of
    /// bytes still missing.
    fn release_idle(
        &mut self,
        enough: u64,
        pop: impl Fn(&mut Bins<B, O>, u64) -> Option<HeldBlock<B, O>>,
    ) -> Vec<Released<B>> {
        let mut released = Vec::new();
        let mut bytes = 0;
        while !self.keeps_addresses()
            && bytes < enough
            && let Some(held) = pop(&mut self.idle, enough - bytes)
        {
            bytes += held.block.bytes as u64;
            released.push(held.into());
        }
        self.count_released(&released);
        released
    }

    /// The bytes by which a new block for this request would take the pool above its high water.
    pub(crate) fn excess_above(&self, request: Request) -> u64 {
        let in_use = unsigned(self.in_use).saturating_add(request.bytes as u64);
        let peak = unsigned(self.peak_in_use).max(in_use);
        let managed = self.managed_bytes().saturating_add(request.bytes as u64);
        managed.saturating_sub(self.rules.retain.most_in_bins(peak))
    }

    /// Records that a request asks for memory that bins may have released. Returns whether the requests for released memory add up to the
    /// peak in use: then much larger free blocks may serve them.
    pub(crate) fn regrets(&mut self, request: Request) -> bool {
        self.regret.asked(request.bytes as u64);
        let peak = unsigned(self.peak_in_use);
        peak > 0 && self.regret.bytes() >= peak
    }

    /// Records blocks of bins that were released to keep to the high water.
    pub(crate) fn regret_what_went(&mut self, released: &[Released<B>]) {
        let bytes = released.iter().map(|it| it.bytes as u64).sum();
        self.regret.went_back(bytes);
    }

    /// Takes out the blocks, or segments, that no command uses and that have been free since the last call, to be released.
    pub(crate) fn take_idle(&mut self) -> Vec<Released<B>> {
        self.regret.sweep();
        let sweeps = self.sweeps;
        self.sweeps = sweeps.wrapping_add(1);
        let released = if self.carves {
            let queues = &self.queues;
            self.segments.sweep(|uses| queues.are_over(uses))
        } else {
            let is_kept = self.kept_by > 0;
            let released = self.idle.take_all(|held| !is_kept && held.since != sweeps);
            released.into_iter().map(HeldBlock::into).collect()
        };
        self.count_released(&released);
        released
    }

    pub(crate) fn count_released(&mut self, released: &[Released<B>]) {
        self.counters.released_blocks += released.len() as u64;
        for it in released {
            self.begin_release(it.memory.id(), it.bytes, it.uses.iter().flatten());
        }
        self.note_spare_pages();
    }

    /// Counts a block as no longer managed, and as in transit to the allocator, which frees it only after these uses.
    pub(crate) fn begin_release<'a>(
        &mut self,
        memory: MemoryId,
        block_bytes: usize,
        uses: impl IntoIterator<Item = &'a QueueUse>,
    ) {
        self.forget(memory, block_bytes);
        self.transit.depart(1);
        for use_ in uses {
            if let Some(queue_state) = self.queues.get_mut(use_.key) {
                queue_state.draining = queue_state.draining.max(use_.timestamp);
            }
        }
    }

    /// Looks at the dropped blocks that grew, and returns their uses. Where views of one are gone, or addresses are no longer kept, it counts
    /// as used on every queue up to now, since the program cannot say on which.
    pub(crate) fn stamp_dropped(&mut self) -> QueueUses {
        let is_kept = self.keeps_addresses();
        let keys: Vec<_> = self.queues.iter().map(|(key, _)| key).collect();
        let mut all = QueueUses::new();
        for dropped in &mut self.dropped {
            let is_viewed = is_kept || dropped.memory.has_views();
            if mem::replace(&mut dropped.growing.was_viewed, is_viewed) && !is_viewed {
                dropped.uses = keys.iter().map(|key| self.queues.stamp(*key)).collect();
            }
            all = together(&all, &dropped.uses);
        }
        all
    }

    /// Takes out the dropped blocks that grew and that no command and no view uses, to be released; all of them if no later call may do so,
    /// because the last handle is gone.
    pub(crate) fn take_dropped(&mut self) -> Vec<Dropped<B>> {
        let (is_last, is_kept) = (self.viewed.is_none(), self.keeps_addresses());
        let queues = &self.queues;
        let may_go = |it: &mut Dropped<B>| {
            is_last || !is_kept && !it.growing.was_viewed && queues.are_over(&it.uses)
        };
        let taken: Vec<_> = self.dropped.extract_if(.., may_go).collect();
        for it in &taken {
            for piece in &it.growing.pieces {
                self.remove_mapped(it.memory.id(), piece.region());
            }
            self.begin_release(it.memory.id(), 0, &it.uses);
        }
        taken
    }

    /// Counts memory that was in transit as arrived. Returns whether nothing is left in transit.
    pub(crate) fn arrive(&mut self) -> bool {
        self.changes += 1;
        self.transit.arrive()
    }

    /// The uses of free and of released memory that have not ended: the latest of each queue.
    pub(crate) fn holding_back(&self) -> QueueUses {
        let held = self.all_bins().flat_map(Bins::iter);
        let uses = held.flat_map(|held| &held.uses).copied();
        let dropped = self.dropped.iter().flat_map(|dropped| &dropped.uses);
        let draining = self.queues.iter().map(|(key, queue_state)| QueueUse {
            key,
            timestamp: queue_state.draining,
        });
        let mut found = QueueUses::new();
        let mut add = |use_: QueueUse| {
            if !self.queues.is_over(use_) {
                add_to(&mut found, use_);
            }
        };
        let uses = uses.chain(dropped.copied());
        draining.chain(uses).for_each(&mut add);
        self.segments
            .each_use(|uses, _| uses.iter().copied().for_each(&mut add));
        found
    }

    /// The latest use or fence of this queue that is not known to have ended.
    pub(crate) fn not_ended(&self, queue: &B::Queue) -> Option<QueueUse> {
        let key = self.queues.find(queue.id())?;
        self.queues.get(key)?.not_ended(key)
    }

    /// Takes out idle segments whose uses are `wanted`, to be released: the largest first, until they have `enough` bytes together.
    pub(crate) fn release_segments(
        &mut self,
        enough: u64,
        wanted: impl Fn(&QueueStates<B, O>, &[QueueUse]) -> bool,
    ) -> Vec<Released<B>> {
        let queues = &self.queues;
        let released = self.segments.release(enough, |uses| wanted(queues, uses));
        self.count_released(&released);
        released
    }
}
