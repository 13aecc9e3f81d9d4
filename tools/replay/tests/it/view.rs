//! The command `binpool view`, apart from what its pages look like.

use std::{fs, io::Write, path::Path};

use binpool::{
    Backend, ImmediateAllocator, MemoryPool, PoolOptions, QueueOrder, Tag, WatchOptions,
};
use binpool_mock::MockDevice;
use binpool_recordings::Trace;
use binpool_replay::{Profile, simulate};
use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};

use crate::common::{binpool, binpool_with, trace};

fn numbers(arguments: &[&str]) -> Value {
    let ran = binpool(&[&["view", "--json"], arguments].concat());
    assert_eq!(ran.status, 0, "{}", ran.errors);
    serde_json::from_str(&ran.output).unwrap()
}

/// Writes `content` into a folder of its own.
fn file(name: &str, content: &[u8]) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, content).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}

#[test]
fn the_numbers_are_those_of_a_replay() {
    for settings in [
        &[][..],
        &["--no-segments"],
        &["--scale", "3", "--profile", "pocl"],
    ] {
        for trace in ["eager_arrays.trace.gz", "resnet50_train.trace.gz"] {
            let viewed = numbers(&[settings, &[trace]].concat());
            let ran = binpool(&[&["replay", "--json"], settings, &[trace]].concat());
            let replayed: Value = serde_json::from_str(&ran.output).unwrap();
            let replayed = &replayed[0];
            let live = &viewed["peak_active"]["active_bytes"];
            assert_eq!(live, &replayed["peak_live_bytes"], "{settings:?}");
            let reserved = &viewed["peak_reserved"]["reserved_bytes"];
            assert_eq!(reserved, &replayed["peak_reserved_bytes"], "{settings:?}");
            assert_eq!(viewed["blocks"], replayed["allocations"]);
        }
    }
}

#[test]
fn each_block_lies_in_its_segment_and_clear_of_all_others_that_live() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces/boxtree_builds.trace.gz");
    let trace = Trace::open(&path).unwrap();
    let options = PoolOptions::new().segments(true);
    let history = simulate(&trace, &Profile::H200, None, &options, &|_| {}).unwrap();
    assert_eq!(history.blocks.len(), trace.allocations());
    let moments = history.last_moment();
    for moment in (0..=moments).step_by(331).chain([moments]) {
        let lives =
            |from: usize, to: Option<usize>| from < moment && to.is_none_or(|to| moment <= to);
        let live = history
            .blocks
            .iter()
            .filter(|block| lives(block.from, block.to));
        let mut places: Vec<_> = live
            .filter_map(|block| Some((block.segment?, block.offset, block.class_bytes)))
            .collect();
        places.sort_unstable();
        for (place, &(segment, offset, bytes)) in places.iter().enumerate() {
            let of = &history.segments[segment];
            assert!(lives(of.from, of.to), "segment {segment} at {moment}");
            assert!(offset + bytes <= of.bytes);
            if let Some(&(other, next, _)) = places.get(place + 1) {
                assert!(other != segment || offset + bytes <= next);
            }
        }
    }
}

#[test]
fn what_lives_at_the_end_is_told_apart_by_group_size_and_stream() {
    let text = "g 5 weights\ng 7 cache\n\
                a 0 1000000 0 10 5\na 1 300 1 20 7\na 2 300 1 30 7\na 3 64 0 40\nf 1 50\na 4 200 1 60 7\nf 3 70\n";
    let (_folder, path) = file("ends.trace", text.as_bytes());
    let numbers = numbers(&[&path]);
    // The peak of all is after four events.
    let row = |name: &str, peak: u64, at: u64, at_peak: u64, end: u64, blocks: [u64; 2]| json!({ "name": name, "peak_bytes": peak, "peak_moment": at, "at_peak_bytes": at_peak, "end_bytes": end, "end_blocks": blocks[0], "blocks": blocks[1] });
    let groups = [
        row("(no tag or line was recorded)", 64, 4, 64, 0, [0, 1]),
        row("cache", 600, 3, 600, 500, [2, 3]),
        row("weights", 1_000_000, 1, 1_000_000, 1_000_000, [1, 1]),
    ];
    assert_eq!(numbers["groups"], json!(groups));
    let streams = [
        row("stream 0", 1_000_064, 4, 1_000_064, 1_000_000, [1, 2]),
        row("stream 1", 600, 3, 600, 500, [2, 3]),
    ];
    assert_eq!(numbers["streams"], json!(streams));
    // Blocks take multiples of 512 bytes on this device.
    assert_eq!(numbers["sizes"][0]["name"], "256–512 B");
    assert_eq!(numbers["sizes"][0]["blocks"], 4);
    assert_eq!(numbers["at_end"]["active_bytes"], 1_000_500);
    assert_eq!(numbers["at_end"]["active_blocks"], 3);
    assert_eq!(numbers["at_end"]["time_ns"], 70);
    let free = &numbers["at_end"]["free"]["bytes"];
    assert_eq!(&numbers["at_end"]["held_bytes"], free);
}

