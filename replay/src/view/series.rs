//! Which blocks of a picture have a colour of their own.

use crate::view::GroupRow;

/// How many series have a colour of their own: as many as palette.js has. All others are one more together.
pub(crate) const SERIES: usize = 11;

/// The places of the rows that have a colour of their own: those with the highest peaks, the highest first.
pub(crate) fn series(rows: &[GroupRow]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..rows.len()).collect();
    places.retain(|place| rows[*place].peak_bytes > 0);
    places.sort_by_key(|place| (std::cmp::Reverse(rows[*place].peak_bytes), *place));
    places.truncate(SERIES);
    places
}
