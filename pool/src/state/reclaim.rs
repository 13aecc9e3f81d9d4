//! When the device says no: the ladder of what can be done about it.

use binpool_allocators::{Allocator, Backend, Error, Scope};

use crate::{
    OutOfMemoryReport, PoolError, Verdict,
    at_hand::gathering::Whose,
    hooks::{self, Shortage},
    request::Request,
    shared::Shared,
    state::{Origin, bins::Obtained, lane::LaneKey},
};

/// How often the last rung is tried while other threads allocate and free. Each time one of them has got further.
const MOST_PASSES: usize = 100;

/// A held block of up to so many times the size serves a request that the device has no memory for. A larger one goes back
/// to the device instead, for blocks of the right size: a recorded program had half of its memory in blocks that were a
/// hundred times too large otherwise.
const MOST_TOO_LARGE: usize = 2;

/// What reclaiming has come to so far.
struct Reclaim {
    request: Request,
    lane: LaneKey,
    /// What the allocator said last.
    refusal: Error,
    released_bytes: u64,
    /// The pool's changes when it was last looked at, and those that this thread made since.
    changes: u64,
    /// Whether a queue that holds memory back could not be waited for.
    stuck: bool,
}

impl<A: Allocator> Shared<A> {
    /// Gets a block from a device that is full, each rung tried only while the request still fails: a held
    /// block of the class or larger, whichever queue used it, if its commands have ended; one behind a wait, where
    /// the policy is to wait; releasing held blocks, largest first, just enough, then all; the program's hooks;
    /// waiting for the queues that hold memory back, one at a time.
    pub(crate) fn reclaim(
        &self,
        lane: LaneKey,
        request: Request,
        refusal: Error,
    ) -> Result<Obtained<A>, PoolError> {
        let _span = tracing::debug_span!("reclaim", bytes = request.bytes).entered();
        tracing::debug!(bytes = request.bytes, %refusal, "reclaiming");
        let mut reclaim = Reclaim {
            request,
            lane,
            refusal,
            released_bytes: 0,
            changes: 0,
            stuck: false,
        };
        let _closed = self.gather_and_close();
        let held_back = !self.state.lock().holding_back().is_empty();
        if let Some(found) = self.find_held(&reclaim)? {
            return Ok(found);
        }
        if let Some(found) = self
            .larger_bins(request)
            .find_map(|request| self.reuse_after_a_wait(lane, request))
        {
            return Ok(found);
        }
        for enough in [request.bytes as u64, u64::MAX] {
            // What went back to the allocator before may be there now, as commands have ended meanwhile.
            if (self.release_settled(&mut reclaim, enough) || held_back)
                && let Some(found) = self.retry(&mut reclaim)?
            {
                return Ok(found);
            }
        }
        let shortage = Shortage {
            bytes: request.bytes,
        };
        for hook in self.hooks.snapshot() {
            hooks::call(&hook, shortage);
            if let Some(found) = self.look_again(&mut reclaim)? {
                return Ok(found);
            }
        }
        for _ in 0..MOST_PASSES {
            if let Some(found) = self.wait_for_queues(&mut reclaim)? {
                return Ok(found);
            }
            // What other threads gave back, behind the back of this one, may be enough.
            let mut state = self.state.lock();
            while state.is_anything_on_the_way() {
                self.arrived.wait(&mut state);
            }
            // What this thread itself gave back in its last look may wait for a queue.
            let may_wait = !reclaim.stuck && !state.holding_back().is_empty();
            if state.changes == reclaim.changes && !may_wait {
                break;
            }
        }
        Err(self.give_up(reclaim))
    }

