//! Releases memory to the allocator: how, and when.

use std::{iter, mem::forget};

use binpool_allocators::{
    Allocator, Backend, Error, Event,
    contained::{contained, guarded},
};
use smallvec::SmallVec;

use crate::{
    block::Released,
    growing::{Dropped, Growing},
    order::{
        fence::Fences,
        queue_uses::{QueueUses, together},
    },
    scrubber::Scrubber,
    shared::{BlockBox, Quarantined, Shared},
    track::pool_event::{PoolEvent, What},
};
use binpool_segments::Leaving;

impl<B: Backend> Shared<B> {
    /// Releases memory to the allocator, which frees it after the commands of these uses and the events in `after`.
    ///
    /// # Errors
    ///
    /// A failure of the device. The memory is released anyway, or put into the
    /// [quarantine](crate::free::quarantine).
    pub(crate) fn release(
        &self,
        memory: B::Memory,
        uses: &QueueUses,
        after: &[B::Event],
    ) -> Result<(), Error> {
        if let Scrubber::OnFree { queue } = &self.scrubber {
            contained("scrubbing memory", || {
                self.scrub_before_release(queue, &memory, uses);
            });
        }
        let needs_events = self.allocator.release_needs_events();
        // A limit counts memory until no command uses it.
        let has_limit = self.budget.max_bytes() < u64::MAX;
        if !needs_events && !has_limit {
            return guarded("Allocator::release", || {
                self.allocator.release(memory, after)
            });
        }
        let (events, failure) = match self.events_after(uses, after) {
            Ok(events) => events,
            // The runtime keeps the memory as long as it has to.
            Err(error) if !needs_events => (SmallVec::from(after), Some(error)),
            Err(error) => {
                self.state.lock().quarantine.keep(memory, uses, after);
                return Err(error);
            }
        };
        guarded("Allocator::release", || {
            self.allocator.release(memory, &events)
        })?;
        failure.map_or(Ok(()), Err)
    }

    /// Returns events after which these uses have ended, and those in `after`. Where no marker says when the commands end, the host waits for
    /// them, and the failure is returned, too.
    ///
    /// # Errors
    ///
    /// A failure of that wait: nothing says when the commands end.
    #[expect(clippy::type_complexity, reason = "a list and a failure beside it")]
    pub(crate) fn events_after(
        &self,
        uses: &QueueUses,
        after: &[B::Event],
    ) -> Result<(SmallVec<[B::Event; 2]>, Option<Error>), Error> {
        let fences = guarded("a marker", || self.fences_after(uses));
        let (fences, failure) = match fences {
            Ok(fences) => (fences, None),
            Err(error) => {
                let wait = || uses.iter().try_for_each(|use_| self.wait_for(*use_));
                guarded("a wait", wait)?;
                (Fences::<B>::new(), Some(error))
            }
        };
        let fences = fences.into_iter().map(|fence| fence.event);
        Ok((fences.chain(after.iter().cloned()).collect(), failure))
    }

    /// Releases blocks and segments that have left the pool's counters. The allocator frees them after the commands
    /// that use them. Returns the released bytes.
    pub(crate) fn release_each(&self, released: Vec<Released<B>>) -> u64 {
        let mut sum = 0;
        for released in released {
            let bytes = released.bytes as u64;
            // A panic while one is released must not lose the rest.
            let has_left = contained("giving memory back", || self.release_one(released));
            sum += if has_left.unwrap_or(true) { bytes } else { 0 };
            self.arrive();
        }
        sum
    }

    /// Returns whether the memory has left the pool.
    fn release_one(&self, released: Released<B>) -> bool {
        let Leaving {
            views,
            mut memory,
            bytes,
            uses,
            place,
        } = released;
        self.release_views(views);
        if let Some(place) = place {
            match self.unmap(&place, memory) {
                Some(unmapped) => memory = unmapped,
                None => return false,
            }
        }
        let uses = uses
            .iter()
            .fold(QueueUses::new(), |all, uses| together(&all, uses));
        if let Err(error) = self.release(memory, &uses, &[]) {
            tracing::error!(%error, bytes, "a held block could not be released cleanly");
        }
        true
    }

    /// Releases all free memory if the pool keeps none, because no later call may do so. Does not panic: destructors call this while a
    /// thread unwinds.
    pub(crate) fn release_unless_holding(&self) {
        if !self.state.lock().holding {
            contained("giving memory back", || self.release_all());
        }
    }

    /// Releases every held block, and the states of queues that have no block and whose commands have ended. Returns the released bytes.
    pub(crate) fn free_held(&self) -> u64 {
        self.return_unviewed();
        let bytes = self.release_all();
        self.note(|| PoolEvent::did(What::Trim, bytes, "all free memory"));
        // The state of the default queue stays, without its fences.
        let pending = self.state.lock().not_ended(&self.default_queue);
        self.check(pending.as_slice());
        self.retire_idle_queues(false);
        bytes
    }

    /// Waits for the commands that use free memory, since only pages that no command uses may be unmapped. Failures are logged.
    fn wait_for_pages(&self) {
        let holding_back = {
            let mut state = self.state.lock();
            state.stamp_dropped();
            state.holding_back()
        };
        for use_ in &holding_back {
            if let Err(error) = guarded("a wait", || self.wait_for(*use_)) {
                tracing::warn!(%error, "pages stay mapped: could not wait for the commands that use them");
            }
        }
        // Ranges that those commands kept apart become one, so that pages across them are free as a whole.
        self.state.lock().settle();
        self.unmap_stale();
    }

