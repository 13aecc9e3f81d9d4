//! Other tools' recordings: what becomes of them, and what is said about what does not.

use std::{
    cell::Cell,
    fmt::Write as _,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use binpool_recordings::{Content, Event, Trace};
use binpool_trace::{TraceError, TraceErrorKind};
use flate2::{Compression, write::GzEncoder};
use proptest::prelude::*;
use serde_json::{Value, json};

/// What `imports/write_snapshots.py` describes, on its first device.
const SNAPSHOT: &str = include_str!("../../../replay/tests/imports/snapshot.trace");

/// How the remark begins on a snapshot that does not say where its blocks lay.
const NOT_PLACED: &str = "where its blocks were is unknown: ";

/// What is said of the stacks of a snapshot.
const FRAMES: &str = "left out the frames of libraries at both ends of each call stack";

/// The same program by RMM, over midnight, with a line out of order.
const RMM: &str = "\
g 0 thread 1979932
g 1 thread 1979933
a 13052674048 300000 0 0
f 13052674048 0
a 13054771200 1000000 0 10000 0
a 13056868352 500000 1 20000 1
f 13054771200 900000
a 13054771200 700001 0 1100000 0
f 13056868352 1100000
o 68719476736 0 1200000 0
";

fn file(name: &str) -> PathBuf {
    let imports = Path::new(env!("CARGO_MANIFEST_DIR")).join("../replay/tests/imports");
    imports.join(name)
}

/// Reads a file as the command does, with progress.
fn open_device(
    path: &Path,
    device: Option<usize>,
    progress: &dyn Fn(u64),
) -> Result<Trace, TraceError> {
    let content = Content::open(path, progress)?;
    Trace::read_content(path.display().to_string(), content, device)
}

fn read(bytes: &[u8]) -> Result<Trace, TraceError> {
    Trace::read("t", bytes, None)
}

/// The place and the problem of a recording that is wrong.
fn problem(bytes: &[u8]) -> (String, String) {
    let error = read(bytes).unwrap_err();
    assert_ne!(error.kind(), TraceErrorKind::Io, "{error}");
    (error.place().to_owned(), error.message().to_owned())
}

fn kind(bytes: &[u8]) -> TraceErrorKind {
    read(bytes).unwrap_err().kind()
}

fn snapshot(entries: &[Value], segments: &[Value]) -> Vec<u8> {
    let snapshot = json!({"device_traces": [entries], "segments": segments});
    snapshot.to_string().into_bytes()
}

fn entry(action: &str, address: u64, size: u64) -> Value {
    json!({"action": action, "addr": address, "size": size, "stream": 0})
}

fn segment(state: &str, address: u64, size: u64) -> Value {
    json!({"address": address, "stream": 0, "blocks": [{"size": size, "state": state}]})
}

#[test]
fn a_snapshot_is_the_program_whatever_pickled_it() {
    for name in [
        "snapshot2.pickle",
        "snapshot4.pickle",
        "snapshot5.pickle",
        "snapshot.json",
    ] {
        let trace = Trace::open(&file(name)).unwrap();
        assert_eq!(trace.to_string(), SNAPSHOT, "{name}");
        let expected = [
            "2 blocks: allocated before the recording began: allocated at its start",
            FRAMES,
            "device 0 of 2 has 3.3 MiB live at its peak, and device 1 has 4.0 KiB: `--device` of `binpool view` and of `binpool import` takes another",
        ];
        assert_eq!(trace.remarks(), expected);
        let again = Trace::parse("t", SNAPSHOT.as_bytes()).unwrap();
        assert_eq!(again.header(), trace.header());
        assert_eq!(again.pool_steps(), trace.pool_steps());
        assert_eq!(again.stacks(), trace.stacks());
        assert_eq!(again.shortages(), trace.shortages());
    }
}

#[test]
fn a_log_of_rmm_is_the_program() {
    let trace = Trace::open(&file("rmm.csv")).unwrap();
    assert_eq!(trace.to_string(), RMM);
    let [before, empty] = trace.remarks() else {
        panic!("{:?}", trace.remarks());
    };
    assert!(before.starts_with("1 block: allocated before"), "{before}");
    assert_eq!(empty, "1 line without an address: left out");
}

/// A log of RMM with these lines, without the thread and the time.
fn log(lines: &[&str]) -> Vec<u8> {
    let mut log = "Thread,Time,Action,Pointer,Size,Stream\n".to_owned();
    for line in lines {
        writeln!(log, "1,00:00:00.0,{line}").unwrap();
    }
    log.into_bytes()
}

#[test]
fn each_line_of_rmm_without_an_address_is_left_out_and_counted() {
    let lines = [
        "allocate,0x200,8,0",
        "allocate,(nil),0,0",
        "free,0x0,0,0",
        "deallocate,0,0,0",
        "free,0x200,8,0",
    ];
    let trace = read(&log(&lines)).unwrap();
    assert_eq!(trace.to_string(), "a 512 8 0 0\nf 512 0\n");
    assert_eq!(trace.remarks(), ["3 lines without an address: left out"]);
}

#[test]
fn the_content_says_what_a_file_is() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["snapshot4.pickle", "snapshot.json", "rmm.csv"] {
        let bytes = fs::read(file(name)).unwrap();
        let expected = Trace::open(&file(name)).unwrap().to_string();
        let other = folder.path().join("recording");
        fs::write(&other, &bytes).unwrap();
        assert_eq!(Trace::open(&other).unwrap().to_string(), expected);
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&bytes).unwrap();
        let compressed = encoder.finish().unwrap();
        for called in ["recording", "recording.gz"] {
            let other = folder.path().join(called);
            fs::write(&other, &compressed).unwrap();
            assert_eq!(Trace::open(&other).unwrap().to_string(), expected);
        }
    }
}

