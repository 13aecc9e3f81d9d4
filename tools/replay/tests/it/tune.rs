//! The command `binpool tune`, and the rules by which it chooses.

use std::{fs, path::PathBuf, time::Duration};

use binpool::PoolOptions;
use binpool_recordings::Trace;
use binpool_replay::{
    AtEnd, Device, Measured, Outcome, Profile, ReplaySettings, Round, report,
    report::{Header, Row},
    tune::{Best, Comparison, Cost, Trial, TuneReport, best, candidates},
};
use proptest::prelude::*;
use serde_json::Value;
use tempfile::TempDir;

use crate::common::binpool;

fn json(arguments: &[&str]) -> Value {
    let ran = binpool(&[arguments, &["--json"]].concat());
    assert_eq!(ran.status, 0, "{}", ran.errors);
    serde_json::from_str(&ran.output).unwrap()
}

/// Sizes that change a little from one block to the next, two of them live at once.
const VARYING: &str = "a 0 1000000 0\na 1 600000 0\nf 0\na 2 900000 0\nf 1\na 3 640000 0\nf 2\nf 3\n\
                       a 4 950000 0\nf 4\na 5 1500000 0\nf 5\na 6 700000 0\nf 6\n";

/// `text` as a trace in a folder of its own, called `name`.
fn file(name: &str, text: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, text).unwrap();
    (folder, path)
}

/// The candidates of the first trace in a report.
fn of_first_trace(report: &Value) -> &Vec<Value> {
    report["traces"][0]["candidates"].as_array().unwrap()
}

fn named<'a>(candidates: &'a [Value], name: &str) -> &'a Value {
    candidates
        .iter()
        .find(|candidate| candidate["name"] == name)
        .unwrap()
}

/// The names of the candidates of which `is` holds.
fn names(candidates: &[Value], is: impl Fn(&Value) -> bool) -> Vec<&str> {
    let chosen = candidates.iter().filter(|candidate| is(candidate));
    chosen
        .map(|candidate| candidate["name"].as_str().unwrap())
        .collect()
}

#[test]
fn the_figures_are_those_of_a_replay_with_the_settings_of_the_name() {
    let (_folder, path) = file("varying.trace", VARYING);
    let path = path.to_str().unwrap();
    for (common, profile, scale, capacity) in [
        (&["--profile", "h200"][..], Profile::H200, 1, None),
        (
            &["--profile", "pocl", "--scale", "3"],
            Profile::Pocl,
            3,
            None,
        ),
        (&["--capacity", "5MB"], Profile::H200, 1, Some(5_000_000)),
    ] {
        // The library has a setting that the command has not: the leading bits.
        let by_library = |pool: PoolOptions| {
            let trace = Trace::open(path.as_ref()).unwrap().scaled_down(scale);
            let settings = ReplaySettings {
                pool: Some(pool),
                capacity_bytes: capacity,
                rounds: 16,
                ..ReplaySettings::default()
            };
            let device = Device::Mock(profile.clone());
            let measured = device.replay(&trace, &settings, &|_| {}).unwrap();
            let rounds = measured.outcome.rounds.iter();
            let row = Row {
                trace: path.to_owned(),
                peak_live_bytes: rounds.map(|round| round.peak_live_bytes).max().unwrap(),
                outcome: measured.outcome,
                device_time: measured.device_time,
                need_bytes: None,
            };
            let header = Header {
                backend: device.backend_name(),
                device: device.name(),
                scale,
                settings,
            };
            serde_json::from_str::<Value>(&report::json(&header, &[row])).unwrap()
        };
        let by_command = |settings: &[&str]| {
            json(&[&["replay", "--rounds", "16"], common, settings, &[path]].concat())
        };
        let trial = ["tune", "--allocator", "virtual-memory"];
        let report = json(&[&trial, common, &[path]].concat());
        let candidates = of_first_trace(&report);
        let all = binpool_replay::tune::candidates().into_iter();
        let all = all.chain(binpool_replay::tune::page_candidates());
        let names = candidates
            .iter()
            .map(|candidate| candidate["name"].as_str().unwrap());
        assert!(names.eq(all.map(|candidate| candidate.name)));
        for candidate in candidates {
            let name = candidate["name"].as_str().unwrap();
            let options = PoolOptions::new();
            let replayed = match name.split_once(' ').unwrap_or((name, "balanced")) {
                ("pages", growth) => {
                    by_command(&["--allocator", "virtual-memory", "--growth", growth])
                }
                ("no", "pool") => by_command(&["--no-pool"]),
                ("bins", "keep-all") => by_command(&["--no-segments", "--retain", "all"]),
                ("bins", "4") => by_command(&["--no-segments"]),
                ("segments", "8") => by_command(&[]),
                ("bins", bits) => {
                    by_library(options.segments(false).leading_bits(bits.parse().unwrap()))
                }
                ("segments", bits) => by_library(options.leading_bits(bits.parse().unwrap())),
                ("growth", policy) => by_command(&["--growth", policy]),
                other => panic!("{other:?}: say here how it is replayed"),
            };
            let replayed = &replayed[0];
            for figure in [
                "peak_reserved_bytes",
                "reserved_over_live",
                "device_time_us",
                "device_allocations",
            ] {
                assert_eq!(candidate[figure], replayed[figure], "{name}, {figure}");
            }
            for figure in ["device_calls_a_round", "device_time_us_a_round"] {
                assert_eq!(
                    candidate[figure], replayed["warm"][figure],
                    "{name}, {figure}"
                );
            }
            let first = &replayed["rounds"][0];
            let first_time = &candidate["first_round_device_time_us"];
            assert_eq!(*first_time, first["device_time_us"], "{name}");
            let calls = ["device_allocations", "device_releases", "maps", "unmaps"];
            let calls: u64 = calls.iter().filter_map(|kind| first[kind].as_u64()).sum();
            assert_eq!(candidate["first_round_device_calls"], calls, "{name}");
            let hits = replayed["hits"].as_f64().unwrap();
            let allocations = replayed["allocations"].as_f64().unwrap();
            let hit_rate = candidate["hit_rate"].as_f64().unwrap();
            assert!((hit_rate - hits / allocations).abs() < 1e-9, "{name}");
            assert_eq!(candidate["out_of_memory"], Value::Null);
        }
        // They are not all the same.
        let bins = |bits| &named(candidates, bits)["device_time_us"];
        assert_ne!(bins("bins 0"), bins("bins 4"));
    }
}

