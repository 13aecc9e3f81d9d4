//! How long single allocations and frees of the mixed workload take, while another thread keeps reclaiming memory from the pool: median,
//! 99.9 %, and the longest, in nanoseconds. The clock's own time is in each of them; the subject `clock` is that alone.
//!
//! ```text
//! cargo bench -p binpool-benches --bench tail -- 4
//! ```
//!
//! The argument is the number of threads (default 1). A further one names a subject, so that it has a process of its own: what a heap of
//! the host costs depends on what the process did before.

use std::error::Error;

use binpool_benches::{Tail, Workload, clock, tail};
use comfy_table::{Table, presets};

/// The pairs of each thread whose operations are timed one by one.
const PAIRS: u64 = 500_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench");
    let threads = arguments.next().map_or(Ok(1), |text| text.parse())?;
    let named = arguments.next();
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header([
        "subject",
        "median",
        "99.9 %",
        "longest",
        "operations",
    ]);
    let mut add = |subject: &str, tail: Tail| {
        let figures = [tail.ns_median, tail.ns_99_9, tail.ns_max, tail.operations];
        let figures = figures.iter().map(ToString::to_string);
        table.add_row([subject.to_owned()].into_iter().chain(figures));
    };
    add("clock", clock(threads, PAIRS));
    for subject in Workload::Mixed.subjects() {
        if named.as_deref().is_none_or(|name| name == subject.name()) {
            add(subject.name(), tail(*subject, threads, PAIRS)?);
        }
    }
    println!("{table}");
    Ok(())
}
