//! The counters of a pool.

use binpool_allocators::{Backend, Memory, MemoryId, Region};

use crate::{
    PoolStatistics,
    block::Block,
    central::State,
    free::bins::Bins,
    growing::Dropped,
    order::{
        queue_uses::QueueUses,
        timestamps::{QueueKey, QueueUse},
    },
    rare::{Rare, reached},
    request::HitKind,
    track::pool_event::{PoolEvent, mapped, unmapped},
};

impl<B: Backend, O> State<B, O> {
    /// Counts a block as active.
    pub(crate) fn activate(&mut self, asked: usize, block: &Block<B>, kind: HitKind) {
        if kind == HitKind::Fresh && block.range.is_none() {
            self.note_miss(block.bytes);
            self.manage(block.memory.id(), block.bytes);
        }
        self.count_active(asked, block.bytes, kind);
    }

    /// Counts a block whose memory the pool already has as active.
    pub(crate) fn count_active(&mut self, asked: usize, block_bytes: usize, kind: HitKind) {
        self.in_use += signed(block_bytes);
        self.peak_in_use = self.peak_in_use.max(self.in_use);
        self.active_blocks += 1;
        self.active_bytes += signed(asked);
        self.reach_active(self.active_bytes);
        let counters = &mut self.counters;
        match kind {
            HitKind::Ready => {}
            HitKind::Ended => {
                reached(Rare::Crossing);
                counters.ended_hits += 1;
            }
            HitKind::DeviceWait => {
                reached(Rare::DeviceWait);
                counters.device_wait_hits += 1;
            }
            HitKind::HostWait => {
                reached(Rare::HostWait);
                counters.host_wait_hits += 1;
            }
            HitKind::Carved => counters.carved_hits += 1,
            HitKind::Fresh => {
                counters.misses += 1;
                return;
            }
        }
        counters.hits += 1;
    }

    /// Counts a block as no longer active.
    pub(crate) fn deactivate(&mut self, asked: usize, block_bytes: usize) {
        self.in_use -= signed(block_bytes);
        self.changes += 1;
        self.active_blocks -= 1;
        self.active_bytes -= signed(asked);
    }

    /// Counts an active block of `asked` bytes as one of `now`.
    pub(crate) fn resize_active(&mut self, asked: usize, now: usize) {
        self.active_bytes += signed(now) - signed(asked);
        self.reach_active(self.active_bytes);
    }

    /// Counts pages that were mapped to an active block, and records that.
    pub(crate) fn add_mapped(&mut self, block: &mut Block<B>, region: Region) {
        let memory = block.memory.id();
        self.note(|| mapped(memory, region));
        self.grown.insert((memory, region.offset), region.bytes);
        self.counters.maps += 1;
        block.bytes += region.bytes;
        self.in_use += signed(region.bytes);
        self.peak_in_use = self.peak_in_use.max(self.in_use);
        self.count_managed(region.bytes);
    }

    /// Counts pages that leave an active block, and records that.
    pub(crate) fn shrink_mapped(&mut self, block: &mut Block<B>, region: Region) {
        block.bytes -= region.bytes;
        self.in_use -= signed(region.bytes);
        self.remove_mapped(block.memory.id(), region);
    }

    /// Counts pages that leave a block that grew, and records that.
    pub(crate) fn remove_mapped(&mut self, memory: MemoryId, region: Region) {
        self.note(|| unmapped(memory, region));
        self.grown.remove(&(memory, region.offset));
        self.counters.unmaps += 1;
        self.forget(memory, region.bytes);
    }

    /// Raises the peak of active bytes to `bytes`, if it is lower.
    pub(crate) fn reach_active(&mut self, bytes: i64) {
        let peak = &mut self.counters.peak_active_bytes;
        *peak = (*peak).max(unsigned(bytes));
    }

    /// Restarts the peaks that the program sees. Those by which the pool grows stay.
    pub(crate) fn reset_peaks(&mut self) {
        self.counters.peak_active_bytes = unsigned(self.active_bytes);
        self.counters.peak_managed_bytes = self.counters.managed_bytes;
    }

    /// The active and the held bytes together, in whole blocks.
    pub(crate) fn managed_bytes(&self) -> u64 {
        self.counters.managed_bytes
    }

    /// Counts memory that the pool got from its allocator, and records that.
    pub(crate) fn manage(&mut self, memory: MemoryId, bytes: usize) {
        self.note(|| PoolEvent::Taken {
            memory: memory.get(),
            bytes: bytes as u64,
        });
        self.count_managed(bytes);
    }

    pub(crate) fn count_managed(&mut self, bytes: usize) {
        let counters = &mut self.counters;
        counters.managed_bytes += bytes as u64;
        counters.peak_managed_bytes = counters.peak_managed_bytes.max(counters.managed_bytes);
        if counters.managed_bytes > self.rules.retain.release_threshold()
            && !self.is_above_threshold
        {
            self.is_above_threshold = true;
            self.close_caches();
        }
    }

