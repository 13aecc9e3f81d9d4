//! The trade-off of memory against time: the best setting.

use std::time::Duration;

/// The cost of a setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// The most bytes taken from the device over the most bytes live.
    pub reserved_over_live: f64,
    /// The time of the device's calls: in a round of the program from the third on, or in the whole replay where it has fewer.
    pub device_time: Duration,
}

/// Ratios that differ by no more are equal: the costs of a device are not known better.
const ABOUT: f64 = 1.01;

/// Times that differ by no more are equal: less than one call that takes memory from the device.
const NOTHING: Duration = Duration::from_micros(20);

/// The part of the longest time, which is that without a pool, that makes no difference.
const PART: u32 = 100;

/// How much more than it may a setting can reserve that takes less than half the time.
const LITTLE_MORE: f64 = 1.25;

impl Cost {
    /// Returns whether this and another one are the same in both respects.
    pub(crate) fn is_about(&self, other: &Self, nothing: Duration) -> bool {
        let (one, other_one) = (self.reserved_over_live, other.reserved_over_live);
        one.max(other_one) <= one.min(other_one) * ABOUT
            && self.device_time.abs_diff(other.device_time) <= nothing
    }
}

/// The best settings of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Best {
    /// The best.
    pub index: usize,
    /// The best of those that reserve no more than they may, if it is another.
    pub with_less_memory: Option<usize>,
}

/// Returns the best of these costs: the one with the least device time among those that reserve at most `reserve` times the live bytes, or at most
/// a quarter more if that takes less than half the time. If none reserves as little, it is the one that reserves the least. Times that differ by no more
/// than `nothing` are equal, and then the least reserved counts; of those that reserve the same, to within 1 %, it is the one with the least
/// `oddness`. `None` if every setting failed.
///
/// ```
/// use std::time::Duration;
///
/// use binpool_replay::{tune::{Best, Cost, best}};
///
/// let cost = |reserved_over_live, ms| {
///     Some(Cost { reserved_over_live, device_time: Duration::from_millis(ms) })
/// };
/// let costs = [cost(1.05, 30), cost(1.1, 20), cost(1.2, 12), cost(1.3, 9), cost(1.6, 1)];
/// let best = |reserve| best(&costs, reserve, Duration::ZERO, |index| index);
/// assert_eq!(best(1.25), Some(Best { index: 2, with_less_memory: None }));
/// assert_eq!(best(1.15), Some(Best { index: 3, with_less_memory: Some(1) }));
/// ```
#[must_use]
pub fn best(
    costs: &[Option<Cost>],
    reserve: f64,
    nothing: Duration,
    oddness: impl Fn(usize) -> usize,
) -> Option<Best> {
    let reserved = |(_, cost): (usize, Cost)| cost.reserved_over_live;
    let fastest = |most: f64| {
        let within = || present(costs).filter(move |(_, cost)| cost.reserved_over_live <= most);
        let time = within().map(|(_, cost)| cost.device_time).min()? + nothing;
        let as_fast = || within().filter(move |(_, cost)| cost.device_time <= time);
        let least = as_fast().map(reserved).min_by(f64::total_cmp)?;
        as_fast()
            .filter(|(_, cost)| cost.reserved_over_live <= least * ABOUT)
            .min_by_key(|(index, _)| oddness(*index))
    };
    let least = present(costs).map(reserved).min_by(f64::total_cmp)?;
    let (within, cost) = fastest(reserve.max(least))?;
    let faster = fastest(reserve * LITTLE_MORE).filter(|(_, more)| {
        more.device_time * 2 < cost.device_time && more.device_time + nothing < cost.device_time
    });
    Some(Best {
        index: faster.map_or(within, |(index, _)| index),
        with_less_memory: faster.map(|_| within),
    })
}

/// Returns the difference of times that makes none: 20 us, or 1 % of the longest.
pub(crate) fn nothing(costs: &[Option<Cost>]) -> Duration {
    let longest = present(costs).map(|(_, cost)| cost.device_time).max();
    NOTHING.max(longest.unwrap_or_default() / PART)
}

fn present(costs: &[Option<Cost>]) -> impl Iterator<Item = (usize, Cost)> {
    let indices = costs.iter().enumerate();
    indices.filter_map(|(index, cost)| cost.map(|cost| (index, cost)))
}
