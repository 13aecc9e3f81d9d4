//! The command `binpool bench`: what it prints. What is measured means nothing here: `--quick` does next to nothing.

use std::fs;

use binpool_benches::{Figures, SubjectChoice, Workload};
use binpool_replay::{BenchRow, bench_json, bench_table, scaling_svg};
use serde_json::Value;

use crate::common::binpool;

fn json(arguments: &[&str]) -> Vec<Value> {
    let ran = binpool(&[&["bench", "--quick", "--json"], arguments].concat());
    assert_eq!(ran.status, 0, "{}", ran.errors);
    serde_json::from_str(&ran.output).unwrap()
}

/// The keys of an object, sorted.
fn keys(object: &Value) -> Vec<&str> {
    let keys = object.as_object().unwrap().keys();
    let mut keys: Vec<&str> = keys.map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

fn texts<'a>(objects: &'a [Value], key: &str) -> Vec<&'a str> {
    let texts = objects.iter().map(|object| object[key].as_str().unwrap());
    texts.collect()
}

fn threads(objects: &[Value]) -> Vec<u64> {
    let threads = objects.iter().map(|object| object["threads"].as_u64());
    threads.map(Option::unwrap).collect()
}

const PEERS: [&str; 8] = [
    "binpool",
    "binpool-bins",
    "binpool-watched",
    "binpool-recorded",
    "malloc",
    "mimalloc",
    "offset-allocator",
    "nothing",
];

