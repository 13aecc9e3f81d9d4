//! How much threads, and the pool's own bins, may hold back from segments.

use binpool_allocators::{Allocator, MemoryOf, segments::Segments};

use crate::{
    bins::Bins,
    lane::Uses,
    state::State,
    thread_cache::{Allowance, Cached, bytes_of},
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
