//! What a trial of settings came to.

use crate::{AllocatorChoice, Candidate, Comparison, Trial};

/// What was tried, on what, and what it came to. [`tables`](Self::tables) are for people, [`json`](Self::json) for
/// programs.
#[derive(Debug)]
pub struct TuneReport {
    /// The device's name.
    pub device: String,
    /// The way of getting memory.
    pub allocator: AllocatorChoice,
    /// The capacity in bytes; `None` for all that the device has.
    pub capacity_bytes: Option<u64>,
    /// What the sizes of the traces were divided by.
    pub scale: usize,
    /// How much the best setting may reserve, over what is live.
    pub reserve: f64,
    /// What was tried.
    pub candidates: Vec<Candidate>,
    /// What it came to, a trial a trace.
    pub trials: Vec<Trial>,
}

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

    /// On how many traces candidate number `place` ran out of memory.
    pub(crate) fn failures(&self, place: usize) -> usize {
        let results = self
            .trials
            .iter()
            .filter_map(|trial| trial.results.get(place));
        results.filter(|result| result.is_err()).count()
    }

    /// The best setting of a comparison, and the Rust expression for it, or why there is none: text for people.
    #[must_use]
    pub fn verdict(&self, comparison: &Comparison) -> String {
        let found = comparison.best.and_then(|place| {
            let candidate = self.candidates.get(place)?;
            let cost = comparison.costs.get(place).copied().flatten()?;
            Some((candidate.name, candidate.code?, cost))
        });
        let Some((name, code, cost)) = found else {
            return "best: none, since every setting of the pool runs out of memory".into();
        };
        let remark = if cost.reserved_over_live > self.reserve {
            format!(
                ", since none reserves at most {} times what is live, and it the least",
                self.reserve
            )
        } else {
            String::new()
        };
        format!("best: {name}{remark}\n\n    {code}")
    }
}
