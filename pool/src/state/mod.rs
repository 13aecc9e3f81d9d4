//! What a pool keeps under its lock.

pub(crate) mod bins;
pub(crate) mod carve;
pub(crate) mod clock;
pub(crate) mod fences;
pub(crate) mod lane;
pub(crate) mod lanes;
pub(crate) mod lock;
pub(crate) mod ranges;
pub(crate) mod reclaim;
pub(crate) mod reuse;
pub(crate) mod stranded;
pub(crate) mod tenure;
pub(crate) mod trim;

use std::sync::Arc;

use binpool_allocators::{Allocator, MemoryOf, Queue, QueueOf, segments::Segments};

use crate::{
    Decay, PoolStatistics,
    at_hand::{biased::Rooms, depot::Depot, thread_cache::ThreadCache},
    decay::DecayClock,
    request::Request,
    seeing::watch::Watch,
    state::{
        bins::{Bins, Block, HeldBlock, Released},
        clock::Clock,
        lane::{Lane, LaneKey, Stamp, Use, Uses, add_to},
        lanes::Lanes,
        stranded::Strand,
    },
    sync::ThreadId,
};

/// How a block came to its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// It was free for the queue, by the queue's own order or because no command used it any more.
    Stock,
    /// It was another queue's, or an out-of-order queue's, and the commands there had ended.
    Ended,
    /// The queue was made to wait for the commands of the former user.
    DeviceWait,
    /// The host waited for the commands of the former user.
    HostWait,
    /// It was carved from a segment that the pool had.
    Carved,
    /// The allocator made it, or the segment that it is carved from.
    Fresh,
}

/// How many blocks of a bin are looked at for one whose commands have ended, oldest first. The younger ones come
/// later in the order of the same few queues, so that there is little to be found behind these.
const LOOK_AT: usize = 16;

/// Everything of a pool that changes.
///
/// # Invariants
///
/// - I1: a free block lies in the stock of a lane (its queue is in order and was its only user), or in `pending`
///   (commands may use it on several queues, or on an out-of-order one), or in `common` (no command uses it), or is a
///   free range of a segment, or in `unscrubbed`, or a range in `strand`, or in a thread's cache (its queue is in order
///   and was its only user).
/// - I2: the home queue's lane is never removed while the pool has a handle.
/// - I3: `managed_bytes = active blocks in whole + held_bytes`.
#[derive(Debug)]
pub(crate) struct State<A: Allocator> {
    pub(crate) lanes: Lanes<A>,
    /// What each thread keeps at hand.
    pub(crate) threads: Rooms<ThreadCache<A>>,
    /// What threads have too much of.
    pub(crate) depot: Depot<A>,
    /// How often a request took [blocks of other threads](Self::whose_turn).
    pub(crate) takings: u64,
    /// Blocks that no command uses: ready for any queue.
    pub(crate) common: Bins<A>,
    /// Blocks that more than the order of one queue keeps from their next user.
    pub(crate) pending: Bins<A>,
    /// Where blocks are carved from; `None` where each is a block of the allocator's.
    pub(crate) segments: Option<Segments<MemoryOf<A>, Uses>>,
    /// Blocks of segments that nobody may have before they are filled with zeros; `None` where nobody is left to keep
    /// them from.
    pub(crate) unscrubbed: Option<Bins<A>>,
    /// What could not be given back yet.
    pub(crate) strand: Strand<A>,
    /// Whether freed blocks are kept. Off for good once the last handle of the pool is gone.
    pub(crate) holding: bool,
    /// Blocks that are on their way to the allocator, or to their segment: neither held any more, nor free yet.
    pub(crate) in_transit: usize,
    /// The threads that may get a segment from the allocator of which they need a part.
    pub(crate) growing: Vec<ThreadId>,
    /// Tells when a sweep is due.
    pub(crate) clock: Option<DecayClock>,
    pub(crate) counters: PoolStatistics,
    /// How often free memory was looked through for what is idle.
    sweeps: u32,
    /// How often memory came back to the pool or arrived at the allocator.
    pub(crate) changes: u64,
    /// Blocks in the user's hands. Less than none while a thread that gave some back has been [noted](Self::note), and the
    /// one that got them has not.
    pub(crate) active_blocks: i64,
    /// Their bytes, as they were asked for.
    pub(crate) active_bytes: i64,
    /// Their bytes, in whole blocks.
    pub(crate) in_use: i64,
    /// Whose they are.
    pub(crate) watch: Watch,
}