#[test]
fn the_device_can_be_chosen() {
    let path = file("snapshot4.pickle");
    let other = open_device(&path, Some(1), &|_| {}).unwrap();
    let text = "\
        h version 2\nh source a memory snapshot of PyTorch\nh device device 1\nh allocator PyTorch's caching allocator\nh blocks segments\n\
        g 0 model/train.py:77 <module>\nk 0 <module> at model/train.py:77\n\
        s 139891379798016 2097152 0\nb 546450702336 139891379798016 0 4096 0\na 139891379798016 4096 0 0 0 0\n\
        p begin 0 31000 of the other device\n";
    assert_eq!(other.to_string(), text);
    let error = open_device(&path, Some(2), &|_| {}).unwrap_err();
    assert!(error.to_string().contains("no device 2"), "{error}");
    assert!(open_device(&file("rmm.csv"), Some(0), &|_| {}).is_ok());
    let error = open_device(&file("rmm.csv"), Some(1), &|_| {}).unwrap_err();
    assert!(error.to_string().contains("no device 1"), "{error}");
}

#[test]
fn progress_counts_the_bytes_of_the_file_compressed_or_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("recording");
    let text = fs::read(file("rmm.csv")).unwrap();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&text).unwrap();
    for bytes in [text, encoder.finish().unwrap()] {
        fs::write(&path, &bytes).unwrap();
        let read = Cell::new(0);
        open_device(&path, None, &|more| read.set(read.get() + more)).unwrap();
        assert_eq!(read.get(), bytes.len() as u64);
    }
}

#[test]
fn a_block_ends_where_its_free_was_requested_if_that_is_all_there_is() {
    let requested = [entry("alloc", 512, 8), entry("free_requested", 512, 8)];
    let trace = read(&snapshot(&requested, &[])).unwrap();
    assert_eq!(trace.to_string(), "a 512 8 0\nf 512\n");
    let completed = [
        entry("alloc", 512, 8),
        entry("alloc", 1024, 9),
        entry("free_requested", 512, 8),
        entry("free_requested", 1024, 9),
        entry("free_completed", 1024, 9),
    ];
    let trace = read(&snapshot(&completed, &[])).unwrap();
    assert_eq!(trace.to_string(), "a 512 8 0\na 1024 9 0\nf 1024\n");
}

#[test]
fn blocks_that_wait_to_be_freed_are_live_where_completions_free() {
    let waiting = [segment("active_pending_free", 4096, 100)];
    let mut entries = vec![entry("alloc", 512, 8), entry("free_requested", 512, 8)];
    let trace = read(&snapshot(&entries, &waiting)).unwrap();
    assert_eq!(trace.to_string(), "a 512 8 0\nf 512\n");
    entries.push(entry("free_completed", 512, 8));
    let trace = read(&snapshot(&entries, &waiting)).unwrap();
    assert_eq!(trace.to_string(), "a 4096 100 0\na 512 8 0\nf 512\n");
}

#[test]
fn blocks_of_a_segment_that_have_no_addresses_follow_one_another() {
    let block = |size: u64, state: &str| json!({"size": size, "state": state});
    let blocks = [
        block(100, "inactive"),
        block(200, "active_allocated"),
        block(50, "active_allocated"),
        json!({"size": 10, "state": "active_allocated", "address": 9000}),
        block(7, "active_allocated"),
    ];
    let segment = json!({"address": 4096, "stream": 0, "blocks": blocks});
    let trace = read(&snapshot(&[], &[segment])).unwrap();
    let expected = "s 4096 4921\nb 16 4096 100 200\na 4196 200 0\nb 17 4096 300 50\na 4396 50 0\n\
                    b 35 4096 4904 10\na 9000 10 0\nb 35 4096 4914 7\na 9010 7 0\n";
    assert!(trace.to_string().ends_with(expected), "{trace}");
}

