//! The page: one file with everything that it needs.

use serde::Serialize;

use binpool_trace::Snapshot;

use crate::view::{
    By, Comparison, History, SnapshotNumbers,
    numbers::{GroupRow, Numbers},
    page_data::PageData,
    series::series,
};

const SHELL: &str = include_str!("shell.html");

const STYLE: &str = include_str!("style.css");

macro_rules! scripts {
    ($($name:literal)*) => {
        [$(include_str!(concat!($name, ".js"))),*]
    };
}

/// The scripts in their order. They share one scope, and each uses only names that earlier ones define.
const SCRIPTS: [&str; 34] = scripts! {
    "data" "format" "dom" "palette" "peaks" "blocks_in_use" "program" "filter" "state"
    "block_picture" "timeline" "map" "table" "answers" "shortage" "frame" "legend" "block_list"
    "stack_tree" "flame_graph" "stack_list" "stack_panel" "block_panel" "event_list"
    "filter_bar" "find_bar" "selection" "trace_events" "counterpart" "trace_page"
    "snapshot_page" "comparison_page" "open_files" "main"
};

/// The data of a page, beside the tables of histories.
#[derive(Default, Serialize)]
struct About<'a> {
    kind: &'static str,
    /// The property that the blocks of histories are grouped by at first.
    by: Option<&'static str>,
    /// In the order of the tables.
    histories: Vec<OfHistory<'a>>,
    /// What differs between two, where the page is about that.
    comparison: Option<&'a Comparison>,
    /// The figures of a snapshot.
    numbers: Option<&'a SnapshotNumbers>,
    snapshot: Option<&'a Snapshot>,
}

#[derive(Serialize)]
struct OfHistory<'a> {
    name: &'a str,
    numbers: Numbers,
    groupings: [OfGrouping; 3],
    /// The axis that the page opens on.
    clock: &'static str,
}

#[derive(Serialize)]
struct OfGrouping {
    name: &'static str,
    rows: Vec<GroupRow>,
    /// The indices of the rows that have a colour of their own.
    series: Vec<usize>,
}

/// Returns the page that shows these histories, each with its name, as HTML: a menu on it chooses one of several. If the history after that
/// of another tool's recording is a replay of the same requests, a button leads from each to the other. `by` is the property that blocks
/// are grouped by at first.
#[must_use]
pub fn page_of(histories: &[(&str, &History)], by: By) -> String {
    page_with(histories, by, None)
}

fn page_with(histories: &[(&str, &History)], by: By, comparison: Option<&Comparison>) -> String {
    let mut tables = PageData::new();
    let histories = histories.iter().map(|(name, history)| {
        history.push_table(&mut tables);
        let numbers = history.numbers();
        let groupings = By::ALL.map(|by| OfGrouping {
            name: by.name(),
            rows: numbers.by(by).to_vec(),
            series: series(numbers.by(by)),
        });
        OfHistory {
            name,
            clock: if numbers.has_times && !history.is_mostly_idle() {
                "time"
            } else {
                "events"
            },
            numbers,
            groupings,
        }
    });
    let about = About {
        kind: "histories",
        by: Some(by.name()),
        histories: histories.collect(),
        comparison,
        ..About::default()
    };
    page(&tables.pack(&about))
}

impl Comparison {
    /// Returns the page that shows this comparison of two histories, as HTML, with the page of each behind a menu. `by` is the property
    /// that blocks are grouped by at first.
    #[must_use]
    pub fn page_of_histories(&self, histories: [&History; 2], by: By) -> String {
        let named = histories.map(|history| (history.name.as_str(), history));
        page_with(&named, by, Some(self))
    }

    /// Returns the page that shows this comparison of two snapshots, as HTML.
    #[must_use]
    pub fn page_of_snapshots(&self) -> String {
        let about = About {
            kind: "snapshots",
            comparison: Some(self),
            ..About::default()
        };
        page(&PageData::new().pack(&about))
    }
}

impl History {
    /// Returns the page that shows the history, as HTML. `by` is the property that its blocks are grouped by at first.
    #[must_use]
    pub fn page(&self, by: By) -> String {
        page_of(&[(&self.name, self)], by)
    }

    /// Adds the table of its events, blocks and segments. An optional index is stored as one more than the index, and 0 for
    /// none.
    fn push_table(&self, columns: &mut PageData) {
        let optional = |number: Option<usize>| number.map_or(0, |number| number as u64 + 1);
        columns.begin_table();
        let mut next = 0;
        // A free is stored as the number of blocks since the allocation of its block, which is small.
        let frees = self.frees.iter().map(|free| {
            next += u64::from(free.is_none());
            free.map_or(0, |block| next - block as u64)
        });
        columns.push("frees", frees);
        columns.push_rising("times", self.times.iter().copied());
        let blocks = || self.blocks.iter();
        columns.push("asked", blocks().map(|block| block.requested_bytes));
        let more = blocks().map(|block| block.class_bytes.saturating_sub(block.requested_bytes));
        columns.push("more", more);
        columns.push("segment", blocks().map(|block| optional(block.segment)));
        columns.push("offset", blocks().map(|block| block.offset));
        columns.push("waiting", blocks().map(|block| optional(block.waiting)));
        columns.push("stack", blocks().map(|block| optional(block.stack)));
        for (by, grouping) in By::ALL.iter().zip(&self.groupings) {
            columns.push(
                by.name(),
                grouping.numbers.iter().map(|number| u64::from(*number)),
            );
        }
        let uses = || {
            let uses = self.uses.iter();
            uses.filter(|used| {
                let block = self.blocks.get(used.block);
                block.is_some_and(|block| block.stream != used.stream)
            })
        };
        columns.push("use_block", uses().map(|used| used.block as u64));
        columns.push("use_stream", uses().map(|used| used.stream.into()));
        let segments = || self.segments.iter();
        columns.push("segment_bytes", segments().map(|segment| segment.bytes));
        columns.push_rising(
            "segment_from",
            segments().map(|segment| segment.from as u64),
        );
        columns.push("segment_to", segments().map(|segment| optional(segment.to)));
        let reservations = segments().map(|segment| optional(segment.reservation));
        columns.push("segment_reservation", reservations);
        columns.push("segment_offset", segments().map(|segment| segment.offset));
    }
}

impl SnapshotNumbers {
    /// Returns the page that shows the figures and the snapshot, as HTML.
    #[must_use]
    pub fn page(&self, snapshot: &Snapshot) -> String {
        let about = About {
            kind: "snapshot",
            numbers: Some(self),
            snapshot: Some(snapshot),
            ..About::default()
        };
        page(&PageData::new().pack(&about))
    }
}

fn page(data: &str) -> String {
    let shell = SHELL.replacen("/* styles */", STYLE, 1);
    let shell = shell.replacen("/* scripts */", &SCRIPTS.concat(), 1);
    shell.replacen("/* data */", data, 1)
}