impl<A: Allocator> State<A> {
    pub(crate) fn new(
        home: &QueueOf<A>,
        clock: Arc<Clock>,
        segments: Option<Segments<MemoryOf<A>, Uses>>,
        decay: Option<Decay>,
    ) -> Self {
        let mut lanes = Lanes::new(clock);
        lanes.find_or_add(home);
        Self {
            lanes,
            threads: Rooms::default(),
            depot: Depot::default(),
            takings: 0,
            common: Bins::default(),
            pending: Bins::default(),
            segments,
            unscrubbed: Some(Bins::default()),
            strand: Strand::default(),
            holding: true,
            clock: decay.map(DecayClock::new),
            counters: PoolStatistics::default(),
            sweeps: 0,
            changes: 0,
            active_blocks: 0,
            active_bytes: 0,
            in_use: 0,
            in_transit: 0,
            growing: Vec::new(),
            watch: Watch::default(),
        }
    }

    /// The key of this queue's lane, which stays until [`leave`](Self::leave) is called with it.
    pub(crate) fn enter(&mut self, queue: &QueueOf<A>) -> LaneKey {
        let key = self.lanes.find_or_add(queue);
        if let Some(lane) = self.lanes.get_mut(key) {
            lane.active += 1;
            if std::mem::take(&mut lane.is_retired) {
                self.threads.open();
            }
        }
        key
    }

    /// Ends what [`enter`](Self::enter) began.
    pub(crate) fn leave(&mut self, key: Option<LaneKey>) {
        if let Some(lane) = key.and_then(|key| self.lanes.get_mut(key)) {
            lane.active -= 1;
        }
    }

    /// The uses of a block that comes back, which was allocated for the queue of `lane` (for none, where that is
    /// `None`) and used on `others` too.
    pub(crate) fn stamp(&mut self, lane: Option<LaneKey>, others: &[QueueOf<A>]) -> Uses {
        let mut uses: Uses = lane
            .map(|lane| self.lanes.stamp(lane))
            .into_iter()
            .collect();
        for queue in others {
            let other = self.lanes.find_or_add(queue);
            uses.push(self.lanes.stamp(other));
        }
        uses
    }

    /// Takes a block out of its user's hands. Its uses.
    pub(crate) fn take_back(
        &mut self,
        block: &Block<A>,
        asked: usize,
        others: &[QueueOf<A>],
    ) -> Uses {
        self.note_end(block);
        let uses = self.stamp(block.tenure.lane, others);
        self.deactivate(asked, block.bytes);
        uses
    }

    /// Keeps a free block, where I1 says. The uses that the order of its own queue does not cover: a fence behind each
    /// now tells sooner than one that is made when somebody asks, which has to wait for everything that is enqueued
    /// there meanwhile.
    ///
    /// With segments, the bins hold a few bytes only, for speed: a held block keeps its neighbours from becoming one
    /// range. What they do not hold is to be returned to its segment.
    pub(crate) fn hold(&mut self, held: HeldBlock<A>) -> (Uses, Option<HeldBlock<A>>) {
        let lanes = &self.lanes;
        let has_room = |use_: &&Use| lanes.get(use_.lane).is_some_and(Lane::has_room_for_a_fence);
        let unordered = match held.uses.first() {
            Some(home) if lanes.get(home.lane).is_some_and(Lane::is_ordered) => &held.uses[1..],
            _ => &held.uses[..],
        };
        let unordered: Uses = unordered.iter().filter(has_room).copied().collect();
        match self.hold_back_or_return(held) {
            None => (unordered, None),
            Some(held) => {
                self.in_transit += 1;
                (unordered, Some(held))
            }
        }
    }

