//! The choice of the rows that have a colour of their own.

use crate::view::numbers::GroupRow;

/// The number of rows with a colour of their own: the number of colours in palette.js. All others share one more.
const SERIES: usize = 11;

/// The indices of the rows with a colour of their own: those with the highest peaks, the highest first.
pub(crate) fn series(rows: &[GroupRow]) -> Vec<usize> {
    let mut indices: Vec<usize> = (0..rows.len()).collect();
    indices.retain(|index| rows[*index].peak_bytes > 0);
    indices.sort_by_key(|index| (std::cmp::Reverse(rows[*index].peak_bytes), *index));
    indices.truncate(SERIES);
    indices
}
