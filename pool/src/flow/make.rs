//! Makes blocks, in new memory (a block of its own, a segment, or pages) or in a range that was taken. Each value here that is dropped on the way,
//! because the request fails or panics, undoes what it stands for.

use std::{cell::Cell, time::Duration};

use binpool_allocators::{
    Allocator, Backend, Error, InvalidRequest, Memory, OutOfMemory, Scope,
    contained::{contained, guarded},
};

use crate::{
    block::{Lease, Released},
    central::{
        ladder::{Ask, New},
        ranges::{Carved, RangeFilter},
    },
    order::{queue_uses::QueueUses, timestamps::QueueKey},
    request::{HitKind, Request},
    shared::{Block, BlockBox, HeldBlock, Shared, State},
};
use binpool_segments::{Mapping, NewPlan, Place, RangeKey};

impl<B: Backend> Shared<B> {
    /// Returns a block in new memory.
    pub(super) fn make(
        &self,
        ask: &Ask,
        new: New<B>,
        asks_free: bool,
    ) -> Result<HitBlock<'_, B>, Error> {
        match new {
            New::Block => self.whole_block(ask.queue_key, ask.request),
            new => self.carve_new(ask, new, asks_free),
        }
    }

    /// Returns a block that is carved from new memory. Not in [`make`](Self::make), whose frame would be large, and some threads have small stacks.
    fn carve_new(&self, ask: &Ask, new: New<B>, asks_free: bool) -> Result<HitBlock<'_, B>, Error> {
        let (queue_key, request) = (ask.queue_key, ask.request);
        // The ladder has sent it on its way, under the lock.
        let mut growth = Growth {
            shared: self,
            free: None,
        };
        let (mut hit, bytes, what) = match new {
            New::Segment { bytes, leaving } => {
                self.release_each(leaving);
                let (hit, bytes) = self.segment(queue_key, request, bytes)?;
                (hit, Some(bytes), "new segment")
            }
            New::Planned { plan, leaving } => self.planned(ask, plan, leaving)?,
            New::Block | New::Pages => {
                let hit = self.map_pages(queue_key, request, ask.limits.capacity)?;
                (hit, None, "mapped pages")
            }
        };
        if asks_free {
            // That bounds how much the pool keeps for later requests.
            let free = contained("Backend::free_bytes", || self.backend.free_bytes());
            growth.free = free.flatten();
        }
        hit.growth = Some(growth);
        tell_of_growth(request.asked, bytes, what);
        Ok(hit)
    }

    /// Returns a block that is all of its memory.
    fn whole_block(&self, queue_key: QueueKey, request: Request) -> Result<HitBlock<'_, B>, Error> {
        // The classes may be the program's own and may panic, so they are called before there is memory to lose.
        let above = self.classes.below(request.bin, self.alignment);
        let memory = guarded("Allocator::allocate", || {
            self.zeroed_if_scrubbed(request.bytes)
        })?;
        let block = BlockBox::new(Block {
            memory,
            bin: request.bin,
            bytes: request.bytes,
            above,
            slot: request.slot,
            range: None,
            record: None,
            lease: Lease::default(),
        });
        let hit = HitBlock::new(self, queue_key, block, HitKind::Fresh);
        if !self.carves {
            tell_of_growth(request.asked, Some(request.bytes), "miss");
        }
        Ok(hit)
    }

    /// Returns the first block of a new segment of `bytes` bytes, and the segment's size. If the device lacks that many, the segment has only the
    /// bytes of the request.
    fn segment(
        &self,
        queue_key: QueueKey,
        request: Request,
        bytes: usize,
    ) -> Result<(HitBlock<'_, B>, usize), Error> {
        let largest = self.allocator.largest_block();
        let mut bytes = bytes.min(largest).max(request.bytes);
        let memory = loop {
            match self.zeroed_if_scrubbed(bytes) {
                Err(error) if error.is_out_of_memory() => {
                    self.state.lock().segments.refuse(bytes);
                    if bytes == request.bytes {
                        return Err(error);
                    }
                    bytes = request.bytes;
                }
                memory => break memory?,
            }
        };
        let carved = self.state.lock().add_segment(memory, bytes, request);
        let carved = carved.ok_or_else(|| OutOfMemory::new(request.bytes, Scope::Device))?;
        let hit = self.view(queue_key, request, carved, HitKind::Fresh)?;
        Ok((hit, bytes))
    }

    /// Makes the memory of a plan, and returns a block from it, or from elsewhere if the plan has no place for it.
    fn planned(
        &self,
        ask: &Ask,
        plan: NewPlan,
        leaving: Vec<Released<B>>,
    ) -> Result<(HitBlock<'_, B>, Option<usize>, &'static str), Error> {
        self.release_each(leaving);
        let (queue_key, request) = (ask.queue_key, ask.request);
        let capacity = ask.limits.capacity;
        let bytes = plan.bytes;
        let all = Request { bytes, ..request };
        let has_pages = self.state.lock().segments.has_pages();
        let began = if has_pages {
            let mapped = self.map_range(queue_key, all, capacity, true);
            mapped.map(|carved| self.state.lock().segments.follow(plan, carved))
        } else {
            let memory = self.zeroed_if_scrubbed(bytes);
            memory.map(|memory| self.state.lock().add_planned(plan, memory, request))
        };
        let mut state = self.state.lock();
        if let Err(error) = began {
            tracing::debug!(%error, bytes, "no memory for a plan");
            if error.is_out_of_memory() {
                state.segments.refuse(bytes);
            }
        }
        let carved = state.take_range(queue_key, request, RangeFilter::Free);
        drop(state);
        let hit = match carved {
            Some(carved) => self.view(queue_key, request, carved, HitKind::Fresh),
            None if has_pages => self.map_pages(queue_key, request, capacity),
            None => Ok(self.segment(queue_key, request, request.bytes)?.0),
        }?;
        Ok((hit, Some(bytes), "new plan"))
    }

    /// Returns a block for which pages were mapped.
    fn map_pages(
        &self,
        queue_key: QueueKey,
        request: Request,
        capacity: u64,
    ) -> Result<HitBlock<'_, B>, Error> {
        let carved = self.map_range(queue_key, request, capacity, false)?;
        self.view(queue_key, request, carved, HitKind::Fresh)
    }

    /// Maps pages for a range: of one block, or of all blocks of a plan.
    fn map_range(
        &self,
        queue_key: QueueKey,
        request: Request,
        capacity: u64,
        is_for_plan: bool,
    ) -> Result<Carved<B>, Error> {
        self.unmap_stale();
        self.release_dropped();
        let mut may_alias = true;
        loop {
            let now = self.now();
            let mapping = {
                let mut state = self.state.lock();
                state.plan_pages(queue_key, request, capacity, (is_for_plan, may_alias), now)
            };
            match mapping {
                Mapping::Map(plan) => {
                    let moves = plan.moves();
                    let done = plan.carry_out(&self.allocator);
                    let is_alias_refused = done.is_alias_refused;
                    let moved_for = moves.then(|| self.now().saturating_sub(now));
                    let carved = self.state.lock().finish_pages(done, moved_for);
                    if !is_alias_refused {
                        return carved;
                    }
                    may_alias = false;
                }
                Mapping::Reserve { bytes, is_small } => {
                    let (memory, bytes) = self.reserve_at_most(bytes, request.bytes)?;
                    let mut state = self.state.lock();
                    let unused = state.add_reservation(request, memory, bytes, is_small);
                    drop(state);
                    drop(unused);
                }
                Mapping::NoAddresses => {
                    let shortage = OutOfMemory::new(request.bytes, Scope::Device);
                    return Err(shortage.into());
                }
            }
        }
    }

    /// The time on the clock of the host.
    fn now(&self) -> Duration {
        contained("Backend::now", || self.backend.now()).unwrap_or_default()
    }

    /// Reserves addresses. If that fails, tries half as many, and half again, as long as they are more than twice the request. Vulkan
    /// drivers have only some terabytes for the whole process.
    fn reserve_at_most(
        &self,
        mut bytes: usize,
        request: usize,
    ) -> Result<(B::Memory, usize), Error> {
        let page = self.allocator.page_bytes().unwrap_or(1).max(1);
        loop {
            match guarded("Allocator::reserve", || self.allocator.reserve(bytes)) {
                Err(
                    Error::OutOfMemory(_) | Error::InvalidRequest(InvalidRequest::TooLarge { .. }),
                ) if bytes / 4 > request.max(page) => {
                    bytes = (bytes / 2).next_multiple_of(page);
                }
                reserved => return Ok((reserved?, bytes)),
            }
        }
    }

    /// Makes a block from a range that was taken.
    pub(super) fn view(
        &self,
        queue_key: QueueKey,
        request: Request,
        carved: Carved<B>,
        kind: HitKind,
    ) -> Result<HitBlock<'_, B>, Error> {
        let region = carved.region;
        let taken = TakenRange::new(self, queue_key, carved.range, carved.has_excess);
        // Declared after `taken`, so that on failure its reference to the segment is dropped before the range is
        // returned.
        let mut carved = carved;
        self.release_views(std::mem::take(&mut carved.overlapping));
        let above = self.classes.below(request.bin, self.alignment);
        let memory = carved.into_view(&self.allocator, |range, region, uses| {
            taken.has_excess.set(false);
            if self.state.lock().shrink_range(range, region, uses) {
                self.arrived.notify_all();
            }
        })?;
        let block = BlockBox::new(Block {
            memory,
            bin: request.bin,
            bytes: region.bytes,
            above,
            slot: request.slot,
            range: Some(taken.keep()),
            record: None,
            lease: Lease::default(),
        });
        Ok(HitBlock::new(self, queue_key, block, kind))
    }

    /// Unmaps pages at the addresses from which they have moved, once the commands that used them there have ended. If that fails, a later
    /// call tries again.
    pub(crate) fn unmap_stale(&self) {
        if self.allocator.page_bytes().is_none() {
            return;
        }
        let stale = self.state.lock().take_stale();
        for place in stale {
            let began = self.now();
            let unmapped = place.unmap(&self.allocator);
            let moved_for = self.now().saturating_sub(began);
            let is_unmapped = unmapped.is_ok();
            self.state.lock().end_stale(place, is_unmapped, moved_for);
            if let Err(error) = unmapped {
                // A subscriber that panics must not lose the rest.
                contained("a log event", || {
                    tracing::warn!(%error, "could not unmap moved pages at their old place");
                });
            }
        }
    }

    /// Unmaps pages that leave the pool, and returns them. If that fails, they stay free in the pool, and the next trim or shortage tries
    /// again. Once the last handle is gone, they leave anyway, and are unmapped with their reservation.
    pub(crate) fn unmap(&self, place: &Place<B::Memory>, memory: B::Memory) -> Option<B::Memory> {
        match place.unmap(&self.allocator) {
            Ok(()) => self.state.lock().forget_place(place),
            Err(error) => {
                let unused = self.state.lock().keep_pages(place, memory);
                tracing::warn!(%error, "could not unmap pages");
                return unused;
            }
        }
        Some(memory)
    }
}

