//! The choice of the rows that have a colour of their own.

use std::cmp::Reverse;

use crate::view::numbers::GroupRow;

/// The number of rows with a colour of their own: the number of colours in palette.js. All others share one more.
const SERIES: usize = 11;

/// The indices of the rows with a colour of their own: those with the most bytes at the peak of all, and then those with the highest peaks
/// of their own.
pub(crate) fn series(rows: &[GroupRow]) -> Vec<usize> {
    let mut indices: Vec<usize> = (0..rows.len()).collect();
    indices.retain(|index| rows[*index].peak_bytes > 0);
    indices.sort_by_key(|index| {
        let row = &rows[*index];
        (Reverse((row.at_peak_bytes, row.peak_bytes)), *index)
    });
    indices.truncate(SERIES);
    indices
}
