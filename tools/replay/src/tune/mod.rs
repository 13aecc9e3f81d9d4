//! Trials of the pool's settings on a trace.

mod candidates;
mod report;
mod report_json;
mod report_tables;
mod trade_off;

use std::time::Duration;

use binpool_recordings::Trace;
pub use candidates::{Candidate, candidates, page_candidates};
pub use report::TuneReport;
pub use trade_off::{Best, Cost, best};

use crate::{
    Device, Failure, Measured, ReplaySettings, Warm,
    figures::ratio,
    on_all_cores,
    tune::{candidates::oddness, trade_off::nothing},
};

/// A trace, and the results of every candidate on it.
#[derive(Debug)]
pub struct Trial {
    /// The trace's file.
    pub trace: String,
    /// The most bytes that were live at once.
    pub peak_live_bytes: u64,
    /// The result of each candidate, in their order. A failure means that the replay ran out of memory.
    pub results: Vec<Result<Measured, Failure>>,
}

/// The costs of all candidates, and which of them are the best.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// The cost of each candidate, in their order; `None` if it ran out of memory.
    pub costs: Vec<Option<Cost>>,
    /// The [`best`] of the candidates with a pool; of equals, the one that is nearest to the default. Times that differ by 20 us, or 1 % of the
    /// longest, which is that without a pool, are equal. `None` if all ran out of memory.
    pub best: Option<usize>,
    /// The best of those that keep the limit of reserved bytes, if that is another.
    pub with_less_memory: Option<usize>,
}

/// Replays `trace` with each of `candidates`, on all cores. `settings` has the other settings; its pool is ignored.
/// `progress` is called, from any thread, whenever a candidate is done.
///
/// With three rounds or more, a candidate is judged by those from the third on ([`Trial::costs`]), when its pool is warm.
///
/// Running out of memory is a result, not an error. On the mock, all results but the host's times are repeatable.
///
/// ```
/// use binpool_recordings::Trace;
/// use binpool_replay::{Device, Profile, ReplaySettings, tune::{Comparison, candidates, tune}};
///
/// let trace = Trace::parse("t", &b"a 0 5000 0\nf 0\na 1 4500 0\nf 1\n"[..]).unwrap();
/// let settings = ReplaySettings { rounds: 4, ..ReplaySettings::default() };
/// let candidates = candidates();
/// let trial = tune(&trace, &Device::Mock(Profile::H200), &candidates, &settings, &|| {})?;
/// let comparison = Comparison::of_trial(&trial, &candidates, 1.15);
/// // Both sizes are in one bin, and the bins of fewer bits are larger.
/// assert_eq!(comparison.best.map(|best| candidates[best].name), Some("bins 2"));
/// # Ok::<(), binpool_replay::Failure>(())
/// ```
///
/// # Errors
///
/// The first [`Failure`] for another reason than memory.
pub fn tune(
    trace: &Trace,
    device: &Device,
    candidates: &[Candidate],
    settings: &ReplaySettings,
    progress: &(dyn Fn() + Sync),
) -> Result<Trial, Failure> {
    let replayed = |candidate: &Candidate| {
        let settings = ReplaySettings {
            pool: candidate.pool.clone(),
            allocator: candidate.allocator.unwrap_or(settings.allocator),
            ..settings.clone()
        };
        let result = device.replay(trace, &settings, &|_| {});
        progress();
        result
    };
    let results = on_all_cores(candidates, replayed).into_iter();
    let results = results.map(|result| match result {
        Err(failure) if !failure.out_of_memory => Err(failure),
        result => Ok(result),
    });
    let results: Vec<Result<Measured, Failure>> = results.collect::<Result<_, _>>()?;
    // What is live is the same for all that come to the end.
    let mut replayed = results.iter().filter_map(|result| result.as_ref().ok());
    let rounds = replayed.next().map(|measured| &*measured.outcome.rounds);
    let of_rounds = rounds.into_iter().flatten();
    let peak_live_bytes = of_rounds.map(|round| round.peak_live_bytes).max();
    Ok(Trial {
        trace: trace.name().to_owned(),
        peak_live_bytes: peak_live_bytes.unwrap_or_else(|| trace.peak_live_bytes()),
        results,
    })
}

impl Trial {
    /// The cost of each candidate, in their order: the time of a round from the third on, or of the whole replay if there are fewer, and
    /// the peak of all rounds. `None` if it ran out of memory.
    #[must_use]
    pub fn costs(&self) -> Vec<Option<Cost>> {
        let cost = |measured: &Measured| Cost {
            reserved_over_live: ratio(measured.outcome.peak_reserved_bytes, self.peak_live_bytes),
            device_time: Warm::of(&measured.outcome.rounds).map_or(measured.device_time, |warm| {
                warm.mean_time(warm.sum.device_time)
            }),
        };
        let results = self.results.iter();
        results
            .map(|result| result.as_ref().ok().map(cost))
            .collect()
    }
}

impl Comparison {
    /// Compares the costs of `candidates`, with `reserve` as in [`best`].
    #[must_use]
    pub fn new(costs: Vec<Option<Cost>>, candidates: &[Candidate], reserve: f64) -> Self {
        // The baseline always reserves the least. If it could win, it would whenever no pool is within `reserve`.
        let pools = costs.iter().zip(candidates);
        let pools = pools.map(|(cost, candidate)| cost.filter(|_| candidate.pool.is_some()));
        let pools: Vec<_> = pools.collect();
        let odd = |index| oddness(index, candidates);
        let best = best(&pools, reserve, nothing(&costs), odd);
        Self {
            best: best.map(|best| best.index),
            with_less_memory: best.and_then(|best| best.with_less_memory),
            costs,
        }
    }

    /// Returns whether the candidate at this index is the best.
    #[must_use]
    pub fn is_best(&self, index: usize) -> bool {
        self.best == Some(index)
    }

    /// Compares the results of `candidates` on one trace.
    #[must_use]
    pub fn of_trial(trial: &Trial, candidates: &[Candidate], reserve: f64) -> Self {
        Self::new(trial.costs(), candidates, reserve)
    }

    /// Compares the results of `candidates` on several traces: by the geometric mean of their reserved over the live
    /// bytes, and the sum of the device's times. A candidate that runs out of memory on one trace fails for all.
    #[must_use]
    pub fn of_all(trials: &[Trial], candidates: &[Candidate], reserve: f64) -> Self {
        let by_trial: Vec<_> = trials.iter().map(Trial::costs).collect();
        let costs = (0..candidates.len()).map(|index| {
            let costs = by_trial
                .iter()
                .map(|costs| costs.get(index).copied().flatten());
            costs.collect::<Option<Vec<_>>>().and_then(|all| mean(&all))
        });
        Self::new(costs.collect(), candidates, reserve)
    }
}

/// The geometric mean of the reserved bytes, and the sum of the times; `None` for an empty list.
#[expect(clippy::cast_precision_loss, reason = "a number of traces")]
fn mean(costs: &[Cost]) -> Option<Cost> {
    let logarithms: f64 = costs.iter().map(|cost| cost.reserved_over_live.ln()).sum();
    (!costs.is_empty()).then(|| Cost {
        reserved_over_live: (logarithms / costs.len() as f64).exp(),
        device_time: costs.iter().map(|cost| cost.device_time).sum::<Duration>(),
    })
}