#[test]
fn a_block_that_lives_at_the_end_is_for_the_stream_of_its_segment() {
    let on_stream = |stream: u64, mut segment: Value| {
        segment["stream"] = json!(stream);
        segment
    };
    let segments = [
        on_stream(7, segment("active_allocated", 4096, 100)),
        on_stream(9, segment("active_allocated", 8192, 200)),
    ];
    let entries = [on_stream(9, entry("alloc", 512, 8))];
    let trace = read(&snapshot(&entries, &segments)).unwrap();
    // Streams have numbers in the order in which blocks name them.
    assert_eq!(trace.to_string(), "a 4096 100 0\na 8192 200 1\na 512 8 1\n");
}

#[test]
fn of_several_devices_that_with_the_most_live_bytes_is_taken() {
    let traces = [(1, 9), (2, 10), (2, 15), (0, 0)].map(|(entries, bytes)| {
        let entry = |number: u64| entry("alloc", number, bytes);
        (0..entries).map(entry).collect::<Vec<_>>()
    });
    let read_with = |bytes: u64| {
        let mut traces = traces.clone();
        for entry in &mut traces[2] {
            entry["size"] = json!(bytes);
        }
        let snapshot = json!({"device_traces": traces, "segments": []});
        read(snapshot.to_string().as_bytes()).unwrap()
    };
    let trace = read_with(15);
    assert_eq!(trace.to_string(), "a 0 15 0\na 1 15 0\n");
    let remark = "device 2 of 4 has 30 B live at its peak, and device 0 has 9 B, device 1 has 20 B: \
                  `--device` of `binpool view` and of `binpool import` takes another";
    assert_eq!(trace.remarks()[1..], [remark]);
    assert!(trace.remarks()[0].starts_with(NOT_PLACED));
    // Of as many, the first.
    assert_eq!(read_with(10).to_string(), "a 0 10 0\na 1 10 0\n");
    assert!(read_with(10).remarks()[1].starts_with("device 1 "));
}

#[test]
fn what_contradicts_itself_is_counted() {
    let entries = [
        entry("alloc", 512, 8),
        entry("alloc", 512, 16),
        entry("free_completed", 512, 16),
        entry("free_completed", 512, 16),
        entry("applause", 512, 16),
    ];
    let trace = read(&snapshot(&entries, &[segment("active_allocated", 512, 7)])).unwrap();
    assert_eq!(trace.to_string(), "a 512 8 0\nf 512\na 512 16 0\nf 512\n");
    let expected = [
        "1 block: allocated again without a free in between: freed at that point",
        "1 block: freed without being live: the free is left out",
        "1 block: live at the end, but freed in the recording: left out",
        "1 entry with an unknown action: left out",
    ];
    assert_eq!(trace.remarks()[1..], expected);
    assert!(trace.remarks()[0].starts_with(NOT_PLACED));
}

#[test]
fn a_replay_that_fails_names_the_entry() {
    let trace = Trace::open(&file("snapshot4.pickle")).unwrap();
    let name = trace.name();
    assert_eq!(
        trace.describe(0),
        format!("{name}, before its first entry: allocating 293.0 KiB as block 139888160669696")
    );
    assert_eq!(
        trace.describe(3),
        format!("{name}, entry 4: allocating 976.6 KiB as block 139888162766848")
    );
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    let missing = [entry("alloc", 512, 8), json!({"action": "alloc"})];
    let (place, wrong) = problem(&snapshot(&missing, &[]));
    assert_eq!(place, "entry 2 of device 0");
    assert!(wrong.starts_with("expected addr to be "));
    let negative = [json!({"action": "alloc", "addr": 1, "size": -1})];
    let (_, wrong) = problem(&snapshot(&negative, &[]));
    assert!(wrong.starts_with("expected size to be "));
    assert_eq!(kind(&snapshot(&[], &[])), TraceErrorKind::NoAllocation);
    assert_eq!(kind(b"{\"segments\": []}"), TraceErrorKind::Foreign);
    let damaged = b"{\n\"segments\": x}";
    assert_eq!(problem(damaged).0, "line 2, column 13");
    assert_eq!(kind(damaged), TraceErrorKind::Malformed);

    let header = "Thread,Time,Action,Pointer,Size,Stream\n";
    let log = |line: &str| problem(format!("{header}{line}\n").as_bytes());
    let (place, wrong) = log("1,00:00:00.0,applaud,0x1,1,0");
    assert_eq!(place, "line 2");
    assert!(wrong.contains("; it is \"applaud\""));
    for (line, field) in [
        ("1,now,free,0x1,1,0", "Time"),
        ("1,00:00:00.0,free,here,1,0", "Pointer"),
        ("1,00:00:00.0,free,0x1,many,0", "Size"),
        ("1,00:00:00.0,free,0x1,1,mine", "Stream"),
    ] {
        let (_, wrong) = log(line);
        let is_it = wrong.starts_with(&format!("expected {field} to be "));
        assert!(is_it, "{line}: {wrong}");
    }
    let (place, wrong) = log("1,00:00:00.0,free");
    assert_eq!(place, "line 2");
    assert!(wrong.starts_with("expected 6 columns"));
    assert_eq!(kind(header.as_bytes()), TraceErrorKind::NoAllocation);
}