#[test]
fn of_equal_peaks_the_first_counts() {
    // Two peaks of the whole, of the group and of the stream, and two segments of the same size one after the other.
    let text = "g 0 twice\na 0 4096 0 0\na 1 4096 0 0\nf 1\na 2 4096 0 0\nf 2\nf 0\n";
    let (_folder, path) = file("twice.trace", text.as_bytes());
    let numbers = numbers(&[&path]);
    assert_eq!(numbers["peak_active"]["moment"], 2);
    for by in ["groups", "sizes", "streams"] {
        assert_eq!(numbers[by][0]["peak_bytes"], 8192, "{by}");
        assert_eq!(numbers[by][0]["peak_moment"], 2, "{by}");
    }
}

#[test]
fn out_of_memory_is_the_end_and_is_explained() {
    let ran = binpool(&[
        "view",
        "--json",
        "--capacity",
        "400MB",
        "eager_arrays.trace.gz",
    ]);
    assert_eq!(ran.status, 0, "{}", ran.errors);
    assert!(
        ran.errors
            .contains("out of memory at eager_arrays.trace.gz, line "),
        "{}",
        ran.errors
    );
    let numbers: Value = serde_json::from_str(&ran.output).unwrap();
    let failed = &numbers["out_of_memory"];
    assert_eq!(failed["capacity_bytes"], 400_000_000);
    assert_eq!(numbers["capacity_bytes"], 400_000_000);
    assert!(failed["event"].as_str().unwrap().contains("allocating"));
    assert_eq!(failed["active_bytes"], numbers["at_end"]["active_bytes"]);
    assert!(numbers["peak_reserved"]["reserved_bytes"].as_u64().unwrap() <= 400_000_000);
    let words = [
        "never_fits",
        "limited",
        "fragmented",
        "pending",
        "device_full",
    ];
    assert!(words.contains(&failed["verdict"].as_str().unwrap()));
    assert!(!failed["advice"].as_str().unwrap().is_empty());
}

#[test]
fn shortages_of_the_recording_are_told() {
    let text = "g 1 big\na 0 4096 0 100\no 99999 2 150 1\nf 0 200\no 5 0 300\na 1 4096 0 400\n";
    let (_folder, path) = file("short.trace", text.as_bytes());
    let numbers = numbers(&[&path]);
    let expected = json!([
        { "moment": 1, "time_ns": 150, "bytes": 99999, "stream": 2, "group": "big", "report": null },
        { "moment": 2, "time_ns": 300, "bytes": 5, "stream": 0, "group": null, "report": null },
    ]);
    assert_eq!(numbers["shortages"], expected);
    assert_eq!(numbers["out_of_memory"], Value::Null);
    assert_eq!(
        numbers["peak_active"]["moment"], 1,
        "the first of two peaks"
    );
}

#[test]
fn shortages_are_told_up_to_the_last_moment_of_the_replay_with_times_where_there_are_any() {
    let moments = |text: &str| -> Vec<(u64, Value)> {
        let (_folder, path) = file("short.trace", text.as_bytes());
        let numbers = numbers(&[&path]);
        let shortages = numbers["shortages"].as_array().unwrap().iter();
        shortages
            .map(|it| (it["moment"].as_u64().unwrap(), it["time_ns"].clone()))
            .collect()
    };
    let untimed = "o 7 0\na 0 4096 0\nf 0\no 8 0\n";
    assert_eq!(moments(untimed), [(0, Value::Null), (2, Value::Null)]);
    // The replay itself ends at its second event, and the recording failed before it, at it, and later.
    let failing = "a 0 4096 0\no 1 0\na 1 9999999999999 0\no 2 0\nf 0\no 3 0\n";
    assert_eq!(moments(failing), [(1, Value::Null), (2, Value::Null)]);
}

