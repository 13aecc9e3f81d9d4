//! Ranges of segments, under the pool's lock.

use std::time::Duration;

use binpool_allocators::{Backend, Error, Memory, MemoryId, Region};

use crate::{
    block::{Block, Released},
    central::{State, counters::unsigned, rules::Limits},
    order::queue_uses::QueueUses,
    order::timestamps::QueueKey,
    rare::{Rare, reached},
    request::Request,
    track::pool_event::{PoolEvent, What, mapped, unmapped},
};
use binpool_segments::{Done, Mapping, NewPlan, PageRequest, Place, RangeKey};

/// A range that was taken for a block.
pub(crate) type Carved<B> = binpool_segments::Carved<<B as Backend>::Memory, QueueUses>;

/// Which ranges of segments may be taken for a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RangeFilter {
    /// The ranges that the queue may have, by the rules of growth.
    Free,
    /// The ranges that the queue may have, even against the rules of growth.
    FreeAnywhere,
    /// All ranges, even those that commands still use.
    Any,
}

/// The device is asked how much is free after this number of requests that found no free range, and before that each time their number has
/// doubled.
const GROWTHS_A_LOOK: u64 = 32;

impl<B: Backend, O> State<B, O> {
    /// Takes a range of a segment for a block.
    pub(crate) fn take_range(
        &mut self,
        queue_key: QueueKey,
        request: Request,
        filter: RangeFilter,
    ) -> Option<Carved<B>> {
        if self.segments.bytes() == 0 {
            return None;
        }
        let (queues, segments) = (&self.queues, &mut self.segments);
        let is_free = |uses: &QueueUses| queues.are_before(uses, queue_key);
        let carved = match filter {
            RangeFilter::Free => segments
                .take(request.home, request.bytes, is_free)
                .or_else(|| segments.take_run(request.home, request.bytes, is_free)),
            RangeFilter::FreeAnywhere => segments.take_anywhere(request.bytes, is_free),
            RangeFilter::Any => segments.take(request.home, request.bytes, |_| true),
        }?;
        // The excess comes back in a moment, so a request that finds the device full can wait for it.
        self.transit.depart(usize::from(carved.has_excess));
        Some(carved)
    }

    /// Gives back a range that was taken and not used. Returns whether nothing is left in transit.
    pub(crate) fn put_range_back(&mut self, carved: Carved<B>) -> bool {
        self.segments.give(carved.range, carved.uses, carved.view);
        if carved.has_excess {
            return self.arrive();
        }
        self.changes += 1;
        false
    }

    /// Gives the range of a block back to its segment, with the block's view unless that was released. Returns whether nothing is
    /// left in transit.
    pub(crate) fn return_range(
        &mut self,
        range: RangeKey,
        uses: QueueUses,
        view: Option<B::Memory>,
    ) -> bool {
        self.segments.give(range, uses, view);
        self.arrive()
    }

    /// Shrinks a range to the `region` of its block. Returns whether nothing is left in transit.
    pub(crate) fn shrink_range(
        &mut self,
        range: RangeKey,
        region: Region,
        uses: QueueUses,
    ) -> bool {
        self.segments.shrink(range, region, uses);
        self.arrive()
    }

    /// Counts a request for a segment or pages. Returns whether it is time to ask the device how much is free.
    pub(crate) fn is_look_for_pressure_due(&mut self) -> bool {
        self.growths += 1;
        self.growths.is_power_of_two() || self.growths.is_multiple_of(GROWTHS_A_LOOK)
    }

    /// Returns whether these limits rule out a new block of `bytes` bytes even after all free memory is released.
    pub(crate) fn is_ruled_out(&self, bytes: usize, limits: Limits) -> bool {
        let bytes = bytes as u64;
        if bytes <= limits.available.min(limits.capacity) {
            return false;
        }
        // A block may lie on free parts of pages that do not leave the pool.
        let free = if self.segments.has_pages() {
            self.held_bytes()
        } else {
            self.releasable_bytes()
        };
        bytes > limits.capacity || bytes > limits.available.saturating_add(free)
    }

    /// Returns the size of the segment to ask the allocator for, and the segments to evict first.
    pub(crate) fn grow(&mut self, request: Request, capacity: u64) -> (usize, Vec<Released<B>>) {
        let in_use = self.bytes_in_use();
        let Request { home, bytes, .. } = request;
        let alignment = self.rules.alignment;
        let (bytes, leaving) = self.segments.grow(home, bytes, in_use, alignment, capacity);
        self.count_released(&leaving);
        (bytes, leaving)
    }

