//! The plot of memory over time, as SVG.

use std::{io, ops::Range};

use plotters::{
    coord::{
        Shift,
        combinators::{BindKeyPoints, WithKeyPoints},
        types::{RangedCoordf64, RangedCoordu64},
    },
    element::DashedPathElement,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use binpool::words::bytes;
use binpool_trace::{
    Shortage, cut,
    view::{At, By, GroupRow, History, Numbers, SERIES, series},
};

const WIDTH: u32 = 960;
const HEIGHT: u32 = 440;
/// The height of a line of names.
const LINE: usize = 22;
/// The most characters of a name that is not cut.
const LONGEST: usize = 16;
/// The columns of the plot. Each shows the moment in it at which the most is active.
const COLUMNS: usize = 640;

/// The page's six hues, on white, in its order. The second six are lighter versions of them.
const HUES: [RGBColor; 6] = [
    RGBColor(0x44, 0x77, 0xaa),
    RGBColor(0xee, 0x66, 0x77),
    RGBColor(0x66, 0xcc, 0xee),
    RGBColor(0x22, 0x88, 0x33),
    RGBColor(0xaa, 0x33, 0x77),
    RGBColor(0xcc, 0xbb, 0x44),
];
/// The colour of axes and remarks.
const OTHER: RGBColor = RGBColor(130, 130, 130);
/// The colour of the series of all others.
const OTHERS: RGBColor = RGBColor(0xa7, 0xad, 0xb5);
const RESERVED: RGBColor = RGBColor(0x3b, 0x44, 0x50);
const DANGER: RGBColor = RGBColor(0xb3, 0x26, 0x1e);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn<T> = Result<T, DrawingAreaErrorKind<io::Error>>;

/// A column of the plot.
#[derive(Debug)]
struct Column {
    /// Its range on the axis.
    along: Range<f64>,
    /// The bytes of each series, and of all others, at its moment.
    stack: [u64; SERIES + 1],
    /// The most bytes that are reserved in it.
    reserved: u64,
}

/// The edges of the plot, in pixels. The names are on the right.
const LEFT: u32 = 84;
const TOP: i32 = 60;
const RIGHT: i32 = 744;
const BELOW: u32 = 51;

type Plot<'a> =
    ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, WithKeyPoints<RangedCoordu64>>>;

/// Draws memory over time as SVG: the active bytes, stacked by `by`, and the reserved bytes. Each column shows the moment in it at which
/// the most is active. The viewer chooses the fonts.
///
/// # Errors
///
/// None that can happen: nothing is written to a file.
pub fn timeline_svg(history: &History, by: By) -> io::Result<String> {
    let timeline = Timeline { history };
    let numbers = history.numbers();
    let rows = numbers.by(by);
    let series = series(rows);
    let columns = timeline.stacks(by, &series);
    svg_of(|area| {
        draw_title(area, &numbers)?;
        draw_names(area, rows, &series)?;
        let mut plot = timeline.plot(area, &numbers)?;
        draw_stacks(&mut plot, &columns)?;
        let reserved = stairs(&columns, |column| column.reserved);
        plot.draw_series([PathElement::new(reserved, RESERVED.stroke_width(2))])?;
        timeline.draw_marks(&mut plot, &numbers)
    })
}

/// A history along an axis.
struct Timeline<'h> {
    history: &'h History,
}

