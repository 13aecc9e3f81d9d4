//! Carries out the [ladder](crate::central::ladder) of a request, without the pool's lock.

use binpool_allocators::{Allocator, Backend, Error, Scope};
use tracing::{field, span::EnteredSpan};

use crate::{
    OutOfMemoryReport, PoolError, Verdict,
    central::ladder::{Ask, Step},
    flow::make::HitBlock,
    hooks::Shortage,
    order::timestamps::{QueueKey, QueueUse},
    rare::{Rare, reached},
    request::{HitKind, Request},
    shared::Shared,
    track::pool_event::{PoolEvent, What},
};

/// How many groups of active blocks a report names.
const LARGEST_GROUPS: usize = 5;

impl<B: Backend> Shared<B> {
    /// Returns a block for a request that found nothing free, or memory for pages of a block that grows.
    ///
    /// # Errors
    ///
    /// [`PoolError::OutOfMemory`] after the last step; other failures of the allocator and the device at once.
    pub(crate) fn climb(&self, mut ask: Ask) -> Result<HitBlock<'_, B>, PoolError> {
        let Ask {
            queue_key, request, ..
        } = ask;
        let (mut closed, mut span, mut hooks) = (None, None, None);
        let found = loop {
            if ask.needs_limits(self.carves) {
                ask.limits = self.limits();
            }
            let step = {
                let mut state = self.state.lock();
                state.next_step(&mut ask, |state, from, wanted| {
                    self.drain_caches_of(state, from, wanted)
                })
            };
            match step {
                Step::Block(block, kind) => break HitBlock::new(self, queue_key, block, kind),
                Step::Range(carved) => {
                    break self.view(queue_key, request, *carved, HitKind::Carved)?;
                }
                Step::WaitForBlock(held, kind) => {
                    let Err(error) = self.wait_behind(queue_key, &held.uses, kind) else {
                        break HitBlock::new(self, queue_key, held.block, kind);
                    };
                    self.state.lock().put_back(held);
                    warn_of_wait(&error);
                }
                Step::WaitForRange(mut carved, kind) => {
                    let Err(error) = self.wait_behind(queue_key, &carved.uses, kind) else {
                        break self.view(queue_key, request, *carved, kind)?;
                    };
                    self.release_views(std::mem::take(&mut carved.overlapping));
                    if self.state.lock().put_range_back(*carved) {
                        self.arrived.notify_all();
                    }
                    warn_of_wait(&error);
                }
                Step::Look(uses, None) => {
                    self.check(&uses);
                    ask.answer = true;
                }
                Step::Look(uses, Some(most)) => {
                    let (has_ended, looks) = self.check_until_one_ends(&uses, most);
                    self.state.lock().count_looks(&mut ask, looks, has_ended);
                }
                Step::RetireQueues => self.retire_idle_queues(!self.policy.crosses()),
                Step::Retry => {
                    self.release_quarantined();
                    self.scrub_again();
                }
                Step::Return(cached) => self.return_to_segments(cached),
                Step::Review(review) => ask.reviewed = Some(Box::new(review.carry_out())),
                Step::Flush(most) => {
                    self.flush();
                    ask.last_bin = self.classes.bin_number(most);
                }
                Step::Gather(most) => {
                    self.gather(&mut ask);
                    ask.last_bin = self.classes.bin_number(most);
                }
                Step::Release(released) => {
                    let bytes = self.release_each(released);
                    ask.released_bytes += bytes;
                    if ask.refusal.is_none() {
                        tell_of_release(bytes);
                    }
                }
                Step::New { new, asks_free } => match self.make(&ask, new, asks_free) {
                    Err(error) if error.is_out_of_memory() => ask.refusal = Some(error),
                    made => break made?,
                },
                Step::CloseCaches => {
                    span = Some(reclaiming(&ask));
                    closed = Some(self.drain_and_close_caches());
                }
                Step::Hook => {
                    // A request made inside a hook does not call the hooks of this pool, or they would call each other without end.
                    let round = hooks.get_or_insert_with(|| self.hooks.begin_round());
                    let bytes = request.bytes;
                    ask.answer = round.call_next(Shortage { bytes }, || {
                        self.note(|| PoolEvent::did(What::Hook, bytes as u64, ""));
                        reached(Rare::HookCalled);
                    });
                    if !ask.answer {
                        hooks = None;
                    }
                }
                Step::WaitForQueue(use_) => ask.wait_failed |= !self.waits_for_queue(use_),
                Step::WaitForTransit => {
                    let mut state = self.state.lock();
                    while state.transit.is_worth_a_wait() {
                        self.arrived.wait(&mut state);
                    }
                }
                Step::Refuse => {
                    drop(closed);
                    return Err(self.refuse(ask));
                }
            }
        };
        // Before the block is returned: a subscriber that panics here does not lose it.
        drop(span);
        Ok(found)
    }

    /// Gathers everything that is free, and looks which commands have ended and which views and dropped blocks are gone.
    fn gather(&self, ask: &mut Ask) {
        self.return_unviewed();
        self.catch_up();
        self.flush();
        let dropped = self.release_dropped();
        ask.released_bytes += dropped;
        ask.answer = dropped > 0;
    }

    /// Waits for a queue that holds memory back. Returns whether that succeeded; if not, commands before the failed wait may have ended
    /// meanwhile.
    fn waits_for_queue(&self, use_: QueueUse) -> bool {
        let queue_key = use_.key.get();
        tracing::debug!(queue_key, "waiting for a queue that holds memory back");
        reached(Rare::QueueWaitedFor);
        let waited = self.wait_for(use_);
        if let Err(error) = &waited {
            reached(Rare::WaitFailed);
            tracing::warn!(%error, "a queue that holds memory back cannot be waited for");
        }
        waited.is_ok()
    }

    /// Returns the error for a request that nothing helped.
    fn refuse(&self, ask: Ask) -> PoolError {
        self.state.lock().counters.out_of_memory += 1;
        let Request { asked, bytes, .. } = ask.request;
        let mut report = self.report(asked, bytes, Some(ask.queue_key));
        let bytes = bytes as u64;
        let is_limit = |error: &Error| matches!(error, Error::OutOfMemory(refusal) if refusal.scope == Scope::Limit);
        report.verdict = if bytes > report.device_bytes {
            Verdict::NeverFits
        } else if bytes > report.capacity_bytes {
            Verdict::Limited
        } else if ask.wait_failed || report.pending_bytes >= bytes {
            Verdict::Pending
        } else if report.held_bytes >= bytes {
            Verdict::Fragmented
        } else if report.viewed_bytes >= bytes {
            Verdict::Viewed
        } else if ask.refusal.as_ref().is_some_and(is_limit) {
            Verdict::Limited
        } else {
            Verdict::DeviceFull
        };
        report.released_bytes = ask.released_bytes;
        report.source = ask.refusal;
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
}

// Events are made in functions of their own: each takes some hundred bytes of the stack, and a climb is as deep as a request gets.

fn warn_of_wait(error: &Error) {
    tracing::warn!(%error, "could not wait for free memory; it stays in the pool");
}

fn tell_of_release(bytes: u64) {
    tracing::debug!(bytes, "released memory above the high water mark");
}

fn reclaiming(ask: &Ask) -> EnteredSpan {
    let bytes = ask.request.bytes;
    let span = tracing::debug_span!("reclaim", bytes).entered();
    tracing::debug!(
        bytes,
        refusal = ask.refusal.as_ref().map(field::display),
        "reclaiming"
    );
    span
}