    /// Releases every held block, including those that commands still use, except pages: these wait until no command uses them.
    /// Returns the released bytes.
    pub(crate) fn release_all(&self) -> u64 {
        self.wait_for_unscrubbed();
        self.flush();
        let has_pages = {
            let state = self.state.lock();
            if state.keeps_addresses() {
                return 0;
            }
            state.segments.has_pages()
        };
        if has_pages {
            self.wait_for_pages();
        }
        let dropped = self.release_dropped();
        let released = self.state.lock().release_all();
        dropped + self.release_each(released)
    }

    /// Tries again to release what is quarantined.
    pub(crate) fn release_quarantined(&self) {
        let quarantined = std::mem::take(&mut self.state.lock().quarantine);
        for quarantined in quarantined.0 {
            match quarantined {
                Quarantined::Memory(memory, uses, after) => {
                    if let Err(error) = self.release(memory, &uses, &after) {
                        contained("a subscriber", || {
                            tracing::warn!(%error, "memory still cannot be released cleanly");
                        });
                    }
                }
                // This thread must not wait: the events may depend on what it does next.
                Quarantined::Range(held, after)
                    if contained("Event::status", || after.iter().all(Event::has_ended))
                        != Some(true) =>
                {
                    self.state.lock().quarantine.keep_range(held, &after);
                }
                Quarantined::Range(held, _) => {
                    self.state.lock().transit.depart(1);
                    if self.scrubber.is_on_free() {
                        self.keep_unscrubbed(held);
                    } else {
                        self.return_to_segment(held);
                    }
                }
            }
        }
    }

    /// Releases free memory until the pool manages at most `most` bytes: first what no command uses, largest first,
    /// then, if needed, all that is free. Returns the released bytes.
    pub(crate) fn trim_to(&self, most: u64) -> u64 {
        let mut released = self.trim_unused_to(most);
        if self.excess(most) > 0 {
            released += self.release_all();
        }
        self.note(|| PoolEvent::did(What::Trim, released, format_args!("to {most} bytes")));
        released
    }

    /// Releases free memory that no command uses, largest first, until the pool manages at most `most` bytes. Returns
    /// the released bytes.
    pub(crate) fn trim_unused_to(&self, most: u64) -> u64 {
        if self.excess(most) == 0 {
            return 0;
        }
        self.flush();
        self.catch_up();
        let dropped = self.release_dropped();
        let released = {
            let mut state = self.state.lock();
            let excess = state.managed_bytes().saturating_sub(most);
            state.release_largest(excess)
        };
        dropped + self.release_each(released)
    }

    fn excess(&self, most: u64) -> u64 {
        self.state.lock().managed_bytes().saturating_sub(most)
    }

    /// Releases memory that has been free since the last sweep and that no command uses. Returns the released bytes.
    pub(crate) fn sweep(&self) -> u64 {
        self.flush();
        self.catch_up();
        let dropped = self.release_dropped();
        let released = self.state.lock().take_idle();
        let bytes = dropped + self.release_each(released);
        if bytes > 0 {
            self.note(|| PoolEvent::did(What::Sweep, bytes, ""));
            tracing::debug!(bytes, "released idle memory");
        }
        bytes
    }

    /// Frees a block that grows. It keeps its pages until no command uses them, since a limit counts them until then.
    pub(crate) fn free_growing(&self, mut block: BlockBox<B>, growing: Growing<B>, size: usize) {
        if growing.was_viewed {
            self.record_every_queue(&block.lease);
        }
        let (queue_key, others) = (block.lease.key, block.lease.take_others());
        let mut state = self.lock_and_sync();
        let uses = state.take_back(&block, size, &others);
        state.dropped.push(Dropped {
            memory: block.into_memory(),
            growing,
            uses,
        });
        drop(state);
        self.release_dropped();
        self.state.lock().leave(queue_key);
    }

    /// Releases the dropped blocks that grew and that no command and no view uses, or all of them once the last handle is gone. Returns the
    /// released bytes.
    pub(crate) fn release_dropped(&self) -> u64 {
        let mut state = self.state.lock();
        if state.dropped.is_empty() {
            return 0;
        }
        let uses = state.stamp_dropped();
        drop(state);
        self.check(&uses);
        let dropped = self.state.lock().take_dropped();
        let mut sum = 0;
        for dropped in dropped {
            let bytes = dropped.bytes();
            sum += bytes;
            contained("giving a block back", || {
                if let Err(error) = self.release_grown(dropped) {
                    tracing::error!(%error, bytes, "a block that had grown could not be released cleanly");
                }
            });
            self.arrive();
        }
        sum
    }

    fn release_grown(&self, dropped: Dropped<B>) -> Result<(), Error> {
        let Dropped {
            memory,
            growing,
            uses,
        } = dropped;
        drop(memory);
        let (reservation, pieces) = (growing.reservation, growing.pieces.into_iter());
        match self.events_after(&uses, &[]) {
            Ok((events, _)) => {
                // Not part of what the allocator counts. It goes first, since that unmaps the pages.
                let addresses = guarded("Backend::release", || {
                    self.backend.release(reservation, &events)
                });
                let pages = pieces.map(|piece| {
                    guarded("Allocator::release", || {
                        self.allocator.release(piece.pages, &events)
                    })
                });
                iter::once(addresses).chain(pages).fold(Ok(()), Result::and)
            }
            Err(error) => {
                // Commands that no backend knows of may use these addresses at any time, so they are never unmapped.
                forget(reservation);
                let pages = pieces.map(|piece| self.release(piece.pages, &uses, &[]));
                pages.fold(Err(error), Result::and)
            }
        }
    }
}