impl Timeline<'_> {
    /// Draws the axes, with round numbers of bytes, and of seconds or events.
    fn plot<'a>(&self, area: &Area<'a>, numbers: &Numbers) -> Drawn<Plot<'a>> {
        let capacity = numbers.out_of_memory.as_ref();
        let capacity = capacity.map_or(0, |_| numbers.capacity_bytes);
        let most = numbers.peak_reserved.reserved_bytes.max(capacity).max(1);
        let top = most.saturating_add(most / 16).saturating_add(1);
        let mut plot = ChartBuilder::on(area)
            .margin_top(TOP)
            .margin_right(i32::try_from(WIDTH).unwrap_or(RIGHT) - RIGHT - 1)
            .x_label_area_size(BELOW)
            .y_label_area_size(LEFT)
            .build_cartesian_2d(self.axis(), (0..top).with_key_points(ticks(most)))?;
        plot.configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.12))
            .axis_style(OTHER)
            .x_desc(if numbers.has_times {
                "seconds"
            } else {
                "events"
            })
            .x_labels(8)
            .x_label_formatter(&|tick| label(*tick))
            .y_label_formatter(&|tick| round_bytes(*tick))
            .label_style(small(&OTHER))
            .draw()?;
        Ok(plot)
    }

    /// The whole axis: that of the events, and of what failed before or after them.
    fn axis(&self) -> Range<f64> {
        let failures = || {
            self.history
                .shortages
                .iter()
                .map(|failed| self.along_shortage(failed))
        };
        let start = failures().fold(self.along(0), f64::min);
        let end = failures().fold(self.along(self.history.last_moment()), f64::max);
        start..end.max(start + 1e-9)
    }

    /// The position of a moment's beginning on the axis: its number, or seconds.
    #[expect(clippy::cast_precision_loss, reason = "a position in a picture")]
    fn along(&self, moment: usize) -> f64 {
        let time = self
            .history
            .times
            .get(moment.saturating_sub(1))
            .or(self.history.times.last());
        time.map_or(moment as f64, |ns| seconds(*ns))
    }

    /// The position of a request that failed: its own time, which is that of no event.
    fn along_shortage(&self, failed: &Shortage) -> f64 {
        if self.history.times.is_empty() {
            self.along(failed.events_before)
        } else {
            seconds(failed.time)
        }
    }

    fn stacks(&self, by: By, series: &[usize]) -> Vec<Column> {
        let layer_of = |block: usize| {
            let row = self.history.group_of(by, block);
            series.iter().position(|own| *own == row).unwrap_or(SERIES)
        };
        let (active, reserved) = (self.history.active_bytes(), self.history.reserved_bytes());
        let moments = self.history.last_moment();
        let Range {
            start: first,
            end: last,
        } = self.axis();
        let mut stack = [0; SERIES + 1];
        let mut next = 0;
        let mut begun = 0;
        let mut columns = Vec::with_capacity(COLUMNS);
        for column in 1..=COLUMNS {
            let end = first + (last - first) * fraction(column);
            let from = begun;
            while begun < moments && (self.along(begun + 1) < end || column == COLUMNS) {
                begun += 1;
            }
            let best = (from..=begun)
                .max_by_key(|moment| active[*moment])
                .unwrap_or(from);
            let mut shown = stack;
            for moment in from + 1..=begun {
                if let Some(free) = self.history.frees.get(moment - 1) {
                    let block = free.unwrap_or(next);
                    let bytes = self.history.blocks[block].requested_bytes;
                    let layer = &mut stack[layer_of(block)];
                    if free.is_some() {
                        *layer -= bytes;
                    } else {
                        *layer += bytes;
                        next += 1;
                    }
                }
                if moment == best {
                    shown = stack;
                }
            }
            columns.push(Column {
                along: first + (last - first) * fraction(column - 1)..end,
                stack: shown,
                reserved: reserved[from..=begun].iter().copied().max().unwrap_or(0),
            });
        }
        columns
    }

    fn draw_marks(&self, plot: &mut Plot<'_>, numbers: &Numbers) -> Drawn<()> {
        let failures = self.history.shortages.iter();
        let mut marks: Vec<f64> = failures.map(|it| self.along_shortage(it)).collect();
        let Range { start, end } = self.axis();
        if numbers.out_of_memory.is_some() {
            marks.push(self.along(self.history.last_moment()));
            let capacity = numbers.capacity_bytes;
            let line = [(start, capacity), (end, capacity)];
            let line = DashedPathElement::new(line, 6, 4, DANGER.stroke_width(2));
            plot.draw_series([line])?;
            let text = format!("capacity {}", bytes(capacity));
            let text = Text::new(text, (8, -17), small(&DANGER));
            plot.draw_series([EmptyElement::at((start, capacity)) + text])?;
        }
        let top = plot.y_range().end;
        let lines = marks
            .into_iter()
            .map(|along| vec![(along, 0), (along, top)]);
        plot.draw_series(lines.map(|line| PathElement::new(line, DANGER.stroke_width(2))))?;
        Ok(())
    }
}

fn draw_title(area: &Area<'_>, numbers: &Numbers) -> Drawn<()> {
    let name = numbers.file.rsplit('/').next().unwrap_or_default();
    centered(area, name, 20, 8, BLACK)?;
    let at = |what, bytes_then: u64, at: &At| {
        format!("{what} {} at event {}", bytes(bytes_then), at.moment)
    };
    let (active, reserved) = (&numbers.peak_active, &numbers.peak_reserved);
    let mut text = format!(
        "{}; {}",
        at("in use: up to", active.active_bytes, active),
        at(
            "reserved (the line): up to",
            reserved.reserved_bytes,
            reserved
        )
    );
    if let Some(failed) = &numbers.out_of_memory {
        let asked = bytes(failed.requested_bytes);
        text = format!("out of memory for {asked}: {}; {text}", failed.reason);
    }
    centered(area, &text, 14, 34, OTHER)
}

/// The names of the series, the topmost first, and the peak of each.
fn draw_names(area: &Area<'_>, rows: &[GroupRow], series: &[usize]) -> Drawn<()> {
    let left = RIGHT + 14;
    let named = series.iter().map(|row| &rows[*row]);
    let mut lines: Vec<(RGBColor, String, String)> = named
        .enumerate()
        .map(|(layer, row)| {
            (
                color(layer),
                cut(&row.name, LONGEST).into_owned(),
                bytes(row.peak_bytes),
            )
        })
        .collect();
    if rows.len() > series.len() {
        let others = rows.len() - series.len();
        lines.push((OTHERS, format!("{others} more"), String::new()));
    }
    for (y, (color, name, peak)) in (TOP..).step_by(LINE).zip(lines.into_iter().rev()) {
        let square = [(left, y), (left + 12, y + 12)];
        area.draw(&Rectangle::new(square, color.filled()))?;
        area.draw(&Text::new(name, (left + 20, y - 1), small(&BLACK)))?;
        let right = Pos::new(HPos::Right, VPos::Top);
        area.draw(&Text::new(
            peak,
            (left + 200, y - 1),
            small(&OTHER).pos(right),
        ))?;
    }
    Ok(())
}