#[test]
fn what_the_pool_knew_when_memory_ran_out_stands_under_its_name() {
    let text = "g 0 big\na 0 4096 0 0\na 1 9999999999999 3 0 0\n";
    let trace = Trace::parse("t", text.as_bytes()).unwrap();
    let options = PoolOptions::new().segments(true);
    let mut history = simulate(&trace, &Profile::H200, None, &options, &|_| {}).unwrap();
    let failed = history.out_of_memory.as_mut().unwrap();
    let report = &mut failed.report;
    (failed.bytes, report.class_bytes) = (1, 2);
    (report.active_bytes, report.held_bytes) = (3, 4);
    (report.pending_bytes, report.largest_held_bytes) = (5, 6);
    (report.released_bytes, report.largest_block_bytes) = (7, 8);
    (report.capacity_bytes, report.managed_bytes) = (9, 10);
    let (reason, advice) = (report.verdict.to_string(), report.verdict.advice());
    let name = report.verdict.name();
    let expected = json!({
        "event": "t, line 3: allocating 9.1 TiB as block 1", "requested_bytes": 1, "class_bytes": 2, "active_bytes": 3, "reserved_bytes": 10,
        "held_bytes": 4, "pending_bytes": 5, "largest_held_bytes": 6, "released_bytes": 7, "largest_block_bytes": 8, "device_free_bytes": null, "capacity_bytes": 9,
        "verdict": name, "reason": reason, "advice": advice, "group": "big", "stream": 3,
        "holds_most": { "name": "(no tag or line was recorded)", "bytes": 4096, "blocks": 1 },
        "cheapest": { "segment": 0, "offset": 0, "room_bytes": history.segments[0].bytes, "bytes": 4096,
            "blocks": [{ "block": 0, "offset": 0, "bytes": 4096, "group": "(no tag or line was recorded)" }] },
    });
    let found = serde_json::to_value(history.numbers()).unwrap();
    assert_eq!(found["out_of_memory"], expected);
}

#[test]
fn what_a_snapshot_says_of_a_shortage_stands_under_its_name() {
    let mut snapshot = snapshot();
    let shortage = |names: Value| {
        let mut shortage = json!({ "requested_bytes": 1, "class_bytes": 2, "held_bytes": 4, "pending_bytes": 5, "largest_held_bytes": 6,
            "released_bytes": 7, "verdict": "a word", "reason": "a sentence", "advice": "another" });
        let more = names.as_object().unwrap().clone();
        shortage.as_object_mut().unwrap().extend(more);
        shortage
    };
    let names = [
        (json!({}), Value::Null),
        (json!({ "call_site": "a.rs:1:2" }), json!("a.rs:1:2")),
        (
            json!({ "tag": "weights", "call_site": "a.rs:1:2" }),
            json!("weights"),
        ),
    ];
    for (names, group) in names {
        snapshot["out_of_memory"] = shortage(names);
        let (_folder, path) = file("full.json", snapshot.to_string().as_bytes());
        let expected = json!({
            "event": null, "requested_bytes": 1, "class_bytes": 2, "active_bytes": 4000, "reserved_bytes": 40960, "held_bytes": 4, "pending_bytes": 5,
            "largest_held_bytes": 6, "released_bytes": 7, "largest_block_bytes": 500_000, "device_free_bytes": null, "capacity_bytes": 900_000,
            "verdict": "a word", "reason": "a sentence", "advice": "another", "group": group, "stream": null,
            "holds_most": { "name": "weights", "bytes": 4096, "blocks": 1 },
            // Up to the range that the program cannot end.
            "cheapest": { "segment": 0, "offset": 0, "room_bytes": 16384, "bytes": 4096,
                "blocks": [{ "block": null, "offset": 0, "bytes": 4096, "group": "weights" }] },
        });
        assert_eq!(numbers(&[&path])["out_of_memory"], expected);
    }
}

