//! How blocks get into the cache of a thread, from there to their users, and back to the pool.
//!
//! Each thread has a [`ThreadCache`] behind a [biased lock](binpool_lock::biased), whose gate it passes without waiting.
//! Under the pool's lock all gates can be closed. Their owners notice that and take the pool's lock meanwhile. So code
//! that looks at the whole pool (a shortage, a trim, the statistics) sees it as if there were no caches.

use std::sync::Arc;

use binpool_allocators::{Allocator, Backend, Error, Queue, QueueId};
use parking_lot::MutexGuard;

use crate::{
    PoolStatistics,
    block::{Lease, Shell, Wanted},
    buffer::free_uncached,
    central::caches::{DrainFrom, Drained},
    flow::make::{Entered, TakenRange},
    free::spare_leases::SpareLease,
    free::thread_cache::Looked,
    order::timestamps::{QueueKey, Timestamp},
    request::{HitKind, Request, Size, to_carve},
    shared::{
        Block, Cached, CarvedHere, HeldBlock, LeasedBlock, OwnCache, Shared, State, ThreadCache,
    },
};
use binpool_lock::{
    biased::{Inside, Owner},
    per_thread as threads,
    per_thread::PerThread,
};

/// The most blocks of a bin that a thread moves into its cache, besides the one that it asked for.
const PREFILL_BLOCKS: usize = 15;

impl<B: Backend> Shared<B> {
    /// Returns whether thread caches take blocks that only this queue used.
    pub(crate) fn may_cache(&self, queue: &B::Queue) -> bool {
        self.has_thread_caches && self.is_ordered(queue)
    }

