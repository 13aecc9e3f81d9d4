//! The report on pairs on a device, as a table and as JSON.

use serde::Serialize;

use binpool::words::bytes;

use crate::{DevicePair, markdown_table::markdown};

/// One object of the JSON report.
#[derive(Serialize)]
struct Object<'a> {
    device: &'a str,
    #[serde(flatten)]
    pair: &'a DevicePair,
}

/// Returns the report as a JSON array with an object for each size and subject.
///
/// # Errors
///
/// None that can happen: every value has a JSON form.
pub fn device_json(device: &str, pairs: &[DevicePair]) -> serde_json::Result<String> {
    let objects: Vec<_> = pairs.iter().map(|pair| Object { device, pair }).collect();
    serde_json::to_string_pretty(&objects)
}

/// Returns the report as a table below a line that names the device.
#[must_use]
pub fn device_table(device: &str, pairs: &[DevicePair]) -> String {
    let titles = [
        "size",
        "subject",
        "us a pair, least",
        "us a pair, median",
        "median / pool",
    ];
    let mut table = markdown(titles, 2..);
    for pair in pairs {
        table.add_row([
            bytes(pair.size_bytes as u64),
            pair.subject.to_owned(),
            format!("{:.3}", pair.ns_per_pair_min / 1e3),
            format!("{:.3}", pair.ns_per_pair_median / 1e3),
            format!("{:.1}", pair.times_pool),
        ]);
    }
    format!("opencl on {device}\n\n{table}")
}
