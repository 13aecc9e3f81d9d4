//! The plot of a trial of settings, as SVG.

use std::io;

use plotters::prelude::*;

use crate::{
    plots::{
        axis::LogAxis,
        svg::{Area, Axis, BEST, Drawn, LINE, OTHER, centered, chart, labels, name, spots, svg_of},
    },
    tune::{Candidate, Comparison, Cost},
};

/// The height of the picture in pixels.
const HEIGHT: u32 = 600;

/// The most names of failed candidates that fit into a line.
const NAMES: usize = 8;

const FRONT: RGBColor = RGBColor(30, 90, 180);

/// Draws a scatter plot of the costs as SVG: to the right the reserved over the live bytes, upwards the device's time, both
/// logarithmic, with the Pareto front joined by a line and the best one in red. Candidates that ran out of memory are named
/// below the title. The viewer chooses the fonts.
///
/// ```
/// use std::time::Duration;
///
/// use binpool_replay::{tune::{Comparison, Cost, candidates, svg}};
///
/// let cost = Cost { reserved_over_live: 1.1, device_time: Duration::from_millis(20) };
/// let comparison = Comparison::new(vec![None, Some(cost)], &candidates(), 1.15);
/// let picture = svg("a program", &candidates(), &comparison)?;
/// assert!(picture.starts_with("<svg") && picture.contains("bins 0"));
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// None that can happen: nothing is written to a file.
pub fn svg(title: &str, candidates: &[Candidate], comparison: &Comparison) -> io::Result<String> {
    svg_of(HEIGHT, |area| draw(area, title, candidates, comparison))
}

fn draw(
    area: &Area<'_>,
    title: &str,
    candidates: &[Candidate],
    comparison: &Comparison,
) -> Drawn<()> {
    let header = header(area, title, candidates, comparison)?;
    let mut points: Vec<Point<'_>> = points(candidates, comparison).collect();
    // The best one is drawn last, above others at the same position.
    points.sort_by_key(|point| point.best);
    let at: Vec<(f64, f64)> = points.iter().map(|point| point.at).collect();
    let across = Axis::around("peak reserved / peak live", at.iter().map(|at| at.0));
    let up = Axis::around("device time in ms", at.iter().map(|at| at.1));
    let mut chart = chart(area, header, &across, &up)?;
    let front = comparison.front.iter();
    let front = front.filter_map(|index| points.iter().find(|point| point.index == *index));
    chart.draw_series(LineSeries::new(front.map(|point| point.at), FRONT))?;

    let spots = spots(&chart, &at);
    let mut labels = labels(&chart, &spots);
    for (point, spot) in points.iter().zip(&spots) {
        let radius = if point.best { 6 } else { 4 };
        area.draw(&Circle::new(*spot, radius, point.color.filled()))?;
    }
    // The best one is named first, so that its name is right beside it.
    for (point, spot) in points.iter().zip(spots).rev() {
        name(area, &mut labels, spot, point.name, point.color)?;
    }
    Ok(())
}

/// A candidate that succeeded.
struct Point<'a> {
    index: usize,
    name: &'a str,
    /// The reserved over the live bytes, and milliseconds.
    at: (f64, f64),
    color: RGBColor,
    best: bool,
}

fn points<'a>(
    candidates: &'a [Candidate],
    comparison: &'a Comparison,
) -> impl Iterator<Item = Point<'a>> {
    let costs = comparison.costs.iter().zip(candidates).enumerate();
    costs.filter_map(|(index, (cost, candidate))| {
        let Cost {
            reserved_over_live,
            device_time,
        } = (*cost)?;
        let best = comparison.is_best(index);
        Some(Point {
            index,
            name: candidate.name,
            at: (
                LogAxis::drawn(reserved_over_live),
                LogAxis::drawn(device_time.as_secs_f64() * 1e3),
            ),
            color: match comparison.is_on_front(index) {
                _ if best => BEST,
                true => FRONT,
                false => OTHER,
            },
            best,
        })
    })
}

/// Draws the title, the meaning of the colours, and the candidates that ran out of memory. Returns its height in pixels.
fn header(
    area: &Area<'_>,
    title: &str,
    candidates: &[Candidate],
    comparison: &Comparison,
) -> Drawn<i32> {
    centered(area, title, 22, 10, BLACK)?;
    let mut y = 10 + LINE + 8;
    let colors = "red: best; blue: no other is lower in both";
    centered(area, colors, 15, y, OTHER)?;
    let failed = comparison.costs.iter().zip(candidates);
    let failed = failed.filter(|(cost, _)| cost.is_none());
    let failed: Vec<&str> = failed.map(|(_, candidate)| candidate.name).collect();
    for names in failed.chunks(NAMES) {
        y += LINE;
        let text = format!("out of memory: {}", names.join(", "));
        centered(area, &text, 15, y, OTHER)?;
    }
    Ok(y + LINE + 8)
}
