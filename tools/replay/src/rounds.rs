//! The rounds of a trace that is replayed several times in a row.

use std::time::{Duration, Instant};

use binpool::adaptors::AllocatorStatistics;

use crate::watermark::Watermark;

/// The round from which on a pool is judged as one that is warm: in the first it sees the work, and in the second it settles.
pub(crate) const FIRST_WARM: usize = 3;

/// One round of a replay, by all threads together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Blocks that were allocated.
    pub allocations: u64,
    /// Allocations that were served without the device.
    pub hits: u64,
    /// Calls that allocated from the device: blocks, segments or pages.
    pub device_allocations: u64,
    /// Calls that released to the device.
    pub device_releases: u64,
    /// Calls that mapped pages of virtual memory.
    pub maps: u64,
    /// Calls that unmapped pages.
    pub unmaps: u64,
    /// The time of the device's calls: predicted by the mock's cost model, or measured around the calls of the allocator.
    pub device_time: Duration,
    /// The most bytes that were live at once, as requested.
    pub peak_live_bytes: u64,
    /// The most bytes that were taken from the device at once.
    pub peak_reserved_bytes: u64,
    /// The work that the device had not finished; `None` if it is not behind ([`ReplaySettings::behind`](crate::ReplaySettings::behind)).
    pub pending: Option<Pending>,
}

/// The work that a device lagging behind the host had not finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The peak of bytes that the program had freed while a command still used them. Bytes that were reused on the same queue meanwhile
    /// count each time.
    pub peak_bytes: u64,
    /// The time that the host waited for commands; `None` on a real device, where it is not counted.
    pub waited: Option<Duration>,
}

impl Pending {
    /// What two parts of a replay have together, one after the other.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            peak_bytes: self.peak_bytes.max(other.peak_bytes),
            waited: self
                .waited
                .zip(other.waited)
                .map(|(one, other)| one.saturating_add(other)),
        }
    }
}

impl Round {
    /// Returns the number of calls to the device: those that allocate, release, map and unmap.
    #[must_use]
    pub fn device_calls(&self) -> u64 {
        self.device_allocations + self.device_releases + self.maps + self.unmaps
    }

    /// Returns how many of the calls that mapped pages moved pages that the pool had.
    #[must_use]
    pub fn moves(&self) -> u64 {
        self.maps.saturating_sub(self.device_allocations)
    }
}

/// The rounds from the third on, together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Warm {
    /// How many rounds they are.
    pub rounds: usize,
    /// The sum of them, with the peaks of all.
    pub sum: Round,
}

impl Warm {
    /// Returns what the rounds from the third on have together; `None` if there are fewer than three.
    #[must_use]
    pub fn of(rounds: &[Round]) -> Option<Self> {
        let warm = rounds.get(FIRST_WARM - 1..)?;
        let mut sum = *warm.first()?;
        for round in &warm[1..] {
            sum.allocations += round.allocations;
            sum.hits += round.hits;
            sum.device_allocations += round.device_allocations;
            sum.device_releases += round.device_releases;
            sum.maps += round.maps;
            sum.unmaps += round.unmaps;
            sum.device_time += round.device_time;
            sum.peak_live_bytes = sum.peak_live_bytes.max(round.peak_live_bytes);
            sum.peak_reserved_bytes = sum.peak_reserved_bytes.max(round.peak_reserved_bytes);
            let pending = sum.pending.zip(round.pending);
            sum.pending = pending.map(|(sum, round)| sum.and(round));
        }
        Some(Self {
            rounds: warm.len(),
            sum,
        })
    }

    /// Returns the mean over the rounds of a figure that is summed up.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    pub fn mean(&self, figure: u64) -> f64 {
        figure as f64 / self.rounds as f64
    }

    /// Returns the mean over the rounds of a time that is summed up.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a number of rounds")]
    pub fn mean_time(&self, time: Duration) -> Duration {
        time.div_f64(self.rounds as f64)
    }
}

/// What shows how much a replay takes from the device.
pub(crate) struct Gauges<'a> {
    /// The calls so far.
    pub(crate) reading: &'a dyn Fn() -> AllocatorStatistics,
    /// The bytes that are taken.
    pub(crate) reserved: &'a Watermark,
    pub(crate) device: DeviceGauges<'a>,
}

/// What the device itself shows.
#[derive(Clone, Copy, Default)]
pub(crate) struct DeviceGauges<'a> {
    /// The time of the device's calls so far, where the device has a clock of it; `None` for that which the calls took.
    pub(crate) device_time: Option<&'a dyn Fn() -> Duration>,
    /// The time that the host has waited for commands; `None` if that is not counted.
    pub(crate) waited: Option<&'a dyn Fn() -> Duration>,
    /// The bytes that were freed and that commands use; `None` if the device is not behind.
    pub(crate) pending: Option<&'a Watermark>,
}