#[test]
fn every_pool_comes_with_the_expression_that_makes_it() {
    let candidates = candidates();
    for candidate in &candidates {
        let expected = match candidate.name.split_once(' ').unwrap() {
            ("bins", "keep-all") => Some(
                "PoolOptions::new().segments(false).retain(Retain::new().at_least(u64::MAX))"
                    .to_owned(),
            ),
            ("bins", bits) => Some(format!(
                "PoolOptions::new().segments(false).leading_bits({bits})"
            )),
            ("segments", bits) => Some(format!(
                "PoolOptions::new().segments(true).leading_bits({bits})"
            )),
            ("growth", "dense") => {
                Some("PoolOptions::new().growth(GrowthPolicy::Dense)".to_owned())
            }
            _ => None,
        };
        assert_eq!(candidate.code, expected.as_deref());
        assert_eq!(candidate.pool.is_some(), expected.is_some());
    }
    let mut names: Vec<_> = candidates.iter().map(|candidate| candidate.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), candidates.len());
}

#[test]
fn the_same_command_prints_the_same() {
    let run = || binpool(&["tune", "eager_arrays.trace.gz", "boxtree_builds.trace.gz"]).output;
    assert_eq!(run(), run());
}

#[test]
fn each_trace_has_a_table_and_there_is_one_over_all_and_the_line_to_paste() {
    let traces = ["eager_arrays.trace.gz", "boxtree_builds.trace.gz"];
    let ran = binpool(&[&["tune"], &traces[..]].concat());
    assert_eq!(ran.status, 0, "{}", ran.errors);
    assert_eq!(ran.errors, "");
    let report = json(&[&["tune"], &traces[..]].concat());
    let tables: Vec<&str> = ran.output.split("\n\n|").skip(1).collect();
    assert_eq!(tables.len(), 3, "{}", ran.output);
    let comparisons = [
        &report["traces"][0],
        &report["traces"][1],
        &report["overall"],
    ];
    for (table, comparison) in tables.iter().zip(comparisons) {
        for candidate in comparison["candidates"].as_array().unwrap() {
            let name = candidate["name"].as_str().unwrap();
            let row = table.lines().find(|line| line.contains(name)).unwrap();
            assert_eq!(row.contains("<-- best"), candidate["best"] == true, "{row}");
            assert_eq!(comparison["best"] == name, candidate["best"] == true);
        }
    }
    for trace in traces {
        assert!(ran.output.contains(&format!("\n{trace}, peak live ")));
    }
    assert!(ran.output.contains("\nall 2 traces\n"));
    let code = report["overall"]["code"].as_str().unwrap();
    assert!(code.starts_with("PoolOptions::new()"));
    // The answer comes last, or the one with less memory after it.
    let less = report["overall"]["code_with_less_memory"].as_str();
    let answers: Vec<&str> = ran.output.split("\n\nor, with less memory: ").collect();
    let codes: Vec<&str> = [Some(code), less].into_iter().flatten().collect();
    assert_eq!(answers.len(), codes.len(), "{}", ran.output);
    for (answer, code) in answers.iter().zip(codes) {
        let ends = answer.trim_end_matches('\n');
        assert!(ends.ends_with(&format!("\n\n    {code}")), "{answer}");
    }
    // One trace alone needs no table over all.
    let ran = binpool(&["tune", "eager_arrays.trace.gz"]);
    assert_eq!(ran.output.split("\n\n|").skip(1).count(), 1);
}

