//! The report on a program's memory, as text.

mod caller;
mod figures;
mod forecast;
mod reserved;

use std::{cmp::Reverse, fmt::Write, iter};

use binpool_allocators::words::{blocks, bytes, counted};
use binpool_recordings::{Trace, view::History};
use binpool_trace::shown;

pub use self::caller::{caller, named_beyond};
use self::{
    figures::{Blocks, Calls, Figures, Refused, Rows, Sum, Total},
    forecast::{forecast, forecast_instead},
    reserved::reserved,
};
use crate::{figures::time_text, report::markdown_table::MarkdownTable};

/// The most rows of a table. One more sums up the others.
const MOST_ROWS: usize = 12;

/// Returns a report on the memory of a recorded program: what allocated the memory that was live at the peak, what was
/// never released, the calls of the driver, and what a pool would save, which a replay on the simulated device finds out. That is left out where it
/// would save less than half of the requests to the driver, and where the program has a pool. Of one that `binpool run --pool` gave it, the report
/// has figures, and says why allocations did not come from it.
///
/// ```
/// use binpool_replay::report::memory_report;
/// use binpool_recordings::Trace;
///
/// let text = "h version 3\nh program train\nh process 12\nh source a program on OpenCL\ng 1 buffer, context 1\n\
///             k 1 clCreateBuffer in /usr/lib/libOpenCL.so.1\nk 1 /home/me/train.py:7 in forward\n\
///             a 1 4096 0 500 1 1\na 2 1024 0 900 1 1\nf 1 950\n";
/// let report = memory_report(&Trace::parse("train.trace", text.as_bytes())?);
/// assert!(report.contains("peak of live memory: 5.0 KiB in 2 blocks"));
/// assert!(report.contains("me/train.py:7 in forward"));
/// # Ok::<(), binpool_trace::TraceError>(())
/// ```
#[must_use]
pub fn memory_report(trace: &Trace) -> String {
    let is_pooled = trace.header_value("pooled").is_some();
    // Other recordings of pools have pages for this.
    let history = trace.is_of_program().then(|| History::happened(trace));
    let history = history.flatten();
    let figures = Figures::of(trace, history.as_ref());
    let mut text = heading(trace, &figures);
    // The pages of binpool's pools may be mapped twice, and the pools have figures of their own.
    if history.is_some() && !is_pooled {
        text.push_str(&reserved(trace, figures.all.peak.bytes));
    }
    let tables = [
        callers(&figures.callers),
        leaks(&figures.callers),
        kinds(&figures.kinds),
        refusals(&figures.refused),
        calls(&figures.calls, is_pooled),
        pool(trace),
        passed(&figures.passed),
    ];
    for table in tables.into_iter().flatten() {
        let _ = write!(text, "\n\n{}", table.or_for_errors());
    }
    if let Some(framework) = &figures.divided_by {
        let _ = write!(
            text,
            "\n\nmost of these are segments of {framework}, which divides them itself: a pool below it would save nothing"
        );
        return text;
    }
    let forecast = match &history {
        // One that has binpool already has what it would gain.
        Some(_) if is_pooled => None,
        Some(_) => Some(forecast_instead(trace)),
        // A program that has a pool already gains nothing by another one below it.
        None if trace.is_of_pool() => None,
        None => forecast(trace),
    };
    if let Some(forecast) = forecast {
        let _ = write!(text, "\n\n{forecast}");
    }
    text
}

/// What was recorded, and its most important figures.
fn heading(trace: &Trace, figures: &Figures) -> String {
    let mut text = match trace.header_value("program") {
        Some(program) => shown(program),
        None => trace.name().to_owned(),
    };
    if let Some(process) = trace.header_value("process") {
        let _ = write!(text, " (process {})", shown(process));
    }
    if !figures.devices.is_empty() {
        let _ = write!(text, " on {}", figures.devices.join(", "));
    }
    let Blocks { peak, all, left } = figures.all;
    let when = figures.peak_time.map_or_else(String::new, |time| {
        format!(", {} after the recording began", time_text(time))
    });
    let _ = write!(
        text,
        "\n\npeak of live memory: {} in {}{when}\nallocations: {}, {} in all",
        bytes(peak.bytes),
        blocks(peak.blocks),
        all.blocks,
        bytes(all.bytes),
    );
    let refused = trace.shortages().len();
    if refused > 0 {
        let _ = write!(text, "; refused: {refused}");
    }
    let by_limit = number_of(trace, "refused_by_limit").unwrap_or(0);
    if let (1.., Some(limit)) = (by_limit, number_of(trace, "limit")) {
        let _ = write!(
            text,
            ", {by_limit} of them because of the limit of {}",
            bytes(limit)
        );
    }
    text.push_str("\nnever released: ");
    match left.blocks {
        0 => text.push_str("nothing"),
        count => {
            let _ = write!(text, "{}, {}", blocks(count), bytes(left.bytes));
        }
    }
    text
}