// In a function of its own, since an event takes some hundred bytes of the stack.
fn tell_of_growth(asked: usize, bytes: Option<usize>, what: &str) {
    tracing::debug!(asked, bytes, "{what}");
}

/// Keeps the state of the request's queue in the pool while the request runs. [Leaves](State::leave) the queue again if the request fails or
/// panics.
pub(super) struct Entered<'a, B: Backend> {
    shared: &'a Shared<B>,
    queue_key: QueueKey,
}

impl<'a, B: Backend> Entered<'a, B> {
    pub(super) fn new(shared: &'a Shared<B>, queue_key: QueueKey) -> Self {
        Self { shared, queue_key }
    }

    /// Leaves the entry to the block that is handed out, and returns its key.
    pub(super) fn keep(self) -> QueueKey {
        let queue_key = self.queue_key;
        std::mem::forget(self);
        queue_key
    }
}

impl<B: Backend> Drop for Entered<'_, B> {
    fn drop(&mut self) {
        self.shared.state.lock().leave(Some(self.queue_key));
    }
}

/// Exists while this thread asks the allocator for a segment or for pages. A thread that finds the device full in the meantime waits,
/// because it may get the rest of that segment.
#[derive(Debug)]
pub(super) struct Growth<'a, B: Backend> {
    shared: &'a Shared<B>,
    /// The free bytes of the device, if it was asked.
    free: Option<u64>,
}