    /// Returns the block that this thread freed last if it fits a request of `asked` bytes on this queue, or else how far it has looked:
    /// nowhere while the pool tracks its blocks, or if the thread has used another pool since.
    #[inline]
    pub(crate) fn take_youngest(
        &self,
        queue: QueueId,
        asked: usize,
    ) -> Result<LeasedBlock<B>, Looked> {
        let youngest = threads::with_latest(self.id, (), |key: OwnCache<'_, B>, ()| {
            let mut inside = key.go_in_at_once().ok_or(Looked::Nowhere)?;
            let youngest = inside.with(|cache| cache.pop_youngest(queue, asked));
            youngest.ok_or(Looked::AtYoungest)
        });
        youngest.unwrap_or(Err(Looked::Nowhere))
    }

    /// Returns a block of this thread's cache for a request of `asked` bytes on this queue. Returns `None` also while the pool tracks its
    /// blocks.
    pub(crate) fn take_cached(&self, queue: QueueId, asked: usize) -> Option<LeasedBlock<B>> {
        if asked == 0 || !self.looks_beyond_the_cache() {
            return None;
        }
        let size = self.size(asked);
        let taken = threads::with_own(self.id, |key: OwnCache<'_, B>| {
            key.go_in_untracked()?
                .with(|cache| cache.pop_any(queue, size))
        });
        taken.flatten()
    }

    /// Returns whether a request looks beyond the thread's cache before it takes the pool's lock.
    pub(crate) fn looks_beyond_the_cache(&self) -> bool {
        self.classes.are_known() && !self.tracking.is_on()
    }

    /// Frees a block that this thread may cache, after a request of `asked` bytes.
    #[inline]
    pub(crate) fn give_back(block: LeasedBlock<B>, asked: usize) {
        let (id, since) = (block.share().id, block.share().clock.now());
        let given = threads::with_latest(id, block, |key: OwnCache<'_, B>, block| {
            let Some(mut inside) = key.go_in_at_once() else {
                return Self::give_back_slowly(block, asked);
            };
            if let Err(block) = inside.with(|cache| cache.push_youngest(block, since, asked)) {
                Self::give_back_inside(inside, block, since, asked);
            }
        });
        if let Err(block) = given {
            Self::give_back_slowly(block, asked);
        }
    }

    /// Frees a block where the thread has another one that it freed last.
    #[inline(never)]
    fn give_back_inside(
        mut inside: Inside<'_, ThreadCache<B>>,
        block: LeasedBlock<B>,
        since: Timestamp,
        asked: usize,
    ) {
        let pushed = inside.with(|cache| cache.push(block, since, asked));
        drop(inside);
        if let Err(left) = pushed
            && let Some(uncached) = Self::make_room_and_cache(left, asked)
        {
            free_uncached(uncached, asked);
        }
    }

    /// Frees a block where the cache could not be entered at once, for example because the pool tracks its blocks.
    #[cold]
    #[inline(never)]
    fn give_back_slowly(block: LeasedBlock<B>, asked: usize) {
        let (id, since) = (block.share().id, block.share().clock.now());
        let given = threads::with_latest(id, block, |key: OwnCache<'_, B>, block| {
            let Some(mut inside) = key.go_in() else {
                // The gate is closed, or this thread is inside.
                return free_uncached(block, asked);
            };
            let pushed = inside.with(move |cache| {
                cache.record_free(&block);
                cache.push_youngest(block, since, asked)
            });
            if let Err(block) = pushed {
                Self::give_back_inside(inside, block, since, asked);
            }
        });
        if let Err(block) = given
            && let Some(uncached) = Self::cache_block(block, asked)
        {
            free_uncached(uncached, asked);
        }
    }

    /// Caches a block that its user freed, after a request of `asked` bytes. Returns the block if it could not be
    /// cached.
    pub(crate) fn cache_block(block: LeasedBlock<B>, asked: usize) -> Option<LeasedBlock<B>> {
        Self::make_room_and_cache(Self::push(block, asked)?, asked)
    }

    /// Makes room in this thread's cache for a block that found none, and caches it. Returns the block if that fails.
    fn make_room_and_cache(block: LeasedBlock<B>, asked: usize) -> Option<LeasedBlock<B>> {
        let shared = block.share();
        let has_room = threads::with_own(shared.id, |key: OwnCache<'_, B>| {
            key.enter(|cache| cache.make_room(&shared.depot))
        });
        let may_stay = match has_room {
            Some(Some(has_room)) => has_room || shared.make_room_under_the_lock(),
            // The cache is closed.
            Some(None) => false,
            None => shared.join(),
        };
        if may_stay {
            Self::push(block, asked)
        } else {
            Some(block)
        }
    }

    fn push(block: LeasedBlock<B>, asked: usize) -> Option<LeasedBlock<B>> {
        let (id, since) = (block.share().id, block.share().clock.now());
        let mut left = Some(block);
        threads::with_own(id, |key: OwnCache<'_, B>| {
            let mut inside = key.go_in()?;
            let block = left.take()?;
            let pushed = inside.with(|cache| {
                cache.record_free(&block);
                cache.push(block, since, asked)
            });
            left = pushed.err();
            Some(())
        });
        left
    }

    /// Gives this thread a cache if the pool has thread caches and the thread has no cache yet. Returns whether it got one.
    pub(crate) fn join(self: &Arc<Self>) -> bool {
        let is_member = || threads::with_own(self.id, |_: OwnCache<'_, B>| ()).is_some();
        if !self.has_thread_caches || is_member() {
            return false;
        }
        threads::join(self.id, Arc::downgrade(self), || {
            let mut state = self.state.lock();
            let home = state.homes.join();
            let allowance = state.allowance(home);
            let event_buffer = state.watch.new_event_buffer();
            let arenas = self.carves.then(|| state.segments.arenas());
            let cache = ThreadCache::new(home, allowance, arenas, event_buffer);
            state.threads.add(cache)
        })
    }

    /// Counts a block that was carved.
    pub(crate) fn count_carved(&self, asked: usize, bytes: usize) {
        let counted = threads::with_own(self.id, |key: OwnCache<'_, B>| {
            key.enter(|cache| cache.count_carved(asked, bytes))
        });
        if counted.flatten().is_none() {
            let mut state = self.state.lock();
            state.count_active(asked, bytes, HitKind::Carved);
        }
    }

    /// The number of this thread's arena.
    pub(crate) fn home(&self) -> usize {
        let home = threads::with_own(self.id, |key: OwnCache<'_, B>| {
            key.enter(|cache| cache.number)
        });
        home.flatten().unwrap_or(0)
    }

    /// Gives this thread spare leases of a queue for which it carves a block, so that it can carve the next ones without the lock.
    pub(crate) fn add_spare_leases(
        self: &Arc<Self>,
        state: &mut State<B>,
        queue: &B::Queue,
        queue_key: QueueKey,
    ) {
        if !self.carves || !self.may_cache(queue) {
            return;
        }
        let added = threads::with_own(self.id, |key: OwnCache<'_, B>| {
            key.enter(|cache| {
                // Leases of queues that the program has dropped must not displace those of queues in use.
                if !cache.has_place_for(queue.id()) {
                    state.end_spare_leases(cache);
                }
                cache.add_spare_leases(queue.id(), queue_key, || Arc::clone(self))
            })
        });
        if let Some(queue_state) = state.queues.get_mut(queue_key) {
            queue_state.active += added.flatten().unwrap_or(0);
        }
    }

    /// Moves more blocks of a bin into the cache of this thread, which just got one of them.
    pub(crate) fn prefill(
        self: &Arc<Self>,
        state: &mut State<B>,
        queue_key: QueueKey,
        request: Request,
    ) {
        let free_list = state
            .queues
            .get(queue_key)
            .map(|queue_state| &queue_state.free_list);
        let free_blocks = free_list.map_or(0, |free_list| free_list.blocks_of(request.bin));
        threads::with_own(self.id, |key: OwnCache<'_, B>| {
            key.enter(|cache| {
                // Half of them stay for other threads.
                for _ in 0..(free_blocks / 2).min(PREFILL_BLOCKS) {
                    if state.move_to(cache, self, queue_key, request).is_none() {
                        break;
                    }
                }
            })
        });
    }

    /// Moves blocks from this thread's full cache to bins or their segments. Returns whether it moved any.
    #[cold]
    fn make_room_under_the_lock(&self) -> bool {
        let mut state = self.lock_and_sync();
        let surplus = threads::with_own(self.id, |key: OwnCache<'_, B>| {
            key.enter(ThreadCache::take_surplus)
        });
        let surplus = surplus.flatten().unwrap_or_default();
        if surplus.is_empty() {
            return false;
        }
        // No fence is needed: a cached block has one use, on an in-order queue.
        let put_back = |cached: Cached<B>| {
            let held = state.adopt(cached);
            // The thread has enough blocks of this size, and a range serves more requests than a block in a bin.
            state.put_in_segment(held)
        };
        let to_segment: Vec<HeldBlock<B>> = surplus.into_iter().filter_map(put_back).collect();
        drop(state);
        self.return_to_segments(to_segment);
        true
    }

    /// Returns a block from a magazine or from the thread's own arena, as [`find_beyond_the_cache`](Self::find_beyond_the_cache) finds it;
    /// `None` if there is neither, or the gate is closed.
    ///
    /// # Errors
    ///
    /// The allocator could not make a view of the range.
    #[inline(never)]
    pub(crate) fn take_beyond_the_cache(
        &self,
        queue: QueueId,
        size: Size,
        bytes: usize,
        widened: usize,
    ) -> Option<Result<LeasedBlock<B>, Error>> {
        let found = threads::with_own(self.id, |key: OwnCache<'_, B>| {
            key.enter(|cache| self.find_beyond_the_cache(cache, queue, size, bytes, || widened))
        });
        match found.flatten().flatten()? {
            Found::Block(block) => Some(Ok(block)),
            Found::Range(carved) => Some(self.hand_out_carved(queue, size, carved)),
        }
    }

    /// Finds a block in a magazine, or a range in the thread's own arena. Blocks of the request's class have `bytes` bytes, and the largest
    /// of its slot `widened`.
    #[expect(clippy::inline_always, reason = "its large result would be copied")]
    #[inline(always)]
    pub(crate) fn find_beyond_the_cache(
        &self,
        cache: &mut ThreadCache<B>,
        queue: QueueId,
        size: Size,
        bytes: usize,
        widened: impl FnOnce() -> usize,
    ) -> Option<Found<B>> {
        // Checked first, since most requests find no magazine.
        if self.depot.may_have(size.slot) && cache.take_magazine(&self.depot, queue, size.slot) {
            return cache.pop_from_magazine(queue, size).map(Found::Block);
        }
        let bytes = to_carve(bytes, cache.allowance.small_bytes, widened);
        cache.carve(queue, bytes).map(Found::Range)
    }

    /// Makes a block from a range of this thread's own arena, and counts it.
    #[expect(clippy::inline_always, reason = "its large result would be copied")]
    #[inline(always)]
    pub(crate) fn hand_out_carved(
        &self,
        queue: QueueId,
        size: Size,
        carved: CarvedHere<B>,
    ) -> Result<LeasedBlock<B>, Error> {
        let CarvedHere {
            ready,
            queue_key,
            lease,
        } = carved;
        let entered = Entered::new(self, queue_key);
        let taken = TakenRange::new(self, queue_key, ready.range, false);
        // Declared after `taken`, so that on failure both are dropped before the range is returned.
        let (segment, view) = (ready.segment, ready.view);
        // This may call the program's own size classes, which may panic.
        let above = self.classes.below(size.bin, self.alignment);
        let memory = match view {
            Some(view) => view,
            None => self.allocator.create_view(&segment, ready.region)?,
        };
        self.count_carved(size.asked, ready.region.bytes);
        let SpareLease { share, shell } = lease;
        let block = Block {
            bytes: ready.region.bytes,
            above,
            bin: size.bin,
            slot: size.slot,
            lease: Lease::on(queue, Some(entered.keep()), true),
            range: Some(taken.keep()),
            record: None,
            memory,
        };
        Ok(shell.unwrap_or_else(Shell::new).fill(share, block))
    }
}

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
    /// seen](binpool_lock::biased::BiasedLocks::admit).
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

