//! The terminal's width, and tables that fit into it.

use std::io::stdout;

use comfy_table::{CellAlignment, Table, presets};
use terminal_size::terminal_size_of;

/// Returns how many columns standard output has: those of the variable `COLUMNS`, or those of the terminal. `None` for a pipe or a
/// file.
pub(crate) fn width() -> Option<usize> {
    let stated = std::env::var("COLUMNS").ok();
    stated
        .and_then(|columns| columns.parse().ok())
        .filter(|columns| *columns > 0)
        .or_else(|| terminal_size_of(stdout()).map(|(width, _)| width.0.into()))
}

/// Returns the text with each table that is wider than `width` laid out anew: with titles of several lines, then without the
/// columns that have one of the `dispensable` titles, from the first on, and at last as a list.
pub(crate) fn fitted(text: &str, width: usize, dispensable: &[&str]) -> String {
    let mut lines = text.split('\n').peekable();
    let mut fitted = Vec::new();
    while let Some(line) = lines.next() {
        let is_table = line.starts_with('|')
            && lines.peek().is_some_and(|rule| rule.starts_with("|-"))
            && line.chars().count() > width;
        if !is_table {
            fitted.push(line.to_owned());
            continue;
        }
        let mut rows = vec![line];
        while let Some(row) = lines.next_if(|line| line.starts_with('|')) {
            rows.push(row);
        }
        match Cells::read(&rows) {
            Some(cells) => fitted.push(cells.laid_out(width, dispensable)),
            None => fitted.extend(rows.into_iter().map(str::to_owned)),
        }
    }
    fitted.join("\n")
}

/// The cells of a table that was printed as Markdown.
#[derive(Clone)]
struct Cells {
    titles: Vec<String>,
    rows: Vec<Vec<String>>,
    /// Which columns are aligned to the right.
    to_the_right: Vec<bool>,
}

impl Cells {
    /// Reads a table of a row of titles, a rule, and further rows. `None` where not all of them have as many cells.
    fn read(lines: &[&str]) -> Option<Self> {
        let (titles, rows) = lines.split_first()?;
        let titles = cells(titles)?;
        let rows: Vec<Vec<&str>> = rows
            .iter()
            .skip(1)
            .map(|row| cells(row))
            .collect::<Option<_>>()?;
        if rows.iter().any(|row| row.len() != titles.len()) {
            return None;
        }
        let to_the_right = (0..titles.len())
            .map(|column| rows.iter().any(|row| row[column].starts_with("  ")))
            .collect();
        let trimmed = |row: Vec<&str>| row.into_iter().map(|cell| cell.trim().to_owned()).collect();
        Some(Self {
            titles: trimmed(titles),
            rows: rows.into_iter().map(trimmed).collect(),
            to_the_right,
        })
    }

    fn laid_out(&self, width: usize, dispensable: &[&str]) -> String {
        let mut fewer = self.clone();
        let mut left_out = Vec::new();
        let mut dispensable = dispensable.iter();
        loop {
            let table = fewer.table();
            if table.lines().all(|line| line.chars().count() <= width) {
                return with_remark(table, &left_out);
            }
            let Some(title) = dispensable.next() else {
                return self.list();
            };
            if let Some(column) = fewer.titles.iter().position(|own| own == title) {
                fewer.remove(column);
                left_out.push(*title);
            }
        }
    }

    fn remove(&mut self, column: usize) {
        self.titles.remove(column);
        self.to_the_right.remove(column);
        for row in &mut self.rows {
            row.remove(column);
        }
    }

    /// Returns the table with titles of several lines.
    fn table(&self) -> String {
        let mut table = Table::new();
        table.load_preset(presets::ASCII_MARKDOWN);
        table.set_header((0..self.titles.len()).map(|column| self.title(column)));
        table.add_rows(&self.rows);
        for (column, to_the_right) in table.column_iter_mut().zip(&self.to_the_right) {
            if *to_the_right {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table.to_string()
    }

    /// Returns the title of a column, on as many lines as it takes to be no wider than the cells below it.
    fn title(&self, column: usize) -> String {
        let title = &self.titles[column];
        let cells = self.rows.iter().map(|row| row[column].chars().count());
        let words = title.split(' ').map(|word| word.chars().count());
        let width = cells.chain(words).max().unwrap_or_default();
        let mut lines: Vec<String> = Vec::new();
        for word in title.split(' ') {
            match lines.last_mut() {
                Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                    line.push(' ');
                    line.push_str(word);
                }
                _ => lines.push(word.to_owned()),
            }
        }
        lines.join("\n")
    }

    /// Returns a paragraph for each row: its first cell, and a line for each other one.
    fn list(&self) -> String {
        let widest = self.titles.iter().map(|title| title.chars().count()).max();
        let widest = widest.unwrap_or_default();
        let paragraphs = self.rows.iter().map(|row| {
            let mut cells = self
                .titles
                .iter()
                .zip(row)
                .filter(|(_, cell)| !cell.is_empty());
            let first = cells
                .next()
                .map(|(_, cell)| cell.clone())
                .unwrap_or_default();
            let rest = cells.map(|(title, cell)| format!("\n  {title:<widest$}  {cell}"));
            first + &rest.collect::<String>()
        });
        paragraphs.collect::<Vec<_>>().join("\n\n")
    }
}

/// Returns the cells of a row with the blanks around them. `None` for a line that is no row.
fn cells(row: &str) -> Option<Vec<&str>> {
    let inner = row.strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split('|').collect())
}

fn with_remark(table: String, left_out: &[&str]) -> String {
    match left_out {
        [] => table,
        left_out => format!(
            "{table}\n(a wider terminal also has: {})",
            left_out.join(", ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
mock on x

| trace  | peak reserved | hit rate |
|--------|---------------|----------|
| first  |        12 MiB |    3.0 % |
| second |         1 MiB |   30.0 % |

the end";

    #[test]
    fn a_table_that_fits_is_left_alone() {
        assert_eq!(fitted(TABLE, 37, &["peak reserved"]), TABLE);
        assert_eq!(fitted("| no | table |", 3, &[]), "| no | table |");
    }

    #[test]
    fn titles_take_several_lines_before_anything_is_left_out() {
        let narrow = "\
mock on x

| trace  |     peak |    hit |
|        | reserved |   rate |
|--------|----------|--------|
| first  |   12 MiB |  3.0 % |
| second |    1 MiB | 30.0 % |

the end";
        assert_eq!(fitted(TABLE, 36, &["peak reserved"]), narrow);
    }

    #[test]
    fn dispensable_columns_go_before_the_table_becomes_a_list() {
        let narrow = "\
mock on x

| trace  |    hit |
|        |   rate |
|--------|--------|
| first  |  3.0 % |
| second | 30.0 % |
(a wider terminal also has: peak reserved)

the end";
        assert_eq!(
            fitted(TABLE, 25, &["no such title", "peak reserved"]),
            narrow
        );
        let list = "\
mock on x

first
  peak reserved  12 MiB
  hit rate       3.0 %

second
  peak reserved  1 MiB
  hit rate       30.0 %

the end";
        assert_eq!(fitted(TABLE, 25, &[]), list);
    }

    #[test]
    fn a_row_with_a_bar_in_a_cell_is_printed_as_it_is() {
        let text = "| a | b |\n|---|---|\n| x | y | z |";
        assert_eq!(fitted(text, 4, &[]), text);
    }
}