/// The callers whose blocks were live at the peak.
fn callers(rows: &Rows<Blocks>) -> Option<MarkdownTable> {
    let titles = ["allocated by", "live at the peak", "allocations", "bytes"];
    table(titles, rows, |row| {
        [
            bytes(row.peak.bytes),
            row.all.blocks.to_string(),
            bytes(row.all.bytes),
        ]
    })
}

/// The callers whose blocks were never released.
fn leaks(rows: &Rows<Blocks>) -> Option<MarkdownTable> {
    let mut rows = rows.clone();
    rows.retain(|(_, row)| row.left.blocks > 0);
    rows.sort_by_key(|(_, row)| Reverse(row.left.bytes));
    let titles = ["never released, allocated by", "blocks", "bytes"];
    table(titles, &rows, |row| {
        [row.left.blocks.to_string(), bytes(row.left.bytes)]
    })
}

fn kinds(rows: &Rows<Blocks>) -> Option<MarkdownTable> {
    let titles = [
        "kind of memory",
        "live at the peak",
        "allocations",
        "bytes",
        "never released",
    ];
    table(titles, rows, |row| {
        [
            bytes(row.peak.bytes),
            row.all.blocks.to_string(),
            bytes(row.all.bytes),
            bytes(row.left.bytes),
        ]
    })
}

fn refusals(rows: &Rows<Refused>) -> Option<MarkdownTable> {
    let titles = ["refused, requested by", "requests", "the largest"];
    table(titles, rows, |row| {
        [row.requests.to_string(), bytes(row.largest)]
    })
}

fn calls(rows: &Rows<Calls>, is_pooled: bool) -> Option<MarkdownTable> {
    let title = if is_pooled {
        "call of the driver (not those that the pool served)"
    } else {
        "call of the driver"
    };
    let titles = [title, "calls", "time", "time a call"];
    table(titles, rows, |row| {
        [
            row.count.to_string(),
            time_text(row.nanoseconds),
            time_text(row.nanoseconds / row.count.max(1)),
        ]
    })
}

/// What the pool did that `binpool run` put under the program.
fn pool(trace: &Trace) -> Option<MarkdownTable> {
    let number = |key| number_of(trace, key);
    let titles = [
        "requests",
        "served by the pool",
        "refused by the limit",
        "reserved at most",
        "free for reuse then",
    ];
    let mut table = MarkdownTable::new(titles, 0..);
    table.add_row([
        number("requests")?.to_string(),
        number("served")?.to_string(),
        number("refused_by_limit")?.to_string(),
        bytes(number("most_reserved")?),
        bytes(number("held_then")?),
    ]);
    Some(table)
}

/// The number that a key of the header has.
fn number_of(trace: &Trace, key: &str) -> Option<u64> {
    trace.header_value(key)?.parse().ok()
}

fn passed(rows: &Rows<Sum>) -> Option<MarkdownTable> {
    let titles = ["not from the pool, since", "allocations", "bytes"];
    table(titles, rows, |row| {
        [row.blocks.to_string(), bytes(row.bytes)]
    })
}

/// Returns a table of rows, whose last one sums up those that are left out; `None` without rows. `cells` follow the name.
fn table<T: Total, const TITLES: usize, const CELLS: usize>(
    titles: [&str; TITLES],
    rows: &Rows<T>,
    cells: impl Fn(&T) -> [String; CELLS],
) -> Option<MarkdownTable> {
    if rows.is_empty() {
        return None;
    }
    let mut table = MarkdownTable::new(titles, 1..);
    let mut add_row = |name: &str, row| {
        table.add_row(iter::once(name.to_owned()).chain(cells(row)));
    };
    let (first, others) = rows.split_at(rows.len().min(MOST_ROWS));
    for (name, row) in first {
        add_row(name, row);
    }
    if !others.is_empty() {
        let mut sum = T::default();
        for (_, row) in others {
            sum.add(row);
        }
        add_row(&counted(others.len() as u64, "other"), &sum);
    }
    Some(table)
}