#[test]
fn json_has_an_object_for_each_subject_of_each_workload() {
    let objects = json(&[]);
    let expected = [
        ("hot", &PEERS[..]),
        ("mixed", &PEERS),
        ("lifo", &PEERS),
        ("large", &PEERS),
        ("miss", &["binpool", "binpool-bins", "allocator"]),
        ("cross-thread", &PEERS),
    ];
    let expected: Vec<(&str, &str)> = expected
        .iter()
        .flat_map(|(workload, subjects)| subjects.iter().map(|subject| (*workload, *subject)))
        .collect();
    let found: Vec<_> = texts(&objects, "workload")
        .into_iter()
        .zip(texts(&objects, "subject"))
        .collect();
    assert_eq!(found, expected);
    for object in &objects {
        assert_eq!(
            keys(object),
            [
                "million_pairs_per_s",
                "ns_per_pair_median",
                "ns_per_pair_min",
                "subject",
                "threads",
                "workload"
            ]
        );
        assert_eq!(object["threads"], 1);
        assert!(object["ns_per_pair_min"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn lists_choose_workloads_subjects_and_threads() {
    let of_both = json(&["--workload", "hot,lifo", "--subject", "malloc,binpool"]);
    assert_eq!(texts(&of_both, "workload"), ["hot", "hot", "lifo", "lifo"]);
    assert_eq!(
        texts(&of_both, "subject"),
        ["binpool", "malloc", "binpool", "malloc"]
    );
    let repeated = json(&["--workload", "hot", "--workload", "lifo"]);
    assert_eq!(repeated.len(), 2 * PEERS.len());
    let scaled = json(&[
        "--workload",
        "hot",
        "--subject",
        "binpool",
        "--threads",
        "1,2,3",
    ]);
    assert_eq!(threads(&scaled), [1, 2, 3]);
}

#[test]
fn a_miss_is_measured_on_one_thread() {
    let objects = json(&["--workload", "miss", "--threads", "2,4"]);
    assert_eq!(threads(&objects), [1, 1, 1]);
}

fn row(subject: SubjectChoice, threads: usize, ns_per_pair_median: f64) -> BenchRow {
    BenchRow {
        workload: Workload::Hot,
        subject,
        figures: Figures {
            threads,
            ns_per_pair_min: ns_per_pair_median / 2.0,
            ns_per_pair_median,
        },
    }
}

#[test]
fn million_pairs_are_those_of_all_threads_in_the_median_sample() {
    let rows = [row(SubjectChoice::Pool, 4, 50.0)];
    let objects: Vec<Value> = serde_json::from_str(&bench_json(&rows).unwrap()).unwrap();
    assert_eq!(objects[0]["million_pairs_per_s"], 80.0);
    assert_eq!(objects[0]["ns_per_pair_min"], 25.0);
    assert_eq!(objects[0]["ns_per_pair_median"], 50.0);
}

/// The cells of the row that has `subject`, and so many threads.
fn cells(table: &str, subject: &str, threads: usize) -> Vec<String> {
    let rows = table.lines().map(|line| -> Vec<String> {
        let cells = line.trim_matches('|').split('|');
        cells.map(|cell| cell.trim().to_owned()).collect()
    });
    let threads = threads.to_string();
    let mut rows = rows.filter(|cells| cells[2] == subject && cells[1] == threads);
    rows.next().unwrap()
}

#[test]
fn the_table_has_the_same_figures_and_the_ratio_to_malloc_with_as_many_threads() {
    let table = bench_table(&[
        row(SubjectChoice::Pool, 1, 50.0),
        row(SubjectChoice::Malloc, 1, 20.0),
        row(SubjectChoice::Pool, 2, 60.0),
        row(SubjectChoice::Malloc, 2, 30.0),
        row(SubjectChoice::Pool, 4, 60.0),
    ]);
    let of = |subject, threads| cells(&table, subject, threads);
    assert_eq!(
        of("binpool", 1),
        ["hot", "1", "binpool", "25.0", "50.0", "20.00", "2.50"]
    );
    assert_eq!(of("binpool", 2)[6], "2.00");
    assert_eq!(of("malloc", 2)[6], "1.00");
    assert_eq!(of("binpool", 4)[6], "");
}

#[test]
fn without_json_there_is_a_table() {
    let ran = binpool(&["bench", "--quick", "--workload", "hot,miss"]);
    assert_eq!((ran.status, &*ran.errors), (0, ""));
    for subject in PEERS {
        assert_eq!(cells(&ran.output, subject, 1)[0], "hot");
    }
    assert!(ran.output.contains("median / malloc"), "{}", ran.output);
}

#[test]
fn the_tail_is_that_of_each_subject_and_of_the_clock() {
    let objects = json(&["--tail", "--threads", "1,2", "--subject", "binpool,malloc"]);
    let of_each = ["clock", "binpool", "malloc"];
    assert_eq!(texts(&objects, "subject"), [of_each, of_each].concat());
    assert_eq!(threads(&objects), [1, 1, 1, 2, 2, 2]);
    for object in &objects {
        assert_eq!(
            keys(object),
            [
                "ns_99_9",
                "ns_max",
                "ns_median",
                "operations",
                "subject",
                "threads"
            ]
        );
        // Two for each of 100 pairs.
        let operations = 200 * object["threads"].as_u64().unwrap();
        assert_eq!(object["operations"], operations);
        let ns = |key: &str| object[key].as_u64().unwrap();
        assert!(ns("ns_median") <= ns("ns_99_9") && ns("ns_99_9") <= ns("ns_max"));
    }
    let ran = binpool(&["bench", "--quick", "--tail", "--subject", "malloc"]);
    assert_eq!(ran.status, 0, "{}", ran.errors);
    assert!(ran.output.contains("| clock"), "{}", ran.output);
}

/// The texts of a picture, and the points of each line of two points or more in it.
fn elements(picture: &str) -> (Vec<String>, Vec<Vec<String>>) {
    let document = roxmltree::Document::parse(picture).unwrap();
    let nodes = || document.descendants();
    let texts = nodes().filter(|node| node.has_tag_name("text"));
    let texts = texts.map(|node| node.text().unwrap_or_default().trim().to_owned());
    let curves = nodes().filter(|node| {
        node.has_tag_name("polyline") && node.attribute("stroke-width") == Some("2")
    });
    let points = curves.map(|node| {
        let points = node.attribute("points").unwrap().split_whitespace();
        points.map(str::to_owned).collect()
    });
    (texts.collect(), points.collect())
}

fn lengths(curves: &[Vec<String>]) -> Vec<usize> {
    curves.iter().map(Vec::len).collect()
}

#[test]
fn the_picture_has_a_line_for_each_subject() {
    let rows = [SubjectChoice::Pool, SubjectChoice::Malloc]
        .into_iter()
        .zip([30.0, 300.0])
        .flat_map(|(subject, ns)| [1, 2, 4, 8].map(|threads| row(subject, threads, ns)));
    let rows: Vec<BenchRow> = rows.collect();
    let (texts, curves) = elements(&scaling_svg(&rows).unwrap());
    assert_eq!(lengths(&curves), [4, 4]);
    // The subjects in their order: fewer nanoseconds are higher up, at smaller numbers.
    let last = |curve: &[String]| {
        let (_, y) = curve.last().unwrap().split_once(',').unwrap();
        y.parse::<f64>().unwrap()
    };
    assert!(last(&curves[0]) < last(&curves[1]), "{curves:?}");
    for text in ["hot", "binpool", "malloc", "threads", "1", "2", "4", "8"] {
        assert!(texts.iter().any(|found| found == text), "{text}: {texts:?}");
    }
}

#[test]
fn the_picture_has_a_chart_for_each_workload() {
    let folder = tempfile::tempdir().unwrap();
    let plot = folder.path().join("threads.svg");
    let ran = binpool(&[
        "bench",
        "--quick",
        "--workload",
        "hot,large",
        "--subject",
        "binpool,malloc",
        "--threads",
        "1,2",
        "--plot",
        plot.to_str().unwrap(),
    ]);
    assert_eq!(ran.status, 0, "{}", ran.errors);
    let (texts, curves) = elements(&fs::read_to_string(plot).unwrap());
    assert_eq!(lengths(&curves), [2, 2, 2, 2]);
    for workload in ["hot", "large"] {
        assert_eq!(texts.iter().filter(|text| *text == workload).count(), 1);
    }
    assert_eq!(texts.iter().filter(|text| *text == "malloc").count(), 2);
}

#[test]
fn a_picture_that_cannot_be_written_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let plot = folder.path().join("no such folder").join("t.svg");
    let plot = plot.to_str().unwrap();
    let ran = binpool(&["bench", "--quick", "--workload", "miss", "--plot", plot]);
    assert_eq!(ran.status, 1);
    assert!(ran.errors.contains(plot), "{}", ran.errors);
}

#[test]
fn a_wrong_command_line_is_explained() {
    for (wrong, explained) in [
        (&["--workload", "cold"][..], "cross-thread"),
        (&["--workload", "hot,"], "cross-thread"),
        (&["--subject", "jemalloc"], "offset-allocator"),
        (&["--threads", "0"], "at least 1"),
        (&["--threads", "1,many"], "invalid digit"),
        (&["--threads", "1025"], "at most 1024"),
        (&["--tail", "--workload", "hot"], "cannot be used with"),
        (&["--tail", "--plot", "t.svg"], "cannot be used with"),
        (&["a.trace"], "unexpected argument"),
    ] {
        let ran = binpool(&[&["bench", "--quick"], wrong].concat());
        assert_eq!(ran.status, 2, "{wrong:?}");
        assert!(ran.errors.contains(explained), "{}", ran.errors);
    }
    let ran = binpool(&["bench", "--workload", "miss", "--subject", "malloc"]);
    assert_eq!((ran.status, &*ran.output), (1, ""));
    assert!(ran.errors.contains("no workload"), "{}", ran.errors);
}

#[test]
fn help_says_what_the_figures_are() {
    let help = binpool(&["bench", "--help"]).output;
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("over the pairs of one thread"), "{help}");
    assert!(help.contains("those of all threads together"), "{help}");
    for workload in Workload::ALL {
        assert!(help.contains(&format!("- {workload}: ")), "{help}");
    }
}
