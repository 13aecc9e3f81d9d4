//! Replays of real programs on the mock device.

use std::{fmt::Write as _, fs, path::Path, time::Duration};

use binpool::PoolOptions;
use binpool_mock::DeviceProfile;
use binpool_recordings::Trace;
use binpool_replay::{
    AllocatorChoice, AtEnd, Device, Measured, Outcome, Profile, ReplaySettings, Touch,
    report::{Header, Row, json, table},
};
use serde_json::{Value, json};

use crate::common::binpool;

const MOCK: Device = Device::Mock(Profile::H200);

fn recorded(name: &str) -> Trace {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces");
    Trace::open(&folder.join(format!("{name}.trace.gz"))).unwrap()
}

fn pooled() -> ReplaySettings {
    ReplaySettings {
        allocator: AllocatorChoice::Immediate,
        pool: Some(PoolOptions::new()),
        capacity_bytes: None,
        touch: Touch::Nothing,
        threads: 1,
        rounds: 1,
        behind: None,
    }
}

/// Without segments, from which another stream would be served as well.
fn binned() -> ReplaySettings {
    ReplaySettings {
        pool: Some(PoolOptions::new().segments(false)),
        ..pooled()
    }
}

fn unpooled() -> ReplaySettings {
    ReplaySettings {
        pool: None,
        ..pooled()
    }
}

/// An outcome of figures that are all different.
fn outcome() -> Outcome {
    Outcome {
        allocations: 50,
        pairs: 40,
        hits: 30,
        device_allocations: 20,
        device_releases: 10,
        peak_reserved_bytes: 1500,
        peak_live_bytes: 1100,
        host_time: Duration::from_micros(8),
        warm_host_time: None,
        allocator_time: Duration::from_micros(7),
        views: 5,
        view_time: Duration::from_nanos(6500),
        maps: 0,
        unmaps: 0,
        remap_time: Duration::ZERO,
        move_time: Duration::ZERO,
        statistics: None,
        passed_time: Duration::ZERO,
        at_end: AtEnd::default(),
        rounds: Vec::new(),
        pending: None,
    }
}

/// Settings that are none of the defaults.
fn header() -> Header {
    Header {
        backend: "mock",
        device: "a device".into(),
        scale: 3,
        settings: ReplaySettings {
            allocator: AllocatorChoice::Deferred,
            pool: Some(PoolOptions::new()),
            capacity_bytes: Some(9000),
            touch: Touch::Fill,
            threads: 2,
            ..ReplaySettings::default()
        },
    }
}

fn row() -> Row {
    Row {
        trace: "a trace".into(),
        peak_live_bytes: 1000,
        outcome: outcome(),
        device_time: Duration::from_micros(45_500),
        need_bytes: Some(1250),
    }
}

#[test]
fn the_table_names_the_settings_and_has_each_figure_in_its_column() {
    let cells = |line: &str| -> Vec<String> {
        let cells = line.trim_matches('|').split('|');
        cells.map(|cell| cell.trim().to_owned()).collect()
    };
    let text = table(&header(), &[row()]);
    let settings = "mock on a device, deferred allocator, with the pool, capacity 8.8 KiB, sizes divided by 3, each block touched, 2 threads";
    assert_eq!(text.lines().next(), Some(settings));
    let columns = [
        ("trace", "a trace"),
        ("allocations", "50"),
        ("hit rate", "60.0 %"),
        ("device allocations", "20"),
        ("peak live", "1000 B"),
        ("peak reserved", "1.5 KiB"),
        ("reserved / live", "1.50"),
        ("ns a pair", "200"),
        ("device time, predicted", "45.50 ms"),
        ("need", "1.2 KiB"),
        ("need / live", "1.25"),
    ];
    let lines: Vec<_> = text.lines().filter(|line| line.starts_with('|')).collect();
    assert_eq!(cells(lines[0]), columns.map(|(title, _)| title));
    assert_eq!(cells(lines[2]), columns.map(|(_, figure)| figure));

    let plain = Header {
        backend: "opencl",
        scale: 1,
        settings: ReplaySettings {
            allocator: AllocatorChoice::Deferred,
            ..ReplaySettings::default()
        },
        ..header()
    };
    let without_need = Row {
        need_bytes: None,
        ..row()
    };
    let text = table(&plain, &[without_need]);
    let settings = "opencl on a device, deferred allocator, without a pool";
    assert_eq!(text.lines().next(), Some(settings));
    let titles = text.lines().find(|line| line.starts_with('|')).unwrap();
    assert_eq!(cells(titles).last().unwrap(), "device time, measured");
}