#[test]
fn over_all_traces_is_the_mean_of_the_ratios_and_the_sum_of_the_times() {
    let report = json(&["tune", "eager_arrays.trace.gz", "boxtree_builds.trace.gz"]);
    let overall = report["overall"]["candidates"].as_array().unwrap();
    for (place, candidate) in overall.iter().enumerate() {
        let figure = |trace: usize, key: &str| {
            report["traces"][trace]["candidates"][place][key]
                .as_f64()
                .unwrap()
        };
        let ratio = (figure(0, "reserved_over_live") * figure(1, "reserved_over_live")).sqrt();
        let close = |key: &str, expected: f64| {
            let found = candidate[key].as_f64().unwrap();
            assert!((found - expected).abs() <= expected * 1e-9, "{candidate}");
        };
        close("reserved_over_live", ratio);
        close(
            "judged_device_time_us",
            figure(0, "device_time_us_a_round") + figure(1, "device_time_us_a_round"),
        );
    }
}

/// A trial of this many candidates on a trace with 1000 bytes live. Each reserves more than the one before it and takes less time.
fn trial_of(candidates: u64) -> Trial {
    let results = (0..candidates).map(|index| {
        Ok(Measured {
            outcome: Outcome {
                allocations: 1,
                pairs: 1,
                hits: 0,
                device_allocations: 1,
                device_releases: 1,
                peak_reserved_bytes: 1000 + index,
                peak_live_bytes: 1000,
                host_time: Duration::ZERO,
                warm_host_time: None,
                allocator_time: Duration::ZERO,
                views: 0,
                view_time: Duration::ZERO,
                maps: 0,
                unmaps: 0,
                remap_time: Duration::ZERO,
                move_time: Duration::ZERO,
                statistics: None,
                passed_time: Duration::ZERO,
                at_end: AtEnd::default(),
                rounds: Vec::new(),
                pending: None,
            },
            device_time: Duration::from_millis(candidates - index),
        })
    });
    Trial {
        trace: "a trace".into(),
        peak_live_bytes: 1000,
        results: results.collect(),
    }
}

/// Not just about: a ratio at the limit is within it in both tables.
#[test]
fn over_one_trace_is_exactly_what_that_trace_is() {
    // The next one takes less, by more than makes no difference, and no one takes half of what another takes.
    let costs: Vec<(u64, u64)> = (0..14).map(|it| (1000 + it, 1000 - 15 * it)).collect();
    let mut report = report_on(&costs);
    let costs = report.trials[0].costs();
    assert_eq!(report.overall().costs, costs);
    for (index, cost) in costs.iter().enumerate() {
        report.reserve = cost.unwrap().reserved_over_live;
        assert_eq!(report.overall().best, Some(index));
        let table = report.tables();
        let rows = table.lines().filter(|line| line.starts_with("| "));
        let best: Vec<usize> = rows
            .skip(1)
            .enumerate()
            .filter(|(_, row)| row.contains("<-- best"))
            .map(|(row, _)| row)
            .collect();
        assert_eq!(best, [index]);
        let verdict = report.verdict(&report.overall());
        assert!(!verdict.contains("none stays within"), "{verdict}");
    }
    report.reserve = 1.0 - f64::EPSILON;
    let verdict = report.verdict(&report.overall());
    assert!(verdict.contains("none stays within"), "{verdict}");
}