/// What a thread finds for a request without the lock.
pub(crate) enum Found<B: Backend> {
    Block(LeasedBlock<B>),
    /// A range of its own arena, not yet made into a block.
    Range(CarvedHere<B>),
}

#[cfg(test)]
mod tests {
    use std::thread;

    use binpool_mock::{MockBackend, MockQueue};

    use super::*;
    use crate::{
        PoolOptions, PooledBuffer, WatchOptions, block::Wanted, central::caches::DrainFrom,
        classes::tests::Many, mock_pool::MockPool,
    };

    fn hold(mock: &MockPool, blocks: usize) {
        let blocks = (0..blocks).map(|_| mock.pool.allocate(1000).unwrap());
        drop(blocks.collect::<Vec<_>>());
    }

    fn in_depot(shared: &Shared<MockBackend>) -> u64 {
        shared.depot.blocks()
    }

    #[test]
    #[cfg_attr(miri, ignore = "a cache has fewer blocks there")]
    fn a_request_prefills_the_cache_with_half_of_the_free_blocks_up_to_a_limit() {
        for (blocks, left) in [(1, 0), (2, 1), (3, 1), (11, 5), (31, 15), (40, 24)] {
            let mock = MockPool::of_blocks();
            hold(&mock, blocks);
            mock.shared.drain_caches();
            assert_eq!(mock.free_list_blocks(), blocks);
            let block = mock.pool.allocate(1000).unwrap();
            assert_eq!(mock.free_list_blocks(), left, "of {blocks}");
            // The prefilled blocks come from the cache.
            let prefilled: Vec<_> = (left + 1..blocks)
                .map(|_| mock.pool.allocate(1000).unwrap())
                .collect();
            assert_eq!(mock.free_list_blocks(), left, "of {blocks}");
            drop((block, prefilled));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "a cache has fewer blocks there")]
    fn a_full_cache_puts_a_magazine_in_the_depot_and_the_next_thread_takes_it() {
        let mock = MockPool::of_blocks();
        hold(&mock, 65);
        assert_eq!(in_depot(&mock.shared), 0);
        hold(&mock, 66);
        assert_eq!((in_depot(&mock.shared), mock.free_list_blocks()), (32, 0));
        thread::scope(|scope| {
            scope.spawn(|| {
                let blocks = (0..32).map(|_| mock.pool.allocate(1000).unwrap());
                let mut blocks: Vec<_> = blocks.collect();
                assert_eq!((in_depot(&mock.shared), mock.free_list_blocks()), (0, 0));
                assert_eq!(mock.pool.statistics().misses, 66);
                blocks.truncate(1);
            });
        });
        assert_eq!(mock.pool.held_blocks(), 66);
    }

