//! The report on an imported recording, as text and as JSON.

use serde_json::json;

use binpool_allocators::words::{bytes, counted};
use binpool_recordings::Trace;

/// Returns the figures of a trace as a JSON object.
pub fn import_json(trace: &Trace) -> String {
    let object = json!({
        "recording": trace.name(),
        "allocations": trace.allocations(),
        "frees": trace.frees(),
        "shortages": trace.shortages().len(),
        "streams": trace.streams().len(),
        "groups": trace.groups().len(),
        "has_times": trace.time_of(0).is_some(),
        "peak_live_bytes": trace.peak_live_bytes(),
        "largest_block_bytes": trace.largest_block_bytes(),
        "remarks": trace.remarks(),
    });
    format!("{object:#}")
}

/// Returns the figures of a trace in a line.
#[must_use]
pub fn import_summary(trace: &Trace) -> String {
    let counts = [
        (trace.allocations(), "allocation"),
        (trace.frees(), "free"),
        (trace.shortages().len(), "shortage"),
        (trace.streams().len(), "stream"),
        (trace.groups().len(), "group"),
    ];
    let counts = counts.map(|(count, what)| counted(count as u64, what));
    let live = bytes(trace.peak_live_bytes());
    format!("{}; up to {live} live", counts.join(", "))
}
