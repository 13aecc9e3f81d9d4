//! What pairs cost on a device, for people and for programs.

use serde::Serialize;

use crate::{DevicePair, report::bytes, table::markdown};

/// One object of the JSON report.
#[derive(Serialize)]
struct Object<'a> {
    device: &'a str,
    #[serde(flatten)]
    pair: &'a DevicePair,
}

/// The report as a JSON array, an object a size and subject.
///
/// # Errors
///
/// None that can happen: every value has a JSON form.
pub fn device_json(device: &str, pairs: &[DevicePair]) -> serde_json::Result<String> {
    let objects: Vec<_> = pairs.iter().map(|pair| Object { device, pair }).collect();
    serde_json::to_string_pretty(&objects)
}

/// The report as a table with a line above it that names the device.
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
