//! The report on pairs on a device, as a table and as JSON.

use serde::Serialize;

use binpool::words::bytes;

use crate::{DevicePair, markdown_table::markdown};

/// One object of the JSON report.
#[derive(Serialize)]
struct Object<'a> {
    backend: &'a str,
    device: &'a str,
    #[serde(flatten)]
    pair: &'a DevicePair,
}

/// Returns the report as a JSON array with an object for each size and subject.
///
/// # Errors
///
/// None that can happen: every value has a JSON form.
pub fn device_json(
    backend: &str,
    device: &str,
    pairs: &[DevicePair],
) -> serde_json::Result<String> {
    let object = |pair| Object {
        backend,
        device,
        pair,
    };
    let objects: Vec<_> = pairs.iter().map(object).collect();
    serde_json::to_string_pretty(&objects)
}

/// Returns the report as a table below a line that names the device.
#[must_use]
pub fn device_table(backend: &str, device: &str, pairs: &[DevicePair]) -> String {
    let titles = [
        "size",
        "threads",
        "subject",
        "median / pool",
        "us a pair, median",
        "us a pair, least",
    ];
    let mut table = markdown(titles, 3..);
    for pair in pairs {
        table.add_row([
            bytes(pair.size_bytes as u64),
            pair.threads.to_string(),
            pair.subject.to_owned(),
            format!("{:.1}", pair.times_pool),
            format!("{:.3}", pair.ns_per_pair_median / 1e3),
            format!("{:.3}", pair.ns_per_pair_min / 1e3),
        ]);
    }
    format!("{backend} on {device}\n\n{table}")
}
