//! How large the next segment is, and what has to go before it comes.

use super::space::Place;

/// The least size of a segment, in bytes; less only for a few small blocks.
const LEAST_SEGMENT: usize = 2 << 20;

/// Segments grow with what the program has in use at most: to one part in this.
const PARTS: u64 = 20;

/// The same where memory is tight, and nothing may be wasted.
const PARTS_WHEN_TIGHT: u64 = 48;

/// The least size of a segment where others leave no room for a usual one, as a part of the same.
const LEAST_PARTS: u64 = 32;

/// Free blocks that may be held back from their segments, for speed: one part in this of the same.
const CACHED_PARTS: u64 = 256;

/// Blocks of up to one part in this of a segment are small, and lie in segments of their own: a small block that lives
/// long would keep its neighbours from becoming one large range.
const SMALL_PARTS: usize = 256;

/// The size of a segment for small blocks, as a part of one for others.
const SMALL_SEGMENT_PARTS: usize = 16;

/// How many blocks of a small size share a segment.
const SMALL_BLOCKS: usize = 128;

/// How many ranges of a segment are in the user's hands at most: each is a view, and drivers keep those of a block in a
/// list that they walk (1.8 us with up to 30, 149 us with 10 000 on an H200).
const MOST_TAKEN: usize = 256;

/// A segment that is free as a whole, and larger than the next one would be, is broken up only for a block of at least
/// three eighths of it.
const LEAST_PIECE: (usize, usize) = (3, 8);

/// The same where memory is tight.
const LEAST_PIECE_WHEN_TIGHT: (usize, usize) = (1, 2);

/// Memory is tight if it is less than six fifths of what the program has had in use.
const TIGHT: (u64, u64) = (5, 6);

/// Where more than one allocation in this had a segment make room for another one, segments are made one.
const OFTEN: u64 = 32;

/// So many of these do not count yet.
const A_FEW: u64 = 12;

/// The largest segment that others are made into, as a part of what the program has in use at most.
const MERGED_PARTS: u64 = 4;

/// The rules of growth, in bytes. They were found by simulation on recorded programs.
#[derive(Debug, Default)]
pub(super) struct Growth {
    /// The most bytes that were in the user's hands, in whole blocks.
    high_water: u64,
    /// How often segments went back to make room for another one.
    replacements: u64,
    /// What all segments would have come to together when the last one was refused.
    refused: Option<u64>,
    /// Whether memory is hardly more than the program has had in use.
    is_tight: bool,
}

impl Growth {
    /// Takes note that so many bytes are in use, where memory can come to `capacity` bytes.
    pub(super) fn reach(&mut self, in_use: u64, capacity: u64) {
        self.high_water = self.high_water.max(in_use);
        self.is_tight = capacity / TIGHT.1 < self.high_water / TIGHT.0;
    }

    /// Whether a block of this size lies among small ones.
    pub(super) fn is_small(&self, bytes: usize) -> bool {
        bytes <= self.general_size() / SMALL_PARTS
    }

    /// Whether a block of `bytes` bytes may lie in a place, if that is in a segment for blocks of its kind.
    pub(super) fn places_for(&self, bytes: usize) -> impl Fn(Place) -> bool + use<> {
        let (piece, of) = if self.is_tight {
            LEAST_PIECE_WHEN_TIGHT
        } else {
            LEAST_PIECE
        };
        let general = self.general_size();
        let may_break_up = move |whole: usize| whole <= general || bytes / piece >= whole / of;
        move |place| place.taken < MOST_TAKEN && place.whole.is_none_or(may_break_up)
    }

    /// The most bytes of free blocks that may be held back from their segments.
    pub(super) fn cached_bytes(&self) -> u64 {
        let part = self.high_water / CACHED_PARTS;
        part.max(LEAST_SEGMENT as u64)
    }

    /// The most bytes that segments may have together while some of them are free: 1.05 times what the program had in use
    /// at most.
    pub(super) fn most(&self) -> u64 {
        let slack = (self.high_water / 20).max(LEAST_SEGMENT as u64);
        let most = self.high_water.saturating_add(slack);
        self.refused.map_or(most, |refused| most.min(refused - 1))
    }

    /// Takes note that there was no memory for a segment, with which all would have come to `bytes` bytes.
    pub(super) fn refuse(&mut self, bytes: u64) {
        self.refused = Some(bytes.max(1));
    }

    /// Takes note that all segments come to `bytes` bytes now.
    pub(super) fn accept(&mut self, bytes: u64) {
        self.refused = self.refused.filter(|refused| bytes < *refused);
    }

    /// The size of the segment for a block of `bytes` bytes: its own, where that is more than half of the usual.
    pub(super) fn segment_for(&self, bytes: usize) -> usize {
        let general = self.general_size();
        let usual = if self.is_small(bytes) {
            general / SMALL_SEGMENT_PARTS
        } else {
            general
        };
        if bytes > usual / 2 {
            bytes
        } else {
            usual.min(bytes.saturating_mul(SMALL_BLOCKS))
        }
    }

    /// The same, where that is more than there is room for.
    pub(super) fn least_segment_for(&self, bytes: usize, alignment: usize) -> usize {
        let least = usize::try_from(self.high_water / LEAST_PARTS).unwrap_or(usize::MAX);
        let least = least - least % alignment;
        self.segment_for(bytes).min(least).max(bytes)
    }

    /// Takes note that segments went back to make room for another one. Whether that happens so often, in so many
    /// allocations, that those which are free had better be one.
    pub(super) fn replaces_often(&mut self, allocations: u64) -> bool {
        self.replacements += 1;
        !self.is_tight && self.replacements > A_FEW + allocations / OFTEN
    }

    /// The largest segment that others are made into.
    pub(super) fn most_merged(&self) -> u64 {
        self.high_water / MERGED_PARTS
    }

    /// The size of a segment for blocks of any size.
    fn general_size(&self) -> usize {
        let parts = if self.is_tight {
            PARTS_WHEN_TIGHT
        } else {
            PARTS
        };
        let part = usize::try_from(self.high_water / parts).unwrap_or(usize::MAX);
        part.checked_next_multiple_of(LEAST_SEGMENT)
            .unwrap_or(part)
            .max(LEAST_SEGMENT)
    }
}

#[cfg(test)]
mod tests;
