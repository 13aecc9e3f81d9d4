//! What the pool does with the thread caches.

use binpool_allocators::{Backend, Queue};

use crate::{
    block::{Cached, HeldBlock, Lease, Wanted},
    central::State,
    free::thread_cache::{Activity, ThreadCache},
    order::timestamps::{QueueKey, last_of},
    request::Request,
};

/// If more than one request in this many takes blocks from other threads, further requests go to the device instead.
const REQUESTS_PER_STEAL: u64 = 4096;

/// This many requests may take blocks from other threads before the limit applies. Fewer under `shuttle` and Miri, whose programs are short.
const UNLIMITED_STEALS: u64 = if cfg!(any(shuttle, miri)) { 1 } else { 64 };

/// Which thread caches are drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DrainFrom {
    /// The cache of the thread that asks.
    Own,
    /// The caches of all threads.
    All,
}

/// Which caches had blocks to take out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Drained {
    pub(crate) threads_had_blocks: bool,
    pub(crate) depot_had_blocks: bool,
}

impl<B: Backend, O> State<B, O> {
    /// Returns which caches to drain before a request goes to the device: those of all threads, unless requests took blocks from
    /// other threads too often.
    ///
    /// A thread that loses a block will soon need it, and take one from the next thread. A few more blocks from the device end
    /// this: then each thread has its own.
    pub(crate) fn caches_to_drain(&self) -> DrainFrom {
        let requests = self.counters.hits + self.counters.misses;
        if self.threads.owners() <= 1
            || self.steals <= UNLIMITED_STEALS + requests / REQUESTS_PER_STEAL
        {
            DrainFrom::All
        } else {
            DrainFrom::Own
        }
    }

    /// Takes the `wanted` blocks out of a thread cache. Returns whether there were any.
    pub(crate) fn take_from(&mut self, cache: &mut ThreadCache<B, O>, wanted: Wanted) -> bool {
        let mut is_any = false;
        cache.take(wanted, |cached| {
            is_any = true;
            self.keep_cached(cached);
        });
        self.end_spare_leases(cache);
        is_any
    }

    /// Takes all blocks out of the thread caches and the depot, and closes the caches until `threads.open` is called. Must not be called
    /// from inside the gate of the caller's own cache.
    #[cold]
    pub(crate) fn close_caches(&mut self) {
        self.threads.close(None);
        self.empty_closed_caches();
    }

    /// Takes all blocks out of the closed thread caches and out of the depot.
    pub(crate) fn empty_closed_caches(&mut self) {
        self.visit_closed_caches(|state, cache| {
            state.take_from(cache, Wanted::All);
        });
        self.take_from_depot(Wanted::All);
    }

    /// Visits each of the closed caches, after its counts have been added to the state.
    pub(crate) fn visit_closed_caches(
        &mut self,
        mut visit: impl FnMut(&mut Self, &mut ThreadCache<B, O>),
    ) {
        let mut threads = std::mem::take(&mut self.threads);
        threads.each(|cache| {
            self.count_activity(cache.take_activity());
            visit(self, cache);
        });
        self.threads = threads;
    }

    /// Ends the spare leases of a thread cache, so that they no longer keep their queues.
    pub(crate) fn end_spare_leases(&mut self, cache: &mut ThreadCache<B, O>) {
        for spares in cache.take_spare_leases() {
            self.queues.stamp_at(spares.queue_key, spares.last_use);
            if let Some(queue_state) = self.queues.get_mut(spares.queue_key) {
                queue_state.active -= spares.all.len();
            }
        }
    }

    /// Takes the `wanted` blocks out of the depot. Returns whether there were any.
    pub(crate) fn take_from_depot(&mut self, wanted: Wanted) -> bool {
        let taken = self.depot.take_all(wanted);
        let is_any = !taken.is_empty();
        for cached in taken {
            self.keep_cached(cached);
        }
        is_any
    }

    pub(crate) fn adopt_into_bin(&mut self, cached: Cached<B, O>) {
        let held = self.adopt(cached);
        self.put_in_bin(held);
    }

    /// Turns a cached block into a held one, which has timestamps and no longer keeps its queue state.
    pub(crate) fn adopt(&mut self, cached: Cached<B, O>) -> HeldBlock<B, O> {
        let block = cached.block.end();
        let queue_key = block.lease.key;
        let uses = queue_key.map(|queue_key| self.queues.stamp_at(queue_key, cached.since));
        self.leave(queue_key);
        HeldBlock::new(block, uses.into_iter().collect())
    }

