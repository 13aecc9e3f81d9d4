//! Tables for display, in the form of Markdown, which fit the terminal.

use std::{env, fmt, io, ops::RangeBounds};

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, Width, presets};
use terminal_size::terminal_size_of;

/// A table of text. It fits the terminal, or the columns that the variable `COLUMNS` states: titles take several lines, then the
/// [dispensable](Self::or_without) columns go, the first of them first, and then long names take several lines.
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

    /// Returns the table of this width without the columns that have these titles. No word takes several lines, and of the cells only names do,
    /// those in the first column, if `wraps_names`.
    fn table(&self, left_out: &[&str], width: u16, wraps_names: bool) -> Table {
        let kept = |column: &usize| !left_out.contains(&self.titles[*column].as_str());
        let columns: Vec<usize> = (0..self.titles.len()).filter(kept).collect();
        let cells = |row: &[String]| {
            let cells = columns.iter().map(|it| row[*it].clone());
            cells.collect::<Vec<_>>()
        };
        let mut table = Table::new();
        table
            .load_preset(presets::ASCII_MARKDOWN)
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(width);
        table.set_header(cells(&self.titles));
        table.add_rows(self.rows.iter().map(|row| cells(row)));
        for (column, drawn) in columns.iter().zip(table.column_iter_mut()) {
            if self.to_the_right[*column] {
                drawn.set_cell_alignment(CellAlignment::Right);
            }
            let least = self.least_width(*column, wraps_names && *column == 0);
            let least = least.saturating_add(drawn.padding_width());
            drawn.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(least)));
        }
        table
    }

    /// Returns the characters of the longest word of a column's title, and of its longest cell, or word of a cell if it `wraps`.
    fn least_width(&self, column: usize, wraps: bool) -> u16 {
        let cells = self.rows.iter().map(|row| row[column].as_str());
        let parts = cells.flat_map(|cell| cell.split(if wraps { ' ' } else { '\n' }));
        let all = self.titles[column].split(' ').chain(parts);
        let longest = all.map(|text| text.chars().count()).max();
        longest.map_or(0, |longest| u16::try_from(longest).unwrap_or(u16::MAX))
    }

    /// Returns the text of the table at this width, or at the least one that it can have.
    fn fitted(&self, width: u16) -> String {
        let all = self.dispensable.len();
        let mut tries = (0..=all).map(|count| (&self.dispensable[..count], false));
        let fits = |(left_out, wraps_names): &(&[&str], bool)| {
            let text = self.table(left_out, width, *wraps_names).to_string();
            let mut lines = text.lines();
            lines.all(|line| line.chars().count() <= width.into())
        };
        let (left_out, wraps_names) = tries.find(fits).unwrap_or((self.dispensable, true));
        let text = self.table(left_out, width, wraps_names).to_string();
        let others = match left_out {
            [] => String::new(),
            _ => format!("\n(a wider terminal also has: {})", left_out.join(", ")),
        };
        text + &others
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
        f.write_str(&self.fitted(width.or_else(columns).unwrap_or(u16::MAX)))
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
    fn dispensable_columns_go_where_titles_of_several_lines_are_not_enough() {
        let narrow = table().fitted(22);
        assert!(narrow.contains("(a wider terminal also has: peak reserved)"));
        assert!(!narrow.contains("12"), "{narrow}");
    }

    #[test]
    fn names_take_several_lines_when_nothing_else_helps() {
        let mut table = table();
        let name = ["a name of several words", "5 MiB", "5.0 %"];
        table.add_row(name.map(str::to_owned));
        let narrow = table.fitted(24);
        let rows: Vec<_> = narrow.lines().filter(|row| row.contains(" %")).collect();
        assert_eq!(rows.len(), 3, "{narrow}");
        assert!(rows.iter().all(|row| row.starts_with("| ")), "{narrow}");
        for word in name[0].split(' ').chain(["second"]) {
            assert!(narrow.contains(word), "{narrow}");
        }
        assert!(table.fitted(40).contains(name[0]));
        let least = table.fitted(1);
        assert!(
            least
                .lines()
                .all(|line| line.len() <= 24 || line.starts_with('(')),
            "{least}"
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
