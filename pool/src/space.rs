//! Which ranges of which segments are free: best fit, and neighbours that become one again.

use std::collections::BTreeSet;

use binpool_allocators::Region;
use slab::Slab;

use crate::lane::{Use, Uses};

/// Names a segment of a [`Space`] while it is there.
pub(crate) type SegmentKey = usize;

/// Names a range of a [`Space`] from its taking until it is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkKey(usize);

/// A range in its user's hands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub(crate) chunk: ChunkKey,
    pub(crate) segment: SegmentKey,
    pub(crate) region: Region,
}

/// A range of a segment, free or taken. The ranges of a segment lie next to each other, from its start to its end.
#[derive(Debug)]
struct Chunk {
    segment: SegmentKey,
    region: Region,
    before: Option<usize>,
    after: Option<usize>,
    /// The commands that may still use it, where it is free.
    free: Option<Uses>,
}

#[derive(Debug)]
struct Segment {
    bytes: usize,
    first: usize,
    /// Ranges in the user's hands.
    taken: usize,
    /// Whether it is for small blocks.
    is_small: bool,
}

/// How many ranges of a segment are in the user's hands at most: each is a sub-buffer, and drivers keep those of a
/// buffer in a list that they walk (1.8 us with up to 30, 149 us with 10 000 on an H200).
const MOST_TAKEN: usize = 512;

/// Which ranges of which segments are free. Knows nothing of memory: everything here is numbers.
///
/// Taking and giving back cost a few steps in a tree, `O(log n)`, and what they touch in the list of neighbours.
///
/// # Invariants
///
/// - S1: the chunks of a segment cover it without a gap, and `before` and `after` link them in order.
/// - S2: `free` has the size and the key of each free chunk, and nothing else.
/// - S3: two free neighbours stay apart only if different queues keep them from their next user.
#[derive(Debug, Default)]
pub(crate) struct Space {
    segments: Slab<Segment>,
    chunks: Slab<Chunk>,
    free: BTreeSet<(usize, usize)>,
    free_bytes: u64,
    bytes: u64,
}

impl Space {
    /// The bytes of all segments.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    /// The size of the largest free range.
    pub(crate) fn largest_free(&self) -> usize {
        self.free.last().map_or(0, |(bytes, _)| *bytes)
    }

    /// The commands that may still use free ranges, and the sizes of these.
    pub(crate) fn uses(&self) -> impl Iterator<Item = (&Uses, usize)> {
        self.free.iter().filter_map(|(bytes, key)| {
            let uses = self.chunks[*key].free.as_ref()?;
            (!uses.is_empty()).then_some((uses, *bytes))
        })
    }

    /// Adds a segment for small blocks, or for others, all of it free.
    pub(crate) fn add(&mut self, bytes: usize, is_small: bool) -> SegmentKey {
        let segment = self.segments.vacant_key();
        let first = self.chunks.insert(Chunk {
            segment,
            region: Region::first(bytes),
            before: None,
            after: None,
            free: Some(Uses::new()),
        });
        self.bytes += bytes as u64;
        self.free_bytes += bytes as u64;
        self.free.insert((bytes, first));
        self.segments.insert(Segment {
            bytes,
            first,
            taken: 0,
            is_small,
        })
    }

    /// The segments that are free as a whole, with their sizes and the commands that may still use them.
    pub(crate) fn idle(&self) -> impl Iterator<Item = (SegmentKey, usize, &Uses)> {
        self.segments.iter().filter_map(|(key, segment)| {
            let first = &self.chunks[segment.first];
            let uses = first.free.as_ref()?;
            (first.region.bytes == segment.bytes).then_some((key, segment.bytes, uses))
        })
    }

    /// Takes a segment away that is free as a whole. The commands that may still use it.
    pub(crate) fn remove(&mut self, key: SegmentKey) -> Option<Uses> {
        let segment = self.segments.get(key)?;
        let (first, bytes) = (segment.first, segment.bytes);
        if self.chunks[first].region.bytes != bytes {
            return None;
        }
        let uses = self.chunks[first].free.take()?;
        self.free.remove(&(bytes, first));
        self.chunks.remove(first);
        self.segments.remove(key);
        self.bytes -= bytes as u64;
        self.free_bytes -= bytes as u64;
        Some(uses)
    }

