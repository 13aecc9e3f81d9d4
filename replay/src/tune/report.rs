//! The report on a trial of settings.

use crate::{
    ReplaySettings,
    figures::millis_text,
    tune::trade_off::more_for_less,
    tune::{Candidate, Comparison, Cost, Trial},
};

/// A trial of settings: the device, the candidates and the results. [`tables`](Self::tables) are for display,
/// [`json`](Self::json) is for programs.
#[derive(Debug)]
pub struct TuneReport {
    /// The device's name.
    pub device: String,
    /// The settings of each replay, but for the pool.
    pub settings: ReplaySettings,
    /// The divisor of the sizes of the traces.
    pub scale: usize,
    /// The most that the best setting may reserve, over the live bytes.
    pub reserve: f64,
    /// The candidates.
    pub candidates: Vec<Candidate>,
    /// The results, a trial for each trace.
    pub trials: Vec<Trial>,
}

/// The verdict on fewer allocations says how few they are.
const FEW: u64 = 100;

impl TuneReport {
    /// The comparison on one trace.
    pub(crate) fn comparison(&self, trial: &Trial) -> Comparison {
        Comparison::of_trial(trial, &self.candidates, self.reserve)
    }

    /// The comparison over all traces.
    #[must_use]
    pub fn overall(&self) -> Comparison {
        match &*self.trials {
            [trial] => self.comparison(trial),
            trials => Comparison::of_all(trials, &self.candidates, self.reserve),
        }
    }

    /// The number of traces on which the candidate at this index ran out of memory.
    pub(crate) fn failures(&self, index: usize) -> usize {
        let results = self
            .trials
            .iter()
            .filter_map(|trial| trial.results.get(index));
        results.filter(|result| result.is_err()).count()
    }

    /// Returns the best setting of a comparison and the Rust expression for it, or why there is none, as text for display.
    #[must_use]
    pub fn verdict(&self, comparison: &Comparison) -> String {
        let found = comparison.best.and_then(|index| {
            let candidate = self.candidates.get(index)?;
            let cost = comparison.costs.get(index).copied().flatten()?;
            Some((candidate.name, candidate.code?, cost))
        });
        let Some((name, code, cost)) = found else {
            return "best: none, since every setting of the pool runs out of memory".into();
        };
        let remark = if self.makes_no_difference(&cost, comparison) {
            ", the default, since no setting makes a difference".into()
        } else if cost.reserved_over_live > self.reserve {
            format!(
                ", which reserves the least: none stays within {} times the live bytes",
                self.reserve
            )
        } else {
            String::new()
        };
        let few = match self.allocations() {
            1 => "\n(from 1 allocation: a longer recording may give another result)".into(),
            few if few < FEW => {
                format!("\n(from {few} allocations: a longer recording may give another result)")
            }
            _ => String::new(),
        };
        let more = self.more(&cost, comparison).unwrap_or_default();
        format!("best: {name}{remark}{more}{few}\n\n    {code}")
    }

    /// What a little more memory buys, as a line; `None` for nothing.
    fn more(&self, best: &Cost, comparison: &Comparison) -> Option<String> {
        let pools = comparison.pools(&self.candidates);
        let index = more_for_less(&pools, best, self.reserve)?;
        let (name, cost) = (self.candidates.get(index)?.name, pools[index]?);
        Some(format!(
            "\n(with --reserve {:.2} it would be {name}, which is better: {} instead of {}, \
             for {:.3} times the live bytes instead of {:.3})",
            (cost.reserved_over_live * 100.0).ceil() / 100.0,
            millis_text(cost.device_time),
            millis_text(best.device_time),
            cost.reserved_over_live,
            best.reserved_over_live,
        ))
    }

    /// Returns whether all candidates with a pool cost about as much as the best.
    fn makes_no_difference(&self, best: &Cost, comparison: &Comparison) -> bool {
        let costs = comparison.costs.iter().zip(&self.candidates);
        let mut pools = costs.filter(|(_, candidate)| candidate.pool.is_some());
        pools.all(|(cost, _)| cost.is_some_and(|cost| cost.is_about(best)))
    }

    /// The allocations of all traces, each once.
    fn allocations(&self) -> u64 {
        let tried = |trial: &Trial| {
            let mut tried = trial
                .results
                .iter()
                .filter_map(|result| result.as_ref().ok());
            tried.next().map_or(0, |measured| {
                let outcome = &measured.outcome;
                let first = outcome.rounds.first();
                first.map_or(outcome.allocations, |round| round.allocations)
            })
        };
        self.trials.iter().map(tried).sum()
    }
}