#[test]
fn each_figure_of_the_report_stands_under_its_name() {
    let (header, mut row) = (header(), row());
    let report: Value = serde_json::from_str(&json(&header, &[row.clone()])).unwrap();
    let mut expected = json!([{
        "trace": "a trace", "backend": "mock", "device": "a device", "allocator": "deferred", "pool": true, "scale": 3, "touch": "fill", "threads": 2,
        "capacity_bytes": 9000, "allocations": 50, "hits": 30, "device_allocations": 20, "views": 5, "peak_live_bytes": 1000,
        "peak_reserved_bytes": 1500, "reserved_over_live": 1.5, "ns_per_pair": 200.0, "device_time_us": 45_500.0, "view_time_us": 6.5,
        "at_end": { "live_bytes": 0, "reserved_bytes": 0, "trimmed_bytes": 0 },
        "need_bytes": 1250, "need_over_live": 1.25,
    }]);
    assert_eq!(report, expected);
    row.need_bytes = None;
    let report: Value = serde_json::from_str(&json(&header, &[row.clone()])).unwrap();
    let object = expected[0].as_object_mut().unwrap();
    object.retain(|name, _| !name.starts_with("need"));
    assert_eq!(report, expected);
    let mut of_pages = header;
    of_pages.settings.allocator = AllocatorChoice::VirtualMemory;
    row.outcome.maps = 3;
    row.outcome.unmaps = 2;
    row.outcome.remap_time = Duration::from_nanos(2500);
    row.outcome.move_time = Duration::from_nanos(500);
    row.outcome.passed_time = Duration::from_micros(25);
    row.outcome.at_end = AtEnd {
        live_bytes: 10,
        reserved_bytes: 30,
        trimmed_bytes: 20,
    };
    let report: Value = serde_json::from_str(&json(&of_pages, &[row])).unwrap();
    let more = json!({
        "maps": 3, "unmaps": 2, "remap_time_us": 2.5, "move_time_us": 0.5, "move_percent": 2.0,
        "at_end": { "live_bytes": 10, "reserved_bytes": 30, "trimmed_bytes": 20 },
    });
    for (name, figure) in more.as_object().unwrap() {
        assert_eq!(report[0][name], *figure, "{name}");
    }
}

#[test]
fn a_pair_takes_its_part_of_the_time_and_hits_are_a_part_of_all_allocations() {
    let mut outcome = outcome();
    let close = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found}");
    close(outcome.ns_per_pair(), 200.0);
    close(outcome.hit_rate(), 0.6);
    // Where nothing is freed, all of it; and no part of nothing.
    (outcome.pairs, outcome.allocations, outcome.hits) = (0, 0, 0);
    close(outcome.ns_per_pair(), 8000.0);
    close(outcome.hit_rate(), 0.0);
}

#[test]
fn the_same_replay_gives_the_same_figures() {
    let trace = recorded("eager_arrays");
    let run = || {
        let measured = MOCK.replay(&trace, &pooled(), &|_| {}).unwrap();
        let outcome = measured.outcome;
        (
            outcome.hits,
            outcome.device_allocations,
            outcome.peak_reserved_bytes,
            measured.device_time,
        )
    };
    assert_eq!(run(), run());
}

#[test]
fn every_allocation_is_a_hit_or_asks_the_device() {
    for name in ["boxtree_builds", "resnet50_train"] {
        let trace = recorded(name);
        let outcome = MOCK.replay(&trace, &pooled(), &|_| {}).unwrap().outcome;
        assert_eq!(
            outcome.hits + outcome.device_allocations,
            outcome.allocations
        );
        assert!(outcome.peak_reserved_bytes >= trace.peak_live_bytes());
    }
}

#[test]
fn without_a_pool_the_device_is_asked_every_time_for_just_what_is_live() {
    let trace = recorded("boxtree_builds");
    let outcome = MOCK.replay(&trace, &unpooled(), &|_| {}).unwrap().outcome;
    assert_eq!(outcome.device_allocations, outcome.allocations);
    assert_eq!(outcome.device_releases, outcome.pairs);
    assert_eq!(outcome.hits, 0);
    assert_eq!(outcome.peak_reserved_bytes, trace.peak_live_bytes());
    assert_eq!(
        MOCK.need(&trace, &unpooled(), &|_| {}).unwrap(),
        trace.peak_live_bytes()
    );
}

