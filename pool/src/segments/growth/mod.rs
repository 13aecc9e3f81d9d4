//! The rules of growth: the size of the next segment, and which segments are released before it is made.

mod rules;

use super::{placement::Placement, regret::Regret};
use crate::segments::GrowthPolicy;
use rules::Rules;

/// The least size of a segment in bytes; only a few small blocks get less.
const LEAST_SEGMENT: usize = 2 << 20;

/// A segment has one part in this of the high water.
const PARTS: u64 = 20;

/// The same where memory is tight, so that little is wasted.
const PARTS_WHEN_TIGHT: u64 = 48;

/// The same where other segments leave no room for a usual one.
const LEAST_PARTS: u64 = 32;

/// A segment for small blocks has one part in this of another segment.
const SMALL_SEGMENT_PARTS: usize = 16;

/// Where memory is tight, a segment that is entirely free, and larger than the next one would be, is split only for a block of at least
/// this part of it.
const LEAST_PIECE_WHEN_TIGHT: (usize, usize) = (1, 2);

/// Once this many times the high water was regretted, a large segment that is entirely free is split for a block of this part of it.
const REPEATED: (u64, (usize, usize)) = (1, (1, 5));

/// Once this many times the high water was regretted, it is split for any block.
const REPEATED_OFTEN: u64 = 4;

/// Where more than this many times the high water was requested although as much was free but held back by commands, the allowance rises
/// further, by one part in the second number of that. So a program whose queues hold memory back from each other also stops calling the
/// device.
const HELD_BACK: (u64, u64) = (8, 16);

/// A block of up to this many bytes has no segment of its own: a program that has just begun would otherwise get each of its blocks from
/// the device.
const LEAST_OWN: usize = 1 << 20;

// A segment has room for two of them.
const _: () = assert!(2 * LEAST_OWN <= LEAST_SEGMENT);

/// Pages that are mapped while others are free may exceed the high water of pages in use by one part in this of it: with none, a program whose
/// pages are all in use moves some whenever its blocks lie a little differently.
const PAGE_SLACK_PARTS: u64 = 50;

/// The same once pages have moved: one part in this of what has moved, so that moves end where a program repeats its work.
const MOVED_PARTS: u64 = 32;

/// The most of that, in percent of the high water of pages in use.
const MOST_PAGE_SLACK_PERCENT: u64 = 5;

/// The most bytes of new pages. Up to here a call for pages costs the same whatever their size.
const MOST_PAGES: usize = 128 << 20;

/// Memory is tight if the high water is more than this part of the capacity.
const TIGHT: (u64, u64) = (5, 6);

