//! Tables for display, in the form of Markdown, which fit the terminal.

use std::{env, fmt, io, ops::RangeBounds};

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, Width, presets};
use terminal_size::terminal_size_of;

/// A table of text. It fits the terminal, or the columns that the variable `COLUMNS` states: titles take several lines, then the
/// [dispensable](Self::or_without) columns go, the first of them first, then long names take several lines, and at last each row is a list of
/// its own.
pub(crate) struct MarkdownTable {
    titles: Vec<String>,
    /// Whether each column is aligned to the right.
    to_the_right: Vec<bool>,
    dispensable: &'static [&'static str],
    rows: Vec<Vec<String>>,
    /// Set if it may be printed on standard error.
    is_for_errors: bool,
}

/// Names of up to this many characters take one line, however narrow the terminal is.
const LONG_NAME: u16 = 16;

impl MarkdownTable {
    /// Returns a table with these titles. The columns in `numbers` are aligned to the right.
    pub(crate) fn new(
        titles: impl IntoIterator<Item = impl Into<String>>,
        numbers: impl RangeBounds<usize>,
    ) -> Self {
        let titles: Vec<String> = titles.into_iter().map(Into::into).collect();
        Self {
            to_the_right: (0..titles.len()).map(|it| numbers.contains(&it)).collect(),
            titles,
            dispensable: &[],
            rows: Vec::new(),
            is_for_errors: false,
        }
    }

    /// Fits the table to the terminal of standard error where standard output is none.
    pub(crate) fn or_for_errors(self) -> Self {
        Self {
            is_for_errors: true,
            ..self
        }
    }

    /// Has a narrow terminal do without the columns that have these titles.
    pub(crate) fn or_without(self, dispensable: &'static [&'static str]) -> Self {
        Self {
            dispensable,
            ..self
        }
    }

    /// Adds a row with a cell for each title.
    pub(crate) fn add_row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Returns the table without the columns that have these titles. In one of a stated width, cells take one line, and so do names, those in
    /// the first column, of up to `longest_name` characters.
    fn table(&self, left_out: &[&str], width: Option<u16>, longest_name: u16) -> Table {
        let kept = |column: &usize| !left_out.contains(&self.titles[*column].as_str());
        let columns: Vec<usize> = (0..self.titles.len()).filter(kept).collect();
        let cells = |row: &[String]| {
            columns
                .iter()
                .map(|it| row[*it].clone())
                .collect::<Vec<_>>()
        };
        let mut table = Table::new();
        table.load_preset(presets::ASCII_MARKDOWN);
        table.set_header(cells(&self.titles));
        table.add_rows(self.rows.iter().map(|row| cells(row)));
        for (column, drawn) in columns.iter().zip(table.column_iter_mut()) {
            if self.to_the_right[*column] {
                drawn.set_cell_alignment(CellAlignment::Right);
            }
            if width.is_some() {
                let most = if *column == 0 { longest_name } else { u16::MAX };
                let least = self.least_width(*column).min(most) + drawn.padding_width();
                drawn.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(least)));
            }
        }
        if let Some(width) = width {
            table.set_content_arrangement(ContentArrangement::Dynamic);
            table.set_width(width);
        }
        table
    }

    /// Returns the characters of the longest cell of a column, or of the longest word of its title.
    fn least_width(&self, column: usize) -> u16 {
        let cells = self.rows.iter().map(|row| row[column].as_str());
        let all = self.titles[column].split(' ').chain(cells);
        let longest = all.map(|text| text.chars().count()).max();
        longest.map_or(0, |longest| u16::try_from(longest).unwrap_or(u16::MAX))
    }

    /// Returns the text of the table at this width.
    fn fitted(&self, width: u16) -> String {
        let all = self.dispensable.len();
        let tries = (0..=all).map(|count| (count, u16::MAX));
        for (count, longest_name) in tries.chain([(all, LONG_NAME)]) {
            let left_out = &self.dispensable[..count];
            let text = self.table(left_out, Some(width), longest_name).to_string();
            let mut lines = text.lines();
            if lines.all(|line| line.chars().count() <= width.into()) {
                return match left_out {
                    [] => text,
                    _ => format!(
                        "{text}\n(a wider terminal also has: {})",
                        left_out.join(", ")
                    ),
                };
            }
        }
        let lists = self.rows.iter().map(|row| self.list(row, width));
        lists.collect::<Vec<_>>().join("\n\n")
    }

    /// Returns a row as a line with its name and, below that, a line for each other cell.
    fn list(&self, row: &[String], width: u16) -> String {
        let mut cells = self.titles.iter().zip(row);
        let name = cells
            .next()
            .map_or_else(String::new, |(title, name)| format!("{title}: {name}"));
        let cells = cells.filter(|(_, cell)| !cell.is_empty());
        let mut table = Table::new();
        table.load_preset(presets::ASCII_MARKDOWN);
        table.add_rows(cells.map(|(title, cell)| [title, cell]));
        if let Some(cells) = table.column_mut(1) {
            cells.set_cell_alignment(CellAlignment::Right);
        }
        table.set_content_arrangement(ContentArrangement::Dynamic);
        table.set_width(width);
        format!("{name}\n{table}")
    }
}