    /// Adds what a thread counted to the pool's counters.
    pub(crate) fn count_activity(&mut self, activity: Activity) {
        let Activity {
            hits,
            carved,
            returns,
            block_bytes,
            bytes,
            peak_bytes,
        } = activity;
        self.counters.hits += hits;
        self.counters.carved_hits += carved;
        self.reach_active(self.active_bytes + peak_bytes as i64);
        self.active_blocks += hits.cast_signed() - returns.cast_signed();
        self.active_bytes += bytes as i64;
        // The thread counted the peak of the requested bytes, which is close to that of its whole blocks.
        self.peak_in_use = self.peak_in_use.max(self.in_use + peak_bytes as i64);
        self.in_use += block_bytes as i64;
        self.peak_in_use = self.peak_in_use.max(self.in_use);
    }

    /// Moves a block of this bin from the free list of a queue to a thread cache. Returns `None` if there is none, or no room.
    pub(crate) fn move_to(
        &mut self,
        cache: &mut ThreadCache<B, O>,
        shared: &O,
        key: QueueKey,
        request: Request,
    ) -> Option<()>
    where
        O: Clone,
    {
        let queue_state = self.queues.get_mut(key)?;
        let held = queue_state
            .free_list
            .pop_youngest(request.bin, request.bytes)?;
        let queue = queue_state.queue.id();
        let since = last_of(&held.uses);
        let lease = Lease::on(queue, Some(key), true);
        queue_state.active += 1;
        let block = held.block.lease(lease, || shared.clone());
        let cached = Cached { block, since };
        match cache.insert(cached) {
            Ok(()) => Some(()),
            Err(cached) => {
                self.adopt_into_bin(cached);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use binpool_mock::MockBackend;

    use crate::{free::thread_cache::Allowance, mock_pool::MockPool, shared::ThreadCache};

    #[test]
    fn the_caches_of_other_threads_are_drained_only_up_to_the_limit_on_steals() {
        let mock = MockPool::of_blocks();
        let cache = || {
            let allowance = Allowance {
                bytes: 0,
                bytes_for_small: 0,
                small_bytes: 0,
                largest_youngest: usize::MAX,
                bytes_in_depot: 0,
                may_be_limited: false,
            };
            ThreadCache::<MockBackend>::new(0, allowance, None, None)
        };
        let mut state = mock.shared.state.lock();
        let _keys = [(); 2].map(|()| state.threads.add(cache()));
        // Hits, misses, and the most steals after which all caches are still drained.
        for (hits, misses, most) in [
            (0, 0, UNLIMITED_STEALS),
            (REQUESTS_PER_STEAL - 1, 0, UNLIMITED_STEALS),
            (
                REQUESTS_PER_STEAL / 2,
                REQUESTS_PER_STEAL / 2,
                UNLIMITED_STEALS + 1,
            ),
            (
                9 * REQUESTS_PER_STEAL,
                REQUESTS_PER_STEAL,
                UNLIMITED_STEALS + 10,
            ),
        ] {
            (state.counters.hits, state.counters.misses) = (hits, misses);
            state.steals = most;
            assert_eq!(state.caches_to_drain(), DrainFrom::All, "{hits} {misses}");
            state.steals = most + 1;
            assert_eq!(state.caches_to_drain(), DrainFrom::Own, "{hits} {misses}");
        }
    }

    #[test]
    fn the_only_thread_has_no_limit_on_steals() {
        let mock = MockPool::of_blocks();
        drop(mock.pool.allocate(100).unwrap());
        let mut state = mock.shared.state.lock();
        state.steals = u64::MAX;
        assert_eq!(
            (state.threads.owners(), state.caches_to_drain()),
            (1, DrainFrom::All)
        );
    }

    #[test]
    fn requests_that_take_blocks_of_other_threads_are_counted() {
        // More than a usual segment, so that the block gets one of its own, and no more than a thread may cache.
        const WHOLE_SEGMENT: usize = 8 << 20;
        for mock in [MockPool::of_blocks(), MockPool::of_segments()] {
            let steals = || mock.shared.state.lock().steals;
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
                    assert_eq!(steals(), round);
                    drop(mock.pool.allocate(WHOLE_SEGMENT).unwrap());
                    assert_eq!(steals(), round + 1);
                    // Neither its own blocks nor new ones count as taken from another thread.
                    let blocks = [(); 2].map(|()| mock.pool.allocate(WHOLE_SEGMENT).unwrap());
                    assert_eq!(steals(), round + 1);
                    drop(blocks);
                    mock.pool.free_held();
                }
                drop(told);
            });
        }
    }
}
