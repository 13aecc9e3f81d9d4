//! The report on the times of single operations, as a table and as JSON.

use binpool_benches::Tail;
use serde::Serialize;

use crate::markdown_table::markdown;

/// The times of single operations of one subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TailRow {
    /// The subject, or `clock`.
    pub subject: &'static str,
    /// The times.
    pub tail: Tail,
}

/// One object of the JSON report.
#[derive(Serialize)]
struct Object {
    subject: &'static str,
    threads: usize,
    ns_median: u64,
    ns_99_9: u64,
    ns_max: u64,
    operations: u64,
}

/// Returns the report as a JSON array with an object for each row.
///
/// # Errors
///
/// None that can happen: every value has a JSON form.
pub fn tail_json(rows: &[TailRow]) -> serde_json::Result<String> {
    let object = |row: &TailRow| Object {
        subject: row.subject,
        threads: row.tail.threads,
        ns_median: row.tail.ns_median,
        ns_99_9: row.tail.ns_99_9,
        ns_max: row.tail.ns_max,
        operations: row.tail.operations,
    };
    let objects: Vec<Object> = rows.iter().map(object).collect();
    serde_json::to_string_pretty(&objects)
}

/// Returns the report as a table.
#[must_use]
pub fn tail_table(rows: &[TailRow]) -> String {
    let titles = [
        "threads",
        "subject",
        "ns, median",
        "ns, 99.9 %",
        "ns, longest",
        "operations",
    ];
    let mut table = markdown(titles, 2..);
    for TailRow { subject, tail } in rows {
        table.add_row([
            tail.threads.to_string(),
            (*subject).to_owned(),
            tail.ns_median.to_string(),
            tail.ns_99_9.to_string(),
            tail.ns_max.to_string(),
            tail.operations.to_string(),
        ]);
    }
    table.to_string()
}