    /// Counts memory that leaves the pool, and records that unless it is pages.
    pub(crate) fn forget(&mut self, memory: MemoryId, block_bytes: usize) {
        if !self.segments.has_pages() {
            let memory = memory.get();
            self.note(|| PoolEvent::GivenBack { memory });
        }
        self.counters.managed_bytes -= block_bytes as u64;
        if self.is_above_threshold
            && self.counters.managed_bytes <= self.rules.retain.release_threshold()
        {
            self.is_above_threshold = false;
            self.threads.open();
        }
    }

    /// The bytes of free memory that a request for the queue of `queue_key` would have to wait for; without a queue, of all free memory
    /// whose commands are not known to have ended.
    pub(crate) fn held_back_bytes(&self, queue_key: Option<QueueKey>) -> u64 {
        let is_before = |use_: &QueueUse| {
            queue_key.map_or_else(
                || self.queues.is_over(*use_),
                |queue_key| self.queues.is_before(*use_, queue_key),
            )
        };
        let mut sum = 0;
        self.each_free(|uses, bytes| {
            if !uses.iter().all(is_before) {
                sum += bytes as u64;
            }
        });
        sum + self.pending_dropped_bytes()
    }

    /// The bytes of dropped blocks that grew and whose commands are not known to have ended. Their own queues wait for them, too.
    fn pending_dropped_bytes(&self) -> u64 {
        let dropped = self.dropped.iter();
        let pending = dropped.filter(|it| !self.queues.are_over(&it.uses));
        pending.map(Dropped::bytes).sum()
    }

    /// Calls `visit` with the uses of each free block and range, and its size in bytes.
    pub(crate) fn each_free(&self, mut visit: impl FnMut(&QueueUses, usize)) {
        let held = self.all_bins().flat_map(Bins::iter);
        held.for_each(|held| visit(&held.uses, held.block.bytes));
        self.segments.each_use(visit);
    }

    /// The free bytes in bins, segments, the quarantine, and dropped blocks that grew.
    pub(crate) fn held_bytes(&self) -> u64 {
        let binned: u64 = self.all_bins().map(Bins::bytes).sum();
        let dropped: u64 = self.dropped.iter().map(Dropped::bytes).sum();
        binned + self.segments.free_bytes() + self.quarantine.bytes_of_ranges() + dropped
    }

    /// The bytes that can be released: free blocks, or idle segments if the pool carves.
    pub(crate) fn releasable_bytes(&self) -> u64 {
        if self.keeps_addresses() {
            0
        } else if self.carves {
            self.segments.idle_bytes()
        } else {
            self.held_bytes()
        }
    }

    pub(crate) fn all_bins(&self) -> impl Iterator<Item = &Bins<B, O>> {
        let free_lists = self
            .queues
            .iter()
            .map(|(_, queue_state)| &queue_state.free_list);
        let shared = [&self.idle, &self.pending];
        free_lists.chain(shared).chain(&self.unscrubbed)
    }

    pub(crate) fn largest_held_bytes(&self) -> usize {
        let in_bins = self.all_bins().map(Bins::largest_bytes).max();
        in_bins.unwrap_or(0).max(self.segments.largest_free())
    }

    pub(crate) fn statistics(&self) -> PoolStatistics {
        let pending = self
            .pending
            .iter()
            .filter(|held| self.queues.are_pending(&held.uses));
        let (pending_blocks, mut pending_bytes) = pending.fold((0, 0), |(blocks, bytes), held| {
            (blocks + 1, bytes + held.block.bytes as u64)
        });
        self.segments.each_use(|uses, bytes| {
            let is_pending = self.queues.are_pending(uses);
            pending_bytes += if is_pending { bytes as u64 } else { 0 };
        });
        pending_bytes += self.pending_dropped_bytes();
        let (viewed_blocks, viewed_bytes) = self.count_viewed();
        let planned = self.segments.planned();
        PoolStatistics {
            active_blocks: unsigned(self.active_blocks),
            active_bytes: unsigned(self.active_bytes),
            // A thread adds what it takes to what the pool knows, and the pool may not know yet what other threads freed.
            peak_active_bytes: self
                .counters
                .peak_active_bytes
                .min(self.counters.peak_managed_bytes),
            viewed_blocks,
            viewed_bytes,
            held_blocks: self.all_bins().map(|bins| bins.blocks() as u64).sum(),
            held_bytes: self.held_bytes(),
            pending_blocks,
            pending_bytes,
            planned_blocks: planned.blocks,
            planned_bytes: planned.bytes,
            planned_peak_bytes: planned.most_taken,
            ..self.counters
        }
    }
}

fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Returns a count as unsigned: one that is negative for a moment (see [`State::active_blocks`]) as 0.
pub(crate) fn unsigned(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}