/// The cells of a row of a table.
fn cells(row: &str) -> Vec<&str> {
    row.trim_matches('|').split('|').map(str::trim).collect()
}

#[test]
fn the_tables_name_the_settings_and_have_each_figure_in_its_column() {
    let report = |capacity_bytes, scale| TuneReport {
        device: "a device".into(),
        settings: ReplaySettings {
            capacity_bytes,
            ..ReplaySettings::default()
        },
        scale,
        reserve: 1.15,
        candidates: candidates().drain(1..3).collect(),
        trials: vec![trial_of(2), trial_of(2)],
    };
    let plain = report(None, 1).tables();
    let settings = "mock on a device, immediate allocator\nbest: the least device time among pools that reserve at most 1.15 times";
    let ties = "of times that differ by 20 us, or 1 % of the time without a pool, the least reserved is the best\n";
    assert!(plain.contains(ties), "{plain}");
    assert!(plain.starts_with(settings), "{plain}");
    let tables = report(Some(3 << 20), 4).tables();
    let settings = "mock on a device, immediate allocator, capacity 3.0 MiB, sizes divided by 4\n";
    assert!(tables.starts_with(settings), "{tables}");
    let rows = tables.lines().filter(|line| line.contains("bins "));
    let rows: Vec<_> = rows.map(cells).collect();
    let of_trace = [
        ["bins 0", "1000 B", "1.000", "2.00 ms", "1", "0.0 %", ""],
        [
            "bins 1", "1001 B", "1.001", "1.00 ms", "1", "0.0 %", "<-- best",
        ],
    ];
    let of_all = [
        ["bins 0", "1.000", "4.00 ms", ""],
        ["bins 1", "1.001", "2.00 ms", "<-- best"],
    ];
    assert_eq!(rows[..2], of_trace);
    assert_eq!(rows[2..4], of_trace);
    assert_eq!(rows[4..], of_all);
}

/// The verdict on a trace.
fn verdict(text: &str, more: &[&str]) -> String {
    let (_folder, path) = file("short.trace", text);
    let ran = binpool(&[&["tune"], more, &[path.to_str().unwrap()]].concat());
    assert_eq!(ran.status, 0, "{}", ran.errors);
    let (_, verdict) = ran.output.rsplit_once("\nbest: ").unwrap();
    verdict.to_owned()
}

#[test]
fn where_no_setting_makes_a_difference_the_default_is_best_and_the_verdict_says_so() {
    // What is large gets a segment of its own.
    let text = "a 0 67108864 0\na 1 67108864 0\na 2 67108864 0\nf 0\nf 1\nf 2\n";
    for more in [&[][..], &["--profile", "none"]] {
        assert_eq!(
            verdict(text, more),
            "segments 8, the default, since no setting makes a difference\n\
             (from 3 allocations: a longer recording may give another result)\n\n    \
             PoolOptions::new().segments(true).leading_bits(8)\n",
            "{more:?}"
        );
    }
}

#[test]
fn of_equals_the_setting_that_is_nearest_to_the_default_is_best() {
    let candidates = candidates();
    let name = |index: Option<usize>| candidates[index.unwrap()].name;
    let cost = |ms| {
        Some(Cost {
            reserved_over_live: 1.0,
            device_time: Duration::from_micros(ms),
        })
    };
    let best_of = |time_of: &dyn Fn(&str) -> u64| {
        let costs = candidates.iter().map(|it| cost(time_of(it.name))).collect();
        name(Comparison::new(costs, &candidates, 1.15).best)
    };
    assert_eq!(best_of(&|_| 1000), "segments 8");
    // One in a thousand is no difference, and five in a hundred are.
    assert_eq!(
        best_of(&|name| if name == "bins 0" { 999 } else { 1000 }),
        "segments 8"
    );
    assert_eq!(
        best_of(&|name| if name == "bins 0" { 950 } else { 1000 }),
        "bins 0"
    );
    let is_bins = |name: &str| name.starts_with("bins");
    assert_eq!(
        best_of(&|name| if is_bins(name) { 1 } else { 1000 }),
        "bins 8"
    );
    // Nor are 20 us a round, which is less than a call, or one in a hundred of what it takes without a pool.
    assert_eq!(
        best_of(&|name| if name == "segments 8" { 20 } else { 0 }),
        "segments 8"
    );
    assert_eq!(
        best_of(&|name| if name == "segments 8" { 21 } else { 0 }),
        "segments 7"
    );
    let without_a_pool = |time| {
        move |name: &str| match name {
            "no pool" => 10_000,
            "segments 8" => time,
            _ => 0,
        }
    };
    assert_eq!(best_of(&without_a_pool(100)), "segments 8");
    assert_eq!(best_of(&without_a_pool(101)), "segments 7");
}

