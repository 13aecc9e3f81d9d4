//! The trade-off of memory against time: the Pareto front of settings, and the best one.

use std::{cmp::Ordering, time::Duration};

/// The cost of a setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// The most bytes taken from the device over the most bytes live.
    pub reserved_over_live: f64,
    /// The time of the device's calls: in a round of the program from the third on, or in the whole replay where it has fewer.
    pub device_time: Duration,
}

/// Costs that differ by no more are equal: the costs of a device are not known better.
const ABOUT: f64 = 1.01;

/// Times that differ by no more are equal: less than one call that takes memory from the device.
const NOTHING: Duration = Duration::from_micros(20);

impl Cost {
    /// Returns whether this and another one are the same in both respects: to within 1 %, and the times to within 20 us.
    pub(crate) fn is_about(&self, other: &Self) -> bool {
        let is_about = |one: f64, other: f64| one.max(other) <= one.min(other) * ABOUT;
        is_about(self.reserved_over_live, other.reserved_over_live) && self.takes_about(other)
    }

    fn takes_about(&self, other: &Self) -> bool {
        let (less, more) = (
            self.device_time.min(other.device_time),
            self.device_time.max(other.device_time),
        );
        more.saturating_sub(less) <= NOTHING || more.as_secs_f64() <= less.as_secs_f64() * ABOUT
    }

    fn by_reserved(&self, other: &Self) -> Ordering {
        (self.reserved_over_live.total_cmp(&other.reserved_over_live))
            .then(self.device_time.cmp(&other.device_time))
    }

    fn by_time(&self, other: &Self) -> Ordering {
        (self.device_time.cmp(&other.device_time))
            .then(self.reserved_over_live.total_cmp(&other.reserved_over_live))
    }
}

/// Returns the indices of the costs that no other beats: none is as low in both respects and lower in one. They are in the
/// order of the reserved bytes. `None` stands for a setting that failed.
///
/// ```
/// use std::time::Duration;
///
/// use binpool_replay::{tune::{Cost, pareto_front}};
///
/// let cost = |reserved_over_live, ms| {
///     Some(Cost { reserved_over_live, device_time: Duration::from_millis(ms) })
/// };
/// // The third costs more memory than the first, and no less time.
/// let costs = [cost(1.1, 30), cost(1.0, 90), cost(1.2, 30), None];
/// assert_eq!(pareto_front(&costs), [1, 0]);
/// ```
#[must_use]
pub fn pareto_front(costs: &[Option<Cost>]) -> Vec<usize> {
    let mut sorted: Vec<(usize, Cost)> = present(costs).collect();
    sorted.sort_by(|(_, one), (_, other)| one.by_reserved(other));
    let mut front: Vec<(usize, Cost)> = Vec::new();
    for (index, cost) in sorted {
        // Every cost before this one reserves no more.
        let unbeaten = front
            .last()
            .is_none_or(|(_, last)| cost.device_time < last.device_time || cost == *last);
        if unbeaten {
            front.push((index, cost));
        }
    }
    front.into_iter().map(|(index, _)| index).collect()
}

/// Returns the index of the best cost: the least device time among those that reserve at most `reserve` times the
/// live bytes or, where there is none, the least reserved. Of equals, it is the one that is lower in the other respect, then
/// the first. `None` if every setting failed.
///
/// ```
/// use std::time::Duration;
///
/// use binpool_replay::{tune::{Cost, best}};
///
/// let cost = |reserved_over_live, ms| {
///     Some(Cost { reserved_over_live, device_time: Duration::from_millis(ms) })
/// };
/// let costs = [cost(1.05, 30), cost(1.1, 20), cost(1.5, 10)];
/// assert_eq!(best(&costs, 1.15), Some(1));
/// assert_eq!(best(&costs, 1.0), Some(0));
/// ```
#[must_use]
pub fn best(costs: &[Option<Cost>], reserve: f64) -> Option<usize> {
    let within = present(costs)
        .filter(|(_, cost)| cost.reserved_over_live <= reserve)
        .min_by(|(_, one), (_, other)| one.by_time(other));
    let least = || present(costs).min_by(|(_, one), (_, other)| one.by_reserved(other));
    within.or_else(least).map(|(index, _)| index)
}

/// How much more than `reserve` a setting may reserve that [`more_for_less`] returns.
const LITTLE_MORE: f64 = 1.25;

/// Returns the index of what a little more memory buys than [`best`] may have: of the costs that reserve more than `reserve`, and at most a
/// quarter more, the one that reserves the least and takes at most half the time of `best`. `None` if there is none, or `best` takes
/// next to nothing.
pub(crate) fn more_for_less(costs: &[Option<Cost>], best: &Cost, reserve: f64) -> Option<usize> {
    let most = reserve.max(best.reserved_over_live) * LITTLE_MORE;
    present(costs)
        .filter(|(_, cost)| cost.reserved_over_live > reserve.max(best.reserved_over_live))
        .filter(|(_, cost)| cost.reserved_over_live <= most)
        .filter(|(_, cost)| cost.device_time * 2 <= best.device_time && !cost.takes_about(best))
        .min_by(|(_, one), (_, other)| one.by_reserved(other))
        .map(|(index, _)| index)
}

fn present(costs: &[Option<Cost>]) -> impl Iterator<Item = (usize, Cost)> {
    let indices = costs.iter().enumerate();
    indices.filter_map(|(index, cost)| cost.map(|cost| (index, cost)))
}
