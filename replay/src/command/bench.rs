//! `binpool bench`.

use std::error::Error;

use binpool_benches::{SubjectChoice, Workload, clock, measure, tail};
use binpool_replay::{
    BenchRow, TailRow, bench_json, bench_table, scaling_svg, tail_json, tail_table,
};

use crate::command::{
    cli::Bench,
    device_bench::bench_device,
    output::{print, print_report, report, write_file},
    progress::bar,
};

/// Pairs of each thread whose operations are looked at one by one.
const TAIL_PAIRS: u64 = 500_000;

/// Measures what was asked for and prints the report. Whether all could be measured.
pub(crate) fn bench_all(options: &Bench) -> Result<bool, Box<dyn Error>> {
    if let Some(selector) = &options.device {
        bench_device(options, selector)
    } else if options.tail {
        tails(options)
    } else {
        workloads(options)
    }
}

fn workloads(options: &Bench) -> Result<bool, Box<dyn Error>> {
    let runs = runs(options);
    if runs.is_empty() {
        return Err("no workload that was asked for is one of these subjects'".into());
    }
    let bar = bar(runs.len(), "bench");
    let mut rows = Vec::new();
    for (workload, threads, subject) in &runs {
        bar.set_message(format!("{workload}, {subject}"));
        match measure(*workload, *subject, *threads, options.effort()) {
            Ok(figures) => rows.push(BenchRow {
                workload: *workload,
                subject: *subject,
                figures,
            }),
            Err(failure) => bar.suspend(|| report(&failure)),
        }
        bar.inc(1);
    }
    drop(bar);
    if options.json {
        print(&bench_json(&rows)?)?;
    } else if !rows.is_empty() {
        print_report(&bench_table(&rows))?;
    }
    if let Some(path) = &options.plot
        && !rows.is_empty()
    {
        write_file(path, scaling_svg(&rows)?)?;
    }
    Ok(rows.len() == runs.len())
}

/// What was asked for: each workload with each number of threads, and a table's subjects together.
fn runs(options: &Bench) -> Vec<(Workload, usize, SubjectChoice)> {
    let all = Workload::ALL;
    let workloads = if options.workload.is_empty() {
        &all[..]
    } else {
        &options.workload
    };
    let mut runs = Vec::new();
    for workload in workloads {
        let threads = if workload.is_for_threads() {
            &options.threads[..]
        } else {
            &[1]
        };
        for threads in threads {
            let subjects = chosen(options, workload.subjects());
            runs.extend(subjects.map(|subject| (*workload, *threads, subject)));
        }
    }
    runs
}

/// Those of `subjects` that were asked for: all of them, unless some are named.
fn chosen<'a>(
    options: &'a Bench,
    subjects: &'a [SubjectChoice],
) -> impl Iterator<Item = SubjectChoice> + 'a {
    let named = &options.subject;
    let is_chosen = |subject: &SubjectChoice| named.is_empty() || named.contains(subject);
    subjects.iter().copied().filter(is_chosen)
}

fn tails(options: &Bench) -> Result<bool, Box<dyn Error>> {
    let pairs = if options.quick { 100 } else { TAIL_PAIRS };
    let subjects: Vec<_> = chosen(options, Workload::Mixed.subjects()).collect();
    let bar = bar(options.threads.len() * (subjects.len() + 1), "tail");
    let mut rows = Vec::new();
    let mut has_failed = false;
    for threads in &options.threads {
        rows.push(TailRow {
            subject: "clock",
            tail: clock(*threads, pairs),
        });
        bar.inc(1);
        for subject in &subjects {
            bar.set_message(format!("tail, {subject}"));
            match tail(*subject, *threads, pairs) {
                Ok(tail) => rows.push(TailRow {
                    subject: subject.name(),
                    tail,
                }),
                Err(failure) => {
                    has_failed = true;
                    bar.suspend(|| report(&failure));
                }
            }
            bar.inc(1);
        }
    }
    drop(bar);
    if options.json {
        print(&tail_json(&rows)?)?;
    } else {
        print_report(&tail_table(&rows))?;
    }
    Ok(!has_failed)
}
