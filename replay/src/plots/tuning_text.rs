//! The plot of a trial of settings, as text.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    fmt::Write,
};

use crate::{
    Comparison, Cost,
    plots::axis::{LogAxis, label},
};

/// The most and the fewest columns of the plot, without the labels at its left.
const MOST_COLUMNS: usize = 60;
const FEWEST_COLUMNS: usize = 20;
const ROWS: u32 = 16;
/// The columns of the labels at its left.
const GUTTER: usize = 8;

/// The letter of the candidate at this index.
pub(crate) fn letter(index: usize) -> char {
    ('a'..='z').chain('A'..='Z').nth(index).unwrap_or('+')
}

/// Draws a scatter plot of the costs in characters: from left to right the reserved over the live bytes, upwards the
/// device's time, both logarithmic. A candidate has the letter of its row in the table, the best one `@`. Lines have at most `width`
/// characters, unless that is less than 30.
///
/// ```
/// use std::time::Duration;
///
/// use binpool_replay::{Comparison, Cost, candidates, text_plot};
///
/// let cost = |reserved_over_live, ms| {
///     Some(Cost { reserved_over_live, device_time: Duration::from_millis(ms) })
/// };
/// // The costs of no pool and of two pools.
/// let comparison = Comparison::new(vec![cost(1.0, 900), cost(1.5, 5), cost(1.1, 8)], &candidates(), 1.15);
/// let plot = text_plot(&comparison, 80);
/// assert_eq!(plot.lines().nth(2), Some("    1000 |    a"));
/// ```
#[must_use]
pub fn text_plot(comparison: &Comparison, width: usize) -> String {
    let columns = width
        .saturating_sub(GUTTER + 2)
        .clamp(FEWEST_COLUMNS, MOST_COLUMNS);
    let columns = u32::try_from(columns).unwrap_or_default();
    let points = foremost_first(comparison);
    let across = LogAxis::around(points.iter().map(|(_, cost)| cost.reserved_over_live));
    let up = LogAxis::around(points.iter().map(|(_, cost)| milliseconds(cost)));
    let row = |value| ROWS - 1 - cell(up.position(value), ROWS);

    let mut drawn = HashMap::new();
    let mut hidden = Vec::new();
    for (index, cost) in points {
        let at = (
            row(milliseconds(&cost)),
            cell(across.position(cost.reserved_over_live), columns),
        );
        match drawn.entry(at) {
            Entry::Vacant(free) => {
                let best = comparison.is_best(index);
                free.insert(if best { '@' } else { letter(index) });
            }
            Entry::Occupied(_) => hidden.push(letter(index)),
        }
    }

    let labels: BTreeMap<u32, String> = (up.ticks(6).into_iter())
        .map(|tick| (row(tick), label(tick)))
        .collect();
    let mut text = String::from(
        "device time in ms, against reserved / live (both logarithmic); @ is the best\n",
    );
    for row in 0..ROWS {
        let label = labels.get(&row).map_or("", String::as_str);
        let cells = (0..columns).map(|column| drawn.get(&(row, column)).unwrap_or(&' '));
        let line = format!("{label:>GUTTER$} |{}", cells.collect::<String>());
        text.push_str(line.trim_end());
        text.push('\n');
    }
    let ruler = "-".repeat(columns as usize);
    let _ = writeln!(text, "{:GUTTER$} +{ruler}", "");
    let _ = writeln!(text, "{:GUTTER$}  {}", "", ruler_labels(&across, columns));
    if !hidden.is_empty() {
        hidden.sort_unstable();
        let _ = writeln!(text, "behind others: {}", String::from_iter(hidden));
    }
    text
}

/// The candidates in the order of their importance: the best, the front, the rest. Each cell shows its most important one.
fn foremost_first(comparison: &Comparison) -> Vec<(usize, Cost)> {
    let costs = comparison.costs.iter().enumerate();
    let mut points: Vec<_> = costs
        .filter_map(|(index, cost)| cost.map(|cost| (index, cost)))
        .collect();
    points.sort_by_key(|(index, _)| (!comparison.is_best(*index), !comparison.is_on_front(*index)));
    points
}

fn milliseconds(cost: &Cost) -> f64 {
    cost.device_time.as_secs_f64() * 1e3
}

/// The cell, of so many, of a position from 0 to 1.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "between 0 and the number of cells"
)]
fn cell(position: f64, cells: u32) -> u32 {
    (position * f64::from(cells - 1)).round() as u32
}

/// The labels below the plot, each in the middle of its column. Labels that would touch the one before are left
/// out.
fn ruler_labels(axis: &LogAxis, columns: u32) -> String {
    let mut line = String::new();
    for tick in axis.ticks(8) {
        let label = label(tick);
        let column = cell(axis.position(tick), columns) as usize;
        let start = column.saturating_sub(label.len() / 2);
        if line.is_empty() || start > line.len() {
            let _ = write!(line, "{:1$}{label}", "", start - line.len());
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::candidates;

    fn plot(costs: &[(f64, u64)]) -> String {
        let costs = costs.iter().map(|&(reserved_over_live, ms)| {
            Some(Cost {
                reserved_over_live,
                device_time: Duration::from_millis(ms),
            })
        });
        text_plot(&Comparison::new(costs.collect(), &candidates(), 1.15), 80)
    }

    /// The row and column of a character in the plot.
    fn find(plot: &str, wanted: char) -> Option<(usize, usize)> {
        let mut rows = plot.lines().skip(1).take(ROWS as usize).enumerate();
        rows.find_map(|(row, line)| {
            let column = line.split_once('|')?.1.find(wanted)?;
            Some((row, column))
        })
    }

    #[test]
    fn more_time_is_higher_up_and_more_memory_further_right() {
        let plot = plot(&[(1.0, 1000), (1.1, 10), (2.0, 5)]);
        let (baseline, best, bins) = (find(&plot, 'a'), find(&plot, '@'), find(&plot, 'c'));
        let ((up, left), (middle, between)) = (baseline.unwrap(), best.unwrap());
        let (down, right) = bins.unwrap();
        assert!(up < middle && middle < down, "{plot}");
        assert!(left < between && between < right, "{plot}");
        assert!(plot.lines().all(|line| line.len() <= 80), "{plot}");
        assert_eq!(plot.lines().count(), 1 + 16 + 2);
        assert!(plot.contains("\n     100 |"), "{plot}");
        assert!(plot.lines().last().unwrap().contains("1.2"), "{plot}");
    }

    #[test]
    fn candidates_hidden_behind_the_best_are_named() {
        let plot = plot(&[(1.0, 100_000), (1.1, 1001), (1.1001, 1000), (1.4, 500)]);
        assert_eq!(find(&plot, 'b').or(find(&plot, 'c')), None, "{plot}");
        assert!(find(&plot, '@').is_some(), "{plot}");
        assert_eq!(plot.lines().last(), Some("behind others: b"));
    }

    #[test]
    fn no_points_make_an_empty_picture() {
        let comparison = Comparison::new(vec![None, None], &candidates(), 1.15);
        let plot = text_plot(&comparison, 80);
        assert_eq!(plot.lines().count(), 1 + 16 + 2, "{plot}");
    }
}
