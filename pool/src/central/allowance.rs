//! How many free bytes the thread caches and the bins may keep from the segments.

use binpool_allocators::Backend;

use crate::{
    central::State,
    free::{bins::Bins, thread_cache::Allowance},
};

/// All thread caches together may keep the bytes that may be kept from segments, divided by this. The bins may keep as much.
const CACHE_DIVISOR: u64 = 2;

/// For small blocks, all thread caches together may keep the bytes that may be kept from segments, times this. Small blocks have segments
/// of their own, so a cached one keeps no neighbours from becoming one large range.
const CACHE_FACTOR_FOR_SMALL: u64 = 2;

impl<B: Backend, O> State<B, O> {
    /// Returns how much the cache of a thread with this home may keep.
    pub(crate) fn allowance(&self, home: usize) -> Allowance {
        if !self.carves {
            return Allowance {
                bytes: usize::MAX,
                bytes_for_small: usize::MAX,
                small_bytes: 0,
                largest_youngest: usize::MAX,
                bytes_in_depot: u64::MAX,
                may_be_limited: false,
            };
        }
        let cached = self.segments.cacheable_bytes();
        let threads = self.threads.owners().max(1) as u64;
        let least = self.least_per_thread();
        let within = |bytes: u64| usize::try_from(bytes.max(least)).unwrap_or(usize::MAX);
        let mut allowance = Allowance {
            bytes: within(cached / CACHE_DIVISOR / threads),
            bytes_for_small: within(cached.saturating_mul(CACHE_FACTOR_FOR_SMALL) / threads),
            small_bytes: self.segments.small_bytes(home),
            largest_youngest: usize::MAX,
            bytes_in_depot: self.most_in_bins().saturating_sub(self.bytes_in_bins()),
            may_be_limited: self.rules.retain.may_cache_less(self.segments.high_water()),
        };
        if self.segments.watches_carves(home) {
            allowance.limit_to_small();
        }
        allowance
    }

    /// Returns whether only small blocks of this arena are cached: while it looks for a period of the program, or follows a plan for one. Others would
    /// be missing in the period, and lie where the plan has other blocks.
    pub(crate) fn caches_only_small(&self, home: usize) -> bool {
        let high_water = self.segments.high_water();
        self.rules.retain.may_cache_less(high_water) && self.segments.watches_carves(home)
    }

    fn least_per_thread(&self) -> u64 {
        let high_water = self.segments.high_water();
        self.rules.retain.bytes_per_thread(high_water)
    }

    /// Returns whether the bins have room for one more block of `bytes` bytes.
    pub(crate) fn has_room_in_bins(&self, bytes: usize) -> bool {
        self.bytes_in_bins() + self.depot.bytes() + bytes as u64 <= self.most_in_bins()
    }

    /// The bytes of all blocks in bins.
    pub(crate) fn bytes_in_bins(&self) -> u64 {
        self.all_bins().map(Bins::bytes).sum()
    }

    /// The most bytes that bins and depot may keep from the segments.
    pub(crate) fn most_in_bins(&self) -> u64 {
        if !self.carves {
            return u64::MAX;
        }
        let cached = self.segments.cacheable_bytes();
        if self.threads.owners() == 0 {
            cached
        } else {
            let least = self.least_per_thread();
            (cached / CACHE_DIVISOR).max(least.saturating_mul(self.threads.owners() as u64))
        }
    }
}

#[cfg(test)]
mod tests {
    use binpool_mock::MockBackend;

    use crate::{
        PoolOptions, Retain,
        mock_pool::MockPool,
        shared::{State, ThreadCache},
    };

    const MIB: usize = 1 << 20;

    /// Sets the high water to this many bytes. 1/256 of it may be kept from the segments.
    fn reach(state: &mut State<MockBackend>, bytes: u64) {
        let one = 4096;
        state
            .segments
            .grow(0, one, bytes - one as u64, 256, u64::MAX);
    }

