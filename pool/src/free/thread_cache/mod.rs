//! The cache of one thread: free blocks that it takes without a lock.

mod carving;

use binpool_allocators::{Backend, QueueId};

use crate::{
    block::{Block, Cached, LeasedBlock, Wanted, bytes_of},
    free::{
        depot::Depot,
        spare_leases::{PoolArenas, SpareLeases},
    },
    order::timestamps::Timestamp,
    request::Size,
    track::event_buffer::EventBuffer,
};

/// The most blocks in a slot of a thread cache. Fewer under `shuttle` and Miri, whose programs are short.
const MAX_BLOCKS_PER_SLOT: usize = if cfg!(any(shuttle, miri)) { 4 } else { 64 };

/// The most blocks of a slot that are searched for one that fits, youngest first.
const MAX_BLOCKS_SEARCHED: usize = 4;

/// The most queues that a thread cache has blocks of.
const MAX_CACHED_QUEUES: usize = 8;

/// The most bytes by which a thread's carved and returned blocks may differ before it reports to the pool. The pool's peak of active bytes
/// is exact except for that much per thread.
const MAX_UNREPORTED_BYTES: isize = 256 << 20;

/// What a thread has done since it last reported to the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Activity {
    /// The number of blocks that were allocated.
    pub(crate) hits: u64,
    /// How many of them were carved from segments, and did not come from the cache.
    pub(crate) carved: u64,
    /// The number of blocks that were freed.
    pub(crate) returns: u64,
    /// Allocated bytes minus freed bytes, in whole blocks.
    pub(crate) block_bytes: isize,
    /// Allocated bytes minus freed bytes, as they were requested.
    pub(crate) bytes: isize,
    /// The highest value that `bytes` had.
    pub(crate) peak_bytes: isize,
}

/// How much a thread cache may keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowance {
    /// The most bytes of all blocks but the youngest, for a block that is not small.
    pub(crate) bytes: usize,
    /// The same for a small block.
    pub(crate) bytes_for_small: usize,
    /// The most bytes of a small block. Such a block also serves smaller requests of other bins in its slot.
    pub(crate) small_bytes: usize,
    /// The largest block that may be the youngest.
    pub(crate) largest_youngest: usize,
    /// The most bytes in the depot, which all threads share.
    pub(crate) bytes_in_depot: u64,
    /// Whether it may be limited to small blocks.
    pub(crate) may_be_limited: bool,
}

impl Allowance {
    /// Leaves all but small blocks to the arena, which has begun to watch what is carved.
    pub(crate) fn limit_to_small(&mut self) {
        if self.may_be_limited {
            (self.bytes, self.largest_youngest) = (0, self.small_bytes);
        }
    }
}

/// The free blocks of one queue.
#[derive(Debug)]
struct QueueCache<B: Backend, O> {
    queue: QueueId,
    /// The blocks of each slot, oldest first.
    slots: Vec<Vec<Cached<B, O>>>,
    spares: Option<SpareLeases<B, O>>,
}

/// The free blocks that one thread caches; the youngest is taken first.
///
/// They are as free as blocks in bins: before a request goes to the device, the pool drains the thread caches.
#[derive(Debug)]
pub(crate) struct ThreadCache<B: Backend, O> {
    /// The block that came back last. It is cached whatever its size, because the next request most likely is for such a block.
    youngest: Option<LeasedBlock<B, O>>,
    /// The moment at which the youngest came back.
    youngest_since: Timestamp,
    /// All other blocks.
    queues: Vec<QueueCache<B, O>>,
    /// The bytes of all blocks but the youngest.
    older_bytes: usize,
    /// The bytes of all blocks that the pool knows. The difference was allocated or freed since.
    reported_bytes: usize,
    /// The number of blocks that were freed. Not beside `below_peak`: the compiler would update the two as a vector, which is
    /// slower.
    returns: u64,
    pub(crate) allowance: Allowance,
    hits: u64,
    carved: u64,
    /// The most that was allocated beyond what was freed, as it was requested, since the pool last heard of it.
    peak_bytes: isize,
    /// How much less it is now. A hit only takes from it.
    below_peak: usize,
    /// The thread's number, by which it chooses a shelf of the [depot](crate::free::depot), and an arena.
    pub(crate) number: usize,
    /// The arenas of the pool's segments; the one with the thread's number is its own. `None` without segments.
    arenas: Option<PoolArenas<B>>,
    /// Where allocations and frees are recorded; `None` while the pool is not tracked.
    pub(crate) event_buffer: Option<Box<EventBuffer>>,
}