    /// Keeps a free block in a bin, or in its segment. What is returned has to give up its view first.
    fn hold_back_or_return(&mut self, held: HeldBlock<A>) -> Option<HeldBlock<A>> {
        let Some(segments) = &self.segments else {
            self.put_in_bin(held);
            return None;
        };
        if self.binned_bytes() + held.block.bytes as u64 <= self.most_in_bins(segments) {
            self.put_in_bin(held);
            return None;
        }
        match (held.block.range, &mut self.segments) {
            (Some(range), Some(segments)) if segments.may_keep_view(range) => {
                self.changes += 1;
                segments.give(range, held.uses, Some(held.block.memory));
                None
            }
            _ => Some(held),
        }
    }

    pub(crate) fn put_in_bin(&mut self, mut held: HeldBlock<A>) {
        held.since = self.sweeps;
        self.bins_for(&held.uses).push(held);
    }

    /// Where I1 says that a free block lies which was used so.
    fn bins_for(&mut self, uses: &[Use]) -> &mut Bins<A> {
        match uses {
            [] => &mut self.common,
            [only] => match self.lanes.get_mut(only.lane) {
                Some(lane) if lane.is_ordered() => &mut lane.stock,
                _ => &mut self.pending,
            },
            _ => &mut self.pending,
        }
    }

    /// A free block of exactly this bin that the queue of `lane` may have without another look.
    pub(crate) fn pop(&mut self, lane: LaneKey, request: Request) -> Option<Box<Block<A>>> {
        let Request { bin, bytes, .. } = request;
        let own = self.lanes.get_mut(lane);
        own.and_then(|lane| lane.stock.pop_youngest(bin, bytes))
            .or_else(|| self.common.pop_youngest(bin, bytes))
            .map(|held| held.block)
    }

    /// A free block of exactly this bin whose commands have ended, or end before anything that is enqueued on the
    /// queue of `lane` from now on. Blocks of other queues are looked at only where it may go `across`.
    pub(crate) fn pop_ready(
        &mut self,
        lane: LaneKey,
        request: Request,
        across: bool,
    ) -> Option<Box<Block<A>>> {
        let Request { bin, bytes, .. } = request;
        let lanes = &self.lanes;
        let mut oldest = self.pending.oldest(bin, bytes).take(LOOK_AT);
        let ready = oldest.find(|(_, uses)| {
            (across || is_own(lanes, uses, lane))
                && uses.iter().all(|use_| lanes.is_before(*use_, lane))
        });
        if let Some((index, _)) = ready {
            drop(oldest);
            return self.pending.take(bin, index).map(|held| held.block);
        }
        drop(oldest);
        let ready = self.lanes.iter().find_map(|(key, other)| {
            if key == lane || !(across || other.is_retired) {
                return None;
            }
            let (index, uses) = other.stock.oldest(bin, bytes).next()?;
            let ready = uses.iter().all(|use_| self.lanes.is_before(*use_, lane));
            ready.then_some((key, index))
        });
        let (key, index) = ready?;
        let other = self.lanes.get_mut(key)?;
        other.stock.take(bin, index).map(|held| held.block)
    }

    /// The free block of this bin that was used the longest ago, whatever still uses it.
    pub(crate) fn take_oldest(&mut self, lane: LaneKey, request: Request) -> Option<HeldBlock<A>> {
        let Request { bin, bytes, .. } = request;
        let pending = self.pending.oldest(bin, bytes).next();
        let pending = pending.map(|(index, uses)| (last_of(uses), None, index));
        let stocked = self
            .lanes
            .iter()
            .filter(|(key, _)| *key != lane)
            .filter_map(|(key, other)| {
                let (index, uses) = other.stock.oldest(bin, bytes).next()?;
                Some((last_of(uses), Some(key), index))
            });
        match stocked.chain(pending).min_by_key(|(stamp, ..)| *stamp)? {
            (_, Some(key), index) => self.lanes.get_mut(key)?.stock.take(bin, index),
            (_, None, index) => self.pending.take(bin, index),
        }
    }

