//! The low points of a program, at which one segment can take the place of those that are idle.
//!
//! Best fit needs less in one range than in many, since each end of a range is a place that no block fits into. How much less is known only
//! once the program has repeated its work. So an arena that has grown logs which ranges it takes and gives back, until it is at rest.
//! `docs/design/growth.md` says what that earns.

use super::space::{RangeNumber, Space};

/// The most events of a log, which has 1 MiB then. An arena whose program has not repeated its work by then is at rest until it has grown by as much
/// as one segment would have to save.
const MOST_EVENTS: usize = 1 << 16;

/// The events of a log that has a page of memory.
const PAGE_EVENTS: usize = 256;

/// The least that one segment has to save, in percent of the peak: this for the first one, twice as much for the second, and so on, so that this
/// ends.
const LEAST_GAIN_PERCENT: u64 = 3;

/// How often a program has to come near its peak without growing before its low points count.
const LEAST_VISITS: u32 = 2;

/// A range that was taken, or given back.
#[derive(Clone, Copy, Debug)]
struct Event {
    range: u32,
    /// 0 if it was given back.
    bytes: usize,
}

/// The low points of an arena.
#[derive(Debug, Default)]
pub(super) struct LowPoints {
    log: Vec<Event>,
    /// Set from when the arena has grown until its log is full.
    is_watching: bool,
    /// The bytes of the arena when it last grew.
    bytes: u64,
    /// The same when its log was last full.
    bytes_at_rest: u64,
    /// Set at a low point, until a request has checked what one segment would save.
    is_due: bool,
    /// The most bytes that were taken at once.
    peak: u64,
    /// Set while at least three quarters of that are taken.
    is_high: bool,
    /// How often that began since the arena last grew or the peak rose.
    visits: u32,
    /// The fewest bytes that were taken between two of these visits.
    lowest: u64,
    /// The fewest since the last visit.
    low: u64,
    /// The length of the log from which on a low point counts.
    next_look: usize,
    /// How often one segment took the place of others since the peak last rose.
    joined: u64,
}

impl LowPoints {
    /// Returns whether it logs what is taken and given back.
    pub(super) const fn is_watching(&self) -> bool {
        self.is_watching
    }

    /// Returns whether the next request should check [what one segment would save](Self::region).
    pub(super) const fn is_due(&self) -> bool {
        self.is_due
    }

    /// Records that the arena has grown to `bytes` bytes because nothing fitted.
    pub(super) fn grew(&mut self, bytes: u64) {
        self.bytes = bytes;
        if !self.is_watching && bytes < self.bytes_at_rest.saturating_add(self.least_gain()) {
            return;
        }
        (self.is_watching, self.is_due) = (true, false);
        (self.visits, self.next_look) = (0, 0);
    }

    /// Records that `bytes` bytes of a range were taken. Of the arena, `taken` bytes are.
    pub(super) fn took(&mut self, range: RangeNumber, bytes: usize, taken: u64) {
        self.record(range, bytes);
        if taken > self.peak {
            self.peak = taken;
            (self.visits, self.joined) = (0, 0);
        }
        if !self.is_high && self.is_near_peak(taken) {
            self.is_high = true;
            // What came before the first visit was not between two.
            self.lowest = if self.visits == 0 {
                u64::MAX
            } else {
                self.lowest.min(self.low)
            };
            self.low = u64::MAX;
            self.visits += 1;
        }
    }

    /// Records that a range was given back. Of the arena, `taken` bytes are taken.
    pub(super) fn gave(&mut self, range: RangeNumber, taken: u64) {
        self.record(range, 0);
        if self.is_near_peak(taken) {
            return;
        }
        self.is_high = false;
        self.low = self.low.min(taken);
        let is_lowest = self.visits >= LEAST_VISITS && taken <= self.lowest;
        self.is_due |= is_lowest && self.is_watching && self.log.len() >= self.next_look;
    }