    /// Waits for the queues that hold memory back, one at a time, and looks again after each.
    fn wait_for_queues(&self, reclaim: &mut Reclaim) -> Result<Option<Obtained<A>>, PoolError> {
        let holding_back = self.state.lock().holding_back();
        if holding_back.is_empty() {
            return self.look_again(reclaim);
        }
        for use_ in holding_back {
            tracing::debug!(
                lane = use_.lane.get(),
                "waiting for a queue that holds memory back"
            );
            if let Err(error) = self.wait_for(use_) {
                tracing::warn!(%error, "a queue that holds memory back cannot be waited for");
                reclaim.stuck = true;
            }
            // What comes before the one that cannot be waited for may have ended meanwhile.
            if let Some(found) = self.look_again(reclaim)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The least held block that is large enough, or a range of a segment, that no command uses, or only commands that
    /// come before those of the queue that it is asked for.
    fn find_held(&self, reclaim: &Reclaim) -> Result<Option<Obtained<A>>, PoolError> {
        let Reclaim { lane, request, .. } = *reclaim;
        self.catch_up();
        let mut bins = self.larger_bins(request);
        let mut state = self.state.lock();
        let found = bins.find_map(|request| {
            let stocked = state.pop(lane, request);
            let stocked = stocked.map(|block| (block, Origin::Stock));
            stocked.or_else(|| {
                let ready = state.pop_ready(lane, request, true)?;
                Some((ready, Origin::Ended))
            })
        });
        drop(state);
        if found.is_some() || !self.has_segments {
            return Ok(found);
        }
        let carved = self.carve_anywhere(lane, request)?;
        Ok(carved.map(|block| (block, Origin::Carved)))
    }

    fn retry(&self, reclaim: &mut Reclaim) -> Result<Option<Obtained<A>>, PoolError> {
        match self.allocate_fresh(reclaim.lane, reclaim.request, Whose::All) {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.is_out_of_memory() => {
                reclaim.refusal = error;
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// What has become free meanwhile, in the pool or outside it.
    fn look_again(&self, reclaim: &mut Reclaim) -> Result<Option<Obtained<A>>, PoolError> {
        reclaim.changes = self.state.lock().changes;
        if let Some(found) = self.find_held(reclaim)? {
            return Ok(Some(found));
        }
        self.release_settled(reclaim, u64::MAX);
        self.retry(reclaim)
    }

    /// Gives blocks that no command uses back to the allocator, largest first, until they have `enough` bytes
    /// together. Whether there were any.
    fn release_settled(&self, reclaim: &mut Reclaim, enough: u64) -> bool {
        self.flush();
        let leaving = self.state.lock().release_largest(enough);
        let any = !leaving.is_empty();
        reclaim.changes += leaving.len() as u64;
        reclaim.released_bytes += self.release_each(leaving);
        any
    }

    fn give_up(&self, reclaim: Reclaim) -> PoolError {
        let Request { asked, bytes, .. } = reclaim.request;
        let mut report = self.report(asked, bytes);
        let bytes = reclaim.request.bytes as u64;
        let is_limit = |error: &Error| matches!(error, Error::OutOfMemory(refusal) if refusal.scope == Scope::Limit);
        report.verdict = if bytes > report.device_bytes {
            Verdict::NeverFits
        } else if bytes > report.capacity_bytes {
            Verdict::Limited
        } else if reclaim.stuck || report.pending_bytes >= bytes {
            Verdict::Pending
        } else if report.held_bytes >= bytes {
            Verdict::Fragmented
        } else if is_limit(&reclaim.refusal) {
            Verdict::Limited
        } else {
            Verdict::DeviceFull
        };
        report.released_bytes = reclaim.released_bytes;
        report.source = Some(reclaim.refusal);
        let error = PoolError::OutOfMemory(Box::new(report));
        tracing::warn!(%error, "giving up");
        error
    }

    /// The error for a block that this device never gives.
    pub(crate) fn never_fits(&self, bytes: usize) -> PoolError {
        self.state.lock().count_out_of_memory();
        PoolError::OutOfMemory(Box::new(self.report(bytes, bytes)))
    }

    /// What the pool knows now, with the verdict of a block that never fits.
    fn report(&self, asked: usize, bytes: usize) -> OutOfMemoryReport {
        self.gather();
        let (statistics, largest_held, pending) = {
            let state = self.state.lock();
            (
                state.statistics(),
                state.largest_held_bytes(),
                state.held_back_bytes(),
            )
        };
        OutOfMemoryReport {
            requested_bytes: asked,
            class_bytes: bytes,
            active_bytes: statistics.active_bytes,
            active_blocks: statistics.active_blocks,
            managed_bytes: statistics.managed_bytes,
            held_bytes: statistics.held_bytes,
            pending_bytes: pending,
            largest_held_bytes: largest_held as u64,
            released_bytes: 0,
            largest_block_bytes: self.allocator.largest_block(),
            capacity_bytes: self.allocator.capacity_bytes(),
            device_bytes: self.allocator.backend().limits().capacity_bytes,
            verdict: Verdict::NeverFits,
            source: None,
        }
    }

    /// The request, as one for blocks of its own bin and of each larger one that is not [too large](MOST_TOO_LARGE) for
    /// it.
    fn larger_bins(&self, request: Request) -> impl Iterator<Item = Request> + use<A> {
        let most = request.bytes.saturating_mul(MOST_TOO_LARGE);
        let bins = self.classes.bin_number(most).saturating_add(1);
        let bins = bins.min(self.state.lock().bin_count());
        (request.bin..bins).map(move |bin| Request { bin, ..request })
    }
}
