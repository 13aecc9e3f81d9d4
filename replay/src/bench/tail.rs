//! How long single operations take, for people and for programs.

use binpool_benches::Tail;
use serde::Serialize;

use crate::table::markdown;

/// How long single operations of one subject take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TailRow {
    /// Whose operations, or `clock`.
    pub subject: &'static str,
    /// How long they took.
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

/// The report as a JSON array, an object a row.
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

/// The report as a table.
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