    /// Returns what a request does that finds no range in mapped pages. Pages may move once their commands are known to have ended; with
    /// `may_alias`, so may pages that the queue may have as they are.
    pub(crate) fn plan_pages(
        &mut self,
        queue_key: QueueKey,
        request: Request,
        capacity: u64,
        (is_for_plan, may_alias): (bool, bool),
        now: Duration,
    ) -> Mapping<B::Memory, QueueUses> {
        let in_use = self.bytes_in_use();
        let slack = self.moves.slack(self.rules.move_percent, now);
        let after = may_alias.then(|| QueueUses::One(self.queues.stamp(queue_key)));
        let queues = &self.queues;
        let request = PageRequest {
            home: request.home,
            bytes: request.bytes,
            in_use,
            capacity,
            slack,
            is_for_plan,
        };
        self.segments.plan(
            request,
            |uses| queues.are_before(uses, queue_key),
            |uses| queues.are_over(uses),
            after,
        )
    }

    /// Counts the time that pages took to move.
    fn spend_on_moves(&mut self, time: Duration) {
        let nanoseconds = self.moves.spend(time).as_nanos();
        self.counters.move_nanoseconds = u64::try_from(nanoseconds).unwrap_or(u64::MAX);
    }

    /// Takes out the old addresses of pages that have moved, where those are still mapped and the commands there have ended.
    pub(crate) fn take_stale(&mut self) -> Vec<Place<B::Memory>> {
        let queues = &self.queues;
        self.segments.take_stale(|uses| queues.are_over(uses))
    }

    /// Records whether pages were unmapped at their old addresses, and the time that took.
    pub(crate) fn end_stale(
        &mut self,
        place: Place<B::Memory>,
        is_unmapped: bool,
        moved_for: Duration,
    ) {
        self.spend_on_moves(moved_for);
        if is_unmapped {
            reached(Rare::StaleUnmapped);
            self.counters.unmaps += 1;
            self.segments.forget(&place);
        } else {
            reached(Rare::StaleKept);
            self.segments.keep_stale(place);
        }
    }

    /// Adds addresses for the pages of a request. Returns them if they are not needed.
    pub(crate) fn add_reservation(
        &mut self,
        request: Request,
        memory: B::Memory,
        bytes: usize,
        is_small: bool,
    ) -> Option<B::Memory> {
        self.segments
            .add_reservation(request.home, memory, bytes, is_small)
    }

    /// Records the result of a plan, and counts it, and the time that it took if pages moved.
    ///
    /// # Errors
    ///
    /// That of the call that failed.
    pub(crate) fn finish_pages(
        &mut self,
        done: Done<B::Memory, QueueUses>,
        moved_for: Option<Duration>,
    ) -> Result<Carved<B>, Error> {
        self.spend_on_moves(moved_for.unwrap_or_default());
        self.counters.maps += done.maps;
        self.counters.unmaps += done.unmaps;
        let created = done.created_bytes;
        let (maps, unmaps) = (done.maps, done.unmaps);
        self.note(|| {
            PoolEvent::did(
                What::Map,
                created,
                format_args!("{maps} maps, {unmaps} unmaps"),
            )
        });
        // Mapped pages come first, since pages that moved never leave.
        for (reservation, region) in done.mapped() {
            self.note(|| mapped(reservation.id(), region));
        }
        for (reservation, region) in done.unmapped() {
            self.note(|| unmapped(reservation.id(), region));
        }
        self.count_managed(usize::try_from(created).unwrap_or(usize::MAX));
        let carved = self.segments.finish(done);
        self.note_spare_pages();
        if created > 0 {
            self.looked = 0;
        }
        let carved = carved?;
        self.changes += 1;
        Ok(carved)
    }

    /// Records how many bytes of pages are mapped nowhere, if that has changed.
    pub(crate) fn note_spare_pages(&mut self) {
        let spare = self.segments.spare_bytes();
        if std::mem::replace(&mut self.watch.spare_bytes, spare) != spare {
            self.note(|| PoolEvent::did(What::Spare, spare, ""));
        }
    }

    /// Records the unmapping of pages that leave the pool.
    pub(crate) fn forget_place(&mut self, place: &Place<B::Memory>) {
        self.note(|| unmapped(place.reservation().id(), place.region()));
        self.counters.unmaps += 1;
        self.segments.forget(place);
    }

    /// Takes back pages that were to leave the pool. Returns them if the last handle is gone.
    pub(crate) fn keep_pages(
        &mut self,
        place: &Place<B::Memory>,
        memory: B::Memory,
    ) -> Option<B::Memory> {
        if self.viewed.is_none() {
            return Some(memory);
        }
        let bytes = memory.bytes();
        self.segments.keep(place, memory);
        self.counters.released_blocks -= 1;
        // A recording contains only maps and unmaps, not pages that were taken out or given back.
        self.count_managed(bytes);
        None
    }

    /// The bytes that the program has in use, in whole blocks. With several threads, their cached blocks count as well, because threads
    /// count hits on their own and report to the pool now and then.
    pub(super) fn bytes_in_use(&self) -> u64 {
        if !self.carves || self.threads.owners() <= 1 {
            return unsigned(self.in_use);
        }
        let taken = self.segments.bytes() - self.segments.free_bytes();
        taken.saturating_sub(self.bytes_in_bins() + self.depot.bytes())
    }

