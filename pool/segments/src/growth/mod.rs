//! The rules of growth: the size of the next segment, and which segments are released before it is made.

use super::placement::Placement;
use crate::GrowthPolicy;

/// The least size of a segment in bytes; only a few small blocks get less.
pub(super) const LEAST_SEGMENT: usize = 2 << 20;

/// A segment has one part in this of the high water.
const PARTS: u64 = 20;

/// A segment for small blocks has one part in this of another segment.
const SMALL_SEGMENT_PARTS: usize = 16;

/// Blocks of up to one part in this of a usual segment are small, and lie in segments of their own: a small block that lives long would
/// otherwise keep its neighbours from being joined to one large range.
const SMALL_PARTS: usize = 256;

/// The free blocks that may be cached outside of their segments: one part in this of the high water.
const CACHED_PARTS: u64 = 256;

/// While some of them are idle, segments may exceed the high water by this percentage of it.
const fn slack_percent(policy: GrowthPolicy) -> u64 {
    match policy {
        GrowthPolicy::Balanced => 10,
        GrowthPolicy::Dense => 1,
    }
}

/// With the densest policy, a block of more than one part in this of a usual segment has a segment of its own, which can go back as soon as the
/// block is free.
const DENSE_OWN_PARTS: usize = 20;

/// A block of up to this many bytes has no segment of its own: a small program, or one that has just begun, would otherwise get each of its
/// blocks from the device.
const LEAST_OWN: usize = LEAST_SEGMENT / 2;

/// New pages have at most one part in this of the high water. Smaller ones fit more holes, and take more calls.
const PAGE_PARTS: u64 = 128;

/// The rules of growth, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Growth {
    policy: GrowthPolicy,
    /// The high water: the most bytes that were in use at once, in whole blocks.
    high_water: u64,
    /// The same of pages with anything in use, as seen at requests for more of them.
    pages_high_water: u64,
    /// The size that all segments together would have had when one was last refused.
    refused: Option<u64>,
    /// How much the device had for these segments, by its own figure of free memory.
    room: Option<u64>,
    /// Set if the high water is more than half of the capacity.
    is_tight: bool,
}

impl Growth {
    pub(super) fn new(policy: GrowthPolicy) -> Self {
        Self {
            policy,
            ..Self::default()
        }
    }

    /// Records that `in_use` bytes are in use, with a capacity of `capacity` bytes.
    pub(super) fn reach(&mut self, in_use: u64, capacity: u64) {
        self.high_water = self.high_water.max(in_use);
        let capacity = self.room.map_or(capacity, |room| capacity.min(room));
        self.is_tight = capacity / 2 < self.high_water;
    }

    /// Records that pages of `bytes` bytes have anything in use.
    pub(super) fn reach_pages(&mut self, bytes: u64) {
        self.pages_high_water = self.pages_high_water.max(bytes);
    }

    /// Returns the rules for an arena that has `bytes` of the `all` bytes of segments: those of a program with the same fraction of the
    /// high water. Its segments are then smaller, so that the arena has about as much as its threads use.
    pub(super) fn of_arena(&self, bytes: u64, all: u64) -> Self {
        if bytes == all {
            return *self;
        }
        let part = u128::from(self.high_water) * u128::from(bytes) / u128::from(all.max(1));
        Self {
            high_water: u64::try_from(part).unwrap_or(u64::MAX),
            ..*self
        }
    }

    /// Returns whether a block of this size goes to a segment for small blocks.
    pub(super) fn is_small(&self, bytes: usize) -> bool {
        bytes <= self.small_bytes()
    }

    /// The most bytes of a small block.
    pub(super) fn small_bytes(&self) -> usize {
        self.general_size() / SMALL_PARTS
    }

    /// Returns which free ranges may serve which blocks at the moment.
    pub(super) fn placement(&self) -> Placement {
        let large = if self.policy() == GrowthPolicy::Dense {
            self.general_size() / 2
        } else {
            usize::MAX
        };
        Placement {
            small_bytes: self.small_bytes(),
            large,
        }
    }

    /// Returns whether one segment may take the place of idle ones: not if they go back soon anyway.
    pub(super) fn joins_idle(&self) -> bool {
        self.policy() != GrowthPolicy::Dense
    }

    /// The policy for segments: the densest where memory is tight.
    fn policy(&self) -> GrowthPolicy {
        if self.is_tight {
            GrowthPolicy::Dense
        } else {
            self.policy
        }
    }

    /// Records that the device has `bytes` bytes for these segments, including those that they have.
    pub(super) fn set_room(&mut self, bytes: u64) {
        self.room = Some(bytes);
    }

    /// The most bytes that were in use at once.
    pub(super) fn high_water(&self) -> u64 {
        self.high_water
    }

    /// The most bytes of free blocks that may be cached outside of their segments.
    pub(super) fn cacheable_bytes(&self) -> u64 {
        let part = self.high_water / CACHED_PARTS;
        part.max(LEAST_SEGMENT as u64)
    }

    /// The most bytes that segments may have together while some of them are idle: at least `least` more than the high water, and less than
    /// what was refused.
    pub(super) fn most(&self, least: usize) -> u64 {
        let slack = self.high_water / 100 * slack_percent(self.policy());
        let most = self.high_water.saturating_add(slack.max(least as u64));
        self.refused.map_or(most, |refused| most.min(refused - 1))
    }

    /// The most bytes of pages that are mapped while some of them are free and can be moved: `slack` thousandths more than were in use at once.
    pub(super) fn most_mapped(&self, slack: u64) -> u64 {
        let most = self.pages_high_water;
        most.saturating_add((most / 1000).saturating_mul(slack))
    }

    /// The most bytes of each of the new pages for a block that is not small: a power of two, and at least `page` bytes.
    pub(super) fn new_pages(&self, page: usize) -> usize {
        let part = usize::try_from(self.high_water / PAGE_PARTS).unwrap_or(usize::MAX);
        part.checked_ilog2()
            .map_or(page, |bits| page.max(1 << bits))
    }

    /// Records that a segment was refused with which all segments would have had `bytes` bytes.
    pub(super) fn refuse(&mut self, bytes: u64) {
        self.refused = Some(bytes.max(1));
    }

    /// Records that a segment was made, with which all have `bytes` bytes.
    pub(super) fn accept(&mut self, bytes: u64) {
        self.refused = self.refused.filter(|refused| bytes < *refused);
    }

    /// Returns the size of the segment for a block of `bytes` bytes: the usual one, as far as it is a whole number of such blocks, so that no
    /// end of the segment is left over, or the size of a block that is larger.
    pub(super) fn segment_for(&self, bytes: usize) -> usize {
        let general = self.general_size();
        let usual = if self.is_small(bytes) {
            general / SMALL_SEGMENT_PARTS
        } else {
            general
        };
        let is_dense = self.policy() == GrowthPolicy::Dense;
        if is_dense && bytes > (usual / DENSE_OWN_PARTS).max(LEAST_OWN) {
            return bytes;
        }
        let blocks = usual / bytes.max(1);
        bytes.saturating_mul(blocks.max(1))
    }

    /// The usual size of a segment, for blocks of any size.
    fn general_size(&self) -> usize {
        let part = usize::try_from(self.high_water / PARTS).unwrap_or(usize::MAX);
        part.checked_next_multiple_of(LEAST_SEGMENT)
            .unwrap_or(part)
            .max(LEAST_SEGMENT)
    }
}

#[cfg(test)]
mod tests;
