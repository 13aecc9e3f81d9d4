//! The report on the rounds of replays.

use std::time::Duration;

use binpool_allocators::words::bytes;
use serde_json::{Value, json};

use crate::{
    AllocatorChoice, Outcome, Pending, Round, Warm,
    figures::{extend, micros, millis_text, ratio},
    report::markdown_table::MarkdownTable,
    report::rows::{Header, Row, pending_cells, pending_json, short_name},
    rounds::FIRST_WARM,
};

/// The columns that a narrow terminal can do without.
const DISPENSABLE: &[&str] = &["peak reserved", "peak live", "releases"];

/// Returns the rounds of a replay as JSON, and the means over those from the third on with the peaks of all of them.
pub(crate) fn rounds_json(header: &Header, outcome: &Outcome) -> Value {
    let has_pages = header.settings.allocator == AllocatorChoice::VirtualMemory;
    let rounds = outcome.rounds.iter().enumerate();
    let rounds: Vec<Value> = rounds
        .map(|(index, round)| round_json(index + 1, round, has_pages))
        .collect();
    let mut object = json!({ "rounds": rounds });
    if let Some(warm) = Warm::of(&outcome.rounds) {
        object["warm"] = warm_json(&warm, outcome.warm_ns_per_pair(), has_pages);
    }
    if let Some(statistics) = &outcome.statistics
        && let Some(over_live) = statistics.planned_over_peak()
    {
        let blocks = statistics.planned_blocks;
        object["planned"] = json!({ "blocks": blocks, "over_live": over_live });
    }
    object
}

fn round_json(number: usize, round: &Round, has_pages: bool) -> Value {
    let mut object = json!({
        "round": number,
        "allocations": round.allocations,
        "hits": round.hits,
        "device_allocations": round.device_allocations,
        "device_releases": round.device_releases,
        "device_time_us": micros(round.device_time),
        "peak_live_bytes": round.peak_live_bytes,
        "peak_reserved_bytes": round.peak_reserved_bytes,
    });
    if has_pages {
        let pages = json!({ "maps": round.maps, "unmaps": round.unmaps, "moves": round.moves() });
        extend(&mut object, pages);
    }
    if let Some(pending) = round.pending {
        extend(&mut object, pending_json(pending));
    }
    object
}

fn warm_json(warm: &Warm, ns_per_pair: Option<f64>, has_pages: bool) -> Value {
    let sum = &warm.sum;
    let mut object = json!({
        "first_round": FIRST_WARM,
        "rounds": warm.rounds,
        "hits_a_round": warm.mean(sum.hits),
        "ns_per_pair": ns_per_pair,
        "device_calls_a_round": warm.mean(sum.device_calls()),
        "device_allocations_a_round": warm.mean(sum.device_allocations),
        "device_releases_a_round": warm.mean(sum.device_releases),
        "device_time_us_a_round": micros(warm.mean_time(sum.device_time)),
        "peak_live_bytes": sum.peak_live_bytes,
        "peak_reserved_bytes": sum.peak_reserved_bytes,
        "reserved_over_live": ratio(sum.peak_reserved_bytes, sum.peak_live_bytes),
    });
    if has_pages {
        object["maps_a_round"] = warm.mean(sum.maps).into();
        object["unmaps_a_round"] = warm.mean(sum.unmaps).into();
        object["moves_a_round"] = warm.mean(sum.moves()).into();
    }
    if let Some(pending) = sum.pending {
        object["peak_pending_bytes"] = pending.peak_bytes.into();
        if let Some(waited) = pending.waited {
            object["wait_time_us_a_round"] = micros(warm.mean_time(waited)).into();
        }
    }
    object
}

/// Returns a table of the rounds of each trace, with the means from the third round on.
#[must_use]
pub fn rounds_tables(header: &Header, rows: &[Row]) -> String {
    let tables = rows.iter().map(|row| {
        let name = short_name(row, rows);
        format!("{name}, round by round\n\n{}", table(header, row))
    });
    tables.collect::<Vec<_>>().join("\n\n")
}

fn table(header: &Header, row: &Row) -> String {
    let has_pages = header.settings.allocator == AllocatorChoice::VirtualMemory;
    let mut titles = vec!["round", "hit rate", "device allocations", "releases"];
    if has_pages {
        titles.extend(["maps", "of these moves", "unmaps"]);
    }
    titles.extend([
        "device time",
        "peak live",
        "peak reserved",
        "reserved / live",
    ]);
    let is_behind = header.settings.behind.is_some();
    if is_behind {
        titles.extend(["peak pending", "waits"]);
    }
    let mut table = MarkdownTable::new(titles, 1..).or_without(DISPENSABLE);
    let mut add = |name: String, round: &Round, rounds: usize| {
        let mean = |figure: u64| match rounds {
            1 => figure.to_string(),
            _ => format!("{:.1}", ratio(figure, rounds as u64)),
        };
        let hit_rate = ratio(round.hits, round.allocations) * 100.0;
        let mut cells = vec![name, format!("{hit_rate:.1} %")];
        cells.extend([round.device_allocations, round.device_releases].map(mean));
        if has_pages {
            cells.extend([round.maps, round.moves(), round.unmaps].map(mean));
        }
        let mean_time = |time: Duration| time.div_f64(ratio(rounds as u64, 1));
        cells.push(millis_text(mean_time(round.device_time)));
        let (live, reserved) = (round.peak_live_bytes, round.peak_reserved_bytes);
        cells.extend([live, reserved].map(bytes));
        cells.push(format!("{:.3}", ratio(reserved, live)));
        if is_behind {
            let pending = round.pending.map(|pending| Pending {
                waited: pending.waited.map(mean_time),
                ..pending
            });
            cells.extend(pending_cells(pending));
        }
        table.add_row(cells);
    };
    for (index, round) in row.outcome.rounds.iter().enumerate() {
        add((index + 1).to_string(), round, 1);
    }
    if let Some(warm) = Warm::of(&row.outcome.rounds) {
        add(format!("mean from {FIRST_WARM} on"), &warm.sum, warm.rounds);
    }
    let repetition = row.outcome.statistics.and_then(|it| it.repetition());
    let repetition = repetition.map(|it| format!("\n\nAt the end it {it}."));
    format!("{table}{}", repetition.unwrap_or_default())
}
