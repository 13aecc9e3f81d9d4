//! The plot of how workloads scale with threads, as SVG.

use std::io;

use binpool_benches::{SubjectChoice, Workload};
use plotters::prelude::*;

use crate::{
    BenchRow,
    plots::{
        axis::LogAxis,
        svg::{Area, Axis, BEST, Drawn, LINE, OTHER, centered, chart, labels, name, spots, svg_of},
    },
};

/// The part of a chart that is added on its right for the names of the lines.
const ROOM_FOR_NAMES: f64 = 0.2;

/// Draws the million pairs a second of each subject over the number of threads, both logarithmic, in a chart for each workload
/// of `rows`, in their order. A line that climbs by one doubling for each doubling of threads scales perfectly. The viewer
/// chooses the fonts.
///
/// ```
/// use binpool_benches::{Figures, SubjectChoice, Workload};
/// use binpool_replay::{BenchRow, scaling_svg};
///
/// let row = |threads| BenchRow {
///     workload: Workload::Hot,
///     subject: SubjectChoice::Malloc,
///     figures: Figures { threads, ns_per_pair_min: 20.0, ns_per_pair_median: 21.0 },
/// };
/// let picture = scaling_svg(&[row(1), row(2)])?;
/// assert!(picture.starts_with("<svg") && picture.contains("malloc"));
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// None that can happen: nothing is written to a file.
pub fn scaling_svg(rows: &[BenchRow]) -> io::Result<String> {
    let workloads = distinct(rows.iter().map(|row| row.workload));
    svg_of(workloads.len(), |area| {
        let parts = area.split_evenly((workloads.len(), 1));
        for (workload, part) in workloads.iter().zip(parts) {
            draw(area, &part, *workload, rows)?;
        }
        Ok(())
    })
}

/// Draws one chart into `part` of the picture.
fn draw(area: &Area<'_>, part: &Area<'_>, workload: Workload, rows: &[BenchRow]) -> Drawn<()> {
    let rows = rows.iter().filter(|row| row.workload == workload);
    let rows: Vec<&BenchRow> = rows.collect();
    let at: Vec<(f64, f64)> = rows.iter().map(|row| point(row)).collect();
    centered(part, workload.name(), 22, 10, BLACK)?;
    let explained =
        "all threads together; a doubling upwards for each doubling of threads is perfect";
    centered(part, explained, 15, 10 + LINE + 8, OTHER)?;
    let threads = || at.iter().map(|at| at.0);
    let mut ends = LogAxis::around(threads());
    ends.high *= (ends.high / ends.low).powf(ROOM_FOR_NAMES);
    let across = Axis {
        title: "threads",
        ends,
        ticks: distinct(threads()),
    };
    let up = Axis::around("million pairs a second", at.iter().map(|at| at.1));
    let mut chart = chart(part, 10 + 2 * LINE + 16, &across, &up)?;
    let spots = spots(&chart, &at);
    let mut labels = labels(&chart, &spots);
    for subject in distinct(rows.iter().map(|row| row.subject)) {
        let color = color(subject);
        let mut line: Vec<_> = rows
            .iter()
            .zip(&at)
            .zip(&spots)
            .filter(|((row, _), _)| row.subject == subject)
            .map(|((_, at), spot)| (*at, *spot))
            .collect();
        line.sort_by(|((one, _), _), ((other, _), _)| one.total_cmp(other));
        let points = line.iter().map(|(at, _)| *at);
        chart.draw_series(LineSeries::new(points, color.stroke_width(2)))?;
        for (_, spot) in &line {
            area.draw(&Circle::new(*spot, 4, color.filled()))?;
        }
        if let Some((_, last)) = line.last() {
            name(area, &mut labels, *last, subject.name(), color)?;
        }
    }
    Ok(())
}

/// The threads, and the million pairs a second.
#[expect(clippy::cast_precision_loss, reason = "threads are few")]
fn point(row: &BenchRow) -> (f64, f64) {
    let figures = &row.figures;
    let speed = LogAxis::drawn(figures.million_pairs_per_s());
    (figures.threads as f64, speed)
}

/// The distinct `values`, in the order in which they first occur.
fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for value in values {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

fn color(subject: SubjectChoice) -> RGBColor {
    match subject {
        SubjectChoice::Pool => BEST,
        SubjectChoice::Bins => RGBColor(230, 130, 30),
        SubjectChoice::Watched | SubjectChoice::Recorded => RGBColor(200, 100, 130),
        SubjectChoice::Malloc => RGBColor(30, 90, 180),
        SubjectChoice::Mimalloc => RGBColor(30, 140, 90),
        SubjectChoice::Ranges => RGBColor(130, 70, 160),
        SubjectChoice::Direct | SubjectChoice::Nothing => OTHER,
    }
}