#[test]
fn of_those_that_take_the_same_time_the_one_that_reserves_the_least_is_best() {
    let candidates = candidates();
    let best_of = |reserved_of: &dyn Fn(&str) -> f64| {
        let costs = candidates.iter().map(|it| {
            Some(Cost {
                reserved_over_live: reserved_of(it.name),
                device_time: Duration::from_millis(if it.pool.is_some() { 1 } else { 1000 }),
            })
        });
        let comparison = Comparison::new(costs.collect(), &candidates, 1.25);
        candidates[comparison.best.unwrap()].name
    };
    let with =
        |name: &'static str, reserved: f64| move |it: &str| if it == name { reserved } else { 1.2 };
    assert_eq!(best_of(&with("bins 0", 1.1)), "bins 0");
    // To within 1 %, that makes no difference either.
    assert_eq!(best_of(&with("bins 0", 1.19)), "segments 8");
}

/// A report on candidates that reserve this many thousandths of what is live, and take this many milliseconds.
fn report_on(costs: &[(u64, u64)]) -> TuneReport {
    let mut trial = trial_of(costs.len() as u64);
    for (result, (reserved, time)) in trial.results.iter_mut().zip(costs) {
        let measured = result.as_mut().unwrap();
        measured.outcome.peak_reserved_bytes = *reserved;
        measured.device_time = Duration::from_millis(*time);
    }
    TuneReport {
        device: "a device".into(),
        settings: ReplaySettings::default(),
        scale: 1,
        reserve: 1.15,
        candidates: candidates().drain(1..=costs.len()).collect(),
        trials: vec![trial],
    }
}

#[test]
fn half_the_time_is_worth_a_quarter_more_memory_and_both_answers_have_their_line_to_paste() {
    let verdict = |costs: &[(u64, u64)]| {
        let report = report_on(costs);
        report.verdict(&report.overall())
    };
    // One of them reserves more than that.
    let text = verdict(&[(1050, 30), (1100, 20), (1204, 8), (1300, 2), (1500, 0)]);
    let both = "best: bins 3\n(from 1 allocation: a longer recording may give another result)\n\n    \
                PoolOptions::new().segments(false).leading_bits(3)\n\n\
                or, with less memory: bins 1, which takes 20.00 ms instead of 2.00 ms, for 1.100 times the live bytes instead of 1.300\n\n    \
                PoolOptions::new().segments(false).leading_bits(1)";
    assert_eq!(text, both);
    // Half of the time and no less, more than a quarter more memory, or no time that makes a difference.
    for one in [
        &[(1100, 20), (1200, 10)][..],
        &[(1100, 20), (1500, 1)],
        &[(1100, 0), (1200, 0)],
    ] {
        let text = verdict(one);
        assert!(
            text.starts_with("best: bins 0") && !text.contains("or, with"),
            "{text}"
        );
    }
    // Where all reserve more than they may, the least is what a quarter more is compared with.
    let text = verdict(&[(1300, 20), (1400, 5)]);
    assert!(
        text.starts_with("best: bins 1\n") && text.contains("or, with less memory: bins 0,"),
        "{text}"
    );
    let text = verdict(&[(1300, 20), (1400, 15)]);
    assert!(
        text.starts_with("best: bins 0, which reserves the least: none stays within 1.15"),
        "{text}"
    );
}

