//! How a thread carves blocks from its own arena of the segments, and returns them, without the pool's lock.

use binpool_allocators::{Backend, QueueId};

use super::{MAX_BLOCKS_PER_SLOT, MAX_UNREPORTED_BYTES, ThreadCache, find};
use crate::{
    block::{Cached, LeasedBlock, Shell},
    free::spare_leases::{CarvedHere, MAX_SPARE_LEASES, SpareLease, SpareLeases},
    order::{
        queue_uses::QueueUses,
        timestamps::{QueueKey, QueueUse},
    },
    request::Size,
};

impl<B: Backend, O> ThreadCache<B, O> {
    /// Takes a block from a magazine that was just taken from the depot. Out of line, since most requests find no magazine.
    #[cold]
    pub(crate) fn pop_from_magazine(
        &mut self,
        queue: QueueId,
        size: Size,
    ) -> Option<LeasedBlock<B, O>> {
        self.pop(queue, size)
    }

    /// Takes a range of `bytes` bytes from the thread's own arena for a block on this queue. Returns `None` if there is no range that only
    /// commands of this queue may still use, if there is no spare lease, or if the thread has too much to report to the pool.
    #[expect(clippy::inline_always, reason = "its large result would be copied")]
    #[inline(always)]
    pub(crate) fn carve(&mut self, queue: QueueId, bytes: usize) -> Option<CarvedHere<B, O>> {
        if self.active_bytes() > MAX_UNREPORTED_BYTES {
            return None;
        }
        let arenas = self.arenas.as_ref()?;
        let cache = self.queues.iter_mut().find(|it| it.queue == queue)?;
        let spares = cache.spares.as_mut().filter(|it| !it.all.is_empty())?;
        let queue_key = spares.queue_key;
        // Thread caches have blocks of in-order queues only, which run the old commands first.
        let is_free = |uses: &QueueUses| uses.iter().all(|use_| use_.key == queue_key);
        let ready = arenas.take(self.number, bytes, is_free)?;
        if ready.is_watched {
            self.allowance.limit_to_small();
        }
        let lease = spares.all.pop()?;
        Some(CarvedHere {
            ready,
            queue_key,
            lease,
        })
    }

    /// Returns the older half of a full slot to the arenas, as far as it can. Returns whether the slot has room then.
    pub(super) fn return_half(&mut self, queue: QueueId, slot: usize) -> bool {
        let half = self.take_half(queue, slot);
        let kept = half
            .into_iter()
            .filter_map(|it| self.return_to_arena(it).err());
        let kept: Vec<_> = kept.collect();
        self.put_back_half(queue, slot, kept);
        let blocks = find(&mut self.queues, queue, slot);
        blocks.is_none_or(|blocks| blocks.len() < MAX_BLOCKS_PER_SLOT)
    }

    /// Returns the range of a free block to its arena, and keeps the lease. Returns the block if it has no range, if its view has to
    /// be released first, or if there are enough leases.
    pub(super) fn return_to_arena(&mut self, cached: Cached<B, O>) -> Result<(), Cached<B, O>> {
        let block = &cached.block;
        let (Some(arenas), Some(range), Some(queue), Some(key)) = (
            &self.arenas,
            block.range,
            block.lease.queue,
            block.lease.key,
        ) else {
            return Err(cached);
        };
        let cache = self.queues.iter_mut().find(|it| it.queue == queue);
        let Some(cache) = cache.filter(|_| arenas.may_keep_view(range)) else {
            return Err(cached);
        };
        let spares = cache.spares.get_or_insert_with(|| SpareLeases::none(key));
        if spares.all.len() >= MAX_SPARE_LEASES {
            return Err(cached);
        }
        let timestamp = cached.since;
        let (memory, share, shell) = Shell::of(cached.block);
        let lease = SpareLease {
            share,
            shell: Some(shell),
        };
        spares.add(key, lease);
        spares.last_use = spares.last_use.max(timestamp);
        let uses = QueueUses::One(QueueUse { key, timestamp });
        arenas.give(range, uses, Some(memory));
        Ok(())
    }

    /// Adds spare leases of a queue for which this thread just got a block, until there are a few. `new` makes one. Returns how many it
    /// made.
    pub(crate) fn add_spare_leases(
        &mut self,
        queue: QueueId,
        queue_key: QueueKey,
        new: impl Fn() -> O,
    ) -> usize {
        const ENOUGH: usize = if cfg!(any(shuttle, miri)) { 1 } else { 5 };
        if self.arenas.is_none() || self.add_slot(queue, 0).is_none() {
            return 0;
        }
        let Some(cache) = self.queues.iter_mut().find(|it| it.queue == queue) else {
            return 0;
        };
        let spares = cache
            .spares
            .get_or_insert_with(|| SpareLeases::none(queue_key));
        let missing = ENOUGH.saturating_sub(spares.all.len());
        for _ in 0..missing {
            let lease = SpareLease {
                share: new(),
                shell: None,
            };
            spares.add(queue_key, lease);
        }
        missing
    }

    /// Takes all spare leases out.
    pub(crate) fn take_spare_leases(&mut self) -> impl Iterator<Item = SpareLeases<B, O>> {
        self.queues.iter_mut().filter_map(|it| it.spares.take())
    }
}
