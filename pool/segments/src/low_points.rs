//! The low points of a program, at which a plan can take the place of segments that are idle.
//!
//! How much memory a plan saves is known only once the program has repeated its work. So an arena that has grown logs which blocks it gives out, until
//! it is at rest. `docs/design/growth.md` says what that earns.

use super::{log::Log, review::Found, space::RangeNumber};

/// How often a log that is full forgets its oldest blocks: until it has seen three times what it holds. Then the arena is at rest until it
/// has grown by what a plan would have to save.
const MOST_FORGOTTEN: u32 = 16;

/// The least that a plan has to save, in percent of the peak: this for the first one, twice as much for the second, and so on, so that this ends.
const LEAST_GAIN_PERCENT: u64 = 1;

/// A log is looked at again once it is longer by one part in this.
const LOOK_PARTS: usize = 16;

/// A peak that is higher by no more than one part in this is the same: small blocks come and go.
const RISE_PARTS: u64 = 256;

/// How often a program has to come near its peak before its low points count.
const LEAST_VISITS: u32 = 2;

/// A period has to have been repeated as often as this, and twice as often after each plan that failed, this many times.
const LEAST_REPETITIONS: usize = 2;
const MOST_FAILURES: u32 = 5;

/// The low points of an arena.
#[derive(Debug, Default)]
pub(super) struct LowPoints {
    pub(super) log: Log,
    /// How often the log has forgotten its oldest blocks.
    forgotten: u32,
    /// Set from when the arena has grown until its log is full.
    is_watching: bool,
    /// How many ranges were taken or given back while it was set.
    pub(super) changes: u64,
    /// The bytes of the arena when it last grew.
    bytes: u64,
    /// The same when its log was last full.
    bytes_at_rest: u64,
    /// Set at a low point, until a request has looked at the log.
    is_due: bool,
    /// The most bytes that were taken at once.
    pub(super) peak: u64,
    /// Set while at least three quarters of that are taken.
    is_high: bool,
    /// How often that began since the log began or the peak rose.
    visits: u32,
    /// The most bytes that are taken where a plan begins, once there is a period.
    awaited: Option<u64>,
    /// The length of the log from which on a low point counts.
    next_look: usize,
    /// The number of plans since the peak last rose.
    plans: u64,
    /// How often a plan failed: the arena had more with it than before.
    failures: u32,
}

impl LowPoints {
    /// Returns whether it logs what is taken and given back.
    pub(super) const fn is_watching(&self) -> bool {
        self.is_watching
    }

    /// Returns whether the log may show that the program repeats its work: since the log began, it has come near its peak, and fallen again.
    pub(super) const fn may_repeat(&self) -> bool {
        self.is_watching && (self.visits > 1 || (self.visits == 1 && !self.is_high))
    }

    /// Returns whether the next request should look at the log.
    pub(super) const fn is_due(&self) -> bool {
        self.is_due
    }

    /// Records that the arena has grown to `bytes` bytes because nothing fitted.
    pub(super) fn grew(&mut self, bytes: u64) {
        self.bytes = bytes;
        if !self.is_watching && bytes >= self.bytes_at_rest.saturating_add(self.least_gain()) {
            self.watch();
        }
    }

    /// Begins to log, or to count anew how often the program repeats its work.
    pub(super) fn watch(&mut self) {
        (self.is_watching, self.is_due, self.awaited) = (true, false, None);
        (self.visits, self.next_look) = (0, 0);
    }

    /// Records that `bytes` bytes of a range were taken. Of the arena, `taken` bytes are.
    pub(super) fn took(&mut self, range: RangeNumber, bytes: usize, taken: u64) {
        self.changes += 1;
        if self.log.is_full() {
            self.make_room_in_log();
        }
        if !self.is_watching {
            return;
        }
        self.log.take(range, bytes);
        if taken > self.peak + self.peak / RISE_PARTS {
            (self.visits, self.plans) = (0, 0);
        }
        self.peak = self.peak.max(taken);
        if !self.is_high && self.is_near_peak(taken) {
            self.is_high = true;
            self.visits += 1;
        }
    }

    /// Records that a range was given back, with uses of this kind. Of the arena, `taken` bytes are taken.
    pub(super) fn gave(&mut self, range: RangeNumber, kind: u32, taken: u64) {
        self.changes += 1;
        self.log.give(range, kind);
        if self.is_near_peak(taken) {
            return;
        }
        self.is_high = false;
        let has_come = self.awaited.is_some_and(|awaited| taken <= awaited);
        let is_time = has_come || self.log.blocks().len() >= self.next_look;
        self.is_due |= self.visits >= LEAST_VISITS && is_time;
    }

    fn is_near_peak(&self, taken: u64) -> bool {
        taken >= self.peak / 4 * 3
    }

    fn make_room_in_log(&mut self) {
        if self.forgotten >= MOST_FORGOTTEN {
            return self.rest();
        }
        self.forgotten += 1;
        let before = self.log.blocks().len();
        self.log.forget_oldest();
        self.next_look = self
            .next_look
            .saturating_sub(before - self.log.blocks().len());
    }

    /// Ends the log until the arena has grown.
    pub(super) fn rest(&mut self) {
        (self.is_watching, self.is_due, self.awaited) = (false, false, None);
        self.bytes_at_rest = self.bytes;
        self.forgotten = 0;
        self.log = Log::default();
    }

    /// Forgets the program, since the arena has no segment left.
    pub(super) fn forget(&mut self) {
        self.log.clear();
        (self.is_watching, self.is_due, self.awaited) = (false, false, None);
        (self.bytes_at_rest, self.peak, self.forgotten) = (0, 0, 0);
    }

    /// Has the next request look, even if nothing was logged.
    pub(super) fn look_again(&mut self) {
        self.is_due = true;
    }