/// A pool with a segment of five ranges, one of each state, and a held block beside it.
fn snapshot() -> Value {
    json!({
        "format": "binpool snapshot", "version": 1, "unix_time_ms": 1_764_000_000_000_u64,
        "settings": {
            "device": "a device", "device_bytes": 1_000_000, "capacity_bytes": 900_000, "largest_block_bytes": 500_000,
            "alignment_bytes": 256, "segments": true, "reuse": "opportunistic", "scrub": "never", "is_holding": true, "is_watching": true,
        },
        "statistics": { "active_blocks": 1, "active_bytes": 4000, "held_blocks": 4, "held_bytes": 24576, "pending_bytes": 4096 },
        "segments": [{ "memory": 3, "bytes": 32768, "ranges": [
            { "offset": 0, "bytes": 4096, "state": "active", "requested_bytes": 4000, "tag": "weights", "call_site": "a.rs:1:2", "age_ns": 5_000_000 },
            { "offset": 4096, "bytes": 8192, "state": "free" },
            { "offset": 12288, "bytes": 4096, "state": "held" },
            { "offset": 16384, "bytes": 4096, "state": "withheld" },
            { "offset": 20480, "bytes": 4096, "state": "pending" },
            { "offset": 24576, "bytes": 8192, "state": "free" },
        ] }],
        "blocks": [{ "offset": 0, "bytes": 8192, "state": "held" }],
    })
}

#[test]
fn a_snapshot_is_known_by_its_content() {
    let text = snapshot().to_string();
    let (_folder, plain) = file("any.name", text.as_bytes());
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(text.as_bytes()).unwrap();
    let (_other, packed) = file("any.trace", &packed.finish().unwrap());
    for path in [plain, packed] {
        let numbers = numbers(&[&path]);
        assert_eq!(numbers["device"], "a device");
        assert_eq!(numbers["reserved_bytes"], 40960);
        // Free, held and pending ranges that touch are one.
        let free = json!({ "bytes": 32768, "ranges": 3, "largest_bytes": 12288 });
        assert_eq!(numbers["free"], free);
        let tag = json!({ "name": "weights", "bytes": 4096, "requested_bytes": 4000, "blocks": 1, "oldest_ns": 5_000_000 });
        assert_eq!(numbers["tags"], json!([tag]));
        assert_eq!(numbers["call_sites"][0]["name"], "a.rs:1:2");
        let states = numbers["states"].as_array().unwrap();
        let names: Vec<&Value> = states.iter().map(|row| &row["name"]).collect();
        assert_eq!(names, ["active", "free", "held", "pending", "withheld"]);
        assert_eq!(states[2]["bytes"], 12288);
    }
}

#[test]
fn a_block_beside_the_segments_is_free_unless_it_is_in_use_or_withheld() {
    let mut snapshot = snapshot();
    snapshot["segments"] = json!([]);
    let block = |bytes: u64, state: &str| json!({ "offset": 0, "bytes": bytes, "state": state });
    snapshot["blocks"] = json!([
        block(512, "active"),
        block(1024, "held"),
        block(2048, "withheld"),
        block(4096, "pending"),
    ]);
    let (_folder, path) = file("beside.json", snapshot.to_string().as_bytes());
    let numbers = numbers(&[&path]);
    let free = json!({ "bytes": 5120, "ranges": 2, "largest_bytes": 4096 });
    assert_eq!(numbers["free"], free);
    assert_eq!(numbers["scattered"], 0.2);
    assert_eq!(numbers["reserved_bytes"], 7680);
}

#[test]
fn the_age_of_a_group_is_that_of_its_oldest_block() {
    let mut snapshot = snapshot();
    let block = |offset: u64, tag: &str, age: Value| json!({ "offset": offset, "bytes": 256, "state": "active", "requested_bytes": 200, "tag": tag, "age_ns": age });
    snapshot["segments"][0]["ranges"] = json!([
        block(0, "falling", json!(9)),
        block(256, "falling", json!(3)),
        block(512, "rising", json!(3)),
        block(768, "rising", json!(9)),
        block(1024, "half known", json!(9)),
        block(1280, "half known", Value::Null),
        block(1536, "unknown", Value::Null),
    ]);
    let (_folder, path) = file("ages.json", snapshot.to_string().as_bytes());
    let numbers = numbers(&[&path]);
    let row = |name: &str, blocks: u64, oldest: Value| json!({ "name": name, "bytes": 256 * blocks, "requested_bytes": 200 * blocks, "blocks": blocks, "oldest_ns": oldest });
    let expected = [
        row("falling", 2, json!(9)),
        row("half known", 2, json!(9)),
        row("rising", 2, json!(9)),
        row("unknown", 1, Value::Null),
    ];
    assert_eq!(numbers["tags"], json!(expected));
}