    /// Takes `bytes` bytes from the start of the smallest free range in a segment for small blocks, or for others, that has
    /// them and that `usable` picks; it is told
    /// the commands that may still use the range, and its size where that is a whole segment.
    pub(crate) fn take(
        &mut self,
        bytes: usize,
        is_small: bool,
        usable: impl Fn(&[Use], Option<usize>) -> bool,
    ) -> Option<Taken> {
        let fits = self.free.range((bytes, 0)..);
        let (_, key) = fits.copied().find(|(size, key)| {
            let chunk = &self.chunks[*key];
            let segment = &self.segments[chunk.segment];
            let uses = chunk.free.as_deref().unwrap_or_default();
            segment.taken < MOST_TAKEN
                && segment.is_small == is_small
                && usable(uses, (segment.bytes == *size).then_some(*size))
        })?;
        Some(self.seize(key, bytes))
    }

    /// Takes `bytes` bytes from the start of a segment that has just been added.
    pub(crate) fn take_first(&mut self, segment: SegmentKey, bytes: usize) -> Taken {
        self.seize(self.segments[segment].first, bytes)
    }

    /// Takes `bytes` bytes from the start of a free chunk that has them.
    fn seize(&mut self, key: usize, bytes: usize) -> Taken {
        let chunk = &mut self.chunks[key];
        let size = chunk.region.bytes;
        let uses = chunk.free.take();
        self.free.remove(&(size, key));
        self.free_bytes -= bytes as u64;
        if size > bytes {
            let chunk = &mut self.chunks[key];
            let (segment, region, after) = (chunk.segment, chunk.region, chunk.after);
            chunk.region.bytes = bytes;
            let rest = self.chunks.insert(Chunk {
                segment,
                region: Region::new(region.offset + bytes, size - bytes),
                before: Some(key),
                after,
                free: uses,
            });
            self.chunks[key].after = Some(rest);
            if let Some(after) = after {
                self.chunks[after].before = Some(rest);
            }
            self.free.insert((size - bytes, rest));
        }
        let chunk = &self.chunks[key];
        self.segments[chunk.segment].taken += 1;
        Taken {
            chunk: ChunkKey(key),
            segment: chunk.segment,
            region: chunk.region,
        }
    }

    /// Gives a range back, which these commands may still use.
    pub(crate) fn give(&mut self, ChunkKey(key): ChunkKey, uses: Uses) {
        let chunk = &mut self.chunks[key];
        let bytes = chunk.region.bytes;
        self.segments[chunk.segment].taken -= 1;
        chunk.free = Some(uses);
        self.free_bytes += bytes as u64;
        self.free.insert((bytes, key));
        self.join(key);
    }

    /// Takes note of what has ended, and joins what that kept apart.
    pub(crate) fn settle(&mut self, are_over: impl Fn(&[Use]) -> bool) {
        let keys: Vec<usize> = self.free.iter().map(|(_, key)| *key).collect();
        for key in &keys {
            if let Some(uses) = &mut self.chunks[*key].free
                && are_over(uses)
            {
                uses.clear();
            }
        }
        for key in keys {
            // It may have become a part of another one meanwhile.
            if self
                .chunks
                .get(key)
                .is_some_and(|chunk| chunk.free.is_some())
            {
                self.join(key);
            }
        }
    }

    /// Makes a free range one with its free neighbours, where S3 lets it.
    fn join(&mut self, mut key: usize) {
        if let Some(before) = self.chunks[key].before
            && let Some(uses) = self.joined(before, key)
        {
            self.absorb(before, key, uses);
            key = before;
        }
        if let Some(after) = self.chunks[key].after
            && let Some(uses) = self.joined(key, after)
        {
            self.absorb(key, after, uses);
        }
    }

    /// The uses of two free neighbours together, if they may be one.
    fn joined(&self, one: usize, two: usize) -> Option<Uses> {
        let mut uses = self.chunks[one].free.clone()?;
        for use_ in self.chunks[two].free.as_ref()? {
            match uses.iter_mut().find(|other| other.lane == use_.lane) {
                Some(other) => other.stamp = other.stamp.max(use_.stamp),
                None => uses.push(*use_),
            }
        }
        (uses.len() <= 1).then_some(uses)
    }

    /// Makes `after` a part of its neighbour `before`.
    fn absorb(&mut self, before: usize, after: usize, uses: Uses) {
        let gone = self.chunks.remove(after);
        self.free.remove(&(gone.region.bytes, after));
        let chunk = &mut self.chunks[before];
        self.free.remove(&(chunk.region.bytes, before));
        chunk.region.bytes += gone.region.bytes;
        chunk.after = gone.after;
        chunk.free = Some(uses);
        self.free.insert((chunk.region.bytes, before));
        if let Some(next) = gone.after {
            self.chunks[next].before = Some(before);
        }
    }
}

#[cfg(test)]
#[path = "space/tests.rs"]
mod tests;