#[test]
fn a_damaged_file_is_an_error_or_another_recording_and_never_a_crash() {
    let small = snapshot(&[entry("alloc", 512, 8), entry("oom", 0, 9)], &[]);
    for (name, whole) in [
        (
            "snapshot2.pickle",
            fs::read(file("snapshot2.pickle")).unwrap(),
        ),
        (
            "snapshot4.pickle",
            fs::read(file("snapshot4.pickle")).unwrap(),
        ),
        ("rmm.csv", fs::read(file("rmm.csv")).unwrap()),
        ("small.json", small),
    ] {
        for length in 0..whole.len() {
            let cut = read(&whole[..length]);
            assert!(cut.is_err() || name == "rmm.csv", "{name} {length}");
        }
        for place in 0..whole.len() {
            for change in [1, 0x80] {
                let mut damaged = whole.clone();
                damaged[place] ^= change;
                let _either = read(&damaged);
            }
        }
    }
    let (_, cut) = problem(&fs::read(file("snapshot4.pickle")).unwrap()[..500]);
    assert!(cut.contains("ends here"), "{cut}");
}

#[test]
fn a_pickle_that_calls_something_is_refused() {
    // cos\nsystem\n(S'true'\ntR.
    let (place, wrong) = problem(b"\x80\x02cos\nsystem\n(S'true'\ntR.");
    assert_eq!(place, "byte 3");
    assert!(wrong.ends_with("this one has opcode 0x63"));
}

#[test]
fn a_small_file_takes_little_memory_and_no_stack_however_it_is_knotted() {
    // A million lists in each other, as pickle and as JSON.
    let depth = 1_000_000;
    let deep = [
        &b"\x80\x04"[..],
        &vec![b']'; depth],
        &vec![b'a'; depth - 1],
        b".",
    ]
    .concat();
    assert_eq!(kind(&deep), TraceErrorKind::Foreign);
    let deep = format!("{{\"segments\": {}", "[".repeat(depth));
    assert_eq!(kind(deep.as_bytes()), TraceErrorKind::Malformed);
    // Each list has the one before it a hundred times: 100^30 in all.
    let mut knot = b"\x80\x04]q\x00".to_vec();
    for level in 1..30 {
        knot.extend([b']', b'q', level, b'(']);
        for _ in 0..100 {
            knot.extend([b'h', level - 1]);
        }
        knot.push(b'e');
    }
    knot.push(b'.');
    assert_eq!(kind(&knot), TraceErrorKind::Foreign);
    // A dictionary that holds itself.
    let own = b"\x80\x04}q\x00X\x0d\x00\x00\x00device_tracesh\x00s.";
    assert_eq!(kind(own), TraceErrorKind::Foreign);
    // A text of 2^62 bytes, and a number of 2^32.
    let lie = b"\x80\x04\x8d\x00\x00\x00\x00\x00\x00\x00\x40abc";
    assert_eq!(kind(lie), TraceErrorKind::Malformed);
    let lie = b"\x80\x04\x8b\xff\xff\xff\xff1";
    assert_eq!(kind(lie), TraceErrorKind::Malformed);
}

proptest! {
    #[test]
    fn any_bytes_behind_a_beginning_give_a_trace_or_an_error(
        start in prop_oneof![
            Just(&b"\x80\x04"[..]),
            Just(&b"{\"device_traces\": [["[..]),
            Just(&b"Thread,Time,Action,Pointer,Size,Stream\n"[..]),
        ],
        rest in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let _either = read(&[start, &rest].concat());
    }
}

#[test]
fn a_scaled_import_is_a_trace_like_any_other() {
    let trace = Trace::open(&file("rmm.csv")).unwrap().scaled_down(1000);
    let first = trace.events()[0];
    let expected = Event::Allocate {
        block: 0,
        bytes: 300,
        stream: 0,
    };
    assert_eq!(first, expected);
}