    /// The lanes whose commands keep blocks of this bin from the queue of `lane`, and the last of these commands.
    pub(crate) fn in_the_way(&self, lane: LaneKey, request: Request, across: bool) -> Uses {
        let Request { bin, bytes, .. } = request;
        let mut found = Uses::new();
        let pending = self.pending.oldest(bin, bytes).take(LOOK_AT);
        let pending = pending
            .map(|(_, uses)| uses)
            .filter(|uses| across || is_own(&self.lanes, uses, lane));
        let others = self.lanes.iter().filter(|(key, _)| *key != lane);
        let stocked = others
            .filter(|(_, other)| across || other.is_retired)
            .filter_map(|(_, other)| other.stock.oldest(bin, bytes).next())
            .map(|(_, uses)| uses);
        for use_ in pending.chain(stocked).flatten() {
            if !self.lanes.is_before(*use_, lane) {
                add_to(&mut found, *use_);
            }
        }
        found
    }

    /// Takes every free block out that the bins hold back from the segments.
    pub(crate) fn take_cached(&mut self) -> Vec<HeldBlock<A>> {
        if self.segments.is_none() {
            return Vec::new();
        }
        let held = self.take_bins(|_| true);
        self.in_transit += held.len();
        held
    }

    /// Takes the unscrubbed blocks out that no command uses.
    pub(crate) fn take_unscrubbed(&mut self) -> Vec<HeldBlock<A>> {
        let lanes = &self.lanes;
        let taken = self.unscrubbed.as_mut();
        let taken = taken.map(|bins| bins.take_all(|held| lanes.are_over(&held.uses)));
        let taken = taken.unwrap_or_default();
        self.in_transit += taken.len();
        taken
    }

    fn take_bins(&mut self, wanted: impl Fn(&HeldBlock<A>) -> bool) -> Vec<HeldBlock<A>> {
        let mut held = self.common.take_all(&wanted);
        held.extend(self.pending.take_all(&wanted));
        for (_, lane) in self.lanes.iter_mut() {
            held.extend(lane.stock.take_all(&wanted));
        }
        held
    }

    /// Moves the blocks whose commands are known to have ended to the common bins, and joins free ranges that they
    /// kept apart.
    pub(crate) fn settle(&mut self) {
        let lanes = &self.lanes;
        if let Some(segments) = &mut self.segments {
            segments.settle(|uses| lanes.are_over(uses));
        }
        let mut settled = self.pending.take_all(|held| lanes.are_over(&held.uses));
        for (_, lane) in self.lanes.iter_mut() {
            let ended = lane.ended;
            settled.extend(lane.stock.take_all(|held| last_of(&held.uses) <= ended));
        }
        for held in settled {
            self.hold_in_common(held);
        }
    }

    /// Sends every free block, or segment, back to the allocator.
    pub(crate) fn release_all(&mut self) -> Vec<Released<A>> {
        if self.segments.is_some() {
            return self.release_segments(u64::MAX, |_, _| true);
        }
        let leaving: Vec<_> = self
            .take_bins(|_| true)
            .into_iter()
            .map(Released::from)
            .collect();
        self.count_released(&leaving);
        leaving
    }

    /// Sends blocks, or segments, that no command uses back to the allocator, largest first, until they have `enough`
    /// bytes together.
    pub(crate) fn release_largest(&mut self, enough: u64) -> Vec<Released<A>> {
        if self.segments.is_some() {
            return self.release_segments(enough, Lanes::are_over);
        }
        let mut leaving = Vec::new();
        let mut bytes = 0;
        while bytes < enough
            && let Some(held) = self.common.pop_largest()
        {
            bytes += held.block.bytes as u64;
            leaving.push(held.into());
        }
        self.count_released(&leaving);
        leaving
    }

    /// Takes out the blocks, or segments, that have been free since this was called the last time, and that no command uses.
    pub(crate) fn take_idle(&mut self) -> Vec<Released<A>> {
        let sweeps = self.sweeps;
        self.sweeps = sweeps.wrapping_add(1);
        let leaving: Vec<_> = if let Some(segments) = &mut self.segments {
            let lanes = &self.lanes;
            let leaving = segments.sweep(|uses| lanes.are_over(uses));
            leaving.into_iter().map(Released::from).collect()
        } else {
            let leaving = self.common.take_all(|held| held.since != sweeps);
            leaving.into_iter().map(Released::from).collect()
        };
        self.count_released(&leaving);
        leaving
    }

