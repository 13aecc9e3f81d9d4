//! Building blocks of SVG plots: logarithmic axes, and labels beside points.

use std::io;

use plotters::{
    coord::{
        Shift,
        combinators::{BindKeyPoints, LogCoord, WithKeyPoints},
    },
    prelude::*,
    style::text_anchor,
};

use crate::plots::{
    axis::{LogAxis, label},
    labels::{Frame, Labels},
};

/// The width of a picture in pixels.
pub(crate) const WIDTH: u32 = 960;
/// The height of a line of text.
pub(crate) const LINE: i32 = 18;

/// The colour of the most important item.
pub(crate) const BEST: RGBColor = RGBColor(200, 30, 30);
/// The colour of items for comparison.
pub(crate) const OTHER: RGBColor = RGBColor(130, 130, 130);

pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub(crate) type Drawn<T> = Result<T, DrawingAreaErrorKind<io::Error>>;
type Scale = WithKeyPoints<LogCoord<f64>>;
pub(crate) type Chart<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<Scale, Scale>>;

/// An axis of a chart.
pub(crate) struct Axis<'t> {
    pub(crate) title: &'t str,
    pub(crate) ends: LogAxis,
    /// The ticks. Those of plotters are powers of ten, and a plot may contain no power of ten.
    pub(crate) ticks: Vec<f64>,
}

impl<'t> Axis<'t> {
    /// An axis with room for all of `values`, and round ticks.
    pub(crate) fn around(title: &'t str, values: impl Iterator<Item = f64>) -> Self {
        let ends = LogAxis::around(values);
        Self {
            title,
            ends,
            ticks: ends.ticks(8),
        }
    }

    fn scale(&self) -> Scale {
        (self.ends.low..self.ends.high)
            .log_scale()
            .with_key_points(self.ticks.clone())
    }
}

/// Draws an SVG picture of this height in pixels, on white. The viewer chooses the fonts.
pub(crate) fn svg_of(height: u32, draw: impl FnOnce(&Area<'_>) -> Drawn<()>) -> io::Result<String> {
    let mut picture = String::new();
    let area = SVGBackend::with_string(&mut picture, (WIDTH, height)).into_drawing_area();
    let drawn = area
        .fill(&WHITE)
        .and_then(|()| draw(&area))
        .and_then(|()| area.present());
    drop(area);
    drawn.map_err(io::Error::other)?;
    // XML cannot escape these characters, and the names of groups, files and devices may contain them.
    Ok(picture.replace(|letter| !is_xml(letter), "\u{fffd}"))
}

/// Returns whether XML 1.0 allows this character.
fn is_xml(letter: char) -> bool {
    matches!(
        letter,
        '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..
    )
}

/// Writes a line of text in the middle of `area`, `y` pixels from its top.
pub(crate) fn centered(
    area: &Area<'_>,
    text: &str,
    size: i32,
    y: i32,
    color: RGBColor,
) -> Drawn<()> {
    let middle = i32::try_from(WIDTH / 2).unwrap_or(0);
    let position = text_anchor::Pos::new(text_anchor::HPos::Center, text_anchor::VPos::Top);
    let style = TextStyle::from(("sans-serif", size)).color(&color);
    area.draw(&Text::new(
        text.to_owned(),
        (middle, y),
        style.pos(position),
    ))
}

/// Draws the axes and their mesh, below a header of this many pixels.
pub(crate) fn chart<'a>(
    area: &Area<'a>,
    header: i32,
    across: &Axis<'_>,
    up: &Axis<'_>,
) -> Drawn<Chart<'a>> {
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .margin_top(header)
        .margin_right(30)
        .x_label_area_size(46)
        .y_label_area_size(64)
        .build_cartesian_2d(across.scale(), up.scale())?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.12))
        .x_desc(across.title)
        .y_desc(up.title)
        .x_label_formatter(&|tick| label(*tick))
        .y_label_formatter(&|tick| label(*tick))
        .label_style(("sans-serif", 15))
        .draw()?;
    Ok(chart)
}

/// The positions of points in the whole picture, in pixels.
pub(crate) fn spots(chart: &Chart<'_>, points: &[(f64, f64)]) -> Vec<(i32, i32)> {
    let plot = chart.plotting_area();
    let spots = points.iter().map(|point| plot.map_coordinate(point));
    spots.collect()
}

/// The room for labels in `chart`, beside the points at `spots`.
pub(crate) fn labels(chart: &Chart<'_>, spots: &[(i32, i32)]) -> Labels {
    let (columns, rows) = chart.plotting_area().get_pixel_range();
    let frame = Frame {
        left: columns.start,
        top: rows.start,
        right: columns.end,
        bottom: rows.end,
    };
    Labels::new(frame, spots)
}

/// Writes `text` beside `spot`, with a line from there where it is further away. `area` is the whole picture.
pub(crate) fn name(
    area: &Area<'_>,
    labels: &mut Labels,
    spot: (i32, i32),
    text: &str,
    color: RGBColor,
) -> Drawn<()> {
    let label = labels.place(spot, text);
    if let Some(end) = label.leader {
        area.draw(&PathElement::new(vec![spot, end], OTHER.mix(0.6)))?;
    }
    let style = TextStyle::from(("sans-serif", 15)).color(&color);
    area.draw(&Text::new(text.to_owned(), label.left_top, style))
}
