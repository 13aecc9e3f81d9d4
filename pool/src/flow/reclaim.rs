//! The out-of-memory ladder: what the pool tries when the device is full.

use binpool_allocators::{Allocator, Backend, Error, Scope, contained::guarded};

use crate::{
    OutOfMemoryReport, PoolError, Verdict,
    central::caches::DrainFrom,
    flow::hit_block::HitBlock,
    hooks::{self, Shortage},
    order::timestamps::QueueKey,
    rare::{Rare, reached},
    request::Request,
    shared::Shared,
    track::pool_event::{PoolEvent, What},
};

/// The most passes over the last step, while other threads allocate and free. In each pass one of them has made
/// progress.
const MAX_RECLAIM_PASSES: usize = 100;

/// The largest held block that may serve a request when the device is full, in multiples of the request. A larger one is released instead,
/// to make room for blocks of the right size: otherwise one recorded program had half of its memory in blocks a hundred times too large.
const MAX_SIZE_RATIO: usize = 2;

/// How many groups of active blocks a report names.
const LARGEST_GROUPS: usize = 5;

/// The progress of one climb up the ladder.
struct Reclaim {
    request: Request,
    queue_key: QueueKey,
    /// The allocator's last error.
    refusal: Error,
    released_bytes: u64,
    /// The pool's count of changes at the last look, plus those that this thread made since.
    changes: u64,
    /// True if a queue that holds memory back could not be waited for.
    wait_failed: bool,
}

impl Reclaim {
    const fn new(queue_key: QueueKey, request: Request, refusal: Error) -> Self {
        Self {
            request,
            queue_key,
            refusal,
            released_bytes: 0,
            changes: 0,
            wait_failed: false,
        }
    }
}

/// What a climb is for: a block, or pages.
struct Ways<'a, T> {
    /// Looks for it in the pool's own memory.
    held: &'a dyn Fn(&Reclaim) -> Result<Option<T>, PoolError>,
    /// Asks the allocator for it.
    fresh: &'a dyn Fn(&Reclaim) -> Result<T, Error>,
}

impl<B: Backend> Shared<B> {
    /// Returns pages of `bytes` bytes for a block that grows by `asked`. A full device is handled as for a block, except that no free block
    /// can serve this request: free pages go back to the allocator first.
    pub(crate) fn allocate_pages(
        &self,
        queue_key: QueueKey,
        asked: usize,
        bytes: usize,
    ) -> Result<B::Memory, PoolError> {
        if bytes > self.allocator.largest_block() {
            self.state.lock().counters.out_of_memory += 1;
            return Err(self.never_fits(asked));
        }
        let allocate = || guarded("Allocator::allocate", || self.allocator.allocate(bytes));
        let refusal = match allocate() {
            Err(error) if error.is_out_of_memory() => error,
            result => return Ok(result?),
        };
        let request = Request {
            asked,
            bin: 0,
            bytes,
            home: 0,
        };
        let mut reclaim = Reclaim::new(queue_key, request, refusal);
        let _closed = self.drain_and_close_caches();
        let ways = Ways {
            held: &|_| {
                self.return_unviewed();
                self.catch_up();
                Ok(None)
            },
            fresh: &|_| allocate(),
        };
        (ways.held)(&reclaim)?;
        let found = self.make_room(&mut reclaim, &ways, false)?;
        found.ok_or_else(|| {
            self.state.lock().counters.out_of_memory += 1;
            self.give_up(reclaim)
        })
    }