#[test]
fn a_snapshot_of_impossible_sizes_is_read_all_the_same() {
    let mut snapshot = snapshot();
    let huge =
        json!({ "offset": 5, "bytes": u64::MAX, "state": "active", "requested_bytes": u64::MAX });
    snapshot["segments"][0]["ranges"] = json!([huge, huge]);
    snapshot["segments"][0]["bytes"] = json!(u64::MAX);
    snapshot["blocks"] = json!([huge, { "offset": 0, "bytes": u64::MAX, "state": "held" }]);
    snapshot["unix_time_ms"] = json!(u64::MAX);
    let (_folder, path) = file("huge.json", snapshot.to_string().as_bytes());
    let numbers = numbers(&[&path]);
    assert_eq!(numbers["reserved_bytes"], u64::MAX);
    assert_eq!(numbers["free"]["largest_bytes"], u64::MAX);
    assert_eq!(numbers["tags"][0]["requested_bytes"], u64::MAX);
}

#[test]
fn what_a_pool_records_and_its_snapshots_are_read() {
    let backend = MockDevice::new().backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let allocator = ImmediateAllocator::new(&backend).unwrap();
    let pool = MemoryPool::new(allocator, &queue).unwrap();
    let (folder, trace) = file("program.trace", b"");
    pool.watch(WatchOptions::new());
    let recording = pool.record(fs::File::create(&trace).unwrap()).unwrap();
    let weights = Tag::new("weights").within(|| pool.allocate(1 << 20).unwrap());
    let scratch = Tag::new("scratch").within(|| pool.allocate(3 << 20).unwrap());
    drop(scratch);
    assert!(pool.allocate(1 << 40).is_err());
    let snapshot = folder.path().join("pool.json");
    fs::write(&snapshot, pool.snapshot().to_json().unwrap()).unwrap();
    drop(weights);
    recording.finish().unwrap();

    let of_trace = numbers(&[&trace]);
    let groups = of_trace["groups"].as_array().unwrap();
    let peak = |name: &str| {
        let found = groups
            .iter()
            .find(|row| row["name"].as_str().unwrap().contains(name));
        found.map(|row| row["peak_bytes"].as_u64().unwrap())
    };
    assert_eq!(
        (peak("weights"), peak("scratch")),
        (Some(1 << 20), Some(3 << 20))
    );
    assert_eq!(of_trace["peak_active"]["active_bytes"], 4 << 20);
    assert_eq!(of_trace["at_end"]["active_bytes"], 0);
    assert_eq!(of_trace["has_times"], true);
    assert_eq!(of_trace["shortages"][0]["bytes"], 1_u64 << 40);

    let of_snapshot = numbers(&[snapshot.to_str().unwrap()]);
    assert_eq!(of_snapshot["active_bytes"], 1 << 20);
    assert_eq!(of_snapshot["tags"][0]["name"], "weights");
    assert_eq!(of_snapshot["tags"][0]["requested_bytes"], 1 << 20);
    let site = of_snapshot["call_sites"][0]["name"].as_str().unwrap();
    assert!(site.contains("tests/it/view.rs:"), "{site}");
    assert_eq!(of_snapshot["held_bytes"], of_snapshot["free"]["bytes"]);
}

#[test]
fn a_compressed_trace_needs_no_name_that_says_so() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces/eager_arrays.trace.gz");
    let (_folder, copy) = file("copy", &fs::read(path).unwrap());
    assert_eq!(numbers(&[&copy])["blocks"], 4472);
}

#[test]
fn recordings_of_other_tools_are_viewed_too_json_among_them() {
    for recording in ["snapshot.json", "snapshot4.pickle", "rmm.csv"] {
        let numbers = numbers(&[&format!("../replay/tests/imports/{recording}")]);
        assert!(numbers["blocks"].as_u64().unwrap() > 0, "{recording}");
    }
}