    /// Adds a segment of `size` bytes, and carves the first block from it.
    pub(crate) fn add_segment(
        &mut self,
        memory: B::Memory,
        size: usize,
        request: Request,
    ) -> Option<Carved<B>> {
        self.note_segment(&memory, size, request);
        self.segments.add(request.home, memory, size, request.bytes)
    }

    /// Adds the segment of a plan, which a request has found.
    pub(crate) fn add_planned(&mut self, plan: NewPlan, memory: B::Memory, request: Request) {
        self.note_segment(&memory, plan.bytes, request);
        self.segments.add_planned(plan, memory);
    }

    fn note_segment(&mut self, memory: &B::Memory, size: usize, request: Request) {
        self.note_miss(request.bytes);
        self.manage(memory.id(), size);
        self.changes += 1;
        self.looked = 0;
    }

    /// Records a request for which the pool has no free memory, and why.
    pub(crate) fn note_miss(&mut self, bytes: usize) {
        if !self.is_recorded() {
            return;
        }
        let bytes = bytes as u64;
        let reason = self.reason_of_a_miss(bytes);
        self.note(|| PoolEvent::did(What::Miss, bytes, reason));
    }

    /// Explains why no free memory serves a request of `bytes` bytes.
    fn reason_of_a_miss(&self, bytes: u64) -> String {
        let (free, largest) = (self.held_bytes(), self.largest_held_bytes() as u64);
        let pending = self.held_back_bytes(None);
        let reason = if free < bytes {
            "too little is free"
        } else if largest < bytes {
            "the free memory is in pieces"
        } else if pending > 0 {
            "commands may still use the free memory"
        } else {
            "the free memory is kept for other requests"
        };
        format!("{reason}: {free} free, {largest} in one piece, {pending} pending")
    }

    /// Returns the allocator's memory that a block lies in, and the block's region of it.
    pub(crate) fn bytes_of(&self, block: &Block<B>) -> Option<(MemoryId, Region)> {
        let Some(range) = block.range else {
            return Some((block.memory.id(), Region::first(block.memory.bytes())));
        };
        let (segment, region) = self.segments.place_of(range)?;
        Some((segment.id(), region))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        GrowthPolicy, PoolOptions, mock_pool::MockPool, request::Request, shared::HeldBlock,
    };

    #[test]
    fn a_miss_has_the_first_reason_of_too_few_bytes_pieces_and_commands() {
        let mock = MockPool::of_blocks();
        let key = mock.default_key();
        let [small, large] = [1024, 4096].map(|bytes| mock.unused(bytes));
        let mut state = mock.shared.state.lock();
        state.put_in_bin(small);
        state.put_in_bin(large);
        let told = "5120 free, 4096 in one piece, 0 pending";
        for (bytes, reason) in [
            (5121, "too little is free"),
            (5120, "the free memory is in pieces"),
            (4096, "the free memory is kept for other requests"),
        ] {
            assert_eq!(state.reason_of_a_miss(bytes), format!("{reason}: {told}"));
        }
        drop(state);
        let used = mock.unused(256);
        let mut state = mock.shared.state.lock();
        let uses = QueueUses::One(state.queues.stamp(key));
        state.put_in_bin(HeldBlock { uses, ..used });
        assert_eq!(
            state.reason_of_a_miss(4096),
            "commands may still use the free memory: 5376 free, 4096 in one piece, 256 pending"
        );
    }

    #[test]
    fn a_range_that_is_put_back_counts_as_a_change_and_can_be_taken_again() {
        // A pool of this policy looks for no low point, at which the range would be kept from the request.
        let options = PoolOptions::new().segments(true);
        let mock = MockPool::new(options.growth(GrowthPolicy::Dense));
        let queue_key = mock.default_key();
        let bytes = 32 << 20;
        drop(mock.pool.allocate(bytes).unwrap());
        mock.shared.flush();
        let bin = mock.shared.classes.bin_number(bytes);
        let request = Request {
            asked: bytes,
            bin,
            slot: 0,
            bytes,
            home: 0,
        };
        let mut state = mock.shared.state.lock();
        let (free, changes) = (state.held_bytes(), state.changes);
        for round in 1..3 {
            let carved = state
                .take_range(queue_key, request, RangeFilter::Any)
                .unwrap();
            assert_eq!(state.held_bytes(), 0);
            assert!(!state.put_range_back(carved), "nothing was in transit");
            assert_eq!((state.held_bytes(), state.changes), (free, changes + round));
        }
        // A new segment counts as a change, too, because other requests may have its rest.
        let memory = mock.shared.allocator.allocate(bytes).unwrap();
        let before = state.changes;
        assert!(state.add_segment(memory, bytes, request).is_some());
        assert_eq!(state.changes, before + 1);
    }

    #[test]
    fn the_device_is_asked_at_each_doubling_and_at_every_32nd_request() {
        let mock = MockPool::of_segments();
        let mut state = mock.shared.state.lock();
        let asked: Vec<_> = (1..=128)
            .filter(|_| state.is_look_for_pressure_due())
            .collect();
        assert_eq!(asked, [1, 2, 4, 8, 16, 32, 64, 96, 128]);
    }
}
