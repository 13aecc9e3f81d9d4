//! Other tools' recordings on the command line.

use std::{
    fs,
    io::Read as _,
    path::{Path, PathBuf},
};

use binpool_recordings::Trace;
use flate2::read::MultiGzDecoder;
use serde_json::{Value, json};

use crate::common::binpool;

/// What `imports/write_snapshots.py` describes, on its first device.
const SNAPSHOT: &str = include_str!("../imports/snapshot.trace");

const UNTIMED: &str =
    r#"{"device_traces": [[{"action": "alloc", "addr": 512, "size": 8, "stream": 0}]]}"#;

/// Two blocks in RMM's log.
const LOG: &str = "\
1,14:21:19.998533,allocate,0x30a000000,1048576,0x2
1,14:21:20.100533,free,0x30a000000,1048576,0x2
";

/// What is said of the stacks of a snapshot.
const FRAMES: &str = "left out the frames of libraries at both ends of each call stack";

fn file(name: &str) -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    tests.join("imports").join(name)
}

fn frame(file: &str, line: u64, function: &str) -> Value {
    json!({"filename": file, "line": line, "name": function})
}

#[test]
fn the_command_writes_a_trace_and_says_what_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let recording = file("snapshot4.pickle");
    let recording = recording.to_str().unwrap();
    let ran = binpool(&["import", recording]);
    assert_eq!((ran.status, &*ran.output), (0, SNAPSHOT), "{}", ran.errors);
    assert!(ran.errors.contains("2 blocks: allocated before"));

    let plain = folder.path().join("out.trace");
    let ran = binpool(&["import", recording, "-o", plain.to_str().unwrap()]);
    assert_eq!(ran.status, 0, "{}", ran.errors);
    let summary = "5 allocations, 3 frees, 1 shortage, 2 streams, 4 groups; up to 3.3 MiB live\n";
    assert!(ran.output.ends_with(summary), "{}", ran.output);
    assert_eq!(fs::read_to_string(&plain).unwrap(), SNAPSHOT);

    let compressed = folder.path().join("out.trace.gz");
    let out = compressed.to_str().unwrap();
    let ran = binpool(&["import", recording, "-o", out, "--json"]);
    let object: Value = serde_json::from_str(&ran.output).unwrap();
    let expected = json!({
        "recording": recording, "allocations": 5, "frees": 3, "shortages": 1, "streams": 2, "groups": 4, "has_times": true,
        "peak_live_bytes": 3_500_000, "largest_block_bytes": 2_000_000,
        "remarks": Trace::open(Path::new(recording)).unwrap().remarks(),
    });
    assert_eq!(object, expected);
    let mut text = String::new();
    MultiGzDecoder::new(fs::File::open(&compressed).unwrap())
        .read_to_string(&mut text)
        .unwrap();
    assert_eq!(text, SNAPSHOT);

    let untimed = folder.path().join("untimed.json");
    fs::write(&untimed, UNTIMED).unwrap();
    let ran = binpool(&["import", untimed.to_str().unwrap(), "-o", out, "--json"]);
    let object: Value = serde_json::from_str(&ran.output).unwrap();
    assert_eq!(object["has_times"], false);

    let nowhere = folder.path().join("no folder/out.trace");
    let ran = binpool(&["import", recording, "-o", nowhere.to_str().unwrap()]);
    assert_eq!(ran.status, 1);
    assert!(ran.errors.contains("cannot be written"), "{}", ran.errors);
    assert_eq!(binpool(&["import", recording, "--json"]).status, 2);
    assert_eq!(binpool(&["import", "no such file"]).status, 1);
}

/// Three snapshots that PyTorch 2.11 wrote on an H200: training with stacks, training until a limit was reached, and two streams
/// with `record_stream`. The figures were counted with Python's `pickle`, without this crate.
#[test]
fn snapshots_that_pytorch_wrote_are_the_programs() {
    for (name, allocations, frees, shortages, streams, groups, peak_live, largest) in [
        (
            "tiny_gpt_train",
            983,
            776,
            0,
            1,
            9,
            556_309_032,
            130_560_000,
        ),
        ("tiny_gpt_oom", 760, 553, 1, 1, 10, 437_385_344, 81_920_000),
        ("two_streams", 145, 139, 0, 2, 3, 75_968_744, 33_554_432),
    ] {
        let path = format!("../snapshots/{name}.pickle.gz");
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out.trace.gz");
        let ran = binpool(&["import", &path, "-o", out.to_str().unwrap(), "--json"]);
        assert_eq!(ran.status, 0, "{}", ran.errors);
        let object: Value = serde_json::from_str(&ran.output).unwrap();
        let before = "3 blocks: allocated before the recording began: allocated at its start";
        let remarks: &[&str] = match name {
            "tiny_gpt_train" => &[FRAMES], // It was recorded from the first allocation on.
            _ => &[before, FRAMES],
        };
        let expected = json!({
            "recording": path, "allocations": allocations, "frees": frees, "shortages": shortages, "streams": streams,
            "groups": groups, "has_times": true, "peak_live_bytes": peak_live, "largest_block_bytes": largest,
            "remarks": remarks,
        });
        assert_eq!(object, expected, "{name}");
        // What is imported is replayed: nothing is freed twice, or without having been allocated.
        let ran = binpool(&["replay", out.to_str().unwrap()]);
        assert_eq!(ran.status, 0, "{name}: {}", ran.errors);
    }
}