impl<B: Backend> Growth<'_, B> {
    /// The segment, or the pages, have arrived.
    fn end(self, state: &mut State<B>) {
        if let Some(free) = self.free {
            state.segments.note_free(free);
        }
        if state.transit.arrive() {
            self.shared.arrived.notify_all();
        }
        std::mem::forget(self);
    }
}

impl<B: Backend> Drop for Growth<'_, B> {
    fn drop(&mut self) {
        // Nothing has changed for other requests.
        if self.shared.state.lock().transit.arrive() {
            self.shared.arrived.notify_all();
        }
    }
}

/// A block for the next user of a queue. If it is dropped instead of [handed out](Self::hand_out), for example because
/// a `tracing` subscriber panics, it goes back to the pool.
#[derive(Debug)]
pub(crate) struct HitBlock<'a, B: Backend> {
    shared: &'a Shared<B>,
    queue_key: QueueKey,
    kind: HitKind,
    /// `None` only after [`hand_out`](Self::hand_out).
    block: Option<BlockBox<B>>,
    /// Set if the block lies in new memory that it shares with others.
    growth: Option<Growth<'a, B>>,
}

impl<'a, B: Backend> HitBlock<'a, B> {
    pub(super) fn new(
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
            growth: None,
        }
    }

    /// Returns the block, which counts as active from now on, after a request of `asked` bytes.
    pub(super) fn hand_out(mut self, asked: usize) -> Option<BlockBox<B>> {
        let block = self.block.take()?;
        let mut state = self.shared.state.lock();
        state.activate(asked, &block, self.kind);
        if let Some(growth) = self.growth.take() {
            growth.end(&mut state);
        }
        Some(block)
    }

    /// Returns the memory of a block that the pool does not count, such as pages for a block that grows.
    pub(crate) fn into_memory(mut self) -> Option<B::Memory> {
        self.block.take().map(BlockBox::into_memory)
    }
}

