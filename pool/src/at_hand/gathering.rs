//! How the pool gets at what threads keep at hand.
//!
//! Each thread has a [`ThreadCache`] in a [room](crate::biased) that it enters without a lock. Under the pool's lock, all
//! rooms can be closed, which owners notice, and go the long way meanwhile. So whatever looks at the whole pool (a shortage,
//! a trim, the statistics) sees it as if there were no caches.

use binpool_allocators::Allocator;
use parking_lot::MutexGuard;

use crate::{
    PoolStatistics,
    at_hand::{
        biased::Owner,
        thread_cache::{Activity, Cached, Grant, ThreadCache},
        threads,
    },
    shared::Shared,
    state::{State, bins::HeldBlock},
};

/// Where more than one request in this took blocks away from other threads, the next ones go to the device instead.
const OFTEN: u64 = 4096;

/// So many of these do not count yet. Fewer under `shuttle`, whose programs are short.
const A_FEW: u64 = if cfg!(shuttle) { 1 } else { 64 };

/// The key to a thread's own cache.
pub(crate) type Key<A> = Owner<ThreadCache<A>>;

impl<A: Allocator> Shared<A> {
    /// The state, which knows what this thread has done so far.
    pub(crate) fn lock_and_tell(&self) -> MutexGuard<'_, State<A>> {
        let mut state = self.state.lock();
        threads::with_own(self.id, |key: &Key<A>| {
            key.enter(|cache| {
                state.note(cache.take_activity());
                cache.allowance = state.allowance();
            })
        });
        state
    }

    /// Takes what all threads keep at hand.
    pub(crate) fn gather(&self) {
        self.gather_from(&mut self.state.lock(), Whose::All, None);
    }

    /// Takes what this thread, or all threads, keep at hand, in one place or in all. Whether there was any.
    pub(crate) fn gather_from(
        &self,
        state: &mut State<A>,
        whose: Whose,
        place: Option<usize>,
    ) -> bool {
        // Threads that are kept out have nothing.
        if !self.has_thread_caches || state.threads.is_closed() {
            return false;
        }
        let mut is_any = false;
        match whose {
            Whose::Own => {
                threads::with_own(self.id, |key: &Key<A>| {
                    key.enter(|cache| is_any = state.take_from(cache, place))
                });
            }
            Whose::All => {
                self.visit_all(state, |state, cache| {
                    is_any |= state.take_from(cache, place);
                });
                state.threads.open();
            }
        }
        state.take_from_depot(place);
        is_any
    }

    /// Takes what all threads keep at hand, and has them keep nothing until the answer is dropped.
    pub(crate) fn gather_and_close(&self) -> Closed<'_, A> {
        self.close(&mut self.state.lock());
        Closed { shared: self }
    }

    /// The same, until the rooms are opened.
    pub(crate) fn close(&self, state: &mut State<A>) {
        self.visit_all(state, |state, cache| {
            state.take_from(cache, None);
        });
        state.take_from_depot(None);
    }

    /// Keeps all threads out, and looks at what they have and what they have done.
    pub(crate) fn visit_all(
        &self,
        state: &mut State<A>,
        mut visit: impl FnMut(&mut State<A>, &mut ThreadCache<A>),
    ) {
        let mut threads = std::mem::take(&mut state.threads);
        let closed = threads::with_own(self.id, |key: &Key<A>| threads.close(Some(key)));
        if closed.is_none() {
            threads.close(None);
        }
        threads.each(|cache| {
            state.note(cache.take_activity());
            visit(state, cache);
        });
        state.threads = threads;
    }

    /// Looks at the pool while no thread keeps anything at hand: every free block is in a bin, or in its segment.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&State<A>) -> R) -> R {
        let mut state = self.state.lock();
        self.close(&mut state);
        let seen = look(&state);
        state.threads.open();
        seen
    }

    /// The counters, all taken at the same moment.
    pub(crate) fn statistics(&self) -> PoolStatistics {
        let mut state = self.state.lock();
        let mut blocks = state.depot.blocks() as u64;
        let mut bytes = state.depot.bytes() as u64;
        self.visit_all(&mut state, |_, cache| {
            blocks += cache.blocks() as u64;
            bytes += cache.bytes() as u64;
        });
        state.threads.open();
        let mut statistics = state.statistics();
        statistics.held_blocks += blocks;
        statistics.held_bytes += bytes;
        statistics
    }

    /// From now on, blocks that come back are held, or freed.
    pub(crate) fn set_holding(&self, holding: bool) {
        let mut state = self.state.lock();
        match (state.holding, holding) {
            (true, false) => self.close(&mut state),
            (false, true) => state.threads.open(),
            _ => {}
        }
        state.holding = holding;
    }

    /// Takes the blocks of a thread that ends.
    pub(crate) fn end_thread(&self, key: Key<A>) {
        let mut state = self.state.lock();
        if let Some(mut cache) = state.threads.remove(key) {
            state.note(cache.take_activity());
            state.take_from(&mut cache, None);
        }
    }
}

/// Whose cache is looked into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    Own,
    All,
}

/// While there is one, threads keep nothing at hand.
#[derive(Debug)]
#[must_use = "threads keep blocks again when this is dropped"]
pub(crate) struct Closed<'a, A: Allocator> {
    shared: &'a Shared<A>,
}

