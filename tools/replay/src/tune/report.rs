//! The report on a trial of settings.

use binpool_allocators::words::counted;

use crate::{
    ReplaySettings,
    figures::millis_text,
    tune::{Candidate, Comparison, Cost, Trial, trade_off::nothing},
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
        let trials = self.trials.iter();
        let results = trials.filter_map(|trial| trial.results.get(index));
        results.filter(|result| result.is_err()).count()
    }

    /// Returns the best setting of a comparison and the Rust expression for it, and the best with less memory if there are two answers, or why there is
    /// none, as text for display.
    #[must_use]
    pub fn verdict(&self, comparison: &Comparison) -> String {
        let found = |index: Option<usize>| {
            let candidate = self.candidates.get(index?)?;
            let cost = comparison.costs.get(index?).copied().flatten()?;
            Some((candidate, candidate.code?, cost))
        };
        let Some((best, code, cost)) = found(comparison.best) else {
            return "best: none, since every setting of the pool runs out of memory".into();
        };
        let less = found(comparison.with_less_memory);
        let default = if self.makes_no_difference(&cost, comparison) {
            ", the default, since no setting makes a difference"
        } else if best.is_default() {
            ", the default: nothing to change"
        } else {
            ""
        };
        let least = if cost.reserved_over_live > self.reserve && less.is_none() {
            let reserve = self.reserve;
            format!(", which reserves the least: none stays within {reserve} times the live bytes")
        } else {
            String::new()
        };
        let few = match self.allocations() {
            few if few < FEW => {
                let few = counted(few, "allocation");
                format!("\n(from {few}: a longer recording may give another result)")
            }
            _ => String::new(),
        };
        let less = less.map_or_else(String::new, |(other, code, less)| {
            let [less_time, time] = [less, cost].map(|cost| millis_text(cost.device_time));
            let [less, most] = [less, cost].map(|cost| cost.reserved_over_live);
            let name = other.name;
            format!(
                "\n\nor, with less memory: {name}, which takes {less_time} instead of {time}, for {less:.3} times the live bytes \
                 instead of {most:.3}\n\n    {code}"
            )
        });
        format!(
            "best: {}{default}{least}{few}\n\n    {code}{less}",
            best.name
        )
    }

    /// Returns whether all candidates with a pool cost about as much as the best.
    fn makes_no_difference(&self, best: &Cost, comparison: &Comparison) -> bool {
        let nothing = nothing(&comparison.costs);
        let costs = comparison.costs.iter().zip(&self.candidates);
        let mut pools = costs.filter(|(_, candidate)| candidate.pool.is_some());
        pools.all(|(cost, _)| cost.is_some_and(|cost| cost.is_about(best, nothing)))
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
