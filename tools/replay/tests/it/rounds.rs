//! Traces that are replayed several times in a row.

use std::{
    collections::{HashMap, hash_map::Entry},
    fmt::Write as _,
    path::Path,
};

use binpool::PoolOptions;
use binpool_recordings::{Event, Trace};
use binpool_replay::{
    AllocatorChoice, Device, Measured, Outcome, Profile, ReplaySettings, Round, Touch,
    report::{Header, Row, json, rounds_tables},
};
use serde_json::{Value, json};

use crate::common::binpool;

const MOCK: Device = Device::Mock(Profile::H200);

fn settings(rounds: usize) -> ReplaySettings {
    ReplaySettings {
        allocator: AllocatorChoice::Immediate,
        pool: Some(PoolOptions::new()),
        capacity_bytes: None,
        touch: Touch::Nothing,
        threads: 1,
        rounds,
        behind: None,
    }
}

fn recorded(name: &str) -> Trace {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces");
    Trace::open(&folder.join(format!("{name}.trace.gz"))).unwrap()
}

fn replayed(trace: &Trace, settings: &ReplaySettings) -> Measured {
    MOCK.replay(trace, settings, &|_| {}).unwrap()
}

/// The trace as text, this many times in a row. What it never frees is there once.
fn written_out(trace: &Trace, rounds: usize) -> Trace {
    let (mut text, mut next_id) = (String::new(), 0);
    let mut ids = HashMap::new();
    for _ in 0..rounds {
        for event in trace.events() {
            match *event {
                Event::Allocate {
                    block,
                    bytes,
                    stream,
                } => {
                    if let Entry::Vacant(id) = ids.entry(block) {
                        writeln!(text, "a {next_id} {bytes} {stream}").unwrap();
                        id.insert(next_id);
                        next_id += 1;
                    }
                }
                Event::Free { block } => {
                    writeln!(text, "f {}", ids.remove(&block).unwrap()).unwrap();
                }
            }
        }
    }
    Trace::parse("written out", text.as_bytes()).unwrap()
}

#[test]
fn the_same_work_256_times_takes_a_tenth_more_than_at_first_and_ends_on_a_level() {
    for name in ["linalg", "seq2seq", "graph_sage_two_streams"] {
        let trace = recorded(&format!("judges/{name}"));
        for allocator in [AllocatorChoice::Immediate, AllocatorChoice::VirtualMemory] {
            let settings = ReplaySettings {
                allocator,
                pool: Some(PoolOptions::new()),
                ..settings(256)
            };
            let rounds = replayed(&trace, &settings).outcome.rounds;
            let reserved = rounds.iter().map(|round| round.peak_reserved_bytes);
            let reserved: Vec<_> = reserved.collect();
            let most = |rounds: &[u64]| rounds.iter().copied().max().unwrap();
            let (first, last) = (most(&reserved[..3]), most(&reserved[192..]));
            assert!(
                most(&reserved) <= first / 10 * 11,
                "{name}, {allocator}: {reserved:?}"
            );
            // Pages of a program on several queues come one by one: a hundredth more at most.
            assert!(
                last <= most(&reserved[..192]) / 100 * 101,
                "{name}, {allocator}: {reserved:?}"
            );
        }
    }
}

#[test]
fn what_a_plan_is_said_to_take_is_what_is_reserved() {
    let memory = [AllocatorChoice::Immediate, AllocatorChoice::VirtualMemory];
    for (name, allocator) in ["resnet50_train", "unseen/unet_varres_infer"]
        .into_iter()
        .zip(memory)
    {
        let settings = ReplaySettings {
            allocator,
            ..settings(8)
        };
        let outcome = replayed(&recorded(name), &settings).outcome;
        let statistics = outcome.statistics.unwrap();
        let told = statistics.planned_over_peak().unwrap();
        let last = outcome.rounds.last().unwrap();
        // In parts of a thousand.
        let seen = last.peak_reserved_bytes * 1000 / last.peak_live_bytes;
        let seen = f64::from(u32::try_from(seen).unwrap()) / 1000.0;
        assert!(
            told >= 1.0 && (told - seen).abs() < 0.01,
            "{name}: {told:.3} told, {seen:.3} seen"
        );
        assert!((100..=last.allocations).contains(&statistics.planned_blocks));
        let calls = last.device_allocations + last.maps + last.unmaps;
        assert_eq!(calls, 0, "{name}");
    }
}

