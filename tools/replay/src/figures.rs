//! Figures for people and for JSON.

use std::time::Duration;

use serde_json::Value;

use binpool_allocators::words::bytes;

#[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

pub(crate) fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Returns a time in milliseconds, as text.
pub(crate) fn millis_text(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}

/// Returns a number of nanoseconds as text, in the largest unit that it fills.
#[expect(clippy::cast_precision_loss, reason = "a time for people")]
pub(crate) fn time_text(nanoseconds: u64) -> String {
    let units = [(1e9, "s"), (1e6, "ms"), (1e3, "us")];
    let unit = units.iter().find(|(unit, _)| nanoseconds as f64 >= *unit);
    match unit {
        Some((unit, name)) => format!("{:.2} {name}", nanoseconds as f64 / unit),
        None => format!("{nanoseconds} ns"),
    }
}

/// Adds the fields of one JSON object to another.
pub(crate) fn extend(object: &mut Value, more: Value) {
    if let (Value::Object(object), Value::Object(more)) = (object, more) {
        object.extend(more);
    }
}

/// The settings that the heading of a report names, each after a comma, unless they are the usual ones.
pub(crate) fn unusual(capacity_bytes: Option<u64>, scale: usize) -> String {
    let capacity = capacity_bytes.map_or_else(String::new, |capacity| {
        format!(", capacity {}", bytes(capacity))
    });
    match scale {
        1 => capacity,
        scale => format!("{capacity}, sizes divided by {scale}"),
    }
}
