//! The report on replays, as a table and as JSON.

use std::time::Duration;

use binpool_allocators::words::bytes;
use serde_json::{Value, json};

use crate::{
    AllocatorChoice, AtEnd, Outcome, Touch,
    figures::{extend, micros, millis_text, ratio, unusual},
    report::{
        markdown_table::MarkdownTable,
        rounds::rounds_json,
        rows::{Header, Row, pending_cells, pending_json, short_name},
    },
};

/// Returns the report as a JSON array with an object for each trace.
pub fn json(header: &Header, rows: &[Row]) -> String {
    let objects: Vec<Value> = rows.iter().map(|row| object(header, row)).collect();
    format!("{:#}", Value::from(objects))
}

/// The part of the time in which pages moved, in percent.
fn move_percent(outcome: &Outcome) -> f64 {
    let passed = outcome.passed_time.max(Duration::from_nanos(1));
    outcome.move_time.as_secs_f64() / passed.as_secs_f64() * 100.0
}

/// One object of the JSON report.
fn object(header: &Header, row: &Row) -> Value {
    let (settings, outcome) = (&header.settings, &row.outcome);
    let mut object = json!({
        "trace": row.trace,
        "backend": header.backend,
        "device": header.device,
        "allocator": settings.allocator.to_string(),
        "pool": settings.pool.is_some(),
        "scale": header.scale,
        "touch": settings.touch,
        "threads": settings.threads,
        "capacity_bytes": settings.capacity_bytes,
        "allocations": outcome.allocations,
        "hits": outcome.hits,
        "device_allocations": outcome.device_allocations,
        "views": outcome.views,
        "peak_live_bytes": row.peak_live_bytes,
        "peak_reserved_bytes": outcome.peak_reserved_bytes,
        "reserved_over_live": ratio(outcome.peak_reserved_bytes, row.peak_live_bytes),
        "ns_per_pair": outcome.ns_per_pair(),
        "device_time_us": micros(row.device_time),
        // The part of the host's time that views took.
        "view_time_us": micros(outcome.view_time),
        "at_end": outcome.at_end,
    });
    let mut add = |more| extend(&mut object, more);
    if settings.allocator == AllocatorChoice::VirtualMemory {
        add(json!({
            "maps": outcome.maps,
            "unmaps": outcome.unmaps,
            "remap_time_us": micros(outcome.remap_time),
            "move_time_us": micros(outcome.move_time),
            "move_percent": move_percent(outcome),
        }));
    }
    if let Some(behind) = settings.behind {
        add(json!({ "behind_us": micros(behind) }));
        outcome.pending.map(pending_json).map(&mut add);
    }
    if !outcome.rounds.is_empty() {
        add(rounds_json(header, outcome));
    }
    if let Some(need) = row.need_bytes {
        let over_live = ratio(need, row.peak_live_bytes);
        add(json!({ "need_bytes": need, "need_over_live": over_live }));
    }
    object
}

/// Returns a table of what is live at the end of each trace, what is taken from the device then, and what a trim would leave.
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
        let AtEnd {
            live_bytes,
            reserved_bytes,
            trimmed_bytes,
        } = row.outcome.at_end;
        let mut cells = vec![short_name(row, rows).to_owned()];
        cells.extend([live_bytes, reserved_bytes, trimmed_bytes].map(bytes));
        table.add_row(cells);
    }
    table.to_string()
}

/// Returns a table of the work of each trace that a device lagging behind had not finished.
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
    let settings = &header.settings;
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
    let has_pages = settings.allocator == AllocatorChoice::VirtualMemory;
    if has_pages {
        titles.push("pages moved for".to_owned());
    }
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
            format!("{:.0}", outcome.ns_per_pair()),
            millis_text(row.device_time),
        ];
        if has_pages {
            let (ms, percent) = (micros(outcome.move_time) / 1000.0, move_percent(outcome));
            cells.push(format!("{ms:.1} ms, {percent:.1} %"));
        }
        if let Some(need) = row.need_bytes {
            cells.push(bytes(need));
            cells.push(format!("{:.2}", ratio(need, row.peak_live_bytes)));
        }
        table.add_row(cells);
    }
    let pool = if settings.pool.is_some() {
        "with the pool"
    } else {
        "without a pool"
    };
    let unusual = unusual(settings.capacity_bytes, header.scale);
    let touch = match settings.touch {
        Touch::Nothing => "",
        Touch::Fill => ", each block touched",
        Touch::Kernels => ", kernels on each block",
    };
    let threads = match settings.threads {
        0 | 1 => String::new(),
        threads => format!(", {threads} threads"),
    };
    let rounds = match settings.rounds {
        0 | 1 => String::new(),
        rounds => format!(", {rounds} rounds"),
    };
    let behind = settings.behind.map_or_else(String::new, |behind| {
        let micros = micros(behind);
        if micros < 1000.0 {
            format!(", the device {micros} us behind")
        } else {
            format!(", the device {} ms behind", micros / 1000.0)
        }
    });
    format!(
        "{} on {}, {} allocator, {pool}{unusual}{touch}{threads}{rounds}{behind}\n\n{table}",
        header.backend, header.device, settings.allocator
    )
}
