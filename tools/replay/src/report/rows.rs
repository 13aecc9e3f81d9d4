//! The rows of a report on replays.

use std::time::Duration;

use binpool_allocators::words::bytes;
use serde_json::{Value, json};

use crate::{
    Outcome, Pending, ReplaySettings,
    figures::{micros, millis_text},
};

/// The data that all rows of a report share.
#[derive(Clone, Debug)]
pub struct Header {
    /// `mock`, `opencl` or `cuda`.
    pub backend: &'static str,
    /// The device's name.
    pub device: String,
    /// The divisor of the sizes of the traces.
    pub scale: usize,
    /// The other settings.
    pub settings: ReplaySettings,
}

/// The replay of one trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The trace's file.
    pub trace: String,
    /// The most bytes that were live at once.
    pub peak_live_bytes: u64,
    /// The result of the replay.
    pub outcome: Outcome,
    /// The time of the device's calls.
    pub device_time: Duration,
    /// The smallest capacity in bytes, if it was searched.
    pub need_bytes: Option<u64>,
}

/// Returns the name of a row's file without its folders and `.trace.gz`, unless another row would have the same name.
pub(crate) fn short_name<'r>(row: &'r Row, rows: &[Row]) -> &'r str {
    fn of_file(path: &str) -> &str {
        let name = path.rsplit('/').next().unwrap_or(path);
        let name = name.strip_suffix(".gz").unwrap_or(name);
        name.strip_suffix(".trace").unwrap_or(name)
    }
    let name = of_file(&row.trace);
    let namesakes = rows.iter().filter(|other| of_file(&other.trace) == name);
    if namesakes.count() > 1 {
        &row.trace
    } else {
        name
    }
}

/// Returns what the device had not ended, as JSON.
pub(crate) fn pending_json(pending: Pending) -> Value {
    json!({
        "peak_pending_bytes": pending.peak_bytes,
        "wait_time_us": pending.waited.map(micros),
    })
}

/// The cells of what a device had not ended: bytes, and the time that the host waited.
pub(crate) fn pending_cells(pending: Option<Pending>) -> [String; 2] {
    let not_counted = || "not counted".to_owned();
    let waited = pending.and_then(|pending| pending.waited);
    [
        pending.map_or_else(not_counted, |pending| bytes(pending.peak_bytes)),
        waited.map_or_else(not_counted, millis_text),
    ]
}
