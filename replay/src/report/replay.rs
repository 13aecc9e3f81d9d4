//! The report on replays, as a table and as JSON.

use binpool::words::bytes;
use serde::Serialize;

use crate::{
    AllocatorChoice, AtEnd, Touch,
    ratio::ratio,
    report::{
        markdown_table::MarkdownTable,
        rounds::Rounds,
        rows::{Header, PendingObject, Row, pending_cells, short_name},
    },
};

/// One object of the JSON report.
#[derive(Serialize)]
struct Object<'a> {
    trace: &'a str,
    backend: &'a str,
    device: &'a str,
    allocator: String,
    pool: bool,
    scale: usize,
    touch: Touch,
    threads: usize,
    capacity_bytes: Option<u64>,
    allocations: u64,
    hits: u64,
    device_allocations: u64,
    views: u64,
    peak_live_bytes: u64,
    peak_reserved_bytes: u64,
    reserved_over_live: f64,
    ns_per_pair: f64,
    device_time_us: f64,
    /// The part of the host's time that views took.
    view_time_us: f64,
    #[serde(flatten)]
    pages: Option<Pages>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_end: Option<AtEnd>,
    #[serde(flatten)]
    behind: Option<BehindObject>,
    #[serde(flatten)]
    rounds: Option<Rounds>,
    #[serde(skip_serializing_if = "Option::is_none")]
    need_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    need_over_live: Option<f64>,
}

/// What an object has of pages of virtual memory.
#[derive(Serialize)]
struct Pages {
    maps: u64,
    unmaps: u64,
    /// The device's time for mapping and unmapping.
    remap_time_us: f64,
}

/// What an object has of a device that is behind.
#[derive(Serialize)]
struct BehindObject {
    behind_us: f64,
    #[serde(flatten)]
    pending: Option<PendingObject>,
}

impl Pages {
    fn of(row: &Row) -> Self {
        Self {
            maps: row.outcome.maps,
            unmaps: row.outcome.unmaps,
            remap_time_us: row.outcome.remap_time.as_secs_f64() * 1e6,
        }
    }
}

/// Returns the report as a JSON array with an object for each trace.
///
/// # Errors
///
/// None that can happen: every value has a JSON form.
pub fn json(header: &Header, rows: &[Row]) -> serde_json::Result<String> {
    let object = |row: &Row| {
        serde_json::to_value(Object {
            trace: &row.trace,
            backend: header.backend,
            device: &header.device,
            allocator: header.allocator.to_string(),
            pool: header.pool,
            scale: header.scale,
            touch: header.touch,
            threads: header.threads,
            capacity_bytes: header.capacity_bytes,
            allocations: row.outcome.allocations,
            hits: row.outcome.hits,
            device_allocations: row.outcome.device_allocations,
            views: row.outcome.views,
            peak_live_bytes: row.peak_live_bytes,
            peak_reserved_bytes: row.outcome.peak_reserved_bytes,
            reserved_over_live: ratio(row.outcome.peak_reserved_bytes, row.peak_live_bytes),
            ns_per_pair: row.ns_per_pair,
            device_time_us: row.device_time_us,
            view_time_us: row.outcome.view_time.as_secs_f64() * 1e6,
            pages: (header.allocator == AllocatorChoice::Pages).then(|| Pages::of(row)),
            at_end: row.outcome.at_end,
            behind: header.behind.map(|behind| BehindObject {
                behind_us: behind.as_secs_f64() * 1e6,
                pending: row.outcome.pending.map(PendingObject::of),
            }),
            rounds: Rounds::of(header, row),
            need_bytes: row.need_bytes,
            need_over_live: row.need_bytes.map(|need| ratio(need, row.peak_live_bytes)),
        })
    };
    let objects: Vec<_> = rows.iter().map(object).collect::<Result<_, _>>()?;
    serde_json::to_string_pretty(&objects)
}