    pub(crate) fn count_released(&mut self, leaving: &[Released<A>]) {
        self.counters.released_blocks += leaving.len() as u64;
        for released in leaving {
            self.send_off(released.bytes, &released.uses);
        }
    }

    /// Counts a block out of the pool and on its way to the allocator, where these commands may keep it from being
    /// freed.
    pub(crate) fn send_off(&mut self, block_bytes: usize, uses: &Uses) {
        self.forget(block_bytes);
        self.in_transit += 1;
        for use_ in uses {
            if let Some(lane) = self.lanes.get_mut(use_.lane) {
                lane.draining = lane.draining.max(use_.stamp);
            }
        }
    }

    /// A block that was in transit is back at the allocator. Whether it was the last one.
    pub(crate) fn arrive(&mut self) -> bool {
        self.changes += 1;
        self.in_transit -= 1;
        self.in_transit == 0
    }

    /// Keeps a block that could not be handed out after all.
    pub(crate) fn put_back(&mut self, held: HeldBlock<A>) {
        self.changes += 1;
        self.bins_for(&held.uses).push_oldest(held);
    }

    /// The uses that hold memory back, at most one a lane: of free blocks, or of memory that went back to the
    /// allocator.
    pub(crate) fn holding_back(&self) -> Uses {
        let held = self.all_bins().flat_map(Bins::iter);
        let ranges = self.segments.iter().flat_map(Segments::uses);
        let uses = held
            .flat_map(|held| &held.uses)
            .chain(ranges.flat_map(|(uses, _)| uses))
            .copied();
        let draining = self.lanes.iter().map(|(key, lane)| Use {
            lane: key,
            stamp: lane.draining,
        });
        let mut found = Uses::new();
        for use_ in draining.chain(uses) {
            if !self.lanes.is_over(use_) {
                add_to(&mut found, use_);
            }
        }
        found
    }

    /// The latest use of this queue that is not known to have ended.
    pub(crate) fn not_ended(&self, queue: &QueueOf<A>) -> Option<Use> {
        let key = self.lanes.find(queue.id())?;
        self.lanes.get(key)?.not_ended(key)
    }

    /// Takes out lanes that have caught up, and moves their blocks to the common bins. Dropping them lets go of
    /// their queues, which is a call to the device.
    pub(crate) fn take_lanes(&mut self, wanted: impl Fn(&Lane<A>) -> bool) -> Vec<Lane<A>> {
        let mut taken = self.lanes.take(wanted);
        for lane in &mut taken {
            if lane.is_retired {
                self.threads.open();
            }
            for held in lane.stock.take_all(|_| true) {
                self.hold_in_common(held);
            }
        }
        taken
    }

    fn hold_in_common(&mut self, held: HeldBlock<A>) {
        self.common.push(HeldBlock {
            uses: Uses::new(),
            ..held
        });
    }

    /// Counts a block into the user's hands.
    pub(crate) fn activate(&mut self, asked: usize, block_bytes: usize, origin: Origin) {
        self.in_use += signed(block_bytes);
        if origin == Origin::Fresh && self.segments.is_none() {
            self.manage(block_bytes);
        }
        self.active_blocks += 1;
        self.active_bytes += signed(asked);
        self.reach_active(self.active_bytes);
        let counters = &mut self.counters;
        match origin {
            Origin::Stock => {}
            Origin::Ended => counters.ended_hits += 1,
            Origin::DeviceWait => counters.device_wait_hits += 1,
            Origin::HostWait => counters.host_wait_hits += 1,
            Origin::Carved => counters.carved_hits += 1,
            Origin::Fresh => {
                counters.misses += 1;
                return;
            }
        }
        counters.hits += 1;
    }

    /// Counts a block out of the user's hands.
    pub(crate) fn deactivate(&mut self, asked: usize, block_bytes: usize) {
        self.in_use -= signed(block_bytes);
        self.changes += 1;
        self.active_blocks -= 1;
        self.active_bytes -= signed(asked);
    }

    /// Takes note that so many bytes were in the user's hands.
    pub(crate) fn reach_active(&mut self, bytes: i64) {
        let peak = &mut self.counters.peak_active_bytes;
        *peak = (*peak).max(unsigned(bytes));
    }