    fn is_near_peak(&self, taken: u64) -> bool {
        taken >= self.peak / 4 * 3
    }

    fn record(&mut self, range: RangeNumber, bytes: usize) {
        if self.log.len() >= MOST_EVENTS {
            (self.is_watching, self.is_due) = (false, false);
            self.bytes_at_rest = self.bytes;
            self.log = Vec::new();
        } else if let Ok(range) = u32::try_from(range) {
            self.log.push(Event { range, bytes });
        }
    }

    /// Forgets the program, since the arena has no segment left. A small log keeps its memory: a program that asks for one block again and again
    /// would allocate it each time.
    pub(super) fn forget(&mut self) {
        self.log.clear();
        self.log.shrink_to(PAGE_EVENTS);
        (self.is_watching, self.is_due) = (false, false);
        (self.bytes_at_rest, self.peak) = (0, 0);
    }

    /// Returns the bytes of a segment in the place of idle ones, which have `idle` bytes, if that saves enough. Of the arena, `taken` bytes are
    /// taken, and they stay where they are, as do `free` ranges beside them, given by their sizes.
    pub(super) fn region(
        &mut self,
        idle: u64,
        taken: u64,
        free: impl IntoIterator<Item = usize>,
    ) -> Option<usize> {
        self.is_due = false;
        let gain = self.least_gain();
        if idle < gain {
            // Only lower points count from now on.
            self.lowest = taken.saturating_sub(1);
            return None;
        }
        // The first low points are often not the lowest.
        self.next_look = self.log.len() / 2 * 3;
        let region = self.needed(free);
        if region == 0 || gain.saturating_add(region as u64) > idle {
            return None;
        }
        self.joined += 1;
        Some(region)
    }

    fn least_gain(&self) -> u64 {
        self.peak / 100 * LEAST_GAIN_PERCENT * (self.joined + 1)
    }