/// The rules of growth, in bytes. They were found by simulation on recorded programs.
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
    /// Set if the last request raised the high water.
    is_rising: bool,
    /// Set if the capacity is little more than the high water.
    is_tight: bool,
    regret: Regret,
    /// What was requested while commands held back as much free memory.
    held_back: Regret,
    /// What has moved to other places.
    moved: Regret,
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
        self.is_rising = in_use > self.high_water;
        self.high_water = self.high_water.max(in_use);
        let capacity = self.room.map_or(capacity, |room| capacity.min(room));
        self.is_tight = capacity / TIGHT.1 < self.high_water / TIGHT.0;
    }

    /// Records that pages of `bytes` bytes move.
    pub(super) fn moves(&mut self, bytes: u64) {
        self.moved.add(bytes);
    }

    /// Records that pages of `bytes` bytes have anything in use.
    pub(super) fn reach_pages(&mut self, bytes: u64) {
        self.pages_high_water = self.pages_high_water.max(bytes);
    }

    /// Returns the rules for an arena that has `bytes` of the `all` bytes of segments: those of a program with the same fraction of the
    /// high water, and of the regret. Its segments are then smaller, so that the arena has about as much as its threads use.
    pub(super) fn of_arena(&self, bytes: u64, all: u64) -> Self {
        if bytes == all {
            return *self;
        }
        let part = |of: u64| {
            let part = u128::from(of) * u128::from(bytes) / u128::from(all.max(1));
            u64::try_from(part).unwrap_or(u64::MAX)
        };
        Self {
            high_water: part(self.high_water),
            regret: self.regret.map(part),
            held_back: self.held_back.map(part),
            ..*self
        }
    }

    /// Returns whether a block of this size goes to a segment for small blocks.
    pub(super) fn is_small(&self, bytes: usize) -> bool {
        bytes <= self.small_bytes()
    }

    /// The most bytes of a small block.
    pub(super) fn small_bytes(&self) -> usize {
        self.general_size() / self.rules().small_parts
    }

    /// Returns which free ranges may serve which blocks at the moment.
    pub(super) fn placement(&self) -> Placement {
        let rules = self.rules();
        let (least_piece, parts) = if self.is_tight {
            (LEAST_PIECE_WHEN_TIGHT, 1)
        } else if self.has_regretted(REPEATED.0) {
            (REPEATED.1, rules.whole_parts)
        } else {
            (rules.least_piece, rules.whole_parts)
        };
        let large = if self.has_regretted(REPEATED_OFTEN) {
            usize::MAX
        } else {
            self.general_size() / parts
        };
        Placement {
            small_bytes: self.small_bytes(),
            large,
            least_piece,
        }
    }

    /// Returns whether `times` times the high water was released to the device and requested again.
    fn has_regretted(&self, times: u64) -> bool {
        let enough = self.high_water.saturating_mul(times);
        self.regret_percent() > 0 && self.high_water > 0 && self.regret.bytes() >= enough
    }

    /// The percentage of the high water that may stay because of regret: none where memory is tight.
    const fn regret_percent(&self) -> u64 {
        if self.is_tight {
            0
        } else {
            self.rules().regret_percent
        }
    }

    /// The bytes by which memory may exceed the high water, because it was requested again after its release: a part of the high water at
    /// most, and more only slowly.
    fn allowance(&self) -> u64 {
        let percent = self.regret_percent();
        if percent == 0 {
            return 0;
        }
        let at_once = self.regret.bytes().min(self.high_water / 100 * percent);
        let held_back = self
            .held_back
            .bytes()
            .saturating_sub(self.high_water.saturating_mul(HELD_BACK.0));
        at_once + (held_back / HELD_BACK.1).min(self.high_water)
    }

    /// Records that the device has `bytes` bytes for these segments, including those that they have.
    pub(super) fn set_room(&mut self, bytes: u64) {
        self.room = Some(bytes);
    }

    /// The most bytes that were in use at once.
    pub(super) fn high_water(&self) -> u64 {
        self.high_water
    }

    /// Records that the device is asked for a segment of `bytes` bytes. A request that raised the high water would have needed it anyway.
    pub(super) fn asked_for_a_segment(&mut self, bytes: u64) {
        if !self.is_rising {
            self.regret.asked(bytes);
        }
    }

    /// Records that the device is asked for `bytes` bytes although as much is free, because commands hold that back.
    pub(super) fn asked_for_what_is_held_back(&mut self, bytes: u64) {
        self.held_back.add(bytes);
    }

    /// Forgets a part of the regret, unless some was added since the last sweep.
    pub(super) fn sweep(&mut self) {
        self.regret.sweep();
        self.held_back.sweep();
        self.moved.sweep();
    }

    /// The most bytes of free blocks that may be cached outside of their segments.
    pub(super) fn cacheable_bytes(&self) -> u64 {
        let part = self.high_water / self.rules().cached_parts;
        part.max(LEAST_SEGMENT as u64)
    }

    /// The most bytes that segments may have together while some of them are free: little more than the high water.
    pub(super) fn most(&self) -> u64 {
        let slack = self.high_water / self.rules().slack_parts;
        self.above_high_water(slack.max(LEAST_SEGMENT as u64).max(self.allowance()))
    }

    /// The most bytes of pages that are mapped while some of them are free and can be moved.
    pub(super) fn most_mapped(&self) -> u64 {
        let most = self.pages_high_water;
        let at_most = most / 100 * self.regret_percent().min(MOST_PAGE_SLACK_PERCENT);
        let for_moves = (self.moved.bytes() / MOVED_PARTS).min(at_most);
        let slack = for_moves.max(most / PAGE_SLACK_PARTS);
        most.saturating_add(slack)
    }

    /// The most bytes of each of the new pages for a block that is not small: a power of two, and at least `page` bytes.
    pub(super) fn new_pages(&self, page: usize) -> usize {
        let part = usize::try_from(self.high_water / self.rules().page_parts).unwrap_or(usize::MAX);
        let size = part.checked_ilog2().map_or(page, |bits| 1 << bits);
        size.clamp(page, MOST_PAGES.max(page))
    }

    /// The most bytes that segments may have together if each arena grows before it takes from another one.
    pub(super) fn most_of_arenas(&self) -> u64 {
        self.above_high_water(self.high_water / self.rules().arena_slack_parts)
    }

    /// The high water plus `slack` bytes, but less than what was refused.
    fn above_high_water(&self, slack: u64) -> u64 {
        let most = self.high_water.saturating_add(slack);
        self.refused.map_or(most, |refused| most.min(refused - 1))
    }

    /// Records that a segment was refused with which all segments would have had `bytes` bytes.
    pub(super) fn refuse(&mut self, bytes: u64) {
        self.refused = Some(bytes.max(1));
    }

    /// Records that a segment was made, with which all have `bytes` bytes.
    pub(super) fn accept(&mut self, bytes: u64) {
        self.refused = self.refused.filter(|refused| bytes < *refused);
    }

    /// Returns the size of the segment for a block of `bytes` bytes: the block's own size, if that is a large
    /// part of the usual one, or a whole number of such blocks, so that no end of the segment is left over.
    pub(super) fn segment_for(&self, bytes: usize) -> usize {
        let general = self.general_size();
        let usual = if self.is_small(bytes) {
            general / SMALL_SEGMENT_PARTS
        } else {
            general
        };
        let rules = self.rules();
        let most_shared = (usual / rules.own_parts).max(LEAST_OWN);
        if bytes > most_shared {
            return bytes;
        }
        let blocks = (usual / bytes.max(1)).min(rules.most_blocks);
        bytes.saturating_mul(blocks)
    }

    /// Returns the size of the segment for a block of `bytes` bytes where there is no room for one of `usual` bytes: again a whole number
    /// of such blocks.
    pub(super) fn least_segment_for(&self, bytes: usize, usual: usize) -> usize {
        let least = usize::try_from(self.high_water / LEAST_PARTS).unwrap_or(usize::MAX);
        let blocks = least.saturating_add(bytes / 2) / bytes.max(1);
        usual.min(bytes.saturating_mul(blocks)).max(bytes)
    }

    /// Records that segments of `bytes` bytes were released to make room for another one.
    pub(super) fn replace(&mut self, bytes: u64) {
        self.regret.went_back(bytes);
    }

    const fn rules(&self) -> Rules {
        Rules::of(self.policy)
    }

    /// The usual size of a segment, for blocks of any size.
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