    /// Bytes in the user's hands and held together, in whole blocks.
    pub(crate) fn managed_bytes(&self) -> u64 {
        self.counters.managed_bytes
    }

    /// Counts memory into the pool.
    pub(crate) fn manage(&mut self, bytes: usize) {
        let counters = &mut self.counters;
        counters.managed_bytes += bytes as u64;
        counters.peak_managed_bytes = counters.peak_managed_bytes.max(counters.managed_bytes);
    }

    /// Counts a block out of the pool.
    pub(crate) fn forget(&mut self, block_bytes: usize) {
        self.counters.managed_bytes -= block_bytes as u64;
    }

    pub(crate) fn count_empty(&mut self) {
        self.counters.empty_allocations += 1;
    }

    pub(crate) fn count_out_of_memory(&mut self) {
        self.counters.out_of_memory += 1;
    }

    /// The sizes of the free blocks that commands are not known to be done with.
    pub(crate) fn held_back_bytes(&self) -> u64 {
        let held = self.all_bins().flat_map(Bins::iter);
        let held = held.map(|held| (&held.uses, held.block.bytes));
        let ranges = self.segments.iter().flat_map(Segments::uses);
        held.chain(ranges)
            .filter(|(uses, _)| !self.lanes.are_over(uses))
            .map(|(_, bytes)| bytes as u64)
            .sum()
    }

    pub(crate) fn held_bytes(&self) -> u64 {
        let free = self.segments.as_ref().map(Segments::free_bytes);
        let binned: u64 = self.all_bins().map(Bins::bytes).sum();
        binned + free.unwrap_or(0) + self.strand.bytes_of_ranges()
    }

    /// The bytes that can go back to the allocator: free blocks, or segments that are free as a whole.
    pub(crate) fn releasable_bytes(&self) -> u64 {
        match &self.segments {
            Some(segments) => segments.idle_bytes(),
            None => self.held_bytes(),
        }
    }

    pub(crate) fn all_bins(&self) -> impl Iterator<Item = &Bins<A>> {
        let stocks = self.lanes.iter().map(|(_, lane)| &lane.stock);
        let shared = [&self.common, &self.pending];
        stocks.chain(shared).chain(&self.unscrubbed)
    }

    /// One more than the largest bin that has blocks.
    pub(crate) fn bin_count(&self) -> usize {
        self.all_bins().map(Bins::bin_count).max().unwrap_or(0)
    }

    pub(crate) fn largest_held_bytes(&self) -> usize {
        let free = self.segments.iter().map(Segments::largest_free);
        self.all_bins()
            .map(Bins::largest_bytes)
            .chain(free)
            .max()
            .unwrap_or(0)
    }

    pub(crate) fn statistics(&self) -> PoolStatistics {
        let pending = self
            .pending
            .iter()
            .filter(|held| !self.lanes.are_over(&held.uses));
        let (pending_blocks, pending_bytes) = pending.fold((0, 0), |(blocks, bytes), held| {
            (blocks + 1, bytes + held.block.bytes as u64)
        });
        PoolStatistics {
            active_blocks: unsigned(self.active_blocks),
            active_bytes: unsigned(self.active_bytes),
            held_blocks: self.all_bins().map(|bins| bins.blocks() as u64).sum(),
            held_bytes: self.held_bytes(),
            pending_blocks,
            pending_bytes,
            ..self.counters
        }
    }
}

fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// A count that is less than none at times.
pub(crate) fn unsigned(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}

/// Whether a block was allocated for the queue of `lane`, or for one that the program is done with.
fn is_own<A: Allocator>(lanes: &Lanes<A>, uses: &[Use], lane: LaneKey) -> bool {
    let home = uses
        .first()
        .and_then(|home| Some((home, lanes.lane_of(*home)?)));
    home.is_none_or(|(home, own)| home.lane == lane || own.is_retired)
}

fn last_of(uses: &[Use]) -> Stamp {
    uses.iter().map(|use_| use_.stamp).max().unwrap_or_default()
}

#[cfg(test)]
mod tests;
