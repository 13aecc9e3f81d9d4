//! How much threads, and the pool's own bins, may hold back from segments.

use binpool_allocators::{Allocator, MemoryOf, segments::Segments};

use crate::{
    at_hand::thread_cache::{Allowance, Cached, bytes_of},
    state::{State, bins::Bins, lane::Uses},
};

/// Threads together, and the pool's own bins, have one part in so many of the bytes that may be held back from segments.
const CACHED_PARTS: u64 = 2;

/// The least bytes that a thread may keep, and the least for each thread that the pool's own bins may hold back.
const LEAST_BYTES: u64 = 8 << 20;

/// A block serves a smaller request than it should up to one part in so many of the same bytes: what is wasted then is less
/// than the caches may take anyway.
const LOOSE_PARTS: u64 = 256;

impl<A: Allocator> State<A> {
    /// How much each thread may keep.
    pub(crate) fn allowance(&self) -> Allowance {
        let Some(segments) = &self.segments else {
            return Allowance {
                bytes: usize::MAX,
                loose_bytes: 0,
            };
        };
        let cached = segments.cached_bytes();
        let threads = self.threads.len().max(1) as u64;
        let within = |bytes| usize::try_from(bytes).unwrap_or(usize::MAX);
        Allowance {
            bytes: within((cached / CACHED_PARTS / threads).max(LEAST_BYTES)),
            loose_bytes: within(cached / LOOSE_PARTS),
        }
    }

    /// Whether these blocks may be held back from segments.
    pub(crate) fn has_room_in_bins(&self, blocks: &[Cached<A>]) -> bool {
        self.segments.as_ref().is_none_or(|segments| {
            self.binned_bytes() + bytes_of(blocks) as u64 <= self.most_in_bins(segments)
        })
    }

    /// The bytes of all blocks that are held back from segments, and not at the hand of a thread.
    pub(crate) fn binned_bytes(&self) -> u64 {
        let binned: u64 = self.all_bins().map(Bins::bytes).sum();
        binned + self.depot.bytes() as u64
    }

    /// The most bytes that the pool's own bins may hold back from segments.
    pub(crate) fn most_in_bins(&self, segments: &Segments<MemoryOf<A>, Uses>) -> u64 {
        let cached = segments.cached_bytes();
        if self.threads.len() == 0 {
            cached
        } else {
            (cached / CACHED_PARTS).max(LEAST_BYTES * self.threads.len() as u64)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        at_hand::thread_cache::ThreadCache,
        mock_pool::{Immediate, MockPool},
    };

    const MIB: usize = 1 << 20;

    /// Takes note that so many bytes have been in use, of which one part in 256 may be held back.
    fn reach(state: &mut State<Immediate>, bytes: u64) {
        let segments = state.segments.as_mut().unwrap();
        let one = 4096;
        segments.grow(one, bytes - one as u64, 256, 0, u64::MAX);
    }

    #[test]
    fn threads_share_a_half_and_the_bins_have_the_other() {
        let mock = MockPool::of_segments();
        let mut state = mock.shared.state.lock();
        reach(&mut state, 64 << 30);
        // How many threads, and how many MiB each of them may keep, and all bins.
        let rows = [
            (0, 128, 256),
            (1, 128, 128),
            (2, 64, 128),
            (3, 42, 128),
            (16, 8, 128),
            (32, 8, 256),
        ];
        let mut keys = Vec::new();
        for (threads, each, bins) in rows {
            while keys.len() < threads {
                let allowance = state.allowance();
                keys.push(state.threads.add(ThreadCache::new(allowance, None)));
            }
            let allowance = state.allowance();
            assert_eq!(allowance.bytes / MIB, each, "{threads} threads");
            assert_eq!(allowance.loose_bytes, MIB);
            let segments = state.segments.as_ref().unwrap();
            assert_eq!(
                state.most_in_bins(segments),
                (bins * MIB) as u64,
                "{threads} threads"
            );
        }
    }

    #[test]
    fn blocks_that_no_segment_is_short_of_are_kept_without_a_limit() {
        let mock = MockPool::of_blocks();
        let state = mock.shared.state.lock();
        let allowance = state.allowance();
        assert_eq!((allowance.bytes, allowance.loose_bytes), (usize::MAX, 0));
        drop(state);
        let blocks = [(); 3].map(|()| mock.cached(512 * MIB));
        assert!(mock.shared.state.lock().has_room_in_bins(&blocks));
    }

    #[test]
    fn bins_hold_back_what_they_have_room_for() {
        let mock = MockPool::of_segments();
        let blocks = [(); 3].map(|()| mock.cached(4 * MIB));
        let small = [mock.cached(256)];
        let queue = mock.shared.home_id;
        let mut state = mock.shared.state.lock();
        // One thread, so that there is room for 8 MiB.
        assert_eq!(state.threads.len(), 1);
        assert!(state.has_room_in_bins(&blocks[..2]));
        assert!(!state.has_room_in_bins(&blocks));
        let [one, two, three] = blocks;
        state.depot.leave(queue, 0, vec![one]);
        assert!(state.has_room_in_bins(&[two]));
        state.let_into_bin(three);
        assert_eq!(state.binned_bytes(), 8 * MIB as u64);
        assert!(!state.has_room_in_bins(&small));
    }
}