impl<A: Allocator> Drop for Closed<'_, A> {
    fn drop(&mut self) {
        self.shared.state.lock().threads.open();
    }
}

impl<A: Allocator> State<A> {
    /// Whose caches a request looks into that would go to the device otherwise: those of all threads, unless their blocks
    /// were taken away from them too often.
    ///
    /// What is taken from a thread, it comes back for in a moment, and takes it from the next one. With a few more blocks
    /// than there need be, each has its own, and nobody has to look.
    pub(crate) fn whose_turn(&self) -> Whose {
        let requests = self.counters.hits + self.counters.misses;
        if self.threads.len() <= 1 || self.takings <= A_FEW + requests / OFTEN {
            Whose::All
        } else {
            Whose::Own
        }
    }

    /// Takes what a thread keeps, in one place or in all. Whether there was any.
    fn take_from(&mut self, cache: &mut ThreadCache<A>, place: Option<usize>) -> bool {
        let mut is_any = false;
        cache.take(place, |cached| {
            is_any = true;
            self.let_into_bin(cached);
        });
        is_any
    }

    fn take_from_depot(&mut self, place: Option<usize>) {
        for cached in self.depot.take_all(place) {
            self.let_into_bin(cached);
        }
    }

    pub(crate) fn let_into_bin(&mut self, cached: Cached<A>) {
        let held = self.let_in(cached);
        self.put_in_bin(held);
    }

    /// Makes a block that was at hand one of those that the pool holds.
    pub(crate) fn let_in(&mut self, cached: Cached<A>) -> HeldBlock<A> {
        let Cached { grant, since } = cached;
        let Grant { shared, mut block } = grant;
        block.share = Some(shared);
        let lane = block.tenure.lane;
        let uses = lane.map(|lane| self.lanes.stamp_at(lane, since));
        self.leave(lane);
        HeldBlock::new(block, uses.into_iter().collect())
    }

    /// Takes note of what a thread has done.
    fn note(&mut self, activity: Activity) {
        let Activity {
            hits,
            returns,
            block_bytes,
            bytes,
            peak_bytes,
        } = activity;
        self.counters.hits += hits;
        self.reach_active(self.active_bytes + peak_bytes as i64);
        self.active_blocks += hits.cast_signed() - returns.cast_signed();
        self.active_bytes += bytes as i64;
        self.in_use += block_bytes as i64;
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::{
        at_hand::thread_cache::Allowance,
        mock_pool::{Immediate, MockPool},
    };

    #[test]
    fn threads_whose_blocks_were_taken_too_often_are_left_alone() {
        let mock = MockPool::of_blocks();
        let cache = || {
            let allowance = Allowance {
                bytes: 0,
                loose_bytes: 0,
            };
            ThreadCache::<Immediate>::new(allowance, None)
        };
        let mut state = mock.shared.state.lock();
        let _keys = [(); 2].map(|()| state.threads.add(cache()));
        // Hits, misses, and the most takings with which all threads are looked into.
        for (hits, misses, most) in [
            (0, 0, A_FEW),
            (OFTEN - 1, 0, A_FEW),
            (OFTEN / 2, OFTEN / 2, A_FEW + 1),
            (9 * OFTEN, OFTEN, A_FEW + 10),
        ] {
            (state.counters.hits, state.counters.misses) = (hits, misses);
            state.takings = most;
            assert_eq!(state.whose_turn(), Whose::All, "{hits} {misses}");
            state.takings = most + 1;
            assert_eq!(state.whose_turn(), Whose::Own, "{hits} {misses}");
        }
    }

    #[test]
    fn one_thread_alone_is_looked_into_however_often() {
        let mock = MockPool::of_blocks();
        drop(mock.pool.allocate(100).unwrap());
        let mut state = mock.shared.state.lock();
        state.takings = u64::MAX;
        assert_eq!((state.threads.len(), state.whose_turn()), (1, Whose::All));
    }

    #[test]
    fn requests_that_take_blocks_of_other_threads_are_counted() {
        // Larger than half of what a segment has usually, so that it has a segment of its own.
        const WHOLE_SEGMENT: usize = 32 << 20;
        for mock in [MockPool::of_blocks(), MockPool::of_segments()] {
            let takings = || mock.shared.state.lock().takings;
            thread::scope(|scope| {
                let (told, wait) = std::sync::mpsc::channel();
                let (tell, done) = std::sync::mpsc::channel();
                let pool = &mock.pool;
                scope.spawn(move || {
                    for () in wait {
                        drop(pool.allocate(WHOLE_SEGMENT).unwrap());
                        tell.send(()).unwrap();
                    }
                });
                for round in 0..3 {
                    told.send(()).unwrap();
                    done.recv().unwrap();
                    assert_eq!(takings(), round);
                    drop(mock.pool.allocate(WHOLE_SEGMENT).unwrap());
                    assert_eq!(takings(), round + 1);
                    // What it has is its own to take, and what nobody has cannot be taken.
                    let blocks = [(); 2].map(|()| mock.pool.allocate(WHOLE_SEGMENT).unwrap());
                    assert_eq!(takings(), round + 1);
                    drop(blocks);
                    mock.pool.free_held();
                }
                drop(told);
            });
        }
    }
}
