//! What has become dearer.

use std::fmt;

use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};

use crate::recorded::Recorded;

/// How many times the recorded figure a figure may be, by the compiler that the figures were recorded with.
const LIMIT: f64 = 1.05;

/// The same by another compiler.
const LIMIT_OTHER_COMPILER: f64 = 1.15;

/// Below this many times the recorded figure, it should be recorded anew: a change could lose the gain unseen.
const WORTH_RECORDING: f64 = 0.95;

/// The figures of now beside the recorded ones.
#[derive(Debug)]
pub(crate) struct Gate<'a> {
    recorded: &'a Recorded,
    now: &'a Recorded,
}

/// A benchmark in both, or in one.
struct Row<'a> {
    name: &'a str,
    recorded: Option<f64>,
    now: Option<f64>,
}

impl Row<'_> {
    /// What is now over what was recorded.
    fn ratio(&self) -> Option<f64> {
        Some(self.now? / self.recorded?)
    }
}

impl<'a> Gate<'a> {
    pub(crate) fn new(recorded: &'a Recorded, now: &'a Recorded) -> Self {
        Self { recorded, now }
    }

    fn rows(&self) -> impl Iterator<Item = Row<'a>> {
        let (recorded, now) = (&self.recorded.figures, &self.now.figures);
        let only_now = now.keys().filter(|name| !recorded.contains_key(*name));
        recorded.keys().chain(only_now).map(|name| Row {
            name,
            recorded: recorded.get(name).copied(),
            now: now.get(name).copied(),
        })
    }

    fn is_other_compiler(&self) -> bool {
        self.recorded.compiler != self.now.compiler
    }

    fn limit(&self) -> f64 {
        if self.is_other_compiler() {
            LIMIT_OTHER_COMPILER
        } else {
            LIMIT
        }
    }

    fn is_any(&self, rule: impl Fn(&Row<'_>) -> bool) -> bool {
        self.rows().any(|row| rule(&row))
    }

    fn is_dearer(&self) -> bool {
        self.is_any(|row| row.ratio().is_some_and(|ratio| ratio > self.limit()))
    }

    fn is_incomplete(&self) -> bool {
        self.is_any(|row| row.ratio().is_none())
    }

    /// Whether nothing has become dearer than the limit, and every benchmark is in both.
    pub(crate) fn is_passed(&self) -> bool {
        !self.is_dearer() && !self.is_incomplete()
    }
}

impl fmt::Display for Gate<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_preset(ASCII_MARKDOWN);
        table.set_header(["workload", "recorded", "now", "now / recorded"]);
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        for row in self.rows() {
            let cell =
                |figure: Option<f64>| figure.map_or("none".to_owned(), |it| format!("{it:.1}"));
            let ratio = row.ratio();
            table.add_row([
                row.name.to_owned(),
                cell(row.recorded),
                cell(row.now),
                ratio.map_or(String::new(), |ratio| format!("{ratio:.3}")),
            ]);
        }
        writeln!(f, "Instructions a pair of allocation and free:\n\n{table}")?;
        if self.is_other_compiler() {
            writeln!(
                f,
                "\nWarning: recorded with {}, but this is {}, so that the limit is {}, not {LIMIT}.",
                self.recorded.compiler,
                self.now.compiler,
                self.limit()
            )?;
        }
        if self.is_any(|row| row.ratio().is_some_and(|ratio| ratio < WORTH_RECORDING)) {
            writeln!(
                f,
                "\nSome take less than {WORTH_RECORDING} of what was recorded. Record them, so that it stays so: \
                 scripts/instructions --record"
            )?;
        }
        if self.is_incomplete() {
            writeln!(
                f,
                "\nFailed: a benchmark is new or gone. Record anew: scripts/instructions --record"
            )?;
        }
        if self.is_dearer() {
            writeln!(
                f,
                "\nFailed: above {} of what was recorded. To see where the instructions go: callgrind_annotate \
                 target/gungraun/binpool-benches/instructions/instructions/pairs.WORKLOAD/callgrind.pairs.WORKLOAD.out\n\
                 If the change is worth them: scripts/instructions --record, and say so in the commit.",
                self.limit()
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(compiler: &str, figures: &[(&str, f64)]) -> Recorded {
        let figures = figures.iter().map(|(name, it)| ((*name).to_owned(), *it));
        Recorded {
            compiler: compiler.to_owned(),
            figures: figures.collect(),
        }
    }

    /// The verdict on `hot` that was recorded with 100 instructions by compiler 1, and what is said.
    fn verdict(compiler: &str, now: f64) -> (bool, String) {
        let recorded = figures("rustc 1", &[("hot", 100.0)]);
        let now = figures(compiler, &[("hot", now)]);
        let gate = Gate::new(&recorded, &now);
        (gate.is_passed(), gate.to_string())
    }

    #[test]
    fn more_than_a_twentieth_above_the_record_fails_and_says_what_to_do() {
        assert!(verdict("rustc 1", 105.0).0);
        let (is_passed, said) = verdict("rustc 1", 105.1);
        assert!(!is_passed);
        assert!(said.contains("callgrind_annotate") && said.contains("--record"));
    }

    #[test]
    fn by_another_compiler_it_may_be_three_twentieths_and_a_warning_says_so() {
        let (is_passed, said) = verdict("rustc 2", 115.0);
        assert!(is_passed && said.contains("Warning: recorded with rustc 1"));
        assert!(!verdict("rustc 2", 115.1).0);
        assert!(!verdict("rustc 1", 105.0).1.contains("Warning"));
    }

    #[test]
    fn a_gain_passes_and_is_to_be_recorded() {
        let (is_passed, said) = verdict("rustc 1", 94.9);
        assert!(is_passed && said.contains("--record"));
        assert!(!verdict("rustc 1", 95.1).1.contains("--record"));
    }

    #[test]
    fn a_benchmark_that_is_new_or_gone_fails() {
        let (one, two) = ([("hot", 1.0)], [("hot", 1.0), ("miss", 1.0)]);
        let [one, two] = [figures("rustc 1", &one), figures("rustc 1", &two)];
        assert!(!Gate::new(&one, &two).is_passed());
        assert!(!Gate::new(&two, &one).is_passed());
        assert!(Gate::new(&two, &two).is_passed());
    }
}