    #[test]
    #[cfg_attr(miri, ignore = "a cache has fewer blocks there")]
    fn who_drains_the_caches_is_told_whether_threads_and_the_depot_had_blocks() {
        let mock = MockPool::of_blocks();
        let had_blocks = |drain_from| {
            let mut state = mock.shared.state.lock();
            let drained = mock
                .shared
                .drain_caches_of(&mut state, drain_from, Wanted::All);
            (drained.threads_had_blocks, drained.depot_had_blocks)
        };
        for drain_from in [DrainFrom::Own, DrainFrom::All] {
            hold(&mock, 10);
            assert_eq!(had_blocks(drain_from), (true, false));
            hold(&mock, 66);
            assert_eq!(had_blocks(drain_from), (true, true));
            assert_eq!(had_blocks(drain_from), (false, false));
        }
    }

    /// More than a cache may have besides the block that came back last.
    const LARGE: usize = 9 << 20;

    fn carves_by_itself(mock: &MockPool, queue: &MockQueue, bytes: usize) -> bool {
        let size = mock.shared.size(bytes);
        let carved = mock
            .shared
            .take_beyond_the_cache(queue.id(), size, bytes, 0);
        let carves = carved.is_some();
        drop(carved.map(|carved| PooledBuffer::of_leased(carved.unwrap(), bytes)));
        carves
    }

    /// The blocks and the spare leases of the default queue.
    fn active(mock: &MockPool) -> usize {
        let state = mock.shared.state.lock();
        let key = state.queues.find(mock.queue.id());
        key.map_or(0, |key| state.queues.get(key).unwrap().active)
    }

