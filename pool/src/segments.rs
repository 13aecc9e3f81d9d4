//! Large pieces of device memory, and the blocks that are carved from them.

use std::sync::Arc;

use binpool_allocators::{Allocator, MemoryOf, Region};

use crate::{
    bins::{Block, HeldBlock},
    lane::Use,
    space::{ChunkKey, SegmentKey, Space},
};

/// The least size of a segment, in bytes; less only for a few small blocks.
const LEAST_SEGMENT: usize = 2 << 20;

/// Segments grow with what the program has in use at most: to one part in this.
const PARTS: u64 = 24;

/// The least size of a segment once memory is tight, as a part of what the program has in use at most.
const TIGHT_PARTS: u64 = 64;

/// Free blocks that the pool's bins hold back from their segments: one part in this of the same. With one in 64 a
/// recorded program took 1.11 times its peak instead of 1.08.
const CACHED_PARTS: u64 = 256;

/// Blocks of up to one part in this of a segment are small, and lie in segments of their own: a small block that lives
/// long would keep its neighbours from becoming one large range.
const SMALL_PARTS: usize = 256;

/// The size of a segment for small blocks, as a part of one for others.
const SMALL_SEGMENT_PARTS: usize = 16;

/// How many blocks of a small size share a segment.
const SMALL_BLOCKS: usize = 256;

/// A range that was taken for a block, and its segment, to make a view of.
#[derive(Debug)]
pub(crate) struct Carved<A: Allocator> {
    pub(crate) chunk: ChunkKey,
    pub(crate) region: Region,
    pub(crate) segment: Arc<MemoryOf<A>>,
}

/// The segments of a pool.
///
/// A block is a view of its segment, and its range is free only once the view has gone: NVIDIA's driver crashes in kernels
/// on a buffer of which there are views that overlap.
///
/// Best fit with three rules, found by simulation on recorded programs:
///
/// - a segment is one part in 24 of the most that the program has had in use, or, for a request of more than half of
///   that, of the request's own size;
/// - before the pool grows past 1.05 times the most that the program has had in use (and that and a least segment, if
///   that is more), segments that are free as a whole go back to the allocator, the least one that is enough first;
/// - a large segment that is free as a whole is not broken up for a small block, and small blocks have segments of their
///   own.
#[derive(Debug)]
pub(crate) struct Segments<A: Allocator> {
    pub(crate) space: Space,
    /// By their keys in the space.
    roots: Vec<Option<Arc<MemoryOf<A>>>>,
    /// The most bytes that were in the user's hands, in whole blocks.
    high_water: u64,
}

impl<A: Allocator> Default for Segments<A> {
    fn default() -> Self {
        Self {
            space: Space::default(),
            roots: Vec::new(),
            high_water: 0,
        }
    }
}

impl<A: Allocator> Segments<A> {
    /// Takes a range of `bytes` bytes that `usable` picks by the commands that may still use it.
    pub(crate) fn take(
        &mut self,
        bytes: usize,
        usable: impl Fn(&[Use]) -> bool,
    ) -> Option<Carved<A>> {
        let general = self.general_size();
        let small = self.is_small(bytes);
        let taken = self.space.take(bytes, small, |uses, whole| {
            whole.is_none_or(|whole| whole <= general || bytes >= whole / 2) && usable(uses)
        })?;
        let root = self.roots.get(taken.segment)?.as_ref()?;
        Some(Carved {
            chunk: taken.chunk,
            region: taken.region,
            segment: Arc::clone(root),
        })
    }

    /// Adds a segment of `size` bytes, and takes the first `bytes` of it.
    pub(crate) fn add(&mut self, memory: MemoryOf<A>, size: usize, bytes: usize) -> Carved<A> {
        let small = self.is_small(bytes);
        let key = self.space.add(size, small);
        let taken = self.space.take_first(key, bytes);
        if self.roots.len() <= key {
            self.roots.resize_with(key + 1, || None);
        }
        let root = Arc::new(memory);
        self.roots[key] = Some(Arc::clone(&root));
        Carved {
            chunk: taken.chunk,
            region: taken.region,
            segment: root,
        }
    }