/// Where in its thread's cache a request has looked for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Looked {
    /// Nowhere: another pool's cache was the latest, or the gate was not open.
    Nowhere,
    /// At the youngest block.
    AtYoungest,
    /// Everywhere: no block of its slot is cached.
    Everywhere,
}

/// A block for which a thread cache has no room.
enum NoRoom<B: Backend, O> {
    /// Its slot is full, or the cache has blocks of too many queues.
    InSlot(Cached<B, O>),
    /// The cache would have more bytes than it may.
    ForBytes(Cached<B, O>),
}

impl<B: Backend, O> NoRoom<B, O> {
    fn into_block(self) -> Cached<B, O> {
        match self {
            Self::InSlot(cached) | Self::ForBytes(cached) => cached,
        }
    }
}

impl<B: Backend, O> ThreadCache<B, O> {
    pub(crate) fn new(
        number: usize,
        allowance: Allowance,
        arenas: Option<PoolArenas<B>>,
        event_buffer: Option<Box<EventBuffer>>,
    ) -> Self {
        Self {
            number,
            arenas,
            event_buffer,
            youngest: None,
            youngest_since: Timestamp::default(),
            queues: Vec::new(),
            older_bytes: 0,
            reported_bytes: 0,
            allowance,
            hits: 0,
            carved: 0,
            returns: 0,
            peak_bytes: 0,
            below_peak: 0,
        }
    }

    pub(crate) fn blocks(&self) -> usize {
        let slots = self.queues.iter().flat_map(|it| &it.slots);
        slots.map(Vec::len).sum::<usize>() + usize::from(self.youngest.is_some())
    }

    pub(crate) fn bytes(&self) -> usize {
        self.older_bytes + self.youngest.as_ref().map_or(0, |block| block.bytes)
    }

    /// Takes the youngest block, if its class is the one of a request for `requested` bytes.
    #[inline]
    pub(crate) fn pop_youngest(
        &mut self,
        queue: QueueId,
        requested: usize,
    ) -> Option<LeasedBlock<B, O>> {
        let block = self.youngest.as_ref()?;
        let fits = block.above < requested && requested <= block.bytes;
        if !fits || block.lease.queue != Some(queue) {
            return None;
        }
        let youngest = self.youngest.take()?;
        self.count_allocation(requested);
        Some(youngest)
    }

    /// Takes the youngest block of a request's slot, if it is for the request. Returns where it has looked if not.
    #[inline]
    pub(crate) fn pop_last(
        &mut self,
        queue: QueueId,
        size: Size,
    ) -> Result<LeasedBlock<B, O>, Looked> {
        let small_bytes = self.allowance.small_bytes;
        let blocks = find(&mut self.queues, queue, size.slot).ok_or(Looked::Everywhere)?;
        let last = blocks.last().ok_or(Looked::Everywhere)?;
        if !is_for(last, size, small_bytes) {
            return Err(Looked::AtYoungest);
        }
        let cached = blocks.pop().ok_or(Looked::Everywhere)?;
        self.older_bytes -= cached.bytes();
        self.count_allocation(size.asked);
        Ok(cached.block)
    }

    /// Takes the youngest block of all if its class is the one of the request, or else a block that [`pop`](Self::pop) takes.
    pub(crate) fn pop_any(&mut self, queue: QueueId, size: Size) -> Option<LeasedBlock<B, O>> {
        self.pop_youngest(queue, size.asked)
            .or_else(|| self.pop(queue, size))
    }

    /// Takes a block for a request: one of its bin with at least its bytes, or one that is at most
    /// [small](Allowance::small_bytes).
    pub(crate) fn pop(&mut self, queue: QueueId, size: Size) -> Option<LeasedBlock<B, O>> {
        match self.pop_last(queue, size) {
            Ok(block) => return Some(block),
            Err(Looked::Everywhere) => return None,
            Err(_) => {}
        }
        let small_bytes = self.allowance.small_bytes;
        let blocks = find(&mut self.queues, queue, size.slot)?;
        let first = blocks.len().saturating_sub(MAX_BLOCKS_SEARCHED);
        let mut searched = blocks[first..].iter();
        let index = searched.rposition(|cached| is_for(cached, size, small_bytes))?;
        let cached = blocks.remove(first + index);
        self.older_bytes -= cached.bytes();
        self.count_allocation(size.asked);
        Some(cached.block)
    }

