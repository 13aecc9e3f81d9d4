//! The picture for a page: SVG.

use std::io;

use plotters::{
    coord::{
        Shift,
        ranged1d::{AsRangedCoord, ValueFormatter},
    },
    prelude::*,
    style::text_anchor,
};

use crate::{
    Candidate, Comparison, Cost,
    axis::{LogAxis, label},
    labels::{Frame, Labels},
};

const WIDTH: u32 = 960;
const HEIGHT: u32 = 600;
/// The height of a line of text.
const LINE: i32 = 18;
/// The most names of failed candidates that fit into a line.
const NAMES: usize = 8;

const BEST: RGBColor = RGBColor(200, 30, 30);
const FRONT: RGBColor = RGBColor(30, 90, 180);
const OTHER: RGBColor = RGBColor(130, 130, 130);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn<T> = Result<T, DrawingAreaErrorKind<io::Error>>;

/// A scatter of the costs as SVG: to the right what is reserved over what is live, upwards the device's time, both
/// logarithmic, the Pareto front joined by a line, the best one red. Candidates that ran out of memory are named
/// below the title. Fonts are left to whoever shows the picture.
///
/// ```
/// use std::time::Duration;
///
/// use binpool_replay::{Comparison, Cost, candidates, svg};
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
    let mut picture = String::new();
    draw(
        &SVGBackend::with_string(&mut picture, (WIDTH, HEIGHT)).into_drawing_area(),
        title,
        candidates,
        comparison,
    )
    .map_err(io::Error::other)?;
    Ok(picture)
}

fn draw(
    area: &Area<'_>,
    title: &str,
    candidates: &[Candidate],
    comparison: &Comparison,
) -> Drawn<()> {
    area.fill(&WHITE)?;
    let header = header(area, title, candidates, comparison)?;
    let mut points: Vec<Point<'_>> = points(candidates, comparison).collect();
    // Drawn last, above what is in the same place.
    points.sort_by_key(|point| point.best);
    let across = LogAxis::around(points.iter().map(|point| point.at.0));
    let up = LogAxis::around(points.iter().map(|point| point.at.1));
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .margin_top(header)
        .margin_right(30)
        .x_label_area_size(46)
        .y_label_area_size(64)
        .build_cartesian_2d(scale(across), scale(up))?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.12))
        .x_desc("peak reserved / peak live")
        .y_desc("device time in ms")
        .x_label_formatter(&|tick| label(*tick))
        .y_label_formatter(&|tick| label(*tick))
        .label_style(("sans-serif", 15))
        .draw()?;
    let front = comparison.front.iter();
    let front = front.filter_map(|place| points.iter().find(|point| point.place == *place));
    chart.draw_series(LineSeries::new(front.map(|point| point.at), FRONT))?;

    let plot = chart.plotting_area();
    let (columns, rows) = plot.get_pixel_range();
    let spots = points.iter().map(|point| plot.map_coordinate(&point.at));
    let spots: Vec<(i32, i32)> = spots.collect();
    let frame = Frame {
        left: columns.start,
        top: rows.start,
        right: columns.end,
        bottom: rows.end,
    };
    let mut labels = Labels::new(frame, &spots);
    for (point, spot) in points.iter().zip(&spots) {
        let radius = if point.best { 6 } else { 4 };
        area.draw(&Circle::new(*spot, radius, point.color.filled()))?;
    }
    // The best one first, so that its name is beside it.
    for (point, spot) in points.iter().zip(spots).rev() {
        let name = labels.place(spot, point.name);
        if let Some(end) = name.leader {
            area.draw(&PathElement::new(vec![spot, end], OTHER.mix(0.6)))?;
        }
        let style = TextStyle::from(("sans-serif", 15)).color(&point.color);
        area.draw(&Text::new(point.name, name.left_top, style))?;
    }
    area.present()
}

/// A candidate that succeeded.
struct Point<'a> {
    place: usize,
    name: &'a str,
    /// Reserved over live, and milliseconds.
    at: (f64, f64),
    color: RGBColor,
    best: bool,
}

fn points<'a>(
    candidates: &'a [Candidate],
    comparison: &'a Comparison,
) -> impl Iterator<Item = Point<'a>> {
    let costs = comparison.costs.iter().zip(candidates).enumerate();
    costs.filter_map(|(place, (cost, candidate))| {
        let Cost {
            reserved_over_live,
            device_time,
        } = (*cost)?;
        let best = comparison.is_best(place);
        Some(Point {
            place,
            name: candidate.name,
            at: (
                LogAxis::drawn(reserved_over_live),
                LogAxis::drawn(device_time.as_secs_f64() * 1e3),
            ),
            color: match comparison.is_on_front(place) {
                _ if best => BEST,
                true => FRONT,
                false => OTHER,
            },
            best,
        })
    })
}

/// The axis with our ticks: plotters' own are powers of ten, of which a plot may have none.
fn scale(axis: LogAxis) -> impl AsRangedCoord<Value = f64, CoordDescType: ValueFormatter<f64>> {
    (axis.low..axis.high)
        .log_scale()
        .with_key_points(axis.ticks(8))
}

/// Draws the title, what the colours mean, and who ran out of memory. The height in pixels that it takes.
fn header(
    area: &Area<'_>,
    title: &str,
    candidates: &[Candidate],
    comparison: &Comparison,
) -> Drawn<i32> {
    let middle = i32::try_from(WIDTH / 2).unwrap_or(0);
    let centered = text_anchor::Pos::new(text_anchor::HPos::Center, text_anchor::VPos::Top);
    let line = |text: &str, size: i32, y: i32, color: RGBColor| {
        let style = TextStyle::from(("sans-serif", size)).color(&color);
        area.draw(&Text::new(
            text.to_owned(),
            (middle, y),
            style.pos(centered),
        ))
    };
    line(title, 22, 10, BLACK)?;
    let mut y = 10 + LINE + 8;
    line(
        "red: best; blue: no other is as low in both respects",
        15,
        y,
        OTHER,
    )?;
    let failed = comparison.costs.iter().zip(candidates);
    let failed = failed.filter(|(cost, _)| cost.is_none());
    let failed: Vec<&str> = failed.map(|(_, candidate)| candidate.name).collect();
    for names in failed.chunks(NAMES) {
        y += LINE;
        let text = format!("out of memory: {}", names.join(", "));
        line(&text, 15, y, OTHER)?;
    }
    Ok(y + LINE + 8)
}
