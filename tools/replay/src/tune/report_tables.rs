//! The tables of a trial of settings.

use crate::{
    Warm,
    figures::{millis_text, ratio, unusual},
    report::markdown_table::MarkdownTable,
    rounds::FIRST_WARM,
    tune::{Candidate, Comparison, Trial, TuneReport},
};
use binpool_allocators::words::bytes;

/// The columns that a narrow terminal can do without.
const DISPENSABLE: &[&str] = &[
    "device allocations",
    "hit rate",
    "calls in round 1",
    "calls a round",
    "peak reserved",
];

impl TuneReport {
    /// Returns the lines that name the device and the settings, a table for each trace, and one over all where there are several.
    #[must_use]
    pub fn tables(&self) -> String {
        let mut parts = vec![self.heading()];
        for trial in &self.trials {
            let live = bytes(trial.peak_live_bytes);
            parts.push(format!("{}, peak live {live}", trial.trace));
            parts.push(self.table_of_trial(trial).to_string());
            parts.extend(self.repetition(trial));
        }
        if let [_, _, ..] = &*self.trials {
            parts.push(format!("all {} traces", self.trials.len()));
            parts.push(self.table_of_all().to_string());
        }
        parts.join("\n\n")
    }

    /// What the best setting says of work that repeats.
    fn repetition(&self, trial: &Trial) -> Option<String> {
        let best = self.comparison(trial).best?;
        let measured = trial.results.get(best)?.as_ref().ok()?;
        let repetition = measured.outcome.statistics?.repetition()?;
        Some(format!("With the best setting it {repetition} at the end."))
    }

    fn heading(&self) -> String {
        let unusual = unusual(self.settings.capacity_bytes, self.scale);
        let (rounds, judged) = if self.is_warm() {
            let rounds = format!(", {} rounds", self.settings.rounds);
            (rounds, format!(" from round {FIRST_WARM} on"))
        } else {
            (String::new(), String::new())
        };
        format!(
            "mock on {}, {} allocator{unusual}{rounds}\n\
             best: the least device time{judged} among pools that reserve at most {} times the live bytes, or a quarter more for less than half \
             the time;\n\
             of times that differ by 20 us, or 1 % of the time without a pool, the least reserved is the best",
            self.device, self.settings.allocator, self.reserve
        )
    }

    /// Set if the candidates are judged by the rounds from the third on.
    fn is_warm(&self) -> bool {
        self.settings.rounds >= FIRST_WARM
    }

    fn title_of_time(&self) -> &'static str {
        if self.is_warm() {
            "device time a round, predicted"
        } else {
            "device time, predicted"
        }
    }

    fn table_of_trial(&self, trial: &Trial) -> MarkdownTable {
        let comparison = self.comparison(trial);
        let is_warm = self.is_warm();
        let titles = [
            "peak reserved",
            "reserved / live",
            self.title_of_time(),
            if is_warm {
                "calls a round"
            } else {
                "device allocations"
            },
            if is_warm {
                "calls in round 1"
            } else {
                "hit rate"
            },
        ];
        let rows = trial.results.iter().map(|result| {
            let Ok(measured) = result else {
                return vec!["out of memory".into()];
            };
            let outcome = &measured.outcome;
            let reserved = outcome.peak_reserved_bytes;
            let mut cells = vec![
                bytes(reserved),
                format!("{:.3}", ratio(reserved, trial.peak_live_bytes)),
            ];
            let rounds = &outcome.rounds;
            cells.extend(match rounds.first().zip(Warm::of(rounds)) {
                Some((first, warm)) => [
                    millis_text(warm.mean_time(warm.sum.device_time)),
                    format!("{:.1}", warm.mean(warm.sum.device_calls())),
                    first.device_calls().to_string(),
                ],
                None => [
                    millis_text(measured.device_time),
                    outcome.device_allocations.to_string(),
                    format!("{:.1} %", outcome.hit_rate() * 100.0),
                ],
            });
            cells
        });
        table(&self.candidates, &comparison, &titles, rows)
    }

    fn table_of_all(&self) -> MarkdownTable {
        let comparison = self.overall();
        let title_of_time = format!("{}, sum", self.title_of_time());
        let titles = ["reserved / live, geometric mean", &title_of_time];
        let rows = comparison.costs.iter().enumerate().map(|(index, cost)| {
            let Some(cost) = cost else {
                let (failed, all) = (self.failures(index), self.trials.len());
                return vec![format!("out of memory on {failed} of {all}")];
            };
            vec![
                format!("{:.3}", cost.reserved_over_live),
                millis_text(cost.device_time),
            ]
        });
        table(&self.candidates, &comparison, &titles, rows)
    }
}

/// A table with a row for each candidate: its name, the cells below `titles` (a row may have fewer),
/// and a mark for the best.
fn table(
    candidates: &[Candidate],
    comparison: &Comparison,
    titles: &[&str],
    rows: impl Iterator<Item = Vec<String>>,
) -> MarkdownTable {
    let all_titles = [&["setting"], titles, &[""]].concat();
    let mut table = MarkdownTable::new(all_titles, 1..=titles.len()).or_without(DISPENSABLE);
    for (index, (candidate, mut cells)) in candidates.iter().zip(rows).enumerate() {
        cells.resize(titles.len(), String::new());
        let mark = if comparison.is_best(index) {
            "<-- best"
        } else {
            ""
        };
        let name = [candidate.name.to_owned()];
        table.add_row(name.into_iter().chain(cells).chain([mark.to_owned()]));
    }
    table
}