/// The trace of README's first command.
#[test]
fn what_is_best_is_what_is_printed_first_whatever_the_limit() {
    let trace = "eager_arrays.trace.gz";
    let ran = binpool(&["tune", trace]);
    let (_, verdict) = ran.output.rsplit_once("\nbest: ").unwrap();
    assert!(
        verdict.starts_with("segments 8, the default: nothing to change\n"),
        "{verdict}"
    );
    assert!(!verdict.contains("better"), "{verdict}");
    assert_eq!(verdict.matches("    PoolOptions::new()").count(), 2);
    let report = json(&["tune", trace]);
    let overall = &report["overall"];
    for code in ["code", "code_with_less_memory"] {
        let code = overall[code].as_str().unwrap();
        assert!(verdict.contains(&format!("\n    {code}\n")), "{verdict}");
    }
    for reserve in ["1.26", "1.3", "1.4", "1.5"] {
        let report = json(&["tune", "--reserve", reserve, trace]);
        let more = &report["overall"];
        assert_eq!(more["best"], overall["best"], "{reserve}");
        assert_eq!(more["best_with_less_memory"], Value::Null);
    }
}

#[test]
fn candidates_are_judged_by_the_rounds_from_the_third_on() {
    let round = |calls: u64, milliseconds| Round {
        allocations: 500,
        device_allocations: calls,
        device_releases: calls - 1,
        device_time: Duration::from_millis(milliseconds),
        ..Round::default()
    };
    // The second one takes less in the first two rounds, and more in those that count.
    let mut report = report_on(&[(1000, 100), (1000, 90)]);
    report.settings.rounds = 4;
    let rounds = [
        [round(50, 80), round(40, 10), round(2, 4), round(3, 6)],
        [round(30, 10), round(20, 10), round(21, 30), round(21, 40)],
    ];
    for (result, rounds) in report.trials[0].results.iter_mut().zip(rounds) {
        result.as_mut().unwrap().outcome.rounds = rounds.to_vec();
    }
    let comparison = report.overall();
    let times = comparison
        .costs
        .iter()
        .map(|cost| cost.unwrap().device_time);
    assert!(times.eq([5, 35].map(Duration::from_millis)));
    assert_eq!(comparison.best, Some(0));
    let tables = report.tables();
    assert!(tables.starts_with("mock on a device, immediate allocator, 4 rounds\nbest: the least device time from round 3 on among"));
    let lines: Vec<_> = tables
        .lines()
        .filter(|line| line.starts_with('|'))
        .collect();
    let titles = [
        "setting",
        "peak reserved",
        "reserved / live",
        "device time a round, predicted",
        "calls a round",
        "calls in round 1",
        "",
    ];
    assert_eq!(cells(lines[0]), titles);
    let row = [
        "bins 0", "1000 B", "1.000", "5.00 ms", "4.0", "99", "<-- best",
    ];
    assert_eq!(cells(lines[2]), row);
    // The allocations of a verdict are those of the program, however often it was replayed.
    assert!(!report.verdict(&comparison).contains("longer recording"));
}

#[test]
fn fewer_than_three_rounds_are_judged_as_a_whole() {
    let trace = "eager_arrays.trace.gz";
    let report = json(&["tune", "--rounds", "2", trace]);
    assert_eq!(report["rounds"], 2);
    let candidate = named(of_first_trace(&report), "bins 4");
    assert_eq!(candidate.get("device_calls_a_round"), None);
    let judged = &report["overall"]["candidates"][5]["judged_device_time_us"];
    assert_eq!(*judged, candidate["device_time_us"]);
    let replayed = json(&["replay", "--rounds", "2", "--no-segments", trace]);
    assert_eq!(candidate["device_time_us"], replayed[0]["device_time_us"]);
}

#[test]
fn a_verdict_on_few_allocations_says_how_few_they_are() {
    let few = "a longer recording may give another result";
    assert!(verdict("a 0 5000 0\nf 0\n", &[]).contains("(from 1 allocation: a longer"));
    assert!(verdict(&"a 0 5000 0\nf 0\n".repeat(99), &[]).contains(few));
    assert!(!verdict(&"a 0 5000 0\nf 0\n".repeat(100), &[]).contains(few));
}