    /// Counts an allocation of `bytes` bytes that did not come from the cache, but from a segment.
    pub(crate) fn count_carved(&mut self, requested: usize, bytes: usize) {
        self.reported_bytes = self.reported_bytes.wrapping_add(bytes);
        self.carved += 1;
        self.count_allocation(requested);
    }

    #[inline]
    fn count_allocation(&mut self, requested: usize) {
        self.hits += 1;
        let (left, is_above) = self.below_peak.overflowing_sub(requested);
        self.below_peak = left;
        if is_above {
            self.raise_peak();
        }
    }

    /// Has the peak be what is active now, which is more than it was.
    #[cold]
    fn raise_peak(&mut self) {
        self.peak_bytes += self.below_peak.wrapping_neg().cast_signed();
        self.below_peak = 0;
    }

    /// Allocated bytes minus freed bytes, as they were requested.
    fn active_bytes(&self) -> isize {
        self.peak_bytes - self.below_peak.cast_signed()
    }

    /// Records that a block is freed, if the pool tracks its blocks. Does nothing if that is recorded already: a block that found no room
    /// is pushed again.
    #[inline]
    pub(crate) fn record_free(&mut self, block: &Block<B>) {
        if let (Some(event_buffer), Some(record)) = (&mut self.event_buffer, &block.record) {
            event_buffer.end(record);
        }
    }

    /// Caches a block that was requested with `requested` bytes and freed at the moment `since`, if the youngest was taken.
    #[inline]
    pub(crate) fn push_youngest(
        &mut self,
        block: LeasedBlock<B, O>,
        since: Timestamp,
        requested: usize,
    ) -> Result<(), LeasedBlock<B, O>> {
        if self.youngest.is_some() || block.bytes > self.allowance.largest_youngest {
            return Err(block);
        }
        self.youngest = Some(block);
        self.count_return(since, requested);
        Ok(())
    }

    #[inline]
    fn count_return(&mut self, since: Timestamp, requested: usize) {
        self.youngest_since = since;
        self.returns += 1;
        self.below_peak += requested;
    }

    /// Caches a block that was requested with `requested` bytes and freed at the moment `since`. One that is larger than all that the cache
    /// may keep goes to its arena, where it is joined to its neighbours. Hands the block back if neither is possible.
    #[inline]
    pub(crate) fn push(
        &mut self,
        block: LeasedBlock<B, O>,
        since: Timestamp,
        requested: usize,
    ) -> Result<(), LeasedBlock<B, O>> {
        if block.bytes > self.allowance.bytes.max(self.allowance.small_bytes) {
            let large = Cached { block, since };
            self.return_one(large).map_err(|large| large.block)?;
            self.returns += 1;
            self.below_peak += requested;
            return Ok(());
        }
        self.replace_youngest(block)?;
        self.count_return(since, requested);
        Ok(())
    }

    /// Moves the youngest block to its slot, or to its arena if the cache has no room for its bytes, and makes this one the youngest.
    /// Returns this one if the youngest stays.
    #[inline]
    fn replace_youngest(&mut self, block: LeasedBlock<B, O>) -> Result<(), LeasedBlock<B, O>> {
        let Some(former) = self.youngest.replace(block) else {
            return Ok(());
        };
        let former = Cached {
            block: former,
            since: self.youngest_since,
        };
        match self.add_older(former) {
            Ok(()) => Ok(()),
            Err(NoRoom::InSlot(former)) => self.keep_youngest(former),
            Err(NoRoom::ForBytes(it)) => self.return_one(it).or_else(|it| self.keep_youngest(it)),
        }
    }

    /// Returns a block to its arena, if there is one. Out of line, since most blocks are cached.
    #[inline(never)]
    fn return_one(&mut self, cached: Cached<B, O>) -> Result<(), Cached<B, O>> {
        if self.active_bytes() < -MAX_UNREPORTED_BYTES {
            // Who finds no room here locks the pool, which counts what this thread has done.
            return Err(cached);
        }
        let bytes = cached.bytes();
        self.return_to_arena(cached)?;
        self.count_out(bytes);
        Ok(())
    }

    /// Makes a block the youngest again. Returns the one that took its place.
    fn keep_youngest(&mut self, former: Cached<B, O>) -> Result<(), LeasedBlock<B, O>> {
        let replaced = self.youngest.replace(former.block);
        replaced.map_or(Ok(()), Err)
    }