    /// Returns what the blocks of the log would have needed in one range, placed by best fit there and in these `free` ranges. Blocks that are
    /// taken now stay where they are.
    fn needed(&self, free: impl IntoIterator<Item = usize>) -> usize {
        let ranges = self.log.iter().map(|event| event.range as usize + 1).max();
        let mut last = vec![0; ranges.unwrap_or(0)];
        for (number, event) in self.log.iter().enumerate() {
            last[event.range as usize] = number;
        }
        // The same bookkeeping, without memory.
        let mut space = Space::<(), ()>::new(|(), ()| Some(()));
        for bytes in free {
            space.add(bytes, false);
        }
        let region = space.add(usize::MAX / 2, false);
        let mut places = vec![None; last.len()];
        let mut top = 0;
        for (number, &Event { range, bytes }) in self.log.iter().enumerate() {
            if bytes == 0 {
                // A block that was taken before the log began has no place.
                if let Some(place) = places[range as usize].take() {
                    space.give(place, (), None);
                }
            } else if last[range as usize] != number
                && let Some(taken) = space.take(bytes, None, true, |(), _| true)
            {
                if taken.segment == region {
                    top = top.max(taken.region.offset + bytes);
                }
                places[range as usize] = Some(taken.range);
            }
        }
        top
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    /// A program that has three blocks of these MiB at once, twice, after its arena has grown.
    fn repeats(blocks: [usize; 3]) -> LowPoints {
        let mut low_points = LowPoints::default();
        low_points.grew(bytes(100));
        round(&mut low_points, blocks);
        round(&mut low_points, blocks);
        low_points
    }

    fn round(low_points: &mut LowPoints, blocks: [usize; 3]) {
        let mut taken = 0;
        for (range, mib) in blocks.into_iter().enumerate() {
            taken += (mib * MIB) as u64;
            low_points.took(range, mib * MIB, taken);
        }
        for (range, mib) in blocks.into_iter().enumerate() {
            taken -= (mib * MIB) as u64;
            low_points.gave(range, taken);
        }
    }

    fn bytes(mib: usize) -> u64 {
        (mib * MIB) as u64
    }

    #[test]
    fn a_low_point_counts_once_the_program_has_repeated_its_work() {
        let mut low_points = repeats([10, 20, 70]);
        // After the first visit of the peak, nothing was lower than what lies between it and the second.
        assert!(!low_points.is_due());
        round(&mut low_points, [10, 20, 70]);
        assert!(low_points.is_due());
        low_points.grew(bytes(100));
        assert!(!low_points.is_due(), "what fitted before may not now");
    }

    #[test]
    fn a_peak_that_rises_begins_anew() {
        let mut low_points = repeats([10, 20, 70]);
        round(&mut low_points, [10, 20, 71]);
        assert!(!low_points.is_due());
    }

    #[test]
    fn one_segment_has_exactly_what_best_fit_needs() {
        let mut low_points = repeats([10, 20, 70]);
        round(&mut low_points, [10, 20, 70]);
        assert_eq!(low_points.region(bytes(103), 0, []), Some(100 * MIB));
        // The second one has to save twice as much.
        assert_eq!(low_points.region(bytes(105), 0, []), None);
        assert_eq!(low_points.region(bytes(106), 0, []), Some(100 * MIB));
        // What fits into free ranges elsewhere needs no room in it.
        let free = [10 * MIB, 20 * MIB];
        assert_eq!(low_points.region(bytes(1000), 0, free), Some(70 * MIB));
        let free = [10 * MIB, 90 * MIB];
        assert_eq!(low_points.region(bytes(1000), 0, free), None, "all fits");
    }

    #[test]
    fn blocks_that_are_taken_at_the_low_point_need_no_room() {
        let mut low_points = LowPoints::default();
        low_points.grew(bytes(100));
        low_points.took(7, 50 * MIB, bytes(50));
        for _ in 0..3 {
            low_points.took(1, 50 * MIB, bytes(100));
            low_points.gave(1, bytes(50));
        }
        // One from before the log is given back, and leaves no room either.
        low_points.gave(9, bytes(40));
        assert!(low_points.is_due());
        let region = low_points.region(bytes(60), bytes(50), []);
        assert_eq!(region, Some(50 * MIB));
    }

    #[test]
    fn where_too_little_is_idle_only_lower_points_count() {
        let mut low_points = LowPoints::default();
        low_points.grew(bytes(100));
        let mut fall_to = |low: usize| {
            low_points.took(1, 90 * MIB, bytes(100));
            low_points.gave(1, bytes(low));
            let is_due = low_points.is_due();
            if is_due {
                assert_eq!(low_points.region(bytes(2), bytes(low), []), None);
            }
            is_due
        };
        let lows = [10, 10, 11, 10, 10, 9];
        let due = [false, true, false, false, false, true];
        assert_eq!(lows.map(&mut fall_to), due);
    }

    #[test]
    fn a_log_without_gain_is_looked_at_again_once_it_is_half_as_long_again() {
        let mut low_points = repeats([10, 20, 70]);
        round(&mut low_points, [10, 20, 70]);
        assert_eq!(low_points.region(bytes(101), 0, []), None);
        let due = [(); 2].map(|()| {
            round(&mut low_points, [10, 20, 70]);
            low_points.is_due()
        });
        assert_eq!(due, [false, true]);
    }

    #[test]
    fn a_program_that_does_not_repeat_its_work_is_left_alone() {
        let mut low_points = LowPoints::default();
        low_points.grew(bytes(100));
        for range in 0..=MOST_EVENTS {
            low_points.took(range, MIB, bytes(range + 1));
        }
        assert!(!low_points.is_watching());
        assert_eq!(low_points.log.capacity(), 0);
        // Until it has grown by what one segment would have to save: 3 % of 64 GiB.
        for (mib, is_watching) in [(100, false), (2000, false), (2100, true)] {
            low_points.grew(bytes(mib));
            assert_eq!(low_points.is_watching(), is_watching, "{mib} MiB");
        }
    }
}
