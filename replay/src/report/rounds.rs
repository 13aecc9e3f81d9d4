//! The report on the rounds of replays.

use binpool::words::bytes;
use serde::Serialize;

use crate::{
    AllocatorChoice, Pending, Round, Warm,
    ratio::ratio,
    report::markdown_table::MarkdownTable,
    report::rows::{Header, PendingObject, Row, pending_cells, short_name},
    rounds::FIRST_WARM,
};

/// The columns that a narrow terminal can do without.
const DISPENSABLE: &[&str] = &["peak reserved", "peak live", "releases"];

/// The JSON of a row's rounds.
#[derive(Serialize)]
pub(crate) struct Rounds {
    rounds: Vec<RoundObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    warm: Option<WarmObject>,
}

/// One round.
#[derive(Serialize)]
struct RoundObject {
    round: usize,
    allocations: u64,
    hits: u64,
    device_allocations: u64,
    device_releases: u64,
    #[serde(flatten)]
    pages: Option<Pages>,
    device_time_us: f64,
    peak_live_bytes: u64,
    peak_reserved_bytes: Option<u64>,
    #[serde(flatten)]
    pending: Option<PendingObject>,
}

/// What rounds have of pages of virtual memory.
#[derive(Serialize)]
struct Pages {
    maps: u64,
    unmaps: u64,
    /// The part of the maps that moved pages which the pool had.
    moves: u64,
}

/// The means over the rounds from the third on, and the peaks of all of them.
#[derive(Serialize)]
struct WarmObject {
    first_round: usize,
    rounds: usize,
    hits_a_round: f64,
    ns_per_pair: Option<f64>,
    device_calls_a_round: f64,
    device_allocations_a_round: f64,
    device_releases_a_round: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    maps_a_round: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unmaps_a_round: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    moves_a_round: Option<f64>,
    device_time_us_a_round: f64,
    peak_live_bytes: u64,
    peak_reserved_bytes: Option<u64>,
    reserved_over_live: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peak_pending_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wait_time_us_a_round: Option<f64>,
}

impl Rounds {
    /// What the report has of a row's rounds; `None` where there is one alone.
    pub(crate) fn of(header: &Header, row: &Row) -> Option<Self> {
        let rounds = &row.outcome.rounds;
        let has_pages = header.allocator == AllocatorChoice::Pages;
        let object = |(index, round): (usize, &Round)| RoundObject {
            round: index + 1,
            allocations: round.allocations,
            hits: round.hits,
            device_allocations: round.device_allocations,
            device_releases: round.device_releases,
            pages: has_pages.then(|| Pages {
                maps: round.maps,
                unmaps: round.unmaps,
                moves: round.moves(),
            }),
            device_time_us: round.device_time.as_secs_f64() * 1e6,
            peak_live_bytes: round.peak_live_bytes,
            peak_reserved_bytes: round.peak_reserved_bytes,
            pending: round.pending.map(PendingObject::of),
        };
        (!rounds.is_empty()).then(|| Self {
            rounds: rounds.iter().enumerate().map(object).collect(),
            warm: Warm::of(rounds)
                .map(|warm| WarmObject::of(&warm, row.outcome.warm_ns_per_pair(), has_pages)),
        })
    }
}

impl WarmObject {
    fn of(warm: &Warm, ns_per_pair: Option<f64>, has_pages: bool) -> Self {
        let sum = &warm.sum;
        let of_pages = |figure| has_pages.then(|| warm.mean(figure));
        Self {
            first_round: FIRST_WARM,
            rounds: warm.rounds,
            hits_a_round: warm.mean(sum.hits),
            ns_per_pair,
            device_calls_a_round: warm.mean(sum.device_calls()),
            device_allocations_a_round: warm.mean(sum.device_allocations),
            device_releases_a_round: warm.mean(sum.device_releases),
            maps_a_round: of_pages(sum.maps),
            unmaps_a_round: of_pages(sum.unmaps),
            moves_a_round: of_pages(sum.moves()),
            device_time_us_a_round: warm.mean_time(sum.device_time).as_secs_f64() * 1e6,
            peak_live_bytes: sum.peak_live_bytes,
            peak_reserved_bytes: sum.peak_reserved_bytes,
            reserved_over_live: sum
                .peak_reserved_bytes
                .map(|reserved| ratio(reserved, sum.peak_live_bytes)),
            peak_pending_bytes: sum.pending.map(|pending| pending.peak_bytes),
            wait_time_us_a_round: sum
                .pending
                .and_then(|pending| pending.waited)
                .map(|waited| warm.mean_time(waited).as_secs_f64() * 1e6),
        }
    }
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
    let has_pages = header.allocator == AllocatorChoice::Pages;
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
    let is_behind = header.behind.is_some();
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
        let milliseconds = round.device_time.as_secs_f64() * 1e3 / ratio(rounds as u64, 1);
        cells.push(format!("{milliseconds:.2} ms"));
        cells.push(bytes(round.peak_live_bytes));
        cells.extend(match round.peak_reserved_bytes {
            Some(reserved) => [
                bytes(reserved),
                format!("{:.3}", ratio(reserved, round.peak_live_bytes)),
            ],
            None => [(); 2].map(|()| "not counted".to_owned()),
        });
        if is_behind {
            let pending = round.pending.map(|pending| Pending {
                waited: pending
                    .waited
                    .map(|waited| waited.div_f64(ratio(rounds as u64, 1))),
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
    table.to_string()
}
