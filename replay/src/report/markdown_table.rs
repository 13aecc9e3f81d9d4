//! Tables for display, in the form of Markdown, which fit the terminal.

use std::{env, fmt, io, ops::RangeBounds};

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, Width, presets};
use terminal_size::terminal_size_of;

/// A table of text. It fits the terminal, or the columns that the variable `COLUMNS` states: titles take several lines, then the
/// [dispensable](Self::or_without) columns go, the first of them first, and at last cells take several lines.
pub(crate) struct MarkdownTable {
    titles: Vec<String>,
    /// Whether each column is aligned to the right.
    to_the_right: Vec<bool>,
    dispensable: &'static [&'static str],
    rows: Vec<Vec<String>>,
    /// Set if it may be printed on standard error.
    is_for_errors: bool,
}

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

    /// Returns the table without the columns that have these titles. In one of a stated width, cells take one line.
    fn table(&self, left_out: &[&str], width: Option<u16>) -> Table {
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
                let longest = self.least_width(*column) + drawn.padding_width();
                drawn.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(longest)));
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
        for count in 0..=self.dispensable.len() {
            let left_out = &self.dispensable[..count];
            let text = self.table(left_out, Some(width)).to_string();
            if text
                .lines()
                .all(|line| line.chars().count() <= width.into())
            {
                return match left_out {
                    [] => text,
                    _ => format!(
                        "{text}\n(a wider terminal also has: {})",
                        left_out.join(", ")
                    ),
                };
            }
        }
        let mut table = self.table(&[], None);
        table.set_content_arrangement(ContentArrangement::Dynamic);
        table.set_width(width);
        table.to_string()
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
            None => fmt::Display::fmt(&self.table(&[], None), f),
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
    fn dispensable_columns_go_before_cells_take_several_lines() {
        let narrow = table().fitted(22);
        assert!(narrow.contains("(a wider terminal also has: peak reserved)"));
        assert!(!narrow.contains("12"), "{narrow}");
        let splits = table().fitted(14);
        assert!(splits.lines().all(|line| line.len() <= 14), "{splits}");
    }
}