/// The figures of a replay so far.
#[derive(Clone, Copy)]
struct Totals {
    allocations: u64,
    hits: u64,
    calls: AllocatorStatistics,
    device_time: Duration,
    waited: Option<Duration>,
}

/// Records the rounds of a replay as they end.
pub(crate) struct Ledger<'a> {
    gauges: &'a Gauges<'a>,
    /// The bytes that are live, as they were asked for.
    live: &'a Watermark,
    before: Totals,
    /// When each round ended.
    ends: Vec<Instant>,
    pub(crate) rounds: Vec<Round>,
}

impl<'a> Ledger<'a> {
    pub(crate) fn new(gauges: &'a Gauges<'a>, live: &'a Watermark) -> Self {
        Self {
            gauges,
            live,
            before: Totals::of(gauges, 0, 0),
            ends: Vec::new(),
            rounds: Vec::new(),
        }
    }

    /// Records a round that has ended on all threads, with the allocations and hits since the replay began.
    pub(crate) fn end_round(&mut self, allocations: u64, hits: u64) {
        let now = Totals::of(self.gauges, allocations, hits);
        let before = std::mem::replace(&mut self.before, now);
        self.rounds.push(Round {
            allocations: now.allocations - before.allocations,
            hits: now.hits - before.hits,
            device_allocations: now.calls.allocations - before.calls.allocations,
            device_releases: now.calls.releases - before.calls.releases,
            maps: now.calls.maps - before.calls.maps,
            unmaps: now.calls.unmaps - before.calls.unmaps,
            device_time: now.device_time.saturating_sub(before.device_time),
            peak_live_bytes: self.live.restart(),
            peak_reserved_bytes: self.gauges.reserved.restart(),
            pending: pending_since(self.gauges, before.waited),
        });
        self.ends.push(Instant::now());
    }

    /// The time of a warm round on average; `None` if there was none.
    pub(crate) fn warm_host_time(&self) -> Option<Duration> {
        let (before, warm) = self.ends.get(FIRST_WARM - 2..)?.split_first()?;
        let time = warm.last()?.duration_since(*before);
        time.checked_div(u32::try_from(warm.len()).ok()?)
    }

    /// The work that the device had not finished in the whole replay, of which all rounds were recorded, or none if there is only one.
    pub(crate) fn pending(&self) -> Option<Pending> {
        let of_rounds = self.rounds.iter().map(|round| round.pending);
        let sum = of_rounds.reduce(|one, other| Some(one?.and(other?)));
        sum.unwrap_or_else(|| pending_since(self.gauges, self.before.waited))
    }
}

/// What the device has not ended since this was asked last, when the host had waited so long.
fn pending_since(gauges: &Gauges<'_>, waited_before: Option<Duration>) -> Option<Pending> {
    let waited = gauges.device.waited.map(|waited| waited());
    let waited = waited.zip(waited_before);
    Some(Pending {
        peak_bytes: gauges.device.pending?.restart(),
        waited: waited.map(|(now, before)| now.saturating_sub(before)),
    })
}

impl Totals {
    fn of(gauges: &Gauges<'_>, allocations: u64, hits: u64) -> Self {
        let calls = (gauges.reading)();
        Self {
            allocations,
            hits,
            calls,
            device_time: gauges
                .device
                .device_time
                .map_or(calls.time, |clock| clock()),
            waited: gauges.device.waited.map(|waited| waited()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failing test panics")]
mod tests {
    use super::*;

    fn round(calls: u64, reserved: u64) -> Round {
        Round {
            device_allocations: calls,
            maps: 3 * calls,
            device_time: Duration::from_micros(calls),
            peak_reserved_bytes: reserved,
            ..Round::default()
        }
    }

    #[test]
    fn what_is_warm_begins_with_the_third_round() {
        let rounds = [round(90, 900), round(50, 500), round(3, 60), round(4, 50)];
        assert_eq!(Warm::of(&rounds[..2]), None);
        assert_eq!(Warm::of(&rounds[..3]).unwrap().sum, rounds[2]);
        let warm = Warm::of(&rounds).unwrap();
        assert_eq!(warm.rounds, 2);
        assert!((warm.mean(warm.sum.device_calls()) - 14.0).abs() < 1e-9);
        assert_eq!(warm.sum.moves(), 14);
        assert_eq!(warm.sum.peak_reserved_bytes, 60);
        assert_eq!(
            warm.mean_time(warm.sum.device_time),
            Duration::from_nanos(3500)
        );
    }
}