    /// Records that a request looks at the log.
    pub(super) fn look(&mut self) {
        self.is_due = false;
        let length = self.log.blocks().len();
        self.next_look = length + length / LOOK_PARTS;
    }

    /// Records what a look has found.
    pub(super) fn found(&mut self, found: &Found) {
        self.awaited = None;
        let length = self.log.blocks().len();
        match found {
            Found::Nothing => {}
            Found::NoGain => self.next_look = length / 2 * 3,
            Found::Wait { lowest, within } => {
                self.awaited = Some(*lowest);
                self.next_look = length + within;
            }
            Found::Plan(..) => {
                self.plans += 1;
                self.rest();
            }
        }
    }

    /// Records that a plan failed.
    pub(super) fn plan_failed(&mut self) {
        self.failures += 1;
        self.bytes_at_rest = 0;
    }

    /// The least bytes that a plan has to save.
    pub(super) fn least_gain(&self) -> u64 {
        self.peak / 100 * LEAST_GAIN_PERCENT * (self.plans + 1)
    }

    /// How often a period has to have been repeated.
    pub(super) fn repetitions(&self) -> usize {
        LEAST_REPETITIONS << self.failures.min(MOST_FAILURES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::period_plan::{PeriodPlan, Planned};

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
            low_points.gave(range, 0, taken);
        }
    }

    fn bytes(mib: usize) -> u64 {
        (mib * MIB) as u64
    }

    #[test]
    fn a_low_point_counts_once_the_program_has_repeated_its_work() {
        let mut low_points = repeats([10, 20, 70]);
        assert!(!low_points.is_due());
        round(&mut low_points, [10, 20, 70]);
        assert!(low_points.is_due());
        low_points.grew(bytes(100));
        assert!(
            low_points.is_due(),
            "the log goes on while the arena grows a little in each period"
        );
    }

    #[test]
    fn a_peak_that_rises_begins_anew() {
        let mut low_points = repeats([10, 20, 70]);
        round(&mut low_points, [10, 20, 71]);
        assert!(!low_points.is_due());
    }

    #[test]
    fn each_further_plan_has_to_save_more() {
        let mut low_points = repeats([10, 20, 70]);
        assert_eq!(low_points.least_gain(), bytes(100) / 100);
        low_points.found(&Found::Plan(
            1,
            Box::new(PeriodPlan::new(Vec::new(), Planned::default(), 0)),
        ));
        assert_eq!(low_points.least_gain(), bytes(100) / 100 * 2);
        assert!(!low_points.is_watching(), "a plan is the end of the log");
        // Once the program needs more than ever before, it may be another.
        low_points.grew(bytes(200));
        round(&mut low_points, [10, 20, 71]);
        assert_eq!(low_points.least_gain(), bytes(101) / 100);
    }

    #[test]
    fn a_period_has_to_last_twice_as_long_after_each_plan_that_failed() {
        let mut low_points = LowPoints::default();
        let repetitions = [(); 8].map(|()| {
            let repetitions = low_points.repetitions();
            low_points.plan_failed();
            repetitions
        });
        assert_eq!(repetitions, [2, 4, 8, 16, 32, 64, 64, 64]);
    }

    #[test]
    fn a_plan_waits_for_the_lowest_point_of_its_period_but_not_for_ever() {
        let mut low_points = repeats([10, 20, 70]);
        round(&mut low_points, [10, 20, 70]);
        low_points.look();
        let wait = Found::Wait {
            lowest: bytes(5),
            within: 7,
        };
        low_points.found(&wait);
        assert!(!low_points.is_due());
        low_points.took(0, MIB, bytes(7));
        low_points.gave(0, 0, bytes(6));
        assert!(!low_points.is_due());
        low_points.gave(0, 0, bytes(5));
        assert!(low_points.is_due());
        low_points.look();
        low_points.found(&wait);
        for count in 1..=7 {
            assert!(!low_points.is_due(), "{count}");
            low_points.took(0, MIB, bytes(7));
            low_points.gave(0, 0, bytes(6));
        }
        assert!(low_points.is_due());
    }

    #[test]
    fn a_log_without_a_period_is_looked_at_again_once_it_is_longer() {
        let mut low_points = LowPoints::default();
        low_points.grew(bytes(100));
        (0..12).for_each(|_| round(&mut low_points, [10, 20, 70]));
        low_points.look();
        low_points.found(&Found::Nothing);
        let due = [(); 2].map(|()| {
            round(&mut low_points, [15, 20, 65]);
            low_points.is_due()
        });
        // One part in sixteen of 36 blocks is two.
        assert_eq!(due, [true, true]);
        // A period without gain: once it is half as long again.
        low_points.look();
        low_points.found(&Found::NoGain);
        let due = [(); 7].map(|()| {
            round(&mut low_points, [15, 20, 65]);
            low_points.is_due()
        });
        assert_eq!(due, [false, false, false, false, false, false, true]);
    }

    #[test]
    fn a_program_that_does_not_repeat_its_work_is_left_alone() {
        let mut low_points = LowPoints::default();
        low_points.grew(bytes(100));
        let mut logged = 0;
        while low_points.is_watching() {
            low_points.took(logged, MIB, bytes(logged / 4));
            logged += 1;
        }
        // A full log forgets an eighth, sixteen times.
        assert_eq!(logged, 3 * (1 << 18) + 1);
        assert!(low_points.log.blocks().is_empty());
        // Until it has grown by what a plan would have to save: 1 % of 192 GiB.
        for (mib, is_watching) in [(100, false), (2000, false), (2100, true)] {
            low_points.grew(bytes(mib));
            assert_eq!(low_points.is_watching(), is_watching, "{mib} MiB");
        }
    }
}
