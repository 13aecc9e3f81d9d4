//! Tables for display, in the form of Markdown.

use std::ops::RangeBounds;

use comfy_table::{CellAlignment, Row, Table, presets};

/// A table with these titles. The columns in `numbers` are aligned to the right.
pub(crate) fn markdown(titles: impl Into<Row>, numbers: impl RangeBounds<usize>) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_header(titles);
    for (index, column) in table.column_iter_mut().enumerate() {
        if numbers.contains(&index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}