#[test]
fn rounds_ask_the_device_for_what_the_trace_asks_that_has_them_written_out() {
    for name in ["eager_arrays", "resnet50_train"] {
        let trace = recorded(name);
        let whole = written_out(&trace, 3);
        // Pages that move would do so at other events there, where time passes and the thread tells the pool what it has freed.
        let options = PoolOptions::new().move_budget(0);
        for (allocator, pool) in [
            (AllocatorChoice::Immediate, Some(options.clone())),
            (AllocatorChoice::VirtualMemory, Some(options)),
            (AllocatorChoice::Immediate, None),
        ] {
            let with = |rounds| ReplaySettings {
                allocator,
                pool: pool.clone(),
                ..settings(rounds)
            };
            let figures = |outcome: &Outcome| {
                (
                    [outcome.allocations, outcome.pairs, outcome.hits],
                    [outcome.device_allocations, outcome.device_releases],
                    [outcome.maps, outcome.unmaps],
                    [outcome.peak_reserved_bytes, outcome.peak_live_bytes],
                    outcome.at_end,
                )
            };
            let Measured {
                outcome,
                device_time,
            } = replayed(&trace, &with(3));
            let expected = replayed(&whole, &with(1));
            assert_eq!(figures(&outcome), figures(&expected.outcome), "{name}");
            // A look at the figures between rounds moves the moment at which the thread tells the pool what it has freed, and so, at times, which page a
            // block gets.
            let apart = device_time.abs_diff(expected.device_time);
            assert!(apart < expected.device_time / 1000, "{name}: {apart:?}");

            let rounds = &outcome.rounds;
            assert_eq!(rounds.len(), 3);
            let sum = |figure: fn(&Round) -> u64| rounds.iter().map(figure).sum::<u64>();
            assert_eq!(sum(|round| round.allocations), outcome.allocations);
            assert_eq!(sum(|round| round.hits), outcome.hits);
            assert_eq!(
                sum(|round| round.device_allocations),
                outcome.device_allocations
            );
            assert_eq!(sum(|round| round.device_releases), outcome.device_releases);
            assert_eq!(sum(|round| round.maps), outcome.maps);
            assert_eq!(sum(|round| round.unmaps), outcome.unmaps);
            let of_rounds = rounds.iter().map(|round| round.device_time).sum();
            assert!(device_time >= of_rounds, "{device_time:?} {of_rounds:?}");
            let reserved = rounds.iter().map(|round| round.peak_reserved_bytes);
            assert_eq!(reserved.max(), Some(outcome.peak_reserved_bytes));
            let live = rounds.iter().map(|round| round.peak_live_bytes);
            assert_eq!(live.max(), Some(whole.peak_live_bytes()));
            assert_eq!(rounds[0].peak_live_bytes, trace.peak_live_bytes());
        }
    }
}

#[test]
fn what_a_trace_never_frees_is_allocated_once_and_lives_on() {
    // 300 bytes are live at most; from the second round on, 500.
    let text = "a 0 300 0\nf 0\na 1 200 0\na 2 100 0\nf 2\n";
    let trace = Trace::parse("t", text.as_bytes()).unwrap();
    let unpooled = ReplaySettings {
        pool: None,
        ..settings(3)
    };
    let outcome = replayed(&trace, &unpooled).outcome;
    assert_eq!((outcome.allocations, outcome.pairs), (7, 6));
    let of_rounds =
        |figure: fn(&Round) -> u64| -> Vec<u64> { outcome.rounds.iter().map(figure).collect() };
    assert_eq!(of_rounds(|round| round.allocations), [3, 2, 2]);
    assert_eq!(of_rounds(|round| round.device_allocations), [3, 2, 2]);
    assert_eq!(of_rounds(|round| round.device_releases), [2, 2, 2]);
    assert_eq!(of_rounds(|round| round.peak_live_bytes), [300, 500, 500]);
    assert_eq!(
        of_rounds(|round| round.peak_reserved_bytes),
        [300, 500, 500]
    );
    assert_eq!(outcome.at_end.live_bytes, 200);
}