    /// Caches a block that was in a bin or in the depot. Returns it if there is no room.
    pub(crate) fn insert(&mut self, cached: Cached<B, O>) -> Result<(), Cached<B, O>> {
        let bytes = cached.bytes();
        self.add_older(cached).map_err(NoRoom::into_block)?;
        self.count_in(bytes);
        Ok(())
    }

    /// Puts a block in its slot.
    #[expect(
        clippy::inline_always,
        reason = "it is short, and a call would save many registers"
    )]
    #[inline(always)]
    fn add_older(&mut self, cached: Cached<B, O>) -> Result<(), NoRoom<B, O>> {
        let block = &cached.block;
        let Some(queue) = block.lease.queue else {
            return Err(NoRoom::InSlot(cached));
        };
        let older_bytes = self.older_bytes.saturating_add(block.bytes);
        let most = if block.bytes <= self.allowance.small_bytes {
            self.allowance.bytes_for_small
        } else {
            self.allowance.bytes
        };
        if older_bytes > most {
            return Err(NoRoom::ForBytes(cached));
        }
        let slot = block.slot;
        let blocks = match find(&mut self.queues, queue, slot) {
            Some(blocks) => blocks,
            None => match self.add_slot(queue, slot) {
                Some(blocks) => blocks,
                None => return Err(NoRoom::InSlot(cached)),
            },
        };
        if blocks.len() >= MAX_BLOCKS_PER_SLOT {
            return Err(NoRoom::InSlot(cached));
        }
        blocks.push(cached);
        self.older_bytes = older_bytes;
        Ok(())
    }

    /// Returns whether the cache has this queue, or has fewer queues than it may have.
    pub(crate) fn has_place_for(&self, queue: QueueId) -> bool {
        self.queues.len() < MAX_CACHED_QUEUES || self.queues.iter().any(|it| it.queue == queue)
    }

    /// Makes the slot of this number for a queue. Returns `None` if the cache has blocks of too many queues.
    #[cold]
    fn add_slot(&mut self, queue: QueueId, slot: usize) -> Option<&mut Vec<Cached<B, O>>> {
        if !self.queues.iter().any(|it| it.queue == queue) {
            if self.queues.len() >= MAX_CACHED_QUEUES {
                // Programs make queues and drop them. Those without cached blocks and leases may be gone.
                self.queues.retain(|it| {
                    it.slots.iter().any(|slot| !slot.is_empty()) || it.spares.is_some()
                });
            }
            if self.queues.len() >= MAX_CACHED_QUEUES {
                return None;
            }
            self.queues.push(QueueCache {
                queue,
                slots: Vec::new(),
                spares: None,
            });
        }
        let cache = self.queues.iter_mut().find(|it| it.queue == queue)?;
        if cache.slots.len() <= slot {
            cache.slots.resize_with(slot + 1, Vec::new);
        }
        cache.slots.get_mut(slot)
    }

    /// Leaves the older half of a full slot in the depot. Returns whether there was room for it.
    fn leave_magazine(&mut self, depot: &Depot<B, O>, queue: QueueId, slot: usize) -> bool {
        let Some(blocks) = find(&mut self.queues, queue, slot) else {
            return false;
        };
        let bytes = bytes_of(&blocks[..MAX_BLOCKS_PER_SLOT / 2]) as u64;
        if depot.bytes() + bytes > self.allowance.bytes_in_depot {
            return false;
        }
        let magazine = self.take_half(queue, slot);
        depot.leave(self.number, queue, slot, magazine);
        true
    }

    /// Takes a magazine of the depot. Returns whether there was one.
    pub(crate) fn take_magazine(
        &mut self,
        depot: &Depot<B, O>,
        queue: QueueId,
        slot: usize,
    ) -> bool {
        let Some(magazine) = depot.take(self.number, queue, slot) else {
            return false;
        };
        let mut left = Vec::new();
        for cached in magazine {
            left.extend(self.insert(cached).err());
        }
        if !left.is_empty() {
            depot.leave(self.number, queue, slot, left);
        }
        true
    }

    /// Makes room for one more block, if the slot of the youngest is full: leaves blocks in the depot, or returns them to the arenas.
    /// Returns false if it could not, and kept all blocks.
    pub(crate) fn make_room(&mut self, depot: &Depot<B, O>) -> bool {
        self.full_slot().is_some_and(|(queue, slot)| {
            self.leave_magazine(depot, queue, slot) || self.return_half(queue, slot)
        })
    }

    /// Makes room for one more block: takes out the older half of a full slot, or else the youngest block.
    pub(crate) fn take_surplus(&mut self) -> Vec<Cached<B, O>> {
        match self.full_slot() {
            Some((queue, slot)) => self.take_half(queue, slot),
            None => self.take_youngest().into_iter().collect(),
        }
    }

    /// Takes out the older half of a slot.
    fn take_half(&mut self, queue: QueueId, slot: usize) -> Vec<Cached<B, O>> {
        let blocks = find(&mut self.queues, queue, slot);
        let half = blocks.map(|blocks| blocks.drain(..MAX_BLOCKS_PER_SLOT / 2).collect());
        let half: Vec<_> = half.unwrap_or_default();
        let bytes = bytes_of(&half);
        self.older_bytes -= bytes;
        self.count_out(bytes);
        half
    }

    /// The queue and the slot of the youngest block, if the slot is full.
    fn full_slot(&mut self) -> Option<(QueueId, usize)> {
        let block = self.youngest.as_ref()?;
        let queue = block.lease.queue?;
        let slot = block.slot;
        let blocks = find(&mut self.queues, queue, slot)?;
        (blocks.len() >= MAX_BLOCKS_PER_SLOT).then_some((queue, slot))
    }

    /// Undoes [`take_half`](Self::take_half) for these blocks.
    fn put_back_half(&mut self, queue: QueueId, slot: usize, half: Vec<Cached<B, O>>) {
        let bytes = bytes_of(&half);
        if let Some(blocks) = find(&mut self.queues, queue, slot) {
            blocks.splice(..0, half);
            self.older_bytes += bytes;
            self.count_in(bytes);
        }
    }

    fn take_youngest(&mut self) -> Option<Cached<B, O>> {
        let block = self.youngest.take()?;
        self.count_out(block.bytes);
        Some(Cached {
            block,
            since: self.youngest_since,
        })
    }

    /// Calls `take` with the `wanted` blocks of every queue, oldest first in each slot.
    pub(crate) fn take(&mut self, wanted: Wanted, mut take: impl FnMut(Cached<B, O>)) {
        let is_wanted = |it: &LeasedBlock<B, O>| wanted.has(it);
        let mut bytes = 0;
        for cache in &mut self.queues {
            let slots = match wanted {
                Wanted::Slot(slot) => cache.slots.get_mut(slot..=slot).unwrap_or_default(),
                Wanted::All | Wanted::LargerThan(_) => &mut cache.slots,
            };
            for slot in slots.iter_mut().filter(|slot| !slot.is_empty()) {
                for cached in slot.extract_if(.., |it| is_wanted(&it.block)) {
                    bytes += cached.bytes();
                    take(cached);
                }
            }
        }
        self.older_bytes -= bytes;
        self.count_out(bytes);
        if self.youngest.as_ref().is_some_and(is_wanted) {
            self.take_youngest().into_iter().for_each(take);
        }
    }

    fn count_in(&mut self, bytes: usize) {
        self.reported_bytes = self.reported_bytes.wrapping_add(bytes);
    }

    fn count_out(&mut self, bytes: usize) {
        self.reported_bytes = self.reported_bytes.wrapping_sub(bytes);
    }

    /// Returns what was done since the last call.
    pub(crate) fn take_activity(&mut self) -> Activity {
        let activity = Activity {
            hits: self.hits,
            carved: self.carved,
            returns: self.returns,
            block_bytes: self.reported_bytes.wrapping_sub(self.bytes()).cast_signed(),
            bytes: self.active_bytes(),
            peak_bytes: self.peak_bytes,
        };
        (self.hits, self.carved, self.returns) = (0, 0, 0);
        (self.below_peak, self.peak_bytes) = (0, 0);
        self.reported_bytes = self.bytes();
        activity
    }
}

/// Returns whether a block is for a request: of its bin with at least its bytes, or of at most `small_bytes`.
#[inline]
fn is_for<B: Backend, O>(cached: &Cached<B, O>, size: Size, small_bytes: usize) -> bool {
    let block = &cached.block;
    block.bytes >= size.bytes && (block.bin == size.bin || block.bytes <= small_bytes)
}

#[inline]
fn find<B: Backend, O>(
    queues: &mut [QueueCache<B, O>],
    queue: QueueId,
    slot: usize,
) -> Option<&mut Vec<Cached<B, O>>> {
    let cache = queues.iter_mut().find(|it| it.queue == queue)?;
    cache.slots.get_mut(slot)
}

#[cfg(test)]
mod tests;
