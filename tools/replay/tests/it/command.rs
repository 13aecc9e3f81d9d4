//! The command `binpool replay`, as a person or a script runs it.

use std::{
    env, fs,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::common::{Ran, binpool, binpool_with, trace};

fn objects(ran: &Ran) -> Vec<Value> {
    assert_eq!(ran.status, 0, "{}", ran.errors);
    serde_json::from_str(&ran.output).unwrap()
}

const KEYS: [&str; 15] = [
    "trace",
    "backend",
    "allocator",
    "capacity_bytes",
    "allocations",
    "hits",
    "device_allocations",
    "peak_live_bytes",
    "peak_reserved_bytes",
    "reserved_over_live",
    "ns_per_pair",
    "device_time_us",
    "views",
    "view_time_us",
    "at_end",
];

/// The keys of an object, sorted.
fn keys(object: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = object
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    keys.sort_unstable();
    keys
}

/// The keys that every object has, those of the settings among them, and `added`, sorted.
fn with_keys<'a>(added: &[&'a str]) -> Vec<&'a str> {
    let settings = ["device", "pool", "scale", "threads", "touch"];
    let mut keys = [&KEYS[..], &settings, added].concat();
    keys.sort_unstable();
    keys
}

#[test]
fn the_table_has_a_line_for_each_trace() {
    let ran = binpool(&["replay", "eager_arrays.trace.gz", "boxtree_builds.trace.gz"]);
    assert_eq!(ran.status, 0, "{}", ran.errors);
    assert!(ran.output.contains("| eager_arrays "), "{}", ran.output);
    assert!(ran.output.contains("| boxtree_builds "), "{}", ran.output);
    assert!(
        ran.output.contains("device time, predicted"),
        "{}",
        ran.output
    );
    assert!(!ran.output.contains('\x1b') && !ran.errors.contains('\x1b'));
}

#[test]
fn json_has_an_object_with_every_key_for_each_trace() {
    let ran = binpool(&[
        "replay",
        "--json",
        "eager_arrays.trace.gz",
        "boxtree_builds.trace.gz",
    ]);
    let objects = objects(&ran);
    assert_eq!(objects.len(), 2);
    assert_eq!(keys(&objects[0]), with_keys(&[]));
    assert_eq!(objects[0]["trace"], "eager_arrays.trace.gz");
    assert_eq!(objects[0]["backend"], "mock");
    assert_eq!(objects[0]["allocator"], "immediate");
    assert_eq!(objects[0]["capacity_bytes"], Value::Null);
    assert_eq!(objects[0]["allocations"], 4472);
    assert!(objects[0].get("need_bytes").is_none());
}

#[test]
fn json_with_need_has_the_need() {
    let objects = objects(&binpool(&[
        "replay",
        "--json",
        "--need",
        "eager_arrays.trace.gz",
    ]));
    let need = objects[0]["need_bytes"].as_u64().unwrap();
    assert!(need >= objects[0]["peak_live_bytes"].as_u64().unwrap());
    assert!(objects[0]["need_over_live"].as_f64().unwrap() >= 1.0);
    let added = ["need_bytes", "need_over_live"];
    assert_eq!(keys(&objects[0]), with_keys(&added));
}

#[test]
fn every_size_is_divided_by_the_scale() {
    let peak = |scale| {
        let ran = binpool(&[
            "replay",
            "--json",
            "--scale",
            scale,
            "eager_arrays.trace.gz",
        ]);
        let object = objects(&ran).remove(0);
        assert_eq!(object["scale"].to_string(), scale);
        object["peak_live_bytes"].as_u64().unwrap()
    };
    assert_eq!(peak("1"), 537_018_368);
    // What each of the 4472 blocks loses by rounding down is less than a byte, or gains up to one.
    assert!(peak("64").abs_diff(537_018_368 / 64) < 4472);
}