    #[test]
    fn thread_caches_share_one_half_and_bins_have_the_other() {
        let mock = MockPool::of_segments();
        let mut state = mock.shared.state.lock();
        reach(&mut state, 64 << 30);
        // The number of threads, the MiB that each of them may keep, the same with small blocks, and the MiB that the bins may keep.
        let rows = [
            (0, 128, 512, 256),
            (1, 128, 512, 128),
            (2, 64, 256, 128),
            (3, 42, 170, 128),
            (16, 8, 32, 128),
            (64, 2, 8, 128),
            (256, 1, 2, 256),
        ];
        let mut keys = Vec::new();
        for (threads, each, with_small, bins) in rows {
            while keys.len() < threads {
                let allowance = state.allowance(0);
                keys.push(
                    state
                        .threads
                        .add(ThreadCache::new(keys.len(), allowance, None, None)),
                );
            }
            let allowance = state.allowance(0);
            assert_eq!(allowance.bytes / MIB, each, "{threads} threads");
            assert_eq!(allowance.bytes_for_small / MIB, with_small);
            assert_eq!(
                allowance.small_bytes,
                (64 << 30) / 20 / 256 / 8192 * 8192 + 8192
            );
            assert_eq!(state.most_in_bins(), (bins * MIB) as u64);
        }
    }

    #[test]
    fn a_program_says_how_much_each_thread_may_keep_at_least() {
        let retain = Retain::new().per_thread(8 * MIB as u64);
        let mock = MockPool::new(PoolOptions::new().retain(retain));
        let mut state = mock.shared.state.lock();
        let mut keys = Vec::new();
        for number in 0..64 {
            let cache = ThreadCache::new(number, state.allowance(0), None, None);
            keys.push(state.threads.add(cache));
        }
        let allowance = state.allowance(0);
        assert_eq!([allowance.bytes, allowance.bytes_for_small], [8 * MIB; 2]);
        assert_eq!(state.most_in_bins(), 8 * 64 * MIB as u64);
    }

    #[test]
    fn a_pool_that_has_had_little_in_use_may_keep_more_for_each_thread() {
        let mock = MockPool::of_segments();
        let mut state = mock.shared.state.lock();
        for (in_use, each) in [(1, 8), (56, 8), (60, 4), (63, 1), (64, 1), (1024, 2)] {
            reach(&mut state, in_use << 20);
            assert_eq!(state.allowance(0).bytes / MIB, each, "{in_use} MiB in use");
        }
    }

    #[test]
    fn without_segments_blocks_are_cached_without_a_limit() {
        let mock = MockPool::of_blocks();
        let state = mock.shared.state.lock();
        let allowance = state.allowance(0);
        assert_eq!((allowance.bytes, allowance.small_bytes), (usize::MAX, 0));
        drop(state);
        assert!(mock.shared.state.lock().has_room_in_bins(usize::MAX));
    }

    #[test]
    fn bins_and_depot_share_one_limit() {
        let mock = MockPool::of_segments();
        let [one, two, three] = [(); 3].map(|()| mock.cached(3 * MIB));
        let queue = mock.shared.default_queue_id;
        let mut state = mock.shared.state.lock();
        // With one thread, they have room for 8 MiB.
        assert_eq!(state.threads.owners(), 1);
        assert_eq!(state.allowance(0).bytes_in_depot, 8 << 20);
        assert!(state.has_room_in_bins(8 * MIB) && !state.has_room_in_bins(8 * MIB + 1));
        state.depot.leave(0, queue, 0, vec![one]);
        assert!(state.has_room_in_bins(5 * MIB) && !state.has_room_in_bins(5 * MIB + 1));
        state.adopt_into_bin(two);
        assert!(state.has_room_in_bins(2 * MIB) && !state.has_room_in_bins(2 * MIB + 1));
        // The depot has room for what the bins leave.
        assert_eq!(state.allowance(0).bytes_in_depot, 5 << 20);
        drop(state);
        drop(three);
    }
}