#[test]
fn recordings_are_replayed_and_tuned_as_they_are() {
    let recording = file("snapshot.json");
    let recording = recording.to_str().unwrap();
    let ran = binpool(&["replay", "--json", recording]);
    let replayed: Value = serde_json::from_str(&ran.output).unwrap();
    assert_eq!(replayed[0]["allocations"], 5);
    assert!(ran.errors.contains("allocated before"), "{}", ran.errors);
    // Where it is repeated, what it never frees is still there when it begins again.
    for (rounds, peak_live) in [("1", 3_500_000), ("4", 4_200_001)] {
        let ran = binpool(&["tune", "--rounds", rounds, "--json", recording]);
        let tuned: Value = serde_json::from_str(&ran.output).unwrap();
        assert_eq!(tuned["traces"][0]["peak_live_bytes"], peak_live);
    }
}

#[test]
fn the_command_says_what_it_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stderr.log");
    fs::write(&path, format!("starting\n{LOG}1,14:21:33.0,all")).unwrap();
    let ran = binpool(&["import", path.to_str().unwrap()]);
    // RMM's log is of its pool.
    let expected =
        "h version 2\nh pooled yes\na 13052674048 1048576 0 0\nf 13052674048 102000000\n";
    assert_eq!((ran.status, &*ran.output), (0, expected));
    for remark in ["1 line without an event of RMM", "the last line is cut"] {
        assert!(ran.errors.contains(remark), "{}", ran.errors);
    }
}

#[test]
fn every_command_says_the_same_of_a_file_that_is_no_recording() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.sqlite");
    fs::write(&path, b"SQLite format 3\0").unwrap();
    let path = path.to_str().unwrap();
    for command in ["view", "import", "replay", "tune"] {
        let ran = binpool(&[command, path]);
        assert_eq!(ran.status, 1, "{command}");
        assert!(
            ran.errors.contains("this is a trace of a profiler"),
            "{}",
            ran.errors
        );
        assert!(
            ran.errors.contains("A memory snapshot does"),
            "{}",
            ran.errors
        );
    }
    let folder = folder.path().to_str().unwrap();
    for command in ["view", "import", "replay", "tune"] {
        let ran = binpool(&[command, folder]);
        assert!(
            ran.errors.to_lowercase().contains("is a directory"),
            "{}",
            ran.errors
        );
    }
}

#[test]
fn a_list_of_segments_is_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("segments.json");
    let block = json!({"size": 512, "requested_size": 500, "state": "active_allocated"});
    let segment =
        json!({"address": 1_u64 << 40, "total_size": 2 << 20, "stream": 0, "blocks": [block]});
    fs::write(&path, json!([segment]).to_string()).unwrap();
    let ran = binpool(&["view", "--json", path.to_str().unwrap()]);
    assert_eq!(ran.status, 0, "{}", ran.errors);
    let numbers: Value = serde_json::from_str(&ran.output).unwrap();
    assert_eq!(numbers["origin"], "happened");
    assert_eq!(numbers["at_end"]["active_bytes"], 500);
}

#[test]
fn view_and_import_look_beyond_packages() {
    let frames = [
        frame(
            "/env/lib/python3.12/site-packages/einops/einops.py",
            302,
            "reduce",
        ),
        frame(
            "/env/lib/python3.12/site-packages/einops/einops.py",
            500,
            "rearrange",
        ),
        frame(
            "/env/lib/python3.12/site-packages/torch/nn/modules/module.py",
            1,
            "_call_impl",
        ),
        frame(
            "/env/lib/python3.12/site-packages/vit/layers.py",
            7,
            "forward",
        ),
        frame("/home/ada/train.py", 30, "<module>"),
    ];
    let base = 1_u64 << 40;
    let entries = [
        json!({"action": "segment_alloc", "addr": base, "size": 2 << 20, "stream": 0}),
        json!({"action": "alloc", "addr": base, "size": 512, "stream": 0, "frames": frames}),
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("snapshot.json");
    fs::write(
        &path,
        json!({"device_traces": [entries], "segments": []}).to_string(),
    )
    .unwrap();
    let path = path.to_str().unwrap();
    for (beyond, group) in [
        (&[][..], "einops/einops.py:302 reduce"),
        (&["--beyond", "einops"], "vit/layers.py:7 forward"),
        (
            &["--beyond", "einops", "--beyond", "vit"],
            "ada/train.py:30 <module>",
        ),
        (&["--beyond", "einops.einops"], "vit/layers.py:7 forward"),
        (&["--beyond", "einop"], "einops/einops.py:302 reduce"),
    ] {
        let ran = binpool(&[&["view", "--json", path], beyond].concat());
        assert_eq!(ran.status, 0, "{}", ran.errors);
        let numbers: Value = serde_json::from_str(&ran.output).unwrap();
        assert_eq!(numbers["groups"][0]["name"], group, "{beyond:?}");
        let ran = binpool(&[&["import", path], beyond].concat());
        assert!(
            ran.output.contains(&format!("g 0 {group}\n")),
            "{}",
            ran.output
        );
    }
    assert_eq!(binpool(&["view", path, "--beyond", ""]).status, 2);
    let trace = folder.path().join("own.trace");
    fs::write(&trace, "g 0 weights\na 0 1 0 0 0\n").unwrap();
    let ran = binpool(&["import", trace.to_str().unwrap(), "--beyond", "einops"]);
    assert!(
        ran.errors.contains("named when it was recorded"),
        "{}",
        ran.errors
    );
}
