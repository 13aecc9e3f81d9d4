//! How much time pages may take to move. The more they take, the more pages a pool keeps.

use std::time::Duration;

/// The time of a pool begins this long before it first maps pages, since a program takes as long to load its libraries and to find the device.
const HEAD_START: Duration = Duration::from_secs(10);

/// A pool whose moves take just their budget has so much more pages than were in use at once, in thousandths; one whose moves take twice as
/// much has twice as many more. So moves give way to memory where they are frequent.
const SLACK: u64 = 20;

/// The time that moves of pages have taken, of all that has passed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MoveBudget {
    since: Option<Duration>,
    spent: Duration,
}

impl MoveBudget {
    /// Returns how many more pages there may be than were in use at once, in thousandths of those, if moves may take this percentage of the
    /// time.
    pub(super) fn slack(&mut self, percent: u32, now: Duration) -> u64 {
        let since = *self.since.get_or_insert(now);
        let passed = now.saturating_sub(since).saturating_add(HEAD_START);
        let budget = passed.saturating_mul(percent) / 100;
        let slack = self.spent.as_micros() * u128::from(SLACK);
        let slack = slack.checked_div(budget.as_micros());
        slack.map_or(u64::MAX, |slack| u64::try_from(slack).unwrap_or(u64::MAX))
    }

    /// Counts the time of a move. Returns what all have taken.
    pub(super) fn spend(&mut self, time: Duration) -> Duration {
        self.spent = self.spent.saturating_add(time);
        self.spent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_of_their_budget_moves_have_taken_the_more_pages_there_may_be() {
        let mut budget = MoveBudget::default();
        let at = Duration::from_secs;
        // The clock may have begun long before.
        assert_eq!(budget.slack(1, at(1000)), 0);
        let tenth = Duration::from_millis(100);
        assert_eq!(budget.spend(tenth), tenth);
        // A percent is 100 ms of the head start, then 200 ms, then 1 s.
        let slack = [1000, 1010, 1090].map(|now| budget.slack(1, at(now)));
        assert_eq!(slack, [20, 10, 2]);
        assert_eq!(budget.slack(10, at(1000)), 2);
        assert_eq!(budget.spend(tenth), 2 * tenth);
        assert_eq!(budget.slack(1, at(1000)), 40);
        assert_eq!(budget.slack(1, at(999)), 40, "a clock that goes back");
    }

    #[test]
    fn without_a_budget_there_may_be_any_number_of_pages() {
        let mut budget = MoveBudget::default();
        assert_eq!(budget.slack(0, Duration::ZERO), u64::MAX);
        assert_eq!(budget.slack(u32::MAX, Duration::MAX), 0);
        budget.spend(Duration::MAX);
        assert_eq!(budget.slack(0, Duration::MAX), u64::MAX);
    }
}