#[test]
fn what_cannot_be_read_or_written_is_named() {
    let fails = |arguments: &[&str], expected: &str| {
        let ran = binpool(&[&["view"], arguments].concat());
        assert_eq!(ran.status, 1, "{arguments:?}");
        assert!(ran.errors.contains(expected), "{}", ran.errors);
    };
    let (folder, out) = file("page.html", b"");
    fails(
        &["no/such.trace", "-o", &out],
        "no/such.trace cannot be read",
    );
    let (_f, path) = file("bad.trace", b"a 0 many 0\n");
    fails(&[&path, "-o", &out], "bad.trace, line 1: expected BYTES");
    let (_f, path) = file("other.json", b"{\"format\": \"something\", \"version\": 1}");
    fails(&[&path, "-o", &out], "its format is \"something\"");
    let (_f, path) = file(
        "later.json",
        b"{\"format\": \"binpool snapshot\", \"version\": 9}",
    );
    fails(&[&path, "-o", &out], "a snapshot of version 9");
    let (_f, path) = file("cut.gz", &[0x1f, 0x8b, 8, 0]);
    fails(&[&path, "-o", &out], "cut.gz cannot be read");
    let (_f, path) = file("empty.trace", b"");
    fails(&[&path, "-o", &out], "it has no allocations");
    let nowhere = folder.path().join("no/page.html");
    fails(
        &["eager_arrays.trace.gz", "-o", nowhere.to_str().unwrap()],
        "cannot be written",
    );
    for name in ["page.pdf", "page.svg"] {
        let ran = binpool(&["view", "eager_arrays.trace.gz", "-o", name]);
        assert_eq!(ran.status, 2);
        assert!(ran.errors.contains("ends in .html"), "{}", ran.errors);
    }
}

#[test]
fn the_report_is_of_the_first_moment_at_which_the_most_bytes_are_live() {
    let text =
        "a 1 1000 0 0\nf 1 1000000000\na 2 1000 0 5000000000\na 3 0 0 6000000000\nf 2 7000000000\n";
    let (_folder, path) = file("twice.trace", text.as_bytes());
    let ran = binpool(&["view", "--report", &path]);
    let peak = "peak of live memory: 1000 B in 1 block, 0 ns after the recording began";
    assert!(ran.output.contains(peak), "{}{}", ran.output, ran.errors);
}

#[test]
fn a_page_is_named_after_its_file_unless_a_name_is_given() {
    let folder = tempfile::tempdir().unwrap();
    let path = trace("eager_arrays.trace.gz");
    let ran = binpool_with(&["view", path.to_str().unwrap()], |command| {
        command.current_dir(folder.path());
    });
    assert_eq!(ran.status, 0, "{}", ran.errors);
    let page = fs::read_to_string(folder.path().join("eager_arrays.html")).unwrap();
    assert!(page.starts_with("<!doctype html>"), "{}", &page[..100]);
    assert_eq!(ran.output, "");
    assert!(
        ran.errors.contains("wrote eager_arrays.html (") && ran.errors.contains("in a browser"),
        "{}",
        ran.errors
    );
}

/// A browser of the test's own, which notes what it is given.
#[cfg(target_os = "linux")]
#[test]
fn a_page_is_opened_if_requested() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().unwrap();
    let opener = folder.path().join("xdg-open");
    let noted = folder.path().join("noted");
    fs::write(
        &opener,
        format!("#!/bin/sh\nprintf %s \"$1\" >{}\n", noted.display()),
    )
    .unwrap();
    fs::set_permissions(&opener, fs::Permissions::from_mode(0o755)).unwrap();
    let page = folder.path().join("page.html");
    let arguments = [
        "view",
        "eager_arrays.trace.gz",
        "--open",
        "-o",
        page.to_str().unwrap(),
    ];
    let with_path = |path: &Path| {
        let path = path.to_owned();
        binpool_with(&arguments, move |command| {
            command.env("PATH", path);
        })
    };
    let path = format!("{}:/usr/bin:/bin", folder.path().display());
    let ran = with_path(path.as_ref());
    assert_eq!(ran.status, 0, "{}", ran.errors);
    // The browser is not waited for.
    let opened = (0..500).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        fs::read_to_string(&noted)
            .ok()
            .filter(|text| !text.is_empty())
    });
    assert_eq!(opened.as_deref(), page.to_str());

    let nothing = tempfile::tempdir().unwrap();
    let ran = with_path(nothing.path());
    assert_eq!(ran.status, 1);
    assert!(
        ran.errors.contains("was written, but could not be opened"),
        "{}",
        ran.errors
    );
    assert!(page.exists());
}
