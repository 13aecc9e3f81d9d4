//! Tables for people, which read as Markdown too.

use std::ops::RangeBounds;

use comfy_table::{CellAlignment, Row, Table, presets};

/// A table with these titles, and numbers in some columns.
pub(crate) fn markdown(titles: impl Into<Row>, numbers: impl RangeBounds<usize>) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_header(titles);
    for (place, column) in table.column_iter_mut().enumerate() {
        if numbers.contains(&place) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}