impl fmt::Display for MarkdownTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stated = env::var("COLUMNS").ok();
        let stated = stated.and_then(|columns| columns.parse().ok());
        let width = stated.filter(|columns| *columns > 0);
        // That of the terminal, if standard output is one.
        let of_output = || terminal_size_of(io::stdout());
        let of_errors = || terminal_size_of(io::stderr());
        let of_terminal = || of_output().or_else(|| self.is_for_errors.then(of_errors)?);
        let columns = || of_terminal().map(|(columns, _)| columns.0);
        match width.or_else(columns) {
            Some(width) => f.write_str(&self.fitted(width)),
            None => fmt::Display::fmt(&self.table(&[], None, u16::MAX), f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> MarkdownTable {
        let mut table = MarkdownTable::new(["trace", "peak reserved", "hit rate"], 1..);
        for row in [["first", "12 MiB", "3.0 %"], ["second", "1 MiB", "30.0 %"]] {
            table.add_row(row.map(str::to_owned));
        }
        table.or_without(&["peak reserved"])
    }

    #[test]
    fn a_table_that_fits_takes_one_line_a_row() {
        let wide = "\
| trace  | peak reserved | hit rate |
|--------|---------------|----------|
| first  |        12 MiB |    3.0 % |
| second |         1 MiB |   30.0 % |";
        assert_eq!(table().fitted(37), wide);
        assert_eq!(table().fitted(200), wide);
    }

    #[test]
    fn titles_take_several_lines_before_anything_is_left_out() {
        let narrow = table().fitted(34);
        assert!(narrow.lines().all(|line| line.len() <= 34), "{narrow}");
        for word in ["peak", "reserved", "hit", "rate", "12", "MiB"] {
            assert!(narrow.contains(word), "{narrow}");
        }
        assert!(!narrow.contains("wider"), "{narrow}");
    }

    #[test]
    fn dispensable_columns_go_before_rows_are_lists() {
        let narrow = table().fitted(22);
        assert!(narrow.contains("(a wider terminal also has: peak reserved)"));
        assert!(!narrow.contains("12"), "{narrow}");
    }

    #[test]
    fn each_row_of_a_table_that_does_not_fit_is_a_list() {
        let mut table = MarkdownTable::new(["trace", "reserved / live", "time", ""], 1..=2);
        for row in [
            ["first", "1.04", "12.00 ms", ""],
            ["second", "1.10", "2.00 ms", "<-- best"],
        ] {
            table.add_row(row.map(str::to_owned));
        }
        let lists = "\
trace: first
| reserved / live |     1.04 |
| time            | 12.00 ms |

trace: second
| reserved / live |     1.10 |
| time            |  2.00 ms |
|                 | <-- best |";
        assert_eq!(table.fitted(30), lists);
    }

    #[test]
    fn long_names_take_several_lines_before_rows_are_lists() {
        let mut table = table();
        table.add_row(["a name of several words", "5 MiB", "5.0 %"].map(str::to_owned));
        let narrow = "\
| trace            | hit rate |
|------------------|----------|
| first            |    3.0 % |
| second           |   30.0 % |
| a name of        |    5.0 % |
| several words    |          |
(a wider terminal also has: peak reserved)";
        assert_eq!(table.fitted(32), narrow);
        assert!(table.fitted(40).contains("a name of several words"));
        assert!(
            table
                .fitted(24)
                .contains("trace: a name of several words\n")
        );
    }

    /// Down to the width of the longest word and the longest cell.
    #[test]
    fn no_word_and_no_figure_is_split_at_any_width() {
        for width in 22..200 {
            let text = table().fitted(width);
            for whole in ["trace", "hit", "rate", "first", "3.0 %", "second", "30.0 %"] {
                assert!(text.contains(whole), "{width}:\n{text}");
            }
            let mut rows = text.lines().filter(|line| line.starts_with('|'));
            assert!(rows.all(|line| line.len() <= width.into()), "{text}");
        }
    }
}