/// Returns a table of what the programs have at the end of each trace, what is taken from the device then, and what a trim would leave.
#[must_use]
pub fn end_table(rows: &[Row]) -> String {
    let titles = [
        "at the end of the trace",
        "live",
        "reserved",
        "after a trim",
    ];
    let mut table = MarkdownTable::new(titles, 1..);
    for row in rows {
        let known = row.outcome.at_end.map(|at_end| {
            let AtEnd {
                live_bytes,
                reserved_bytes,
                trimmed_bytes,
            } = at_end;
            [live_bytes, reserved_bytes, trimmed_bytes].map(bytes)
        });
        let mut cells = vec![short_name(row, rows).to_owned()];
        cells.extend(known.unwrap_or_else(|| [(); 3].map(|()| "not counted".to_owned())));
        table.add_row(cells);
    }
    table.to_string()
}

/// Returns a table of what a device that is behind had not ended of each trace.
#[must_use]
pub fn behind_table(rows: &[Row]) -> String {
    let titles = ["freed, and still in use", "at most", "the host waited"];
    let mut table = MarkdownTable::new(titles, 1..);
    for row in rows {
        let mut cells = vec![short_name(row, rows).to_owned()];
        cells.extend(pending_cells(row.outcome.pending));
        table.add_row(cells);
    }
    table.to_string()
}

/// Returns the report as a table below a line that names the device and the settings.
#[must_use]
pub fn table(header: &Header, rows: &[Row]) -> String {
    let measured = match header.backend {
        "mock" => "predicted",
        _ => "measured",
    };
    let with_need = rows.iter().any(|row| row.need_bytes.is_some());
    let mut titles: Vec<String> = [
        "trace",
        "allocations",
        "hit rate",
        "device allocations",
        "peak live",
        "peak reserved",
        "reserved / live",
        "ns a pair",
    ]
    .map(String::from)
    .into();
    titles.push(format!("device time, {measured}"));
    if with_need {
        titles.extend(["need".to_owned(), "need / live".to_owned()]);
    }
    let dispensable = &["allocations", "peak reserved", "device allocations"];
    let mut table = MarkdownTable::new(titles, 1..).or_without(dispensable);
    for row in rows {
        let outcome = &row.outcome;
        let mut cells = vec![
            short_name(row, rows).to_owned(),
            outcome.allocations.to_string(),
            format!("{:.1} %", outcome.hit_rate() * 100.0),
            outcome.device_allocations.to_string(),
            bytes(row.peak_live_bytes),
            bytes(outcome.peak_reserved_bytes),
            format!(
                "{:.2}",
                ratio(outcome.peak_reserved_bytes, row.peak_live_bytes)
            ),
            format!("{:.0}", row.ns_per_pair),
            format!("{:.2} ms", row.device_time_us / 1000.0),
        ];
        if let Some(need) = row.need_bytes {
            cells.push(bytes(need));
            cells.push(format!("{:.2}", ratio(need, row.peak_live_bytes)));
        }
        table.add_row(cells);
    }
    let pool = if header.pool {
        "with the pool"
    } else {
        "without a pool"
    };
    let capacity = header.capacity_bytes.map_or_else(String::new, |capacity| {
        format!(", capacity {}", bytes(capacity))
    });
    let scale = match header.scale {
        1 => String::new(),
        scale => format!(", sizes divided by {scale}"),
    };
    let touch = match header.touch {
        Touch::Nothing => "",
        Touch::Fill => ", each block touched",
        Touch::Kernels => ", kernels on each block",
    };
    let threads = match header.threads {
        0 | 1 => String::new(),
        threads => format!(", {threads} threads"),
    };
    let rounds = match header.rounds {
        0 | 1 => String::new(),
        rounds => format!(", {rounds} rounds"),
    };
    let behind = header.behind.map_or_else(String::new, |behind| {
        let micros = behind.as_secs_f64() * 1e6;
        if micros < 1000.0 {
            format!(", the device {micros} us behind")
        } else {
            format!(", the device {} ms behind", micros / 1000.0)
        }
    });
    format!(
        "{} on {}, {} allocator, {pool}{capacity}{scale}{touch}{threads}{rounds}{behind}\n\n{table}",
        header.backend, header.device, header.allocator
    )
}