#[test]
fn the_pool_saves_device_time() {
    for name in ["eager_arrays", "gnn_sampled_train", "gpt2_varlen_train"] {
        let trace = recorded(name);
        let time = |pool| {
            let settings = ReplaySettings { pool, ..pooled() };
            MOCK.replay(&trace, &settings, &|_| {}).unwrap().device_time
        };
        let without = time(None);
        let options = PoolOptions::new();
        let times = [
            (options.clone(), 8),
            // These give back what is above their high water.
            (options.segments(false), 4),
        ];
        for (options, least) in times {
            assert!(
                time(Some(options.clone())) * least < without,
                "{name} {options:?}"
            );
        }
    }
}

#[test]
fn a_trace_fits_exactly_what_it_needs() {
    let trace = recorded("eager_arrays");
    let need = MOCK.need(&trace, &pooled(), &|_| {}).unwrap();
    let at = |capacity| ReplaySettings {
        capacity_bytes: Some(capacity),
        ..pooled()
    };
    let measured = MOCK.replay(&trace, &at(need), &|_| {}).unwrap();
    assert!(measured.outcome.peak_reserved_bytes <= need);
    let failure = MOCK
        .replay(&trace, &at(need - trace.peak_live_bytes() / 500), &|_| {})
        .unwrap_err();
    assert!(failure.out_of_memory);
    assert!(
        failure.to_string().contains("eager_arrays.trace.gz, line "),
        "{failure}"
    );
}

#[test]
fn deferred_memory_runs_out_only_when_it_is_touched() {
    let trace = recorded("boxtree_builds");
    let settings = |touch| ReplaySettings {
        allocator: AllocatorChoice::Deferred,
        capacity_bytes: Some(trace.peak_live_bytes() / 2),
        touch,
        ..unpooled()
    };
    assert!(
        MOCK.replay(&trace, &settings(Touch::Nothing), &|_| {})
            .is_ok()
    );
    for touch in [Touch::Fill, Touch::Kernels] {
        let failure = MOCK.replay(&trace, &settings(touch), &|_| {}).unwrap_err();
        assert!(failure.out_of_memory, "{touch:?}");
    }
}

#[test]
fn shared_virtual_memory_is_replayed_where_the_device_has_it() {
    let trace = recorded("eager_arrays").scaled_down(1024);
    let with = |allocator| ReplaySettings {
        allocator,
        ..pooled()
    };
    let coarse = MOCK
        .replay(&trace, &with(AllocatorChoice::Svm), &|_| {})
        .unwrap();
    assert!(coarse.outcome.hits > 0);
    let fine = MOCK.replay(&trace, &with(AllocatorChoice::SvmFine), &|_| {});
    assert!(!fine.unwrap_err().out_of_memory);
}

#[test]
fn each_stream_has_a_queue_and_empty_blocks_are_fine() {
    let text = "a 0 1000 0\na 1 1000 3\nf 0\nf 1\na 2 1000 3\na 3 0 3\nf 3\n";
    let trace = Trace::parse("t", text.as_bytes()).unwrap();
    for settings in [binned(), unpooled()] {
        let outcome = MOCK.replay(&trace, &settings, &|_| {}).unwrap().outcome;
        assert_eq!(outcome.hits, u64::from(settings.pool.is_some()));
    }
}

/// PyTorch's streams, for one, are addresses.
#[test]
fn streams_may_have_any_numbers_but_not_any_number_of_them() {
    let text = "a 0 1000 4000000000\nf 0\na 1 1000 7\na 2 1000 4000000000\n";
    let trace = Trace::parse("t", text.as_bytes()).unwrap();
    let outcome = MOCK.replay(&trace, &binned(), &|_| {}).unwrap().outcome;
    // Block 2 takes the place of block 0, on the same stream. Block 1 is of another.
    assert_eq!((outcome.hits, outcome.device_allocations), (1, 2));
    let many: Vec<_> = (0..1025).map(|id| format!("a {id} 1 {id}")).collect();
    let trace = Trace::parse("t", many.join("\n").as_bytes()).unwrap();
    let failure = MOCK.replay(&trace, &pooled(), &|_| {}).unwrap_err();
    let reason = failure.source.to_string();
    assert!(reason.contains("1025 streams"), "{reason}");
}

#[test]
fn blocks_that_live_at_the_end_are_freed_there_and_are_no_pairs() {
    let trace = recorded("resnet50_train");
    for settings in [pooled(), unpooled()] {
        let outcome = MOCK.replay(&trace, &settings, &|_| {}).unwrap().outcome;
        assert_eq!((outcome.allocations, outcome.pairs), (7168, 7165));
    }
}

