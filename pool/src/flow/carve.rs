//! Carving blocks from segments.

use std::cell::Cell;

use binpool_allocators::{
    Allocator, Backend, Error, InvalidRequest, OutOfMemory, Scope,
    contained::{contained, guarded},
};

use crate::{
    block::Lease,
    central::{
        caches::DrainFrom,
        carving::{CarvingStage, CarvingStep, CarvingTerms, MOST_LOOKS},
        ranges::{Carved, RangeFilter},
    },
    flow::hit_block::HitBlock,
    free::cached::Wanted,
    order::{fence::wait_for_event, queue_uses::QueueUses, timestamps::QueueKey},
    request::{HitKind, Request},
    segments::{Mapping, Place, RangeKey},
    shared::{Block, BlockBox, HeldBlock, Shared, State},
    track::pool_event::{PoolEvent, What},
};

impl<B: Backend> Shared<B> {
    /// Returns a block from a segment after a first lookup found nothing free. Follows the [steps](CarvingStep) that the state decides
    /// under the lock. `drain_from` says which caches are drained.
    pub(crate) fn carve(
        &self,
        queue_key: QueueKey,
        request: Request,
        drain_from: DrainFrom,
    ) -> Result<HitBlock<'_, B>, Error> {
        let mut terms = CarvingTerms {
            queue_key,
            request,
            wait: self.policy.waits(self.failures),
            drain_from,
            alignment: self.alignment.bytes(),
            limits: self.limits(),
            crosses: self.policy.crosses(),
            looks_again: false,
        };
        // A policy that waits for pending commands waits for the right ones anyway, so it need not look.
        let looks_often = terms.crosses && terms.wait.is_none();
        let mut looks_left = MOST_LOOKS;
        let mut stage = CarvingStage::Retry;
        loop {
            let step = {
                let mut state = self.state.lock();
                state.next_carving_step(&mut stage, terms, |state, wanted| {
                    let drained = self.drain_caches_of(state, drain_from, wanted);
                    drained.threads_had_blocks
                })
            };
            match step {
                CarvingStep::Retry => {
                    self.release_quarantined();
                    self.scrub_again();
                }
                CarvingStep::Return(cached) => {
                    for held in cached {
                        self.return_to_segment(held);
                    }
                }
                CarvingStep::LookAt(uses) if terms.looks_again => {
                    let most = self.state.lock().most_looks(request).min(looks_left);
                    let (has_ended, looks) = self.check_until_one_ends(&uses, most);
                    self.state.lock().count_looks(looks);
                    looks_left -= looks;
                    terms.looks_again = has_ended;
                }
                CarvingStep::LookAt(uses) => {
                    self.check(&uses);
                    terms.looks_again = looks_often;
                }
                CarvingStep::Take(carved) => {
                    return self.view(queue_key, request, carved, HitKind::Carved);
                }
                CarvingStep::WaitFor(carved, kind) => {
                    if let Some(carved) = self.wait_for_range(queue_key, carved, kind) {
                        return self.view(queue_key, request, carved, kind);
                    }
                }
                CarvingStep::Grow { bytes, leaving } => {
                    let growth = Growth { shared: self };
                    self.release_each(leaving);
                    return self.carve_from_a_new_segment(queue_key, request, bytes, growth);
                }
                CarvingStep::Refuse => return Err(terms.limits.refusal(request.bytes)),
                CarvingStep::Map => {
                    if self.tracking.is_on() {
                        self.state.lock().note_miss(request);
                    }
                    let growth = Growth { shared: self };
                    return self.carve_from_mapped_pages(
                        queue_key,
                        request,
                        terms.limits.capacity,
                        growth,
                    );
                }
            }
        }
    }

    /// Returns the range once its commands are ordered before those of the queue. Returns `None` if they cannot be waited for: then the
    /// range is free again.
    fn wait_for_range(
        &self,
        queue_key: QueueKey,
        mut carved: Carved<B>,
        kind: HitKind,
    ) -> Option<Carved<B>> {
        let wait = || self.wait_behind(queue_key, &carved.uses, kind);
        let Err(error) = guarded("a wait", wait) else {
            return Some(carved);
        };
        self.release_views(std::mem::take(&mut carved.overlapping));
        if self.state.lock().put_range_back(carved) {
            self.arrived.notify_all();
        }
        tracing::warn!(%error, "could not wait for a free range; it stays in the pool");
        None
    }

    /// Returns the first block of a new segment of `bytes` bytes. If the device lacks that many, the segment has only the bytes of the
    /// request.
    fn carve_from_a_new_segment(
        &self,
        queue_key: QueueKey,
        request: Request,
        bytes: usize,
        growth: Growth<'_, B>,
    ) -> Result<HitBlock<'_, B>, Error> {
        let largest = self.allocator.largest_block();
        let size = bytes.min(largest).max(request.bytes);
        let (memory, size) = match self.allocate_segment(size) {
            Err(error) if error.is_out_of_memory() && size > request.bytes => {
                (self.allocate_segment(request.bytes)?, request.bytes)
            }
            result => (result?, size),
        };
        let carved = {
            let mut state = self.state.lock();
            let carved = state.add_segment(memory, size, request);
            growth.end(&mut state);
            carved
        };
        let carved = carved.ok_or_else(|| OutOfMemory::new(request.bytes, Scope::Device))?;
        let hit = self.view(queue_key, request, carved, HitKind::Fresh)?;
        self.look_for_pressure(true);
        tracing::debug!(asked = request.asked, bytes = size, "new segment");
        Ok(hit)
    }

    /// Returns a block for which pages were mapped.
    fn carve_from_mapped_pages(
        &self,
        queue_key: QueueKey,
        request: Request,
        capacity: u64,
        growth: Growth<'_, B>,
    ) -> Result<HitBlock<'_, B>, Error> {
        self.unmap_stale();
        self.release_dropped();
        let (mut may_alias, mut has_grown) = (true, false);
        let carved = loop {
            let mut state = self.state.lock();
            let mapping = state.plan_pages(queue_key, request, capacity, may_alias);
            drop(state);
            match mapping {
                Mapping::Map(plan) => {
                    let done = plan.carry_out(&self.allocator);
                    has_grown |= done.created_bytes > 0;
                    let is_alias_refused = done.is_alias_refused;
                    let mut state = self.state.lock();
                    let carved = state.finish_pages(done);
                    if !is_alias_refused {
                        growth.end(&mut state);
                        break carved;
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
        }?;
        let hit = self.view(queue_key, request, carved, HitKind::Fresh)?;
        self.look_for_pressure(has_grown);
        tracing::debug!(asked = request.asked, "mapped pages");
        Ok(hit)
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

    /// Unmaps pages at the addresses from which they have moved, once the commands that used them there have ended. If that fails, a later
    /// call tries again.
    pub(crate) fn unmap_stale(&self) {
        let stale = self.state.lock().take_stale();
        for place in stale {
            let unmapped = place.unmap(&self.allocator);
            self.state.lock().end_stale(place, unmapped.is_ok());
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

    fn allocate_segment(&self, size: usize) -> Result<B::Memory, Error> {
        let memory = self.allocate_clean(size);
        if let Err(error) = &memory
            && error.is_out_of_memory()
        {
            self.state.lock().segments.refuse(size);
        }
        memory
    }

    /// Returns a block from any range that has room for it, even one that the rules of growth would not split.
    pub(crate) fn carve_anywhere(
        &self,
        queue_key: QueueKey,
        request: Request,
    ) -> Result<Option<HitBlock<'_, B>>, Error> {
        self.flush();
        let carved = self
            .state
            .lock()
            .take_range(queue_key, request, RangeFilter::FreeAnywhere);
        carved
            .map(|carved| self.view(queue_key, request, carved, HitKind::Carved))
            .transpose()
    }

    /// Makes a block from a range that was taken.
    pub(crate) fn view(
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
        let memory = carved.into_view(&self.allocator, |range, bytes, uses| {
            taken.has_excess.set(false);
            if self.state.lock().shrink_range(range, bytes, uses) {
                self.arrived.notify_all();
            }
        })?;
        let block = BlockBox::new(Block {
            memory,
            bin: request.bin,
            bytes: region.bytes,
            above,
            slot: self.classes.slot(request.bin),
            range: Some(taken.keep()),
            record: None,
            lease: Lease::default(),
        });
        Ok(HitBlock::new(self, queue_key, block, kind))
    }

    /// Releases views of segments, one after the other, even if the release of one panics.
    pub(crate) fn release_views(&self, views: Vec<B::Memory>) {
        for view in views {
            contained("Allocator::release_view", || {
                self.allocator.release_view(view);
            });
        }
    }

    /// Puts the range of a block back into its segment, and releases every segment that is now free.
    ///
    /// # Errors
    ///
    /// A wait for an event of `after` failed: then the range goes into the [quarantine](crate::free::quarantine).
    pub(crate) fn release_range_after(
        &self,
        block: BlockBox<B>,
        uses: QueueUses,
        after: &[B::Event],
    ) -> Result<(), Error> {
        let held = HeldBlock::new(block, uses);
        // A range stores timestamps, not events, so the host waits.
        if let Err(error) = guarded("a wait", || after.iter().try_for_each(wait_for_event)) {
            self.state.lock().quarantine.keep_range(held, after);
            return Err(error);
        }
        self.state.lock().transit.depart(1);
        self.return_to_segment(held);
        self.unmap_stale();
        let released = self.state.lock().release_all();
        self.release_each(released);
        Ok(())
    }

    /// Puts every free block back into its segment, where free neighbours merge.
    pub(crate) fn flush(&self) {
        self.release_quarantined();
        self.scrub_again();
        let cached = {
            let mut state = self.state.lock();
            self.drain_caches_of(&mut state, DrainFrom::All, Wanted::All);
            let cached = state.take_cached();
            if !cached.is_empty() {
                state.note(|| {
                    let bytes: usize = cached.iter().map(|held| held.block.bytes).sum();
                    PoolEvent::did(
                        What::Flush,
                        bytes as u64,
                        format_args!("{} blocks", cached.len()),
                    )
                });
            }
            cached
        };
        for held in cached {
            self.return_to_segment(held);
        }
    }

    /// Puts a block that is in transit back into its segment. Its view is kept for the next block of these bytes, or
    /// released first.
    pub(crate) fn return_to_segment(&self, held: HeldBlock<B>) {
        let HeldBlock { block, uses, .. } = held;
        let Some(range) = block.range else { return };
        let memory = block.into_memory();
        let mut state = self.state.lock();
        let view = if state.segments.may_keep_view(range) {
            Some(memory)
        } else {
            drop(state);
            self.release_views(vec![memory]);
            state = self.state.lock();
            None
        };
        if state.return_range(range, uses, view) {
            self.arrived.notify_all();
        }
    }
}

/// Exists while this thread asks the allocator for a segment. A thread that finds the device full in the meantime waits, because it may get
/// the rest of that segment.
#[derive(Debug)]
struct Growth<'a, B: Backend> {
    shared: &'a Shared<B>,
}

impl<B: Backend> Growth<'_, B> {
    /// The segment has arrived.
    fn end(self, state: &mut State<B>) {
        if state.transit.arrive() {
            self.shared.arrived.notify_all();
        }
        std::mem::forget(self);
    }
}

impl<B: Backend> Drop for Growth<'_, B> {
    fn drop(&mut self) {
        if self.shared.state.lock().transit.arrive() {
            self.shared.arrived.notify_all();
        }
    }
}

/// A range that was taken for a block that does not exist yet. It becomes free again if the allocator fails or panics.
pub(super) struct TakenRange<'a, B: Backend> {
    shared: &'a Shared<B>,
    queue_key: QueueKey,
    range: RangeKey,
    /// True until the part of the range beyond the block has been returned.
    has_excess: Cell<bool>,
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