    /// Takes a segment away that is free as a whole.
    fn remove(&mut self, key: SegmentKey, bytes: usize, leaving: &mut Vec<HeldBlock<A>>) {
        let Some(uses) = self.space.remove(key) else {
            return;
        };
        let root = self.roots.get_mut(key).and_then(Option::take);
        // Whoever makes a view of it has a range of it, so that nobody does.
        if let Some(memory) = root.and_then(Arc::into_inner) {
            let block = Block {
                memory,
                bin: 0,
                bytes,
                chunk: None,
            };
            leaving.push(HeldBlock { block, uses });
        }
    }

    /// Whether the pool may hold so many bytes of free blocks back from their segments.
    pub(crate) fn may_cache(&self, bytes: u64) -> bool {
        bytes <= self.high_water / CACHED_PARTS
    }

    /// Whether a block of this size lies among small ones.
    fn is_small(&self, bytes: usize) -> bool {
        bytes <= self.general_size() / SMALL_PARTS
    }

    /// The size of a segment for blocks of any size.
    fn general_size(&self) -> usize {
        let part = usize::try_from(self.high_water / PARTS).unwrap_or(usize::MAX);
        part.checked_next_multiple_of(LEAST_SEGMENT)
            .unwrap_or(part)
            .max(LEAST_SEGMENT)
    }

    /// The size of the segment to ask the allocator for, to serve a request of `bytes` bytes while the user has
    /// `in_use` bytes, and the segments that have to go first.
    pub(crate) fn grow(
        &mut self,
        bytes: usize,
        in_use: u64,
        alignment: usize,
    ) -> (usize, Vec<HeldBlock<A>>) {
        self.high_water = self.high_water.max(in_use.saturating_add(bytes as u64));
        let general = self.general_size();
        let small = bytes.saturating_mul(SMALL_BLOCKS);
        let general = if self.is_small(bytes) {
            general / SMALL_SEGMENT_PARTS
        } else {
            general
        };
        let size = if bytes > general / 2 {
            bytes
        } else {
            general.min(small)
        };
        let slack = (self.high_water / 20).max(LEAST_SEGMENT as u64);
        let most = self.high_water.saturating_add(slack);
        let mut leaving = Vec::new();
        self.release_idle(size as u64, most, &mut leaving);
        if self.space.bytes() + size as u64 <= most {
            return (size, leaving);
        }
        let tight = usize::try_from(self.high_water / TIGHT_PARTS).unwrap_or(usize::MAX);
        let tight = tight - tight % alignment;
        (size.min(tight).max(bytes), leaving)
    }

    /// Takes segments away that are free as a whole until there is room for `size` bytes below `most`: the least one
    /// that is enough, or else the largest.
    fn release_idle(&mut self, size: u64, most: u64, leaving: &mut Vec<HeldBlock<A>>) {
        loop {
            let excess = (self.space.bytes() + size).saturating_sub(most);
            let idle = self.space.idle().map(|(key, bytes, _)| (bytes, key));
            let next = idle.min_by_key(|(bytes, _)| {
                let is_enough = *bytes as u64 >= excess;
                (
                    !is_enough,
                    if is_enough {
                        *bytes
                    } else {
                        usize::MAX - *bytes
                    },
                )
            });
            match next {
                Some((bytes, key)) if excess > 0 => self.remove(key, bytes, leaving),
                _ => return,
            }
        }
    }

    /// Takes segments away that are free as a whole and that `wanted` picks by the commands that may still use them,
    /// largest first, until they have `enough` bytes together.
    pub(crate) fn release(
        &mut self,
        enough: u64,
        wanted: impl Fn(&[Use]) -> bool,
    ) -> Vec<HeldBlock<A>> {
        let mut leaving = Vec::new();
        let idle = self.space.idle().filter(|(_, _, uses)| wanted(uses));
        let mut idle: Vec<(usize, SegmentKey)> = idle.map(|(key, bytes, _)| (bytes, key)).collect();
        idle.sort_unstable_by(|one, two| two.cmp(one));
        let mut released = 0;
        for (bytes, key) in idle {
            if released >= enough {
                break;
            }
            released += bytes as u64;
            self.remove(key, bytes, &mut leaving);
        }
        leaving
    }
}
