//! How the pool takes blocks out of the caches of threads.
//!
//! Each thread has a [`ThreadCache`] behind a [biased lock](crate::lock::biased), whose gate it passes without waiting.
//! Under the pool's lock all gates can be closed. Their owners notice that and take the pool's lock meanwhile. So code
//! that looks at the whole pool (a shortage, a trim, the statistics) sees it as if there were no caches.

use binpool_allocators::Backend;
use parking_lot::MutexGuard;

use crate::{
    PoolStatistics,
    central::caches::DrainFrom,
    free::cached::Wanted,
    lock::{biased::Owner, per_thread as threads, per_thread::PerThread},
    shared::{OwnCache, Shared, State, ThreadCache},
};

impl<B: Backend> Shared<B> {
    /// Locks the pool's state and adds what this thread has counted so far.
    pub(crate) fn lock_and_sync(&self) -> MutexGuard<'_, State<B>> {
        let mut state = self.state.lock();
        let is_back = threads::with_own(self.id, |key: OwnCache<'_, B>| {
            let entered = key.enter(|cache| {
                state.count_activity(cache.take_activity());
                cache.allowance = state.allowance(cache.number);
            });
            entered.is_none() && state.threads.admit(key)
        });
        if is_back == Some(true) {
            drop(state);
            self.catch_up_on_this_thread();
            state = self.state.lock();
        }
        state
    }

    /// Brings the cache of this thread up to date, after other threads closed the caches and left this one out because it [could not be
    /// seen](crate::lock::biased::BiasedLocks::admit).
    #[cold]
    fn catch_up_on_this_thread(&self) {
        let mut state = self.state.lock();
        self.visit_all(&mut state, |state, cache| {
            state.take_from(cache, Wanted::All);
            cache.event_buffer = state.watch.new_event_buffer();
        });
        state.threads.open();
        drop(state);
        self.release_unless_holding();
    }

    /// Takes the blocks out of all thread caches.
    pub(crate) fn drain_caches(&self) {
        self.drain_caches_of(&mut self.state.lock(), DrainFrom::All, Wanted::All);
    }

    /// Takes the `wanted` blocks out of the depot, and out of the cache of this thread or of all threads.
    pub(crate) fn drain_caches_of(
        &self,
        state: &mut State<B>,
        drain_from: DrainFrom,
        wanted: Wanted,
    ) -> Drained {
        let mut drained = Drained::default();
        // Closed caches are empty.
        if !self.has_thread_caches || state.threads.is_closed() {
            return drained;
        }
        let is_any = &mut drained.threads_had_blocks;
        match drain_from {
            DrainFrom::Own => {
                threads::with_own(self.id, |key: OwnCache<'_, B>| {
                    key.enter(|cache| *is_any = state.take_from(cache, wanted))
                });
            }
            DrainFrom::All => {
                self.visit_all(state, |state, cache| {
                    *is_any |= state.take_from(cache, wanted);
                });
                state.threads.open();
            }
        }
        drained.depot_had_blocks = state.take_from_depot(wanted);
        drained
    }

    /// Takes out all cached blocks, and keeps the caches closed until the result is dropped.
    pub(crate) fn drain_and_close_caches(&self) -> Closed<'_, B> {
        self.close(&mut self.state.lock());
        Closed { shared: self }
    }

    /// Takes out all cached blocks, and closes the caches until `threads.open` is called.
    pub(crate) fn close(&self, state: &mut State<B>) {
        self.close_gates(state);
        state.empty_closed_caches();
    }

    /// Closes all gates, adds the counts of each cache to the state, and then visits the cache. The caller opens the gates.
    pub(crate) fn visit_all(
        &self,
        state: &mut State<B>,
        visit: impl FnMut(&mut State<B>, &mut ThreadCache<B>),
    ) {
        self.close_gates(state);
        state.visit_closed_caches(visit);
    }

    fn close_gates(&self, state: &mut State<B>) {
        let closed = threads::with_own(self.id, |key: OwnCache<'_, B>| {
            state.threads.close(Some(key));
        });
        if closed.is_none() {
            state.threads.close(None);
        }
    }

    /// Runs `look` while all caches are empty and closed, and every block that was in one is in a bin. Returns its result.
    pub(crate) fn inspect<R>(&self, look: impl FnOnce(&State<B>) -> R) -> R {
        let mut state = self.state.lock();
        self.visit_all(&mut state, |state, cache| {
            cache.take(Wanted::All, |cached| state.adopt_into_bin(cached));
        });
        for cached in state.depot.take_all(Wanted::All) {
            state.adopt_into_bin(cached);
        }
        let seen = look(&state);
        state.empty_bins();
        state.threads.open();
        seen
    }

    /// Returns the counters, all taken at the same moment.
    pub(crate) fn statistics(&self) -> PoolStatistics {
        self.return_unviewed();
        let mut state = self.state.lock();
        let (mut blocks, mut bytes) = (0, 0);
        self.visit_all(&mut state, |_, cache| {
            blocks += cache.blocks() as u64;
            bytes += cache.bytes() as u64;
        });
        let mut statistics = state.statistics();
        blocks += self.depot.blocks();
        bytes += self.depot.bytes();
        state.threads.open();
        statistics.held_blocks += blocks;
        statistics.held_bytes += bytes;
        statistics
    }

    /// Restarts the peaks from what is in use now.
    pub(crate) fn reset_peaks(&self) {
        let mut state = self.state.lock();
        // The state has to know what the threads have counted.
        self.visit_all(&mut state, |_, _| {});
        state.reset_peaks();
        state.threads.open();
    }

    /// Sets whether the pool keeps blocks that are freed from now on, or releases them.
    pub(crate) fn set_holding(&self, holding: bool) {
        let mut state = self.state.lock();
        match (state.holding, holding) {
            (true, false) => self.close(&mut state),
            (false, true) => state.threads.open(),
            _ => {}
        }
        state.holding = holding;
    }
}

impl<B: Backend> PerThread<ThreadCache<B>> for Shared<B> {
    fn end_thread(&self, key: Owner<ThreadCache<B>>) {
        let mut state = self.state.lock();
        if let Some(mut cache) = state.threads.remove(key) {
            state.count_activity(cache.take_activity());
            state.take_from(&mut cache, Wanted::All);
            state.homes.end(cache.number);
        }
        drop(state);
        self.release_unless_holding();
    }
}

/// Which caches had blocks to take out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Drained {
    pub(crate) threads_had_blocks: bool,
    pub(crate) depot_had_blocks: bool,
}

/// Keeps the thread caches closed until it is dropped.
#[derive(Debug)]
#[must_use = "threads keep blocks again when this is dropped"]
pub(crate) struct Closed<'a, B: Backend> {
    shared: &'a Shared<B>,
}

impl<B: Backend> Drop for Closed<'_, B> {
    fn drop(&mut self) {
        self.shared.state.lock().threads.open();
    }
}