#[test]
fn a_device_without_costs_gives_the_same_figures_in_no_time() {
    let trace = recorded("eager_arrays");
    let on = |profile| {
        Device::Mock(profile)
            .replay(&trace, &pooled(), &|_| {})
            .unwrap()
    };
    let (free, h200) = (on(Profile::None), on(Profile::H200));
    assert_eq!(free.device_time, Duration::ZERO);
    assert!(h200.device_time > Duration::ZERO);
    let figures =
        |measured: Measured| (measured.outcome.hits, measured.outcome.peak_reserved_bytes);
    assert_eq!(figures(free), figures(h200));
}

#[test]
fn a_trace_too_large_for_the_device_is_called_that() {
    let trace = recorded("gpt2_varlen_train");
    assert_eq!(MOCK.too_small_for(&trace, None), None);
    let warning = MOCK.too_small_for(&trace, Some(1 << 30)).unwrap();
    assert!(warning.contains("live at once"), "{warning}");
    let trace = Trace::parse("t", &b"a 0 100000000000 0\n"[..]).unwrap();
    let warning = MOCK.too_small_for(&trace, None).unwrap();
    assert!(warning.contains("in one piece"), "{warning}");
}

#[test]
fn threads_are_dealt_the_streams_or_copies_of_the_trace() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces/unseen");
    let trace = Trace::open(&folder.join("two_stream_pipeline.trace.gz")).unwrap();
    let trace = trace.scaled_down(1 << 14);
    let replayed = |threads, pool| {
        let settings = ReplaySettings {
            pool,
            touch: Touch::Kernels,
            threads,
            ..pooled()
        };
        MOCK.replay(&trace, &settings, &|_| {}).unwrap().outcome
    };
    let options = || PoolOptions::new().segments(true);
    let alone = replayed(1, Some(options()));
    for (threads, copies) in [(2, 1), (3, 3), (16, 16)] {
        for pool in [None, Some(options()), Some(options().segments(false))] {
            let has_pool = pool.is_some();
            let outcome = replayed(threads, pool);
            assert_eq!(outcome.allocations, copies * alone.allocations);
            assert_eq!(outcome.pairs, copies * alone.pairs);
            assert_eq!(outcome.hits > 0, has_pool);
            assert!(outcome.peak_live_bytes <= outcome.peak_reserved_bytes);
            assert!(outcome.peak_live_bytes <= copies * 2 * trace.peak_live_bytes());
        }
    }
}

#[test]
fn a_thread_that_fails_ends_the_replay_of_all() {
    let trace = recorded("boxtree_builds").scaled_down(64);
    let settings = ReplaySettings {
        capacity_bytes: Some(trace.peak_live_bytes() / 2),
        threads: 8,
        ..unpooled()
    };
    let failure = MOCK.replay(&trace, &settings, &|_| {}).unwrap_err();
    assert!(failure.out_of_memory, "{}", failure.source);
}

/// The report of the command on one trace, and what it says on standard error.
fn replayed(arguments: &[&str]) -> (Value, String) {
    let ran = binpool(&[&["replay", "--json"], arguments].concat());
    assert_eq!(ran.status, 0, "{}", ran.errors);
    let report: Value = serde_json::from_str(&ran.output).unwrap();
    (report[0].clone(), ran.errors)
}

#[test]
fn the_time_of_mapping_is_what_the_devices_calls_cost() {
    let (report, _) = replayed(&[
        "--allocator",
        "virtual-memory",
        "gpt2_varlen_train.trace.gz",
    ]);
    let costs = DeviceProfile::h200().costs;
    let figure = |name: &str| report[name].as_f64().unwrap();
    let expected = figure("maps") * costs.map.micros_at(2 << 20)
        + figure("unmaps") * costs.unmap.micros_at(2 << 20);
    assert!(figure("maps") > 10.0 && figure("unmaps") > 10.0);
    let (found, whole) = (figure("remap_time_us"), figure("device_time_us"));
    assert!((found - expected).abs() < 0.01, "{found} us, {expected} us");
    assert!(found < whole, "{found} us of {whole} us");
}

