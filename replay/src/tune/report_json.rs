//! The JSON report on a trial of settings.

use std::time::Duration;

use serde::Serialize;

use crate::{
    Failure, Measured, Round, Warm,
    ratio::ratio,
    tune::{Candidate, Comparison, Trial, TuneReport},
};

#[derive(Serialize)]
struct Report<'a> {
    backend: &'static str,
    device: &'a str,
    allocator: String,
    capacity_bytes: Option<u64>,
    scale: usize,
    rounds: usize,
    reserve_ratio: f64,
    traces: Vec<OfTrace<'a>>,
    overall: Overall,
}

#[derive(Serialize)]
struct OfTrace<'a> {
    trace: &'a str,
    peak_live_bytes: u64,
    candidates: Vec<OnTrace<'a>>,
    best: Option<&'static str>,
}

#[derive(Serialize)]
struct Overall {
    candidates: Vec<OnAll>,
    best: Option<&'static str>,
    code: Option<&'static str>,
}

/// A candidate on one trace, without figures where it ran out of memory.
#[derive(Serialize)]
struct OnTrace<'a> {
    #[serde(flatten)]
    standing: Standing,
    /// The event at which memory ran out.
    out_of_memory: Option<&'a str>,
    #[serde(flatten)]
    figures: Option<Figures>,
}

#[derive(Serialize)]
struct Figures {
    peak_reserved_bytes: u64,
    reserved_over_live: f64,
    /// The whole replay.
    device_time_us: f64,
    device_allocations: u64,
    hit_rate: f64,
    #[serde(flatten)]
    rounds: Option<Rounds>,
}

/// What the first round took, and one from the third on.
#[derive(Serialize)]
struct Rounds {
    first_round_device_calls: u64,
    first_round_device_time_us: f64,
    device_calls_a_round: f64,
    device_time_us_a_round: f64,
}

impl Rounds {
    /// `None` where there are fewer than three.
    fn of(rounds: &[Round]) -> Option<Self> {
        let (first, warm) = (rounds.first()?, Warm::of(rounds)?);
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        Some(Self {
            first_round_device_calls: first.device_calls(),
            first_round_device_time_us: micros(first.device_time),
            device_calls_a_round: warm.mean(warm.sum.device_calls()),
            device_time_us_a_round: micros(warm.mean_time(warm.sum.device_time)),
        })
    }
}

/// A candidate on all traces: the geometric mean of the ratios and the sum of the times, those that it is judged by ([`Trial::costs`]).
#[derive(Serialize)]
struct OnAll {
    #[serde(flatten)]
    standing: Standing,
    out_of_memory_on: usize,
    reserved_over_live: Option<f64>,
    judged_device_time_us: Option<f64>,
}

#[derive(Serialize)]
struct Standing {
    name: &'static str,
    code: Option<&'static str>,
    pareto: bool,
    best: bool,
}

impl TuneReport {
    /// Returns the report as a JSON object: the device and settings, `traces`, and `overall` for all of them together.
    ///
    /// # Errors
    ///
    /// None that can happen: every value has a JSON form.
    pub fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(&Report {
            backend: "mock",
            device: &self.device,
            allocator: self.allocator.to_string(),
            capacity_bytes: self.capacity_bytes,
            scale: self.scale,
            rounds: self.rounds,
            reserve_ratio: self.reserve,
            traces: self
                .trials
                .iter()
                .map(|trial| self.of_trace(trial))
                .collect(),
            overall: self.of_all(),
        })
    }

    fn of_trace<'a>(&'a self, trial: &'a Trial) -> OfTrace<'a> {
        let comparison = self.comparison(trial);
        let figures = |measured: &Measured| Figures {
            peak_reserved_bytes: measured.outcome.peak_reserved_bytes,
            reserved_over_live: ratio(measured.outcome.peak_reserved_bytes, trial.peak_live_bytes),
            device_time_us: measured.device_time.as_secs_f64() * 1e6,
            device_allocations: measured.outcome.device_allocations,
            hit_rate: measured.outcome.hit_rate(),
            rounds: Rounds::of(&measured.outcome.rounds),
        };
        let event = |failure: &'a Failure| &*failure.event;
        let results = self.standings(&comparison).zip(&trial.results);
        OfTrace {
            trace: &trial.trace,
            peak_live_bytes: trial.peak_live_bytes,
            candidates: results
                .map(|(standing, result)| OnTrace {
                    standing,
                    out_of_memory: result.as_ref().err().map(event),
                    figures: result.as_ref().ok().map(figures),
                })
                .collect(),
            best: self.best_of(&comparison).map(|best| best.name),
        }
    }

    fn of_all(&self) -> Overall {
        let comparison = self.overall();
        let costs = self.standings(&comparison).zip(&comparison.costs);
        let best = self.best_of(&comparison);
        Overall {
            candidates: costs
                .enumerate()
                .map(|(index, (standing, cost))| OnAll {
                    standing,
                    out_of_memory_on: self.failures(index),
                    reserved_over_live: cost.map(|cost| cost.reserved_over_live),
                    judged_device_time_us: cost.map(|cost| cost.device_time.as_secs_f64() * 1e6),
                })
                .collect(),
            best: best.map(|best| best.name),
            code: best.and_then(|best| best.code),
        }
    }

    fn standings(&self, comparison: &Comparison) -> impl Iterator<Item = Standing> {
        let candidates = self.candidates.iter().enumerate();
        candidates.map(|(index, candidate)| Standing {
            name: candidate.name,
            code: candidate.code,
            pareto: comparison.is_on_front(index),
            best: comparison.is_best(index),
        })
    }

    fn best_of(&self, comparison: &Comparison) -> Option<&Candidate> {
        self.candidates.get(comparison.best?)
    }
}