#[test]
fn kernels_find_every_block_of_every_round_whole() {
    let trace = recorded("boxtree_builds").scaled_down(1 << 10);
    for (threads, segments) in [(1, true), (3, true), (3, false)] {
        let settings = ReplaySettings {
            pool: Some(PoolOptions::new().segments(segments)),
            touch: Touch::Kernels,
            threads,
            ..settings(3)
        };
        let outcome = replayed(&trace, &settings).outcome;
        let copies = threads as u64;
        for (index, round) in outcome.rounds.iter().enumerate() {
            let blocks = if index == 0 {
                trace.allocations()
            } else {
                trace.frees()
            };
            assert_eq!(round.allocations, copies * blocks as u64);
            assert!(round.peak_live_bytes >= trace.peak_live_bytes());
            assert!(round.peak_live_bytes <= copies * trace.peak_live_bytes());
            assert!(round.peak_reserved_bytes >= round.peak_live_bytes);
        }
    }
}

/// What is allocated in the first round takes the room of the second.
#[test]
fn a_failure_names_the_round() {
    let text = "a 0 3000 0\nf 0\na 1 2000 0\n";
    let trace = Trace::parse("t", text.as_bytes()).unwrap();
    for threads in [1, 2] {
        let settings = ReplaySettings {
            pool: None,
            capacity_bytes: Some(3000 * threads as u64),
            threads,
            ..settings(2)
        };
        let failure = MOCK.replay(&trace, &settings, &|_| {}).unwrap_err();
        assert!(failure.out_of_memory);
        let event = failure.to_string();
        assert!(event.starts_with("t, line 1"), "{event}");
        assert!(event.ends_with(", in round 2"), "{event}");
    }
}

/// A row with rounds of figures that are all different.
fn row() -> Row {
    let trace = Trace::parse("t", &b"a 0 1 0\nf 0\n"[..]).unwrap();
    let mut outcome = replayed(&trace, &settings(1)).outcome;
    let round = |number: u64| Round {
        allocations: 1000,
        hits: 900 + number,
        device_allocations: 70 - number,
        device_releases: 50 - number,
        maps: 170 - 2 * number,
        unmaps: 30 - number,
        device_time: std::time::Duration::from_micros(5000 - number),
        peak_live_bytes: 996 + number,
        peak_reserved_bytes: 1500,
        pending: None,
    };
    outcome.rounds = (1..=4).map(round).collect();
    // Ten pairs a round.
    outcome.pairs = 40;
    outcome.warm_host_time = Some(std::time::Duration::from_nanos(1230));
    Row {
        trace: "a trace".into(),
        peak_live_bytes: 1000,
        outcome,
        device_time: std::time::Duration::from_micros(45_500),
        need_bytes: None,
    }
}

fn header(allocator: AllocatorChoice) -> Header {
    Header {
        backend: "mock",
        device: "a device".into(),
        scale: 1,
        settings: ReplaySettings {
            allocator,
            pool: Some(PoolOptions::new()),
            rounds: 4,
            ..ReplaySettings::default()
        },
    }
}