#[test]
fn without_a_pool_nothing_is_a_hit() {
    let ran = binpool(&[
        "replay",
        "--json",
        "--no-pool",
        "--profile",
        "none",
        "eager_arrays.trace.gz",
    ]);
    let object = objects(&ran).remove(0);
    assert_eq!(object["pool"], false);
    assert_eq!(object["hits"], 0);
    assert_eq!(object["device_allocations"], 4472);
    assert_eq!(object["peak_reserved_bytes"], object["peak_live_bytes"]);
    assert_eq!(object["device_time_us"], 0.0);
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_binpool"))
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces"))
        .args(["replay", "eager_arrays.trace.gz"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{errors}");
    assert_eq!(errors, "");
}

#[test]
fn a_capacity_that_is_too_small_fails_and_names_the_event() {
    let ran = binpool(&["replay", "--capacity", "100MiB", "eager_arrays.trace.gz"]);
    assert_eq!(ran.status, 1);
    let lines: Vec<&str> = ran.errors.lines().collect();
    let [failed, because] = *lines else {
        panic!("{}", ran.errors);
    };
    assert!(failed.contains("eager_arrays.trace.gz, line 3: allocating 192.0 MiB as block 2"));
    assert!(because.starts_with("  because: eager_arrays.trace.gz has up to "));
    assert!(because.contains("live at once, but the capacity is 100.0 MiB"));
}

#[test]
fn a_corrupt_trace_is_named_and_the_others_are_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let corrupt = folder.path().join("corrupt.trace");
    fs::write(&corrupt, "a 0 4096 0\na 1 many 0\n").unwrap();
    let corrupt = corrupt.to_str().unwrap();
    let ran = binpool(&["replay", corrupt, "eager_arrays.trace.gz"]);
    assert_eq!(ran.status, 1);
    assert!(
        ran.errors.contains("corrupt.trace, line 2: expected BYTES"),
        "{}",
        ran.errors
    );
    assert!(ran.output.contains("| eager_arrays "), "{}", ran.output);
}

#[test]
fn a_wrong_command_line_is_explained() {
    for wrong in [
        &["replay"][..],
        &["replay", "--scale", "0", "eager_arrays.trace.gz"],
        &["replay", "--capacity", "lots", "eager_arrays.trace.gz"],
        &[
            "replay",
            "--need",
            "--capacity",
            "1GiB",
            "eager_arrays.trace.gz",
        ],
    ] {
        assert_eq!(binpool(wrong).status, 2, "{wrong:?}");
    }
    let ran = binpool(&["replay", "--capacity", "lots", "eager_arrays.trace.gz"]);
    assert!(
        ran.errors.contains("expected a size, such as 12GiB"),
        "{}",
        ran.errors
    );
    let ran = binpool(&[
        "replay",
        "--need",
        "--allocator",
        "deferred",
        "eager_arrays.trace.gz",
    ]);
    assert_eq!(ran.status, 1);
    assert!(ran.errors.contains("--touch fill"), "{}", ran.errors);
}

#[test]
fn an_opencl_device_is_replayed_on_within_the_capacity() {
    let device = env::var("BINPOOL_TEST_DEVICE").unwrap_or_else(|_| "any".into());
    let on_opencl = [
        "replay",
        "--backend",
        "opencl",
        "--device",
        &device,
        "--scale",
        "64",
    ];
    let with =
        |more: &[&str]| binpool(&[&on_opencl[..], more, &["eager_arrays.trace.gz"]].concat());
    for more in [
        &["--json", "--capacity", "64MiB"][..],
        &["--json", "--allocator", "svm"],
        &["--json", "--allocator", "deferred", "--touch", "fill"],
        &["--json", "--no-pool"],
        &["--json", "--touch", "kernels"],
    ] {
        let objects = objects(&with(more));
        assert_eq!(objects[0]["backend"], "opencl");
        assert_eq!(objects[0]["allocations"], 4472);
    }
    let threads = objects(&with(&["--json", "--threads", "4", "--touch", "kernels"]));
    assert_eq!(threads[0]["allocations"], 4 * 4472);
    assert_eq!(
        (&threads[0]["threads"], &threads[0]["touch"]),
        (&json!(4), &json!("kernels"))
    );
    let ran = with(&["--capacity", "4MiB"]);
    assert_eq!(ran.status, 1);
    assert!(
        ran.errors
            .contains("live at once, but the capacity is 4.0 MiB"),
        "{}",
        ran.errors
    );
}

#[test]
fn no_opencl_is_an_error_of_the_opencl_backend_alone() {
    let run = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_binpool"))
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces"))
            .env("OPENCL_DYLIB_PATH", "/no/such/library.so")
            .args(arguments)
            .output()
            .unwrap();
        (
            output.status.success(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    assert!(run(&["replay", "eager_arrays.trace.gz"]).0);
    // Where the path is wrong, the system's library is looked for, so this may succeed.
    let (succeeded, errors) = run(&[
        "replay",
        "--backend",
        "opencl",
        "--device",
        "no such device",
        "eager_arrays.trace.gz",
    ]);
    assert!(!succeeded);
    assert!(
        errors.contains("no such device") || errors.contains("OpenCL"),
        "{errors}"
    );
}

#[test]
fn bins_manage_a_quarter_more_than_was_in_use_unless_all_is_kept() {
    let reserved_over_live = |more: &[&str]| {
        let mut arguments = vec!["replay", "--json", "--no-segments"];
        arguments.extend(more);
        arguments.push("boxtree_builds.trace.gz");
        let ran = binpool(&arguments);
        assert_eq!(ran.status, 0, "{}", ran.errors);
        let report: Value = serde_json::from_str(&ran.output).unwrap();
        report[0]["reserved_over_live"].as_f64().unwrap()
    };
    assert!(reserved_over_live(&[]) < 1.4);
    assert!(reserved_over_live(&["--retain", "percent-of-peak=200"]) > 1.4);
    assert!(reserved_over_live(&["--retain", "all"]) > 6.0);
    for (bad, expected) in [
        ("percent-of-peak=99", "at least 100 percent"),
        ("percent-of-peak=much", "at least 100 percent"),
        ("unused-for-allocations=0", "must be at least 1"),
        ("at-most=lots", "expected a size, such as 12GiB"),
        ("all,much", "expected all, unused-for-allocations=N"),
    ] {
        let ran = binpool(&["replay", "--no-segments", "--retain", bad, "x"]);
        assert_eq!(ran.status, 2, "{bad}");
        assert!(ran.errors.contains(expected), "{}", ran.errors);
    }
}

#[test]
fn a_device_implies_its_backend_and_contradictions_are_refused() {
    let ran = binpool(&["replay", "--device", "no such", "eager_arrays.trace.gz"]);
    assert_eq!(ran.status, 1);
    assert!(ran.errors.contains("no such"), "{}", ran.errors);
    for (arguments, expected) in [
        (["--backend", "mock", "--device", "gpu"], "`--device`"),
        (["--profile", "pocl", "--device", "gpu"], "`--profile`"),
    ] {
        let ran = binpool(&[&["replay"], &arguments[..], &["eager_arrays.trace.gz"]].concat());
        assert_eq!(ran.status, 2);
        assert!(ran.errors.contains(expected), "{}", ran.errors);
    }
}

#[test]
fn tables_fit_the_terminal() {
    let traces = [
        "replay",
        "eager_arrays.trace.gz",
        "gpt2_varlen_train.trace.gz",
    ];
    let lines = |columns: &str| {
        let ran = binpool_with(&traces, |command| {
            command.env("COLUMNS", columns);
        });
        assert_eq!(ran.status, 0, "{}", ran.errors);
        ran.output
    };
    let width = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap();
    let wide = lines("200");
    assert!(wide.contains("| gpt2_varlen_train "), "{wide}");
    assert!(wide.contains(" peak reserved "), "{wide}");
    let narrow = lines("80");
    assert!(width(&narrow) <= 80, "{narrow}");
    assert!(narrow.contains("| gpt2_varlen_train "), "{narrow}");
    assert!(narrow.contains("(a wider terminal also has: "), "{narrow}");
}

#[test]
fn a_hyphen_is_standard_input() {
    let stdin = || Stdio::from(fs::File::open(trace("eager_arrays.trace.gz")).unwrap());
    for arguments in [
        &["replay", "--json", "-"][..],
        &["tune", "--json", "-"],
        &["view", "--json", "-"],
        &["import", "-"],
    ] {
        let ran = binpool_with(arguments, |command| {
            command.stdin(stdin());
        });
        assert_eq!(ran.status, 0, "{arguments:?}: {}", ran.errors);
        assert!(ran.output.len() > 100, "{arguments:?}: {}", ran.output);
    }
    // One of two files.
    let file = trace("eager_arrays.trace.gz");
    let file = file.to_str().unwrap();
    let page = tempfile::NamedTempFile::new().unwrap();
    let page = page.path().to_str().unwrap();
    for files in [["-", file], [file, "-"]] {
        let ran = binpool_with(&[&["view", "-o", page], &files[..]].concat(), |command| {
            command.stdin(stdin());
        });
        assert_eq!(ran.status, 0, "{files:?}: {}", ran.errors);
    }
}