#[test]
fn running_out_of_memory_is_a_row() {
    let (_folder, path) = file("varying.trace", VARYING);
    let path = path.to_str().unwrap();
    // A quarter more than what is live.
    let arguments = ["tune", "--capacity", "2000000", path];
    let report = json(&arguments);
    let candidates = of_first_trace(&report);
    let failed = names(candidates, |candidate| {
        !candidate["out_of_memory"].is_null()
    });
    assert!(
        failed.contains(&"bins 0") && failed.len() < candidates.len() - 1,
        "{failed:?}"
    );
    let coarse = named(candidates, "bins 0");
    let event = coarse["out_of_memory"].as_str().unwrap();
    assert!(
        event.contains("varying.trace, line 2: allocating 585.9 KiB"),
        "{event}"
    );
    assert!(coarse.get("peak_reserved_bytes").is_none());
    let ran = binpool(&arguments);
    assert_eq!(ran.status, 0, "{}", ran.errors);
    for candidate in candidates {
        let name = candidate["name"].as_str().unwrap();
        let row = ran.output.lines().find(|line| line.contains(name)).unwrap();
        assert_eq!(
            row.contains("out of memory"),
            failed.contains(&name),
            "{row}"
        );
    }
}

#[test]
fn who_fails_on_one_trace_is_not_the_best_over_all() {
    let (_folder, varying) = file("varying.trace", VARYING);
    let (_other, small) = file("small.trace", "a 0 70000 0\nf 0\na 1 110000 0\nf 1\n");
    let (varying, small) = (varying.to_str().unwrap(), small.to_str().unwrap());
    let arguments = [
        "tune",
        "--capacity",
        "2000000",
        "--reserve",
        "9",
        small,
        varying,
    ];
    let report = json(&arguments);
    let overall = report["overall"]["candidates"].as_array().unwrap();
    let coarse = named(overall, "bins 0");
    assert_eq!(coarse["out_of_memory_on"], 1);
    assert_eq!(coarse["judged_device_time_us"], Value::Null);
    assert_eq!(report["traces"][0]["best"], "bins 0");
    let best = report["overall"]["best"].as_str().unwrap();
    assert_eq!(named(overall, best)["out_of_memory_on"], 0);
    let output = binpool(&arguments).output;
    assert!(output.contains("out of memory on 1 of 2"), "{output}");
}

#[test]
fn a_capacity_for_no_pool_at_all_gives_no_best() {
    let (_folder, path) = file("varying.trace", VARYING);
    let ran = binpool(&["tune", "--capacity", "1000000", path.to_str().unwrap()]);
    assert_eq!(ran.status, 1);
    assert!(ran.errors.contains("live at once"), "{}", ran.errors);
    assert!(ran.output.contains("best: none"), "{}", ran.output);
    assert!(!ran.output.contains("<-- best"));
    let rows = ran
        .output
        .lines()
        .filter(|line| line.contains("out of memory |"));
    assert_eq!(rows.count(), candidates().len());
}

#[test]
fn the_reserve_decides() {
    let of = |reserve: &str| {
        let report = json(&["tune", "--reserve", reserve, "eager_arrays.trace.gz"]);
        assert_eq!(report["reserve_ratio"].to_string(), format!("{reserve}.0"));
        let best = report["overall"]["best"].as_str().unwrap().to_owned();
        let candidate = named(of_first_trace(&report), &best);
        let figure = |key: &str| candidate[key].as_f64().unwrap();
        (
            figure("reserved_over_live"),
            figure("device_time_us_a_round"),
        )
    };
    let (least, slow) = of("1");
    let (more, fast) = of("100");
    assert!(least < more && fast < slow, "{least} {slow} {more} {fast}");
    let verdict =
        |reserve| binpool(&["tune", "--reserve", reserve, "eager_arrays.trace.gz"]).output;
    let (none, some) = (verdict("1"), verdict("100"));
    assert!(none.contains("none stays within 1 times"), "{none}");
    assert!(!some.contains("none stays within"), "{some}");
}

#[test]
fn a_wrong_command_line_is_explained() {
    let trace = "eager_arrays.trace.gz";
    for (wrong, explained) in [
        (&["tune"][..], "<TRACE>"),
        (&["tune", "--reserve", "0.9", trace], "at least 1"),
        (&["tune", "--reserve", "NaN", trace], "at least 1"),
        (&["tune", "--reserve", "lots", trace], "invalid float"),
        (&["tune", "--scale", "0", trace], "at least 1"),
        (&["tune", "--capacity", "lots", trace], "--capacity"),
        (&["tune", "--profile", "abacus", trace], "h200"),
        (&["tune", "--allocator", "deferred", trace], "svm-fine"),
    ] {
        let ran = binpool(wrong);
        assert_eq!(ran.status, 2, "{wrong:?}");
        assert!(ran.errors.contains(explained), "{}", ran.errors);
    }
    // The mock's H200 has no fine-grained shared virtual memory: no matter of memory running out.
    let ran = binpool(&["tune", "--allocator", "svm-fine", trace]);
    assert_eq!((ran.status, &*ran.output), (1, ""));
    assert!(ran.errors.contains("because: "), "{}", ran.errors);
}

