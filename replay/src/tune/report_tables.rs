//! The tables of a trial of settings.

use comfy_table::Table;

use crate::{
    Candidate, Comparison, Trial, TuneReport, markdown_table::markdown, plots::tuning_text::letter,
    replay_report::ratio,
};
use binpool::words::bytes;

impl TuneReport {
    /// Returns the lines that name the device and the settings, a table for each trace, and one over all where there are several.
    /// `*` marks a setting that no other beats in both respects.
    #[must_use]
    pub fn tables(&self) -> String {
        let mut parts = vec![self.heading()];
        for trial in &self.trials {
            let live = bytes(trial.peak_live_bytes);
            parts.push(format!("{}, peak live {live}", trial.trace));
            parts.push(self.table_of_trial(trial).to_string());
        }
        if let [_, _, ..] = &*self.trials {
            parts.push(format!("all {} traces", self.trials.len()));
            parts.push(self.table_of_all().to_string());
        }
        parts.join("\n\n")
    }

    fn heading(&self) -> String {
        let capacity = self.capacity_bytes.map_or_else(String::new, |capacity| {
            format!(", capacity {}", bytes(capacity))
        });
        let scale = match self.scale {
            1 => String::new(),
            scale => format!(", sizes divided by {scale}"),
        };
        format!(
            "mock on {}, {} allocator{capacity}{scale}\n\
             best: the least device time among pools that reserve at most {} times what is live",
            self.device, self.allocator, self.reserve
        )
    }

    fn table_of_trial(&self, trial: &Trial) -> Table {
        let comparison = self.comparison(trial);
        let titles = [
            "peak reserved",
            "reserved / live",
            "device time, predicted",
            "device allocations",
            "hit rate",
        ];
        let rows = trial.results.iter().map(|result| {
            let Ok(measured) = result else {
                return vec!["out of memory".into()];
            };
            let outcome = &measured.outcome;
            let reserved = outcome.peak_reserved_bytes;
            vec![
                bytes(reserved),
                format!("{:.3}", ratio(reserved, trial.peak_live_bytes)),
                format!("{:.2} ms", measured.device_time.as_secs_f64() * 1e3),
                outcome.device_allocations.to_string(),
                format!("{:.1} %", outcome.hit_rate() * 100.0),
            ]
        });
        table(&self.candidates, &comparison, &titles, rows)
    }

    fn table_of_all(&self) -> Table {
        let comparison = self.overall();
        let titles = [
            "reserved / live, geometric mean",
            "device time, predicted, sum",
        ];
        let rows = comparison.costs.iter().enumerate().map(|(index, cost)| {
            let Some(cost) = cost else {
                let (failed, all) = (self.failures(index), self.trials.len());
                return vec![format!("out of memory on {failed} of {all}")];
            };
            vec![
                format!("{:.3}", cost.reserved_over_live),
                format!("{:.2} ms", cost.device_time.as_secs_f64() * 1e3),
            ]
        });
        table(&self.candidates, &comparison, &titles, rows)
    }
}

/// A table with a row for each candidate: its letter in the plot, its name, the cells below `titles` (a row may have fewer),
/// and a mark for the Pareto front and the best.
fn table(
    candidates: &[Candidate],
    comparison: &Comparison,
    titles: &[&str],
    rows: impl Iterator<Item = Vec<String>>,
) -> Table {
    let all_titles = [&["", "setting"], titles, &[""]].concat();
    let mut table = markdown(all_titles, 2..2 + titles.len());
    for (index, (candidate, mut cells)) in candidates.iter().zip(rows).enumerate() {
        cells.resize(titles.len(), String::new());
        let mark = match (comparison.is_on_front(index), comparison.is_best(index)) {
            (true, true) => "* <-- best",
            (false, true) => "<-- best",
            (true, false) => "*",
            (false, false) => "",
        };
        let name = [letter(index).to_string(), candidate.name.to_owned()];
        table.add_row(name.into_iter().chain(cells).chain([mark.to_owned()]));
    }
    table
}
