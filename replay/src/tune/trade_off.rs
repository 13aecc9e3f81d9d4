//! Memory against time: which settings are worth a choice, and which one is chosen.

use std::{cmp::Ordering, time::Duration};

/// What a setting costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// The most bytes taken from the device over the most bytes live.
    pub reserved_over_live: f64,
    /// The time of the device's calls.
    pub device_time: Duration,
}

impl Cost {
    fn by_reserved(&self, other: &Self) -> Ordering {
        (self.reserved_over_live.total_cmp(&other.reserved_over_live))
            .then(self.device_time.cmp(&other.device_time))
    }

    fn by_time(&self, other: &Self) -> Ordering {
        (self.device_time.cmp(&other.device_time))
            .then(self.reserved_over_live.total_cmp(&other.reserved_over_live))
    }
}

/// The places of the costs that no other beats: none is as low in both respects and lower in one. In the order of
/// what they reserve. `None` stands for a setting that failed.
///
/// ```
/// use std::time::Duration;
///
/// use binpool_replay::{Cost, pareto_front};
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
    for (place, cost) in sorted {
        // Whatever came before reserves no more.
        let unbeaten = front
            .last()
            .is_none_or(|(_, last)| cost.device_time < last.device_time || cost == *last);
        if unbeaten {
            front.push((place, cost));
        }
    }
    front.into_iter().map(|(place, _)| place).collect()
}

/// The place of the cost to choose: the least device time among those that reserve at most `reserve` times what is
/// live; where there is none, the least reserved. Of equals, the one that is lower in the other respect, then the
/// first. `None` where every setting failed.
///
/// ```
/// use std::time::Duration;
///
/// use binpool_replay::{Cost, best};
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
    within.or_else(least).map(|(place, _)| place)
}

fn present(costs: &[Option<Cost>]) -> impl Iterator<Item = (usize, Cost)> {
    let places = costs.iter().enumerate();
    places.filter_map(|(place, cost)| cost.map(|cost| (place, cost)))
}