/// Draws the stack from the top down: each layer reaches to the bottom, and is then covered by those below it.
fn draw_stacks(plot: &mut Plot<'_>, columns: &[Column]) -> Drawn<()> {
    let layers = (0..=SERIES).rev().map(|layer| {
        let upper = stairs(columns, |column| column.stack[..=layer].iter().sum());
        let ends = [upper.first(), upper.last()].map(|end| end.map(|(x, _)| (*x, 0)));
        let outline = ends[0].into_iter().chain(upper).chain(ends[1]);
        let outline: Vec<(f64, u64)> = outline.collect();
        Polygon::new(outline, color(layer).filled())
    });
    plot.draw_series(layers)?;
    Ok(())
}

/// The upper edge of some bytes over the columns, with a point before and a point after each change.
fn stairs(columns: &[Column], bytes: impl Fn(&Column) -> u64) -> Vec<(f64, u64)> {
    let mut points: Vec<(f64, u64)> = Vec::new();
    for column in columns {
        let (x, y) = (column.along.start, bytes(column));
        match points.last() {
            Some((_, before)) if *before == y => {}
            Some((_, before)) => points.extend([(x, *before), (x, y)]),
            None => points.push((x, y)),
        }
    }
    let last = points.last().zip(columns.last());
    points.extend(last.map(|((_, y), column)| (column.along.end, *y)));
    points
}

fn small(color: &RGBColor) -> TextStyle<'_> {
    TextStyle::from(("sans-serif", 14)).color(color)
}

fn color(layer: usize) -> RGBColor {
    match HUES.get(layer % HUES.len()) {
        Some(hue) if layer < HUES.len() => *hue,
        Some(hue) if layer < SERIES => {
            let light = |part: u8| part + (255 - part) / 2;
            RGBColor(light(hue.0), light(hue.1), light(hue.2))
        }
        _ => OTHERS,
    }
}

/// Round numbers of bytes up to `top`: multiples of 1, 2 or 5 times a power of two, or of ten of them.
fn ticks(top: u64) -> Vec<u64> {
    let units = (0..6).map(|unit| 1_u64 << (10 * unit));
    let steps = units.flat_map(|unit| {
        let halves = [unit / 2].into_iter().filter(|half| *half > 0);
        let whole = [1, 2, 5, 10, 20, 50, 100, 200].map(|factor| factor * unit);
        halves.chain(whole)
    });
    let mut fitting = steps.filter(|step| step * 7 >= top);
    let step = fitting.next().unwrap_or(1 << 60);
    let ticks = (0..=7).map(|count| count * step);
    ticks.take_while(|tick| *tick <= top).collect()
}

fn round_bytes(tick: u64) -> String {
    bytes(tick).replace(".0 ", " ")
}

#[expect(clippy::cast_precision_loss, reason = "a position in a picture")]
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// The part of the axis that this many columns take.
#[expect(clippy::cast_precision_loss, reason = "a position in a picture")]
fn fraction(columns: usize) -> f64 {
    columns as f64 / COLUMNS as f64
}

/// Draws an SVG picture on white. The viewer chooses the fonts.
fn svg_of(draw: impl FnOnce(&Area<'_>) -> Drawn<()>) -> io::Result<String> {
    let mut picture = String::new();
    let area = SVGBackend::with_string(&mut picture, (WIDTH, HEIGHT)).into_drawing_area();
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
fn centered(area: &Area<'_>, text: &str, size: i32, y: i32, color: RGBColor) -> Drawn<()> {
    let middle = i32::try_from(WIDTH / 2).unwrap_or(0);
    let position = Pos::new(HPos::Center, VPos::Top);
    let style = TextStyle::from(("sans-serif", size)).color(&color);
    area.draw(&Text::new(
        text.to_owned(),
        (middle, y),
        style.pos(position),
    ))
}

/// The label of a tick of the time: up to nine digits after the point, without zeros at the end.
fn label(tick: f64) -> String {
    let text = format!("{tick:.9}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_in_their_unit() {
        let texts = |top: u64| -> Vec<String> { ticks(top).into_iter().map(round_bytes).collect() };
        let gib: u64 = 1 << 30;
        assert_eq!(
            texts(gib / 5 * 16),
            [
                "0 B", "512 MiB", "1 GiB", "1.5 GiB", "2 GiB", "2.5 GiB", "3 GiB"
            ]
        );
        assert_eq!(
            texts(700),
            [
                "0 B", "100 B", "200 B", "300 B", "400 B", "500 B", "600 B", "700 B"
            ]
        );
    }
}