/// OpenCL on this device gives a quarter of its memory in one piece, and CUDA all of it.
#[test]
fn a_block_of_half_the_device_is_given_as_cuda_gives_it() {
    let bytes = 67_u64 << 30;
    let address = 1_u64 << 40;
    let log = format!(
        "Thread,Time,Action,Pointer,Size,Stream\n1,12:00:00.0,allocate,{address:#x},{bytes},0x0\n"
    );
    let entry = json!({"action": "alloc", "addr": address, "size": bytes, "stream": 0});
    let snapshot = json!({"device_traces": [[entry]], "segments": []}).to_string();
    let folder = tempfile::tempdir().unwrap();
    let trace = format!("a 0 {bytes} 0\nf 0\n");
    for (name, text) in [
        ("log.csv", log),
        ("snapshot.json", snapshot),
        ("a.trace", trace),
    ] {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        let path = path.to_str().unwrap();
        for more in [
            &["--need"][..],
            &["--allocator", "virtual-memory", "--need"],
            &["--no-pool"],
            &["--profile", "none"],
            &["--no-segments", "--capacity", "70GiB"],
        ] {
            let (report, errors) = replayed(&[more, &[path]].concat());
            let reserved = report["peak_reserved_bytes"].as_u64().unwrap();
            assert!(
                (bytes..bytes + (3 << 30)).contains(&reserved),
                "{name} {more:?}"
            );
            let need = report["need_bytes"].as_u64();
            assert!(need.is_none_or(|need| (bytes..bytes + (3 << 30)).contains(&need)));
            // It is not known of a plain trace where it ran.
            let is_said = errors.contains("replayed with the limits of CUDA");
            assert_eq!(is_said, name == "a.trace", "{errors}");
        }
        let ran = binpool(&["tune", "--json", "--allocator", "virtual-memory", path]);
        let tuned: Value = serde_json::from_str(&ran.output).unwrap();
        for candidate in tuned["traces"][0]["candidates"].as_array().unwrap() {
            assert_eq!(candidate["out_of_memory"], Value::Null, "{candidate}");
        }
        let ran = binpool(&["view", "--json", "--simulate", path]);
        assert!(!ran.errors.contains("out of memory"), "{}", ran.errors);
        // Other devices have their own limits.
        assert_eq!(binpool(&["replay", "--profile", "pocl", path]).status, 1);
        assert_eq!(binpool(&["replay", "--capacity", "60GiB", path]).status, 1);
    }
}

#[test]
fn what_a_pool_keeps_after_one_large_input_is_told_for_each_way_of_giving_back() {
    let mut text = format!("a 0 {} 0\nf 0\n", 8_u64 << 30);
    for block in 1..1000 {
        writeln!(text, "a {block} {} 0", 1 << 20).unwrap();
        if block > 100 {
            writeln!(text, "f {}", block - 100).unwrap();
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one_large.trace");
    fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap();
    let kept = |more: &[&str]| {
        let (report, _) = replayed(&[more, &[path]].concat());
        assert_eq!(report["at_end"]["live_bytes"], 100 << 20);
        assert!(report["peak_reserved_bytes"].as_u64().unwrap() >= 8 << 30);
        ["reserved_bytes", "trimmed_bytes"].map(|name| report["at_end"][name].as_u64().unwrap())
    };
    let [all, trimmed] = kept(&[]);
    assert!(all >= 8 << 30, "{all}");
    for (more, most) in [
        (&["--retain", "at-most=1GiB"][..], 1 << 30),
        (&["--retain", "unused-for-allocations=100"], 512 << 20),
        (
            &["--retain", "unused-for-allocations=100", "--no-segments"],
            512 << 20,
        ),
        (
            &["--retain", "at-most=1GiB,unused-for-allocations=100"],
            512 << 20,
        ),
        (
            &["--retain", "at-most=1GiB", "--allocator", "virtual-memory"],
            1 << 30,
        ),
    ] {
        let [reserved, _] = kept(more);
        assert!(reserved <= most, "{more:?}: {reserved}");
    }
    // A segment of the large input may have some of the small ones.
    assert!(trimmed <= all, "{trimmed}");
    let [_, trimmed] = kept(&["--allocator", "virtual-memory"]);
    assert!(trimmed < 512 << 20, "{trimmed}");
    let ran = binpool(&["replay", "--retain", "all", path]);
    assert!(ran.output.contains("| after a trim |"), "{}", ran.output);
    let ran = binpool(&["replay", path]);
    assert!(!ran.output.contains("after a trim"), "{}", ran.output);
    let ran = binpool(&["replay", "--no-pool", "--retain", "all", path]);
    assert_eq!(ran.status, 2);
}
