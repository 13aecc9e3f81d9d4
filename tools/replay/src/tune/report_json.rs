//! The JSON report on a trial of settings.

use serde_json::{Value, json};

use crate::{
    Measured, Warm,
    figures::{extend, micros, ratio},
    tune::{Candidate, Comparison, Trial, TuneReport},
};

impl TuneReport {
    /// Returns the report as a JSON object: the device and settings, `traces`, and `overall` for all of them together.
    pub fn json(&self) -> String {
        let traces: Vec<Value> = self.trials.iter().map(|it| self.of_trace(it)).collect();
        let object = json!({
            "backend": "mock",
            "device": self.device,
            "allocator": self.settings.allocator.to_string(),
            "capacity_bytes": self.settings.capacity_bytes,
            "scale": self.scale,
            "rounds": self.settings.rounds,
            "reserve_ratio": self.reserve,
            "traces": traces,
            "overall": self.of_all(),
        });
        format!("{object:#}")
    }

    /// The candidates on one trace, without figures where they ran out of memory.
    fn of_trace(&self, trial: &Trial) -> Value {
        let comparison = self.comparison(trial);
        let candidates = self.standings(&comparison).zip(&trial.results);
        let candidates = candidates.map(|(mut candidate, result)| {
            // The event at which memory ran out.
            let event = result.as_ref().err().map(|failure| &failure.event);
            candidate["out_of_memory"] = json!(event);
            if let Ok(measured) = result {
                extend(&mut candidate, figures(measured, trial));
            }
            candidate
        });
        json!({
            "trace": trial.trace,
            "peak_live_bytes": trial.peak_live_bytes,
            "candidates": candidates.collect::<Vec<_>>(),
            "best": self.named(comparison.best).map(|best| best.name),
        })
    }

    /// The candidates on all traces: the geometric mean of the ratios and the sum of the times, those that they are judged by
    /// ([`Trial::costs`]).
    fn of_all(&self) -> Value {
        let comparison = self.overall();
        let candidates = self.standings(&comparison).zip(&comparison.costs);
        let candidates = candidates
            .enumerate()
            .map(|(index, (mut candidate, cost))| {
                candidate["out_of_memory_on"] = self.failures(index).into();
                candidate["reserved_over_live"] = json!(cost.map(|cost| cost.reserved_over_live));
                candidate["judged_device_time_us"] =
                    json!(cost.map(|cost| micros(cost.device_time)));
                candidate
            });
        let best = self.named(comparison.best);
        let less = self.named(comparison.with_less_memory);
        json!({
            "candidates": candidates.collect::<Vec<_>>(),
            "best": best.map(|best| best.name),
            "code": best.and_then(|best| best.code),
            "best_with_less_memory": less.map(|less| less.name),
            "code_with_less_memory": less.and_then(|less| less.code),
        })
    }

    fn standings(&self, comparison: &Comparison) -> impl Iterator<Item = Value> {
        let candidates = self.candidates.iter().enumerate();
        candidates.map(|(index, candidate)| {
            json!({
                "name": candidate.name,
                "code": candidate.code,
                "best": comparison.is_best(index),
            })
        })
    }

    fn named(&self, index: Option<usize>) -> Option<&Candidate> {
        self.candidates.get(index?)
    }
}

/// The figures of the whole replay and, where there are three rounds or more, of the first and of one from the third on.
fn figures(measured: &Measured, trial: &Trial) -> Value {
    let outcome = &measured.outcome;
    let mut figures = json!({
        "peak_reserved_bytes": outcome.peak_reserved_bytes,
        "reserved_over_live": ratio(outcome.peak_reserved_bytes, trial.peak_live_bytes),
        "device_time_us": micros(measured.device_time),
        "device_allocations": outcome.device_allocations,
        "hit_rate": outcome.hit_rate(),
    });
    if let Some((first, warm)) = outcome.rounds.first().zip(Warm::of(&outcome.rounds)) {
        let rounds = json!({
            "first_round_device_calls": first.device_calls(),
            "first_round_device_time_us": micros(first.device_time),
            "device_calls_a_round": warm.mean(warm.sum.device_calls()),
            "device_time_us_a_round": micros(warm.mean_time(warm.sum.device_time)),
        });
        extend(&mut figures, rounds);
    }
    figures
}