    #[test]
    #[cfg_attr(miri, ignore = "a thread has fewer leases there")]
    fn a_thread_carves_from_its_arena_and_returns_to_it_by_itself() {
        let mock = MockPool::of_segments();
        let queue = mock.queue.clone();
        let active = || active(&mock);
        let before = active();
        let blocks = [(); 4].map(|()| mock.pool.allocate(LARGE).unwrap());
        let leases = active() - before;
        drop(blocks);
        // All but the youngest are back in the arena, and have left their leases.
        assert_eq!(active() - before, leases);
        assert_eq!(mock.shared.state.lock().held_bytes(), 3 * LARGE as u64);
        assert!(carves_by_itself(&mock, &queue, LARGE));
        let statistics = mock.pool.statistics();
        assert_eq!((statistics.misses, statistics.hits), (4, 1));
        assert_eq!((statistics.active_blocks, statistics.active_bytes), (0, 0));
        // Another queue has no lease yet, and what this one used is not its.
        let other = mock.another_queue();
        assert!(!carves_by_itself(&mock, &other, LARGE));
        drop(mock.pool.allocate_on(&other, LARGE).unwrap());
        assert!(!carves_by_itself(&mock, &other, LARGE));
        // What looks at everything takes the leases.
        mock.shared.drain_caches();
        assert!(!carves_by_itself(&mock, &queue, LARGE));
        assert_eq!(active(), 0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "a thread has fewer leases there")]
    fn hundreds_of_blocks_that_a_thread_frees_in_a_row_leave_their_leases() {
        let mock = MockPool::of_segments();
        let blocks: Vec<_> = (0..200)
            .map(|_| mock.pool.allocate(LARGE).unwrap())
            .collect();
        let leases = active(&mock);
        drop(blocks);
        // A few are lost where the pool has to hear how many bytes were freed.
        assert!(leases - active(&mock) < 20, "{leases}");
    }

    #[test]
    fn a_thread_carves_by_itself_for_each_queue_however_many_there_were() {
        let mock = MockPool::of_segments();
        // Enough ranges that any queue may have: no request goes to the device, and none drains the cache.
        drop(
            (0..50)
                .map(|_| mock.pool.allocate(LARGE).unwrap())
                .collect::<Vec<_>>(),
        );
        mock.shared.drain_caches();
        mock.shared.state.lock().segments.settle(|_| true);
        for number in 0..20 {
            let queue = mock.another_queue();
            drop([(); 2].map(|()| mock.pool.allocate_on(&queue, LARGE).unwrap()));
            assert!(carves_by_itself(&mock, &queue, LARGE), "queue {number}");
        }
    }

    #[test]
    fn a_thread_that_carved_much_carves_by_itself_again_once_the_pool_knows() {
        let mock = MockPool::of_segments();
        let queue = mock.queue.clone();
        drop([(); 2].map(|()| mock.pool.allocate(LARGE).unwrap()));
        for _ in 0..2 {
            drop(mock.shared.lock_and_sync());
            for (bytes, carves) in [(256 << 20, true), (1, false)] {
                mock.shared.count_carved(bytes, bytes);
                assert_eq!(carves_by_itself(&mock, &queue, LARGE), carves, "{bytes}");
            }
        }
    }

    #[test]
    fn no_thread_carves_by_itself_while_the_caches_are_closed() {
        let mock = MockPool::of_segments();
        let queue = mock.queue.clone();
        drop([(); 2].map(|()| mock.pool.allocate(LARGE).unwrap()));
        assert!(carves_by_itself(&mock, &queue, LARGE));
        let closed = mock.shared.drain_and_close_caches();
        assert!(!carves_by_itself(&mock, &queue, LARGE));
        drop(closed);
    }

    #[test]
    fn a_cache_makes_room_by_a_block_that_it_has_and_an_empty_one_has_nothing_to_move() {
        let mock = MockPool::of_blocks();
        let moves = || mock.shared.make_room_under_the_lock();
        assert!(!moves(), "the thread has no cache");
        hold(&mock, 1);
        assert!(moves(), "the youngest block");
        assert_eq!(mock.free_list_blocks(), 1);
        assert!(!moves());
    }

    #[test]
    fn only_requests_of_a_pool_that_knows_its_classes_and_tracks_nothing_look_for_magazines() {
        let looks = |mock: &MockPool| mock.shared.looks_beyond_the_cache();
        let mock = MockPool::of_blocks();
        assert!(looks(&mock));
        mock.pool.watch(WatchOptions::new());
        assert!(!looks(&mock));
        mock.pool.stop_watching();
        assert!(looks(&mock));
        let own = PoolOptions::new().size_classes(Many(1 << 20));
        assert!(!looks(&MockPool::new(own)));
    }
}
