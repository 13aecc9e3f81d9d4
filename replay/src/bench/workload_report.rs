//! The report on workloads, as a table and as JSON.

use binpool_benches::{Figures, SubjectChoice, Workload};
use serde::Serialize;

use crate::markdown_table::markdown;

/// The cost of one workload on one subject.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BenchRow {
    /// The workload.
    pub workload: Workload,
    /// The subject.
    pub subject: SubjectChoice,
    /// The figures.
    pub figures: Figures,
}

/// One object of the JSON report.
#[derive(Serialize)]
struct Object {
    workload: &'static str,
    subject: &'static str,
    threads: usize,
    ns_per_pair_min: f64,
    ns_per_pair_median: f64,
    million_pairs_per_s: f64,
}

/// Returns the report as a JSON array with an object for each row.
///
/// # Errors
///
/// None that can happen: every value has a JSON form.
pub fn bench_json(rows: &[BenchRow]) -> serde_json::Result<String> {
    let object = |row: &BenchRow| Object {
        workload: row.workload.name(),
        subject: row.subject.name(),
        threads: row.figures.threads,
        ns_per_pair_min: row.figures.ns_per_pair_min,
        ns_per_pair_median: row.figures.ns_per_pair_median,
        million_pairs_per_s: row.figures.million_pairs_per_s(),
    };
    let objects: Vec<Object> = rows.iter().map(object).collect();
    serde_json::to_string_pretty(&objects)
}

/// Returns the report as a table. Its last column is the median over that of `malloc` with as many threads.
#[must_use]
pub fn bench_table(rows: &[BenchRow]) -> String {
    let titles = [
        "workload",
        "threads",
        "subject",
        "ns a pair, least",
        "ns a pair, median",
        "million pairs/s",
        "median / malloc",
    ];
    let mut table = markdown(titles, 3..);
    for row in rows {
        let figures = &row.figures;
        let is_malloc = |other: &&BenchRow| {
            other.subject == SubjectChoice::Malloc
                && other.workload == row.workload
                && other.figures.threads == figures.threads
        };
        let ratio = rows.iter().find(is_malloc).map_or_else(String::new, |it| {
            let ratio = figures.ns_per_pair_median / it.figures.ns_per_pair_median;
            format!("{ratio:.2}")
        });
        table.add_row([
            row.workload.to_string(),
            figures.threads.to_string(),
            row.subject.to_string(),
            format!("{:.1}", figures.ns_per_pair_min),
            format!("{:.1}", figures.ns_per_pair_median),
            format!("{:.2}", figures.million_pairs_per_s()),
            ratio,
        ]);
    }
    table.to_string()
}