#[test]
fn a_corrupt_trace_is_named_and_the_others_are_tried() {
    let (_folder, corrupt) = file("corrupt.trace", "a 0 many 0\n");
    let corrupt = corrupt.to_str().unwrap();
    let ran = binpool(&["tune", corrupt, "eager_arrays.trace.gz"]);
    assert_eq!(ran.status, 1);
    assert!(
        ran.errors.contains("corrupt.trace, line 1"),
        "{}",
        ran.errors
    );
    assert!(ran.output.contains("<-- best"), "{}", ran.output);
}

#[test]
fn help_says_what_is_best() {
    let help = binpool(&["tune", "--help"]).output;
    for rule in [
        "least device time",
        "a quarter more",
        "less than half the time",
        "1 % of the time without a pool",
    ] {
        assert!(help.contains(rule), "{help}");
    }
    assert!(help.contains("[default: 1.25]"), "{help}");
}

/// Few different values, so that equals are among them.
fn any_costs() -> impl Strategy<Value = Vec<Option<Cost>>> {
    let cost = (0_u8..8, 0_u64..8).prop_map(|(reserved, ms)| Cost {
        reserved_over_live: 1.0 + f64::from(reserved) / 8.0,
        device_time: Duration::from_millis(ms),
    });
    proptest::collection::vec(proptest::option::weighted(0.9, cost), 0..12)
}

proptest! {
    #[test]
    fn the_best_is_the_fastest_of_those_that_keep_the_limit_or_takes_less_than_half(
        costs in any_costs(),
        reserve in 0_u8..8,
        nothing in 0_u64..3,
    ) {
        // Below 1, and then each of the ratios themselves: one at the limit is within it.
        let reserve = 0.875 + f64::from(reserve) / 8.0;
        let nothing = Duration::from_millis(nothing);
        let present = || costs.iter().flatten();
        let Some(Best { index, with_less_memory }) = best(&costs, reserve, nothing, |index| index) else {
            prop_assert_eq!(present().count(), 0);
            return Ok(());
        };
        let of = |index: usize| costs[index].unwrap();
        let least = present().map(|cost| cost.reserved_over_live).min_by(f64::total_cmp).unwrap();
        let limit = reserve.max(least);
        // The first of the least of the fastest that reserve no more than this.
        let check = |index: usize, limit: f64| {
            let chosen = of(index);
            let within = || present().filter(|cost| cost.reserved_over_live <= limit);
            let fastest = within().map(|cost| cost.device_time).min().unwrap();
            let as_fast = || within().filter(|cost| cost.device_time <= fastest + nothing);
            prop_assert!(chosen.reserved_over_live <= limit);
            prop_assert!(chosen.device_time <= fastest + nothing);
            prop_assert!(as_fast().all(|cost| chosen.reserved_over_live <= cost.reserved_over_live));
            Ok(())
        };
        let within = with_less_memory.unwrap_or(index);
        check(within, limit)?;
        if let Some(within) = with_less_memory {
            check(index, reserve * 1.25)?;
            prop_assert!(of(index).device_time * 2 < of(within).device_time);
        } else if nothing == Duration::ZERO {
            let allowed = present().filter(|cost| cost.reserved_over_live <= reserve * 1.25);
            let fastest = allowed.map(|cost| cost.device_time).min();
            prop_assert!(fastest.is_none_or(|time| time * 2 >= of(index).device_time));
        }
    }

    #[test]
    fn no_pool_is_never_the_best(costs in any_costs(), reserve in 1.0_f64..2.0) {
        let comparison = Comparison::new(costs, &candidates(), reserve);
        prop_assert_ne!(comparison.best, Some(0));
        let pools = comparison.costs.iter().skip(1);
        prop_assert_eq!(comparison.best.is_some(), pools.flatten().next().is_some());
    }
}