#[test]
fn each_figure_of_a_round_stands_under_its_name() {
    let report = |allocator| -> Value {
        let text = json(&header(allocator), &[row()]);
        serde_json::from_str::<Value>(&text).unwrap()[0].take()
    };
    let pages = report(AllocatorChoice::VirtualMemory);
    let expected = json!({
        "round": 2, "allocations": 1000, "hits": 902, "device_allocations": 68, "device_releases": 48, "maps": 166, "unmaps": 28,
        "moves": 98, "device_time_us": 4998.0, "peak_live_bytes": 998, "peak_reserved_bytes": 1500,
    });
    assert_eq!(pages["rounds"][1], expected);
    assert_eq!(pages["rounds"].as_array().unwrap().len(), 4);
    let expected = json!({
        "first_round": 3, "rounds": 2, "hits_a_round": 903.5, "ns_per_pair": 123.0, "device_calls_a_round": 302.5, "device_allocations_a_round": 66.5,
        "device_releases_a_round": 46.5, "maps_a_round": 163.0, "unmaps_a_round": 26.5, "moves_a_round": 96.5,
        "device_time_us_a_round": 4996.5, "peak_live_bytes": 1000, "peak_reserved_bytes": 1500, "reserved_over_live": 1.5,
    });
    assert_eq!(pages["warm"], expected);
    let segments = report(AllocatorChoice::Immediate);
    for of_pages in ["maps", "unmaps", "moves"] {
        assert_eq!(segments["rounds"][1].get(of_pages), None);
        let a_round = format!("{of_pages}_a_round");
        assert_eq!(segments["warm"].get(a_round), None);
    }
}

#[test]
fn the_table_of_rounds_has_a_line_for_each_and_one_for_the_warm_ones() {
    let cells = |line: &str| -> Vec<String> {
        let cells = line.trim_matches('|').split('|');
        cells.map(|cell| cell.trim().to_owned()).collect()
    };
    let text = rounds_tables(&header(AllocatorChoice::VirtualMemory), &[row()]);
    assert!(text.starts_with("a trace, round by round\n"), "{text}");
    let lines: Vec<_> = text.lines().filter(|line| line.starts_with('|')).collect();
    let columns = [
        ("round", "2", "mean from 3 on"),
        ("hit rate", "90.2 %", "90.3 %"),
        ("device allocations", "68", "66.5"),
        ("releases", "48", "46.5"),
        ("maps", "166", "163.0"),
        ("of these moves", "98", "96.5"),
        ("unmaps", "28", "26.5"),
        ("device time", "5.00 ms", "5.00 ms"),
        ("peak live", "998 B", "1000 B"),
        ("peak reserved", "1.5 KiB", "1.5 KiB"),
        ("reserved / live", "1.503", "1.500"),
    ];
    assert_eq!(cells(lines[0]), columns.map(|(title, ..)| title));
    assert_eq!(cells(lines[3]), columns.map(|(_, second, _)| second));
    assert_eq!(cells(lines[6]), columns.map(|(.., warm)| warm));
    assert_eq!(lines.len(), 7);

    let mut two = row();
    two.outcome.rounds.truncate(2);
    let text = rounds_tables(&header(AllocatorChoice::Immediate), &[two]);
    assert!(!text.contains("mean") && !text.contains("maps"), "{text}");
}

#[test]
fn the_command_replays_rounds_on_an_opencl_device() {
    let ran = binpool(&[
        "replay",
        "--json",
        "--backend",
        "opencl",
        "--scale",
        "1024",
        "--touch",
        "kernels",
        "--rounds",
        "3",
        "eager_arrays.trace.gz",
    ]);
    assert_eq!(ran.status, 0, "{}", ran.errors);
    let report: Value = serde_json::from_str(&ran.output).unwrap();
    let rounds = report[0]["rounds"].as_array().unwrap();
    assert_eq!(rounds.len(), 3);
    for round in rounds {
        assert_eq!(round["allocations"], 4472);
    }
    assert!(rounds[0]["device_time_us"].as_f64().unwrap() > 0.0);
    assert_eq!(report[0]["warm"]["rounds"], 1);
}

#[test]
fn one_round_has_no_report_of_rounds() {
    let ran = binpool(&["replay", "--rounds", "1", "eager_arrays.trace.gz"]);
    assert_eq!(ran.status, 0, "{}", ran.errors);
    assert!(!ran.output.contains("round"), "{}", ran.output);
    let ran = binpool(&["replay", "--rounds", "3", "eager_arrays.trace.gz"]);
    assert!(ran.output.contains(", 3 rounds\n"), "{}", ran.output);
    assert!(
        ran.output.contains("\n| mean from 3 on |"),
        "{}",
        ran.output
    );
}