    /// Gets a block although the device is full. Each step runs only if the request still fails: a held block of the class or larger, of
    /// any queue, if its commands have ended; one after a wait, if the policy waits; a release of held blocks, largest first, of just
    /// enough, then of all; the program's hooks; a wait for the queues that hold memory back, one at a time.
    ///
    /// Nothing is released while the limit forbids the request anyway. A request that is larger than the limit fails at once.
    pub(crate) fn reclaim(
        &self,
        queue_key: QueueKey,
        request: Request,
        refusal: Error,
    ) -> Result<HitBlock<'_, B>, PoolError> {
        let span = tracing::debug_span!("reclaim", bytes = request.bytes).entered();
        let found = self.climb(queue_key, request, refusal);
        // Before the block is returned: a subscriber that panics here does not lose it.
        drop(span);
        found
    }

    fn climb(
        &self,
        queue_key: QueueKey,
        request: Request,
        refusal: Error,
    ) -> Result<HitBlock<'_, B>, PoolError> {
        tracing::debug!(bytes = request.bytes, %refusal, "reclaiming");
        let bytes = request.bytes as u64;
        // A pool above its limit, because the limit was lowered, may have a free block of that size.
        let is_beyond_all =
            bytes > self.allocator.capacity_bytes() && bytes > self.state.lock().managed_bytes();
        let mut reclaim = Reclaim::new(queue_key, request, refusal);
        if is_beyond_all {
            return Err(self.give_up(reclaim));
        }
        let _closed = self.drain_and_close_caches();
        let held_back = !self.state.lock().holding_back().is_empty();
        if let Some(found) = self.find_held(&reclaim)? {
            return Ok(found);
        }
        let last = self.last_bin(request);
        let larger = self.state.lock().larger_bins(request, last);
        let mut larger = larger.into_iter();
        if let Some(found) = larger.find_map(|request| self.reuse_after_a_wait(queue_key, request))
        {
            reached(Rare::LargerAfterWait);
            return Ok(found);
        }
        let ways = Ways {
            held: &|reclaim| self.find_held(reclaim),
            fresh: &|reclaim| self.allocate_fresh(queue_key, reclaim.request, DrainFrom::All),
        };
        let found = self.make_room(&mut reclaim, &ways, held_back)?;
        found.ok_or_else(|| self.give_up(reclaim))
    }

    /// Climbs the ladder from the release of free memory on. `held_back` says whether commands held memory back before. Returns `None` if
    /// no step is enough.
    fn make_room<T>(
        &self,
        reclaim: &mut Reclaim,
        ways: &Ways<'_, T>,
        held_back: bool,
    ) -> Result<Option<T>, PoolError> {
        let bytes = reclaim.request.bytes;
        for enough in [bytes as u64, u64::MAX] {
            // Memory that was released before may be free now, because its commands have ended in the meantime.
            if (self.release_settled(reclaim, enough) || held_back)
                && let Some(found) = Self::retry(reclaim, ways)?
            {
                reached(Rare::RoomMade);
                return Ok(Some(found));
            }
        }
        let shortage = Shortage { bytes };
        // A request made inside a hook does not call the hooks of this pool, or they would call each other without end.
        if let Some(round) = self.hooks.begin_round() {
            for hook in round.hooks() {
                self.note(|| PoolEvent::did(What::Hook, bytes as u64, ""));
                hooks::call(hook, shortage);
                if let Some(found) = self.look_again(reclaim, ways)? {
                    reached(Rare::RoomByHook);
                    return Ok(Some(found));
                }
            }
        }
        for _ in 0..MAX_RECLAIM_PASSES {
            if let Some(found) = self.wait_for_queues(reclaim, ways)? {
                return Ok(Some(found));
            }
            // Memory that other threads released in the meantime may be enough.
            let mut state = self.state.lock();
            while state.transit.is_worth_a_wait() {
                self.arrived.wait(&mut state);
            }
            // Memory that this thread released in its last look may wait for a queue.
            let may_wait = !reclaim.wait_failed && !state.holding_back().is_empty();
            if state.changes == reclaim.changes && !may_wait {
                break;
            }
        }
        Ok(None)
    }

    /// Waits for the queues that hold memory back, one at a time, and looks again after each.
    fn wait_for_queues<T>(
        &self,
        reclaim: &mut Reclaim,
        ways: &Ways<'_, T>,
    ) -> Result<Option<T>, PoolError> {
        let holding_back = self.state.lock().holding_back();
        if holding_back.is_empty() {
            return self.look_again(reclaim, ways);
        }
        for use_ in &holding_back {
            tracing::debug!(
                queue_key = use_.key.get(),
                "waiting for a queue that holds memory back"
            );
            if let Err(error) = self.wait_for(*use_) {
                reached(Rare::WaitFailed);
                tracing::warn!(%error, "a queue that holds memory back cannot be waited for");
                reclaim.wait_failed = true;
            }
            // Commands before the failed wait may have ended meanwhile.
            if let Some(found) = self.look_again(reclaim, ways)? {
                reached(Rare::RoomByWaiting);
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Returns the smallest held block that is large enough, or a range of a segment, if no command uses it or if the requesting queue
    /// itself runs those commands first.
    fn find_held(&self, reclaim: &Reclaim) -> Result<Option<HitBlock<'_, B>>, PoolError> {
        let Reclaim {
            queue_key, request, ..
        } = *reclaim;
        self.return_unviewed();
        self.catch_up();
        let last = self.last_bin(request);
        let found = self.state.lock().pop_up_to(last, queue_key, request, true);
        match found {
            Some((block, kind)) => Ok(Some(HitBlock::new(self, queue_key, block, kind))),
            None => Ok(self.carve_anywhere(queue_key, request)?),
        }
    }

    fn retry<T>(reclaim: &mut Reclaim, ways: &Ways<'_, T>) -> Result<Option<T>, PoolError> {
        match (ways.fresh)(reclaim) {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.is_out_of_memory() => {
                reclaim.refusal = error;
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Looks for memory that has become free meanwhile, in the pool or outside it.
    fn look_again<T>(
        &self,
        reclaim: &mut Reclaim,
        ways: &Ways<'_, T>,
    ) -> Result<Option<T>, PoolError> {
        reclaim.changes = self.state.lock().changes;
        if let Some(found) = (ways.held)(reclaim)? {
            return Ok(Some(found));
        }
        self.release_settled(reclaim, u64::MAX);
        Self::retry(reclaim, ways)
    }

    /// Releases blocks that no command uses, largest first, until they have `enough` bytes together, unless a limit rules the
    /// request out anyway. Returns whether there were any.
    fn release_settled(&self, reclaim: &mut Reclaim, enough: u64) -> bool {
        self.flush();
        let dropped = self.release_dropped();
        reclaim.released_bytes += dropped;
        if self.is_ruled_out(reclaim.request.bytes) {
            return dropped > 0;
        }
        let released = self.state.lock().release_largest(enough);
        let any = dropped > 0 || !released.is_empty();
        reclaim.changes += released.len() as u64;
        reclaim.released_bytes += self.release_each(released);
        any
    }

    fn give_up(&self, reclaim: Reclaim) -> PoolError {
        let Request { asked, bytes, .. } = reclaim.request;
        let mut report = self.report(asked, bytes, Some(reclaim.queue_key));
        let bytes = reclaim.request.bytes as u64;
        let is_limit = |error: &Error| matches!(error, Error::OutOfMemory(refusal) if refusal.scope == Scope::Limit);
        report.verdict = if bytes > report.device_bytes {
            Verdict::NeverFits
        } else if bytes > report.capacity_bytes {
            Verdict::Limited
        } else if reclaim.wait_failed || report.pending_bytes >= bytes {
            Verdict::Pending
        } else if report.held_bytes >= bytes {
            Verdict::Fragmented
        } else if report.viewed_bytes >= bytes {
            Verdict::Viewed
        } else if is_limit(&reclaim.refusal) {
            Verdict::Limited
        } else {
            Verdict::DeviceFull
        };
        report.released_bytes = reclaim.released_bytes;
        report.source = Some(reclaim.refusal);
        tracing::warn!(
            requested_bytes = report.requested_bytes,
            active_bytes = report.active_bytes,
            held_bytes = report.held_bytes,
            pending_bytes = report.pending_bytes,
            capacity_bytes = report.capacity_bytes,
            verdict = report.verdict.name(),
            "out of memory"
        );
        PoolError::OutOfMemory(Box::new(report))
    }

    /// Returns the error for a block that this device can never have room for.
    pub(crate) fn never_fits(&self, bytes: usize) -> PoolError {
        PoolError::OutOfMemory(Box::new(self.report(bytes, bytes, None)))
    }

    /// Returns a report of the pool's state, with the verdict for a block that never fits.
    fn report(&self, asked: usize, bytes: usize, queue_key: Option<QueueKey>) -> OutOfMemoryReport {
        self.drain_caches();
        let (statistics, largest_held, pending) = {
            let state = self.state.lock();
            (
                state.statistics(),
                state.largest_held_bytes(),
                state.held_back_bytes(queue_key),
            )
        };
        let mut largest_groups = if self.tracking.is_on() {
            self.live_blocks().groups
        } else {
            Vec::new()
        };
        largest_groups.truncate(LARGEST_GROUPS);
        OutOfMemoryReport {
            requested_bytes: asked,
            class_bytes: bytes,
            active_bytes: statistics.active_bytes,
            active_blocks: statistics.active_blocks,
            viewed_bytes: statistics.viewed_bytes,
            managed_bytes: statistics.managed_bytes,
            held_bytes: statistics.held_bytes,
            pending_bytes: pending,
            largest_held_bytes: largest_held as u64,
            released_bytes: 0,
            largest_block_bytes: self.allocator.largest_block(),
            capacity_bytes: self.allocator.capacity_bytes(),
            device_bytes: self.backend.limits().capacity_bytes,
            verdict: Verdict::NeverFits,
            largest_groups,
            source: None,
        }
    }

    /// Returns the last bin whose blocks are not [too large](MAX_SIZE_RATIO) for the request. No block is too large if limits rule the
    /// request out, because a release would not make room.
    fn last_bin(&self, request: Request) -> usize {
        let most = if self.is_ruled_out(request.bytes) {
            usize::MAX
        } else {
            request.bytes.saturating_mul(MAX_SIZE_RATIO)
        };
        self.classes.bin_number(most)
    }
}