impl<B: Backend> Drop for HitBlock<'_, B> {
    fn drop(&mut self) {
        let Some(block) = self.block.take() else {
            return;
        };
        let shared = self.shared;
        if shared.carves && block.range.is_none() {
            // Pages for a block that grows, which the pool has not counted.
            contained("giving memory back", || {
                if let Err(error) = shared.release(block.into_memory(), &QueueUses::new(), &[]) {
                    tracing::error!(%error, "pages could not be released cleanly");
                }
            });
            return;
        }
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

/// A range that was taken for a block that does not exist yet. It becomes free again if the allocator fails or panics.
pub(super) struct TakenRange<'a, B: Backend> {
    shared: &'a Shared<B>,
    queue_key: QueueKey,
    range: RangeKey,
    /// True until the part of the range beyond the block has been returned.
    pub(super) has_excess: Cell<bool>,
}

impl<'a, B: Backend> TakenRange<'a, B> {
    pub(super) fn new(
        shared: &'a Shared<B>,
        queue_key: QueueKey,
        range: RangeKey,
        has_excess: bool,
    ) -> Self {
        Self {
            shared,
            queue_key,
            range,
            has_excess: Cell::new(has_excess),
        }
    }

    /// Passes the range on to the block that was made from it.
    pub(super) fn keep(self) -> RangeKey {
        let range = self.range;
        std::mem::forget(self);
        range
    }
}

impl<B: Backend> Drop for TakenRange<'_, B> {
    fn drop(&mut self) {
        let shared = self.shared;
        let mut state = shared.state.lock();
        // Its former uses come before all later commands of this queue, so one timestamp of the queue stands for them.
        let uses = std::iter::once(state.queues.stamp(self.queue_key)).collect();
        state.segments.give(self.range, uses, None);
        let is_last = self.has_excess.get() && state.arrive();
        drop(state);
        if is_last {
            shared.arrived.notify_all();
        }
        shared.release_unless_holding();
    }
}

#[cfg(test)]
mod tests {
    use crate::{central::ladder::Ask, mock_pool::MockPool, request::Request};

    #[test]
    fn pages_that_no_block_gets_go_back_to_the_allocator() {
        let mock = MockPool::of_pages();
        let (asked, bytes) = (1000, 2 << 20);
        let request = Request {
            asked,
            bin: 0,
            slot: 0,
            bytes,
            home: 0,
        };
        let ask = Ask::for_pages(mock.default_key(), request);
        let pages = mock.shared.climb(ask).unwrap();
        assert_eq!(mock.device.statistics().created_bytes, bytes as u64);
        drop(pages);
        assert_eq!(mock.device.statistics().created_bytes, 0);
        assert_eq!(mock.pool.managed_bytes(), 0);
        mock.shared.flush();
        assert_eq!(mock.shared.state.lock().transit.count(), 0);
    }
}
