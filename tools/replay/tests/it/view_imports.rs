//! What `binpool view` shows of PyTorch's snapshots is what PyTorch's entries say.

use std::{fs, io::Read, path::Path};

use binpool_recordings::{
    Content, Trace,
    view::{History, Origin},
};
use flate2::read::GzDecoder;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    browser::Page,
    common::{binpool, unpickled},
    view_page::shown,
};

const NAMES: [&str; 3] = ["tiny_gpt_train", "tiny_gpt_oom", "two_streams"];

/// A snapshot that PyTorch wrote, read without this crate.
fn snapshot(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../snapshots/{name}.pickle.gz"));
    let mut bytes = Vec::new();
    let mut decoder = GzDecoder::new(fs::File::open(path).unwrap());
    decoder.read_to_end(&mut bytes).unwrap();
    unpickled(&bytes)
}

fn read(snapshot: &Value) -> Trace {
    Trace::read("t", snapshot.to_string().as_bytes(), None).unwrap()
}

fn happened(snapshot: &Value) -> History {
    let trace = read(snapshot);
    let remarks = trace.remarks().to_vec();
    History::happened(&trace).unwrap_or_else(|| panic!("{remarks:?}"))
}

/// The page that the command writes of a file.
fn page_of(file: &str) -> Page {
    let folder = tempfile::tempdir().unwrap();
    let html = folder.path().join("page.html");
    let ran = binpool(&["view", file, "-o", html.to_str().unwrap()]);
    assert_eq!(ran.status, 0, "{}", ran.errors);
    Page::new(fs::read_to_string(html).unwrap())
}

fn list<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap()
}

fn sum(values: &[Value], key: &str) -> u64 {
    values.iter().map(|value| number(value, key)).sum()
}

/// The bytes of the segments that are there at a moment.
fn reserved(history: &History, moment: usize) -> u64 {
    let there = history
        .segments
        .iter()
        .filter(|segment| segment.from < moment && segment.to.is_none_or(|to| moment <= to));
    there.map(|segment| segment.bytes).sum()
}

/// The reserved bytes after each entry that allocates or frees a block, up to the next such entry: before what is taken for that, and after
/// what is given back.
fn reserved_by_entries(snapshot: &Value) -> Vec<u64> {
    let entries = snapshot["device_traces"][0].as_array().unwrap();
    let bytes = |action: &str| -> u64 {
        let of = entries.iter().filter(|entry| entry["action"] == action);
        of.map(|entry| number(entry, "size")).sum()
    };
    let at_end = sum(list(snapshot, "segments"), "total_size");
    let mut now = at_end + bytes("segment_free") - bytes("segment_alloc");
    let mut told = Vec::new();
    let mut taken = 0;
    for entry in entries {
        match entry["action"].as_str().unwrap() {
            "segment_alloc" => taken += number(entry, "size"),
            "segment_free" => now -= number(entry, "size"),
            "alloc" | "free_completed" => {
                told.push(now);
                now += std::mem::take(&mut taken);
            }
            _ => {}
        }
    }
    told.push(now + taken);
    assert_eq!(*told.last().unwrap(), at_end);
    told
}

#[test]
fn what_is_reserved_over_time_is_what_pytorchs_entries_say() {
    for name in NAMES {
        let snapshot = snapshot(name);
        let history = happened(&snapshot);
        assert_eq!(history.origin, Origin::Happened);
        assert_eq!(
            history.allocator.as_deref(),
            Some("PyTorch's caching allocator")
        );
        let told = reserved_by_entries(&snapshot);
        let moments = history.last_moment();
        // Blocks from before the recording are allocated first.
        let before = moments + 1 - told.len();
        for (entry, bytes) in told.iter().enumerate().skip(1) {
            assert_eq!(
                reserved(&history, before + entry),
                *bytes,
                "{name}, {entry}"
            );
        }
        if before > 0 {
            assert_eq!(reserved(&history, before), told[0], "{name}");
        }
    }
}

/// The live blocks at a moment: segment, offset and bytes.
fn places(history: &History, moment: usize) -> Vec<(usize, u64, u64)> {
    let there = history
        .blocks
        .iter()
        .filter(|block| block.from < moment && block.to.is_none_or(|to| moment <= to));
    let places = there.map(|block| (block.segment.unwrap(), block.offset, block.class_bytes));
    let mut places: Vec<_> = places.collect();
    places.sort_unstable();
    places
}

fn assert_apart(history: &History, moment: usize) {
    let places = places(history, moment);
    for pair in places.windows(2) {
        let [(segment, offset, bytes), (other, next, _)] = pair else {
            unreachable!()
        };
        assert!(
            segment < other || offset + bytes <= *next,
            "at {moment}: {pair:?}"
        );
    }
    for (segment, offset, bytes) in places {
        let segment = &history.segments[segment];
        assert!(offset + bytes <= segment.bytes);
        assert!(
            segment.from < moment && segment.to.is_none_or(|to| moment <= to),
            "at {moment}"
        );
    }
}

#[test]
fn blocks_lie_in_segments_that_are_there_and_do_not_overlap_at_any_moment() {
    for name in NAMES {
        let history = happened(&snapshot(name));
        for moment in 0..=history.last_moment() {
            assert_apart(&history, moment);
        }
    }
}

/// The bytes of blocks at the end that wait for a stream or are in use.
fn sizes_at_end(snapshot: &Value) -> Vec<u64> {
    let blocks = list(snapshot, "segments")
        .iter()
        .flat_map(|segment| list(segment, "blocks"));
    let used = blocks.filter(|block| block["state"] != "inactive");
    let mut sizes: Vec<u64> = used.map(|block| number(block, "size")).collect();
    sizes.sort_unstable();
    sizes
}

fn sizes_shown_at_end(history: &History) -> Vec<u64> {
    let places = places(history, history.last_moment());
    let mut sizes: Vec<u64> = places.into_iter().map(|(.., bytes)| bytes).collect();
    sizes.sort_unstable();
    sizes
}

#[test]
fn blocks_take_the_bytes_that_pytorch_says_and_that_follow_from_its_rules() {
    for name in NAMES {
        let mut snapshot = snapshot(name);
        let sizes = sizes_at_end(&snapshot);
        assert_eq!(sizes_shown_at_end(&happened(&snapshot)), sizes, "{name}");
        if name == "tiny_gpt_train" {
            // Recorded from its first allocation on: the entries alone say it, too.
            for segment in snapshot["segments"].as_array_mut().unwrap() {
                segment["blocks"] = json!([]);
            }
            assert_eq!(sizes_shown_at_end(&happened(&snapshot)), sizes);
        }
    }
}

#[test]
fn the_stacks_are_whole_between_the_programs_calls() {
    let snapshot = snapshot("tiny_gpt_train");
    let trace = read(&snapshot);
    let outermost = |stack: &Vec<String>| {
        stack
            .last()
            .unwrap()
            .starts_with("<module> at tiny_gpt/train_step.py:")
    };
    assert!(!trace.stacks().is_empty() && trace.stacks().iter().all(outermost));
    // As many frames as from the program's innermost to its outermost one, which is where the group is.
    let is_own = |frame: &Value| {
        !frame["filename"]
            .as_str()
            .unwrap()
            .contains("site-packages")
    };
    let entries = snapshot["device_traces"][0].as_array().unwrap();
    let allocations = entries.iter().filter(|entry| entry["action"] == "alloc");
    let mut callers = 0;
    for (block, entry) in allocations.enumerate() {
        let frames = list(entry, "frames");
        let Some(from) = frames.iter().position(is_own) else {
            assert_eq!((frames.len(), trace.stack_of(block)), (0, None));
            continue;
        };
        let to = frames.iter().rposition(is_own).unwrap();
        let stack = &trace.stacks()[trace.stack_of(block).unwrap()];
        assert_eq!(stack.len(), to - from + 1);
        let (function, place) = stack[0].split_once(" at ").unwrap();
        let group = trace.group_of(block).unwrap();
        assert_eq!(group, format!("{place} {function}"));
        let line = &frames[from]["line"];
        assert_eq!(place, format!("tiny_gpt/train_step.py:{line}"));
        callers += 1;
    }
    assert!(callers > 500, "{callers}");
}

fn numbers(arguments: &[&str]) -> (Value, String) {
    let ran = binpool(&[&["view", "--json"], arguments].concat());
    assert_eq!(ran.status, 0, "{}", ran.errors);
    (serde_json::from_str(&ran.output).unwrap(), ran.errors)
}

#[test]
fn a_snapshot_that_ran_out_says_what_the_device_had_free() {
    let entries = snapshot("tiny_gpt_oom")["device_traces"][0].clone();
    let oom = entries
        .as_array()
        .unwrap()
        .iter()
        .find(|entry| entry["action"] == "oom")
        .unwrap()
        .clone();
    let (numbers, errors) = numbers(&["../snapshots/tiny_gpt_oom.pickle.gz"]);
    assert!(
        errors.contains("out of memory, as it happened: a limit is reached"),
        "{errors}"
    );
    let report = &numbers["shortages"][0]["report"];
    assert_eq!(report["requested_bytes"], oom["size"]);
    assert_eq!(report["device_free_bytes"], oom["device_free"]);
    assert_eq!(report["verdict"], "limited");
    let entries = entries.as_array().unwrap();
    let at = entries
        .iter()
        .position(|entry| entry["action"] == "oom")
        .unwrap();
    let given_back = entries[..at]
        .iter()
        .rev()
        .take_while(|entry| entry["action"] == "segment_free");
    let given_back: u64 = given_back.map(|entry| number(entry, "size")).sum();
    assert_eq!(report["released_bytes"], given_back);
    let moment = usize::try_from(number(&numbers["shortages"][0], "moment")).unwrap();
    let reserved = reserved(&happened(&snapshot("tiny_gpt_oom")), moment);
    assert_eq!(
        number(report, "capacity_bytes"),
        reserved + number(&oom, "device_free")
    );
    assert_eq!(numbers["capacity_bytes"], report["capacity_bytes"]);
}

/// A snapshot of devices 0 and 2. Each has a segment with two blocks, one of which ends, and a segment that has a block of another stream when it ends:
/// device 0 still waits for that, and device 2 has given it back.
fn two_devices() -> Value {
    let device = |device: u64| {
        let base = (device + 1) << 40;
        let entry = |action: &str, address: u64, size: u64, time: u64| json!({ "action": action, "addr": base + address, "size": size, "stream": 0, "time_us": time });
        let mut entries = vec![
            entry("segment_alloc", 0, 2 << 20, 10),
            entry("alloc", 0, 1000 * (device + 1), 11),
            entry("alloc", 4096, 600, 12),
            entry("segment_alloc", 1 << 30, 20 << 20, 13),
            entry("alloc", 1 << 30, 3 << 20, 14),
            entry("free_requested", 4096, 600, 15),
            entry("free_completed", 4096, 600, 15),
            entry("free_requested", 1 << 30, 3 << 20, 16),
        ];
        if device == 2 {
            entries.push(entry("free_completed", 1 << 30, 3 << 20, 17));
            entries.push(entry("segment_free", 1 << 30, 20 << 20, 18));
            entries.push(entry("alloc", 8192, 512, 19));
        }
        let block = |address: u64, size: u64, state: &str| json!({ "address": base + address, "size": size, "requested_size": size, "state": state });
        let segment = |address: u64, bytes: u64, blocks: Value| {
            json!({ "device": device, "address": base + address, "total_size": bytes, "stream": 0,
                "segment_pool_id": [0, 7], "blocks": blocks })
        };
        let mut segments = vec![segment(
            0,
            2 << 20,
            json!([block(0, 1024 * (device + 1), "active_allocated")]),
        )];
        if device == 0 {
            segments.push(segment(
                1 << 30,
                20 << 20,
                json!([block(1 << 30, 3 << 20, "active_pending_free")]),
            ));
        } else {
            segments[0]["blocks"].as_array_mut().unwrap().push(block(
                8192,
                512,
                "active_allocated",
            ));
        }
        (entries, segments)
    };
    let ((first, mut segments), (second, more)) = (device(0), device(2));
    segments.extend(more);
    json!({ "device_traces": [first, [], second], "segments": segments })
}

#[test]
fn all_devices_of_a_snapshot_are_read() {
    let text = two_devices().to_string();
    let content = Content::new(text.as_bytes()).unwrap();
    let traces = Trace::read_devices("t", content).unwrap();
    let devices: Vec<usize> = traces.iter().map(|(device, _)| *device).collect();
    assert_eq!(devices, [0, 2]);
    for (device, trace) in traces {
        assert_eq!(trace.remarks(), [""; 0], "device {device}");
        let history = History::happened(&trace).unwrap();
        assert_eq!(history.device, format!("device {device}"));
        let end = history.last_moment();
        let (reserved_at_end, blocks) = if device == 0 {
            (22 << 20, vec![1024, 3 << 20])
        } else {
            (2 << 20, vec![512, 3072])
        };
        assert_eq!(reserved(&history, end), reserved_at_end);
        assert_eq!(
            sizes_shown_at_end(&history),
            blocks,
            "one waits for a stream"
        );
        for moment in 0..=end {
            assert_apart(&history, moment);
        }
    }
}

#[test]
fn a_picture_and_json_are_of_one_device_and_the_page_has_a_menu() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("two.json");
    fs::write(&file, two_devices().to_string()).unwrap();
    let file = file.to_str().unwrap();
    let (busiest, errors) = numbers(&[file]);
    assert_eq!(busiest["device"], "device 2");
    assert!(
        errors.contains(
            "device 2 of 0, 2, which has the most live bytes: `--device` selects another"
        ),
        "{errors}"
    );
    let (first, errors) = numbers(&[file, "--device", "0"]);
    assert_eq!(first["device"], "device 0");
    assert!(!errors.contains("selects another"), "{errors}");

    let page = page_of(file);
    let there = page.run(
        "",
        "const menu = document.getElementById('history');
         const names = [...menu.options].map(option => option.textContent);
         const seen = [];
         for (let place = 0; place < names.length; place++) {
           const menu = document.getElementById('history');
           menu.selectedIndex = place;
           menu.dispatchEvent(new Event('change'));
           await settle();
           seen.push([text('#origin'), text('.head .quiet'), text('#counterpart-button')]);
         }
         return { names, seen };",
    );
    let names = [
        "device 0, as it happened",
        "device 0, with binpool",
        "device 2, as it happened",
        "device 2, with binpool",
    ];
    assert_eq!(there["names"], json!(names));
    for (place, seen) in there["seen"].as_array().unwrap().iter().enumerate() {
        let happened = place % 2 == 0;
        let (origin, button) = if happened {
            (
                "As it happened, by PyTorch's caching allocator",
                "What binpool would do",
            )
        } else {
            ("Simulated", "What happened")
        };
        assert_eq!((&seen[0], &seen[2]), (&json!(origin), &json!(button)));
        let device = format!("device {} ·", place / 2 * 2);
        assert_eq!(
            seen[1].as_str().unwrap().starts_with(&device),
            happened,
            "{seen}"
        );
    }
}

#[test]
fn the_numbers_are_of_the_device_with_the_most_live_bytes_also_beside_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("three.json");
    let mut snapshot = two_devices();
    let traces = snapshot["device_traces"].as_array_mut().unwrap();
    *traces = vec![traces[0].clone(), traces[2].clone(), traces[0].clone()];
    // What is there at the end is taken from the entries.
    snapshot.as_object_mut().unwrap().remove("segments");
    fs::write(&file, snapshot.to_string()).unwrap();
    let page = folder.path().join("page.html");
    let (numbers, _) = numbers(&[file.to_str().unwrap(), "-o", page.to_str().unwrap()]);
    assert_eq!(
        (&numbers["origin"], &numbers["blocks"]),
        (&json!("happened"), &json!(4))
    );
}

#[test]
fn a_snapshot_whose_requests_cannot_be_replayed_is_shown_all_the_same() {
    // A replay has 1024 queues at most.
    let base = 1_u64 << 40;
    let mut entries =
        vec![json!({ "action": "segment_alloc", "addr": base, "size": 2 << 20, "stream": 0 })];
    entries.extend((0..1500_u64).map(|number| {
        json!({ "action": "alloc", "addr": base + number * 512, "size": 512, "stream": number })
    }));
    let segments = [json!({ "address": base, "total_size": 2 << 20, "blocks": [] })];
    let snapshot = json!({ "device_traces": [entries], "segments": segments });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("streams.json");
    fs::write(&file, snapshot.to_string()).unwrap();
    let page = folder.path().join("page.html");
    let ran = binpool(&["view", file.to_str().unwrap(), "-o", page.to_str().unwrap()]);
    assert_eq!(ran.status, 0, "{}", ran.errors);
    assert!(
        ran.errors.contains("not shown with binpool"),
        "{}",
        ran.errors
    );
    assert!(page.exists());
}

#[test]
fn a_button_leads_to_what_binpool_would_do_and_back() {
    let file = "../snapshots/tiny_gpt_oom.pickle.gz";
    let (happened, _) = numbers(&[file]);
    let (simulated, _) = numbers(&[file, "--simulate"]);
    assert_eq!(
        (&happened["origin"], &simulated["origin"]),
        (&json!("happened"), &json!("simulated"))
    );
    let page = page_of(file);
    let there = page.run(
        "",
        "const seen = () => [text('#origin'), figures().reserved];
         const free = [text('#shortage-device-free'), text('#unknown-limit'), text('#ran-out .figure')];
         const answer = text('#ran-out');
         const sentence = text('#counterpart p');
         const first = seen();
         document.getElementById('counterpart-button').click();
         await settle();
         const second = [...seen(), document.getElementById('history').selectedIndex];
         document.getElementById('counterpart-button').click();
         await settle();
         return { free, answer, sentence, first, second, third: seen() };",
    );
    let at_start = |numbers: &Value| numbers["peak_active"]["reserved_bytes"].clone();
    assert_eq!(
        there["first"],
        json!([
            "As it happened, by PyTorch's caching allocator",
            at_start(&happened)
        ])
    );
    assert_eq!(
        there["second"],
        json!(["Simulated", at_start(&simulated), 1])
    );
    assert_eq!(there["third"], there["first"]);
    let [theirs, ours] =
        [&happened, &simulated].map(|of| shown(&of["peak_reserved"]["reserved_bytes"]));
    let active = shown(&happened["peak_active"]["active_bytes"]);
    let sentence = format!(
        "At most {theirs} were reserved by PyTorch's caching allocator, and {ours} by binpool in segments for the same requests, in a simulation. \
         At most {active} were in use."
    );
    assert_eq!(there["sentence"], sentence);
    // A limit was reached, so what the device had left does not tell how close it was.
    assert!(!there["answer"].as_str().unwrap().contains("to spare"));
    let free = shown(&happened["shortages"][0]["report"]["device_free_bytes"]);
    let reserved = shown(&happened["shortages"][0]["report"]["reserved_bytes"]);
    let told = there["free"].as_array().unwrap().iter();
    let told: Vec<&str> = told.map(|text| text.as_str().unwrap()).collect();
    assert!(told[0].starts_with(&free), "{told:?}");
    for part in [
        "torch.cuda.set_per_process_memory_fraction",
        &free,
        &reserved,
    ] {
        assert!(told[1].contains(part), "{told:?}");
    }
    assert_eq!(
        told[2],
        format!(
            "78.1 MiBasked for, with {reserved} reserved: more than a limit that the program set"
        )
    );
}

#[test]
fn an_imported_trace_is_shown_as_the_snapshot_is() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.trace.gz");
    let out = out.to_str().unwrap();
    for name in NAMES {
        let file = format!("../snapshots/{name}.pickle.gz");
        assert_eq!(binpool(&["import", &file, "-o", out]).status, 0);
        let (mut direct, mut imported) = (numbers(&[&file]).0, numbers(&[out]).0);
        assert_eq!(direct["origin"], "happened");
        for numbers in [&mut direct, &mut imported] {
            numbers["file"] = Value::Null;
        }
        assert_eq!(direct, imported, "{name}");
    }
}

#[test]
fn a_snapshot_that_contradicts_itself_is_simulated_and_it_says_why() {
    let whole = two_devices();
    let entries = |change: &dyn Fn(&mut Vec<Value>)| {
        let mut snapshot = whole.clone();
        change(snapshot["device_traces"][0].as_array_mut().unwrap());
        snapshot
    };
    let segments = |change: &dyn Fn(&mut Vec<Value>)| {
        let mut snapshot = whole.clone();
        change(snapshot["segments"].as_array_mut().unwrap());
        snapshot
    };
    let base = 1_u64 << 40;
    let alloc = |address: u64| json!({ "action": "alloc", "addr": address, "size": 600 });
    let mut in_use = entries(&|all| {
        all.push(json!({"action": "segment_free", "addr": base, "size": 2 << 20}));
    });
    in_use["segments"].as_array_mut().unwrap().remove(0);
    for (snapshot, why) in [
        (in_use, "memory is released while it has blocks"),
        (
            entries(&|all| all[1]["addr"] = json!(77)),
            "outside all known segments",
        ),
        (
            entries(&|all| all.insert(2, alloc(base + 512))),
            "two blocks overlap",
        ),
        (
            entries(&|all| all[4]["size"] = json!(i64::MAX)),
            "after the end of its memory",
        ),
        (
            entries(&|all| all[3]["addr"] = json!(base)),
            "two segments overlap",
        ),
        (
            entries(&|all| all[3]["addr"] = json!(base + 4096)),
            "the segments at the end",
        ),
        (
            entries(&|all| all[0]["size"] = json!(i64::MAX)),
            "the segments at the end",
        ),
        (
            entries(&|all| all.push(json!({"action": "segment_free", "addr": base, "size": 9}))),
            "memory is released while",
        ),
        (
            entries(&|all| {
                all.push(json!({"action": "segment_free", "addr": base, "size": 2 << 20}));
            }),
            "two segments overlap",
        ),
        (
            segments(&|all| all[0]["total_size"] = json!(4096)),
            "the segments at the end",
        ),
        (
            segments(&|all| all[0]["address"] = json!(base + 512)),
            "the segments at the end",
        ),
        (
            segments(&|all| drop(all.remove(0))),
            "the segments at the end",
        ),
        (
            segments(&|all| {
                let mut copy = all[0].clone();
                copy["blocks"] = json!([]);
                all.push(copy);
            }),
            "two segments overlap",
        ),
    ] {
        let trace = Trace::read("t", snapshot.to_string().as_bytes(), Some(0)).unwrap();
        let found = trace
            .remarks()
            .iter()
            .find(|remark| remark.starts_with("where its blocks were is unknown: "));
        assert!(
            found.is_some_and(|remark| remark.contains(why)),
            "{why}: {:?}",
            trace.remarks()
        );
        assert!(trace.header().is_empty() && trace.pool_steps().is_empty());
        assert!(History::happened(&trace).is_none());
    }
    // A list of entries that several devices share could stand for more than fits into memory.
    let shared = b"\x80\x04}(X\x0d\x00\x00\x00device_traces](](}(X\x06\x00\x00\x00actionX\x05\x00\x00\x00allocX\x04\x00\x00\x00addrK\x01X\x04\x00\x00\x00sizeK\x01ueq\x00h\x00eu.";
    let error = Trace::read_devices("t", Content::new(&shared[..]).unwrap()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("device 1: expected its trace to be a list that no device before has"),
        "{error}"
    );
}

#[test]
fn mapped_ranges_are_memory_of_their_own_and_a_block_across_them_is_not_placed() {
    let entry = |action: &str, address: u64, size: u64| json!({ "action": action, "addr": address, "size": size, "stream": 0 });
    let base = 1_u64 << 40;
    let entries = [
        entry("segment_map", base, 2 << 20),
        entry("alloc", base, 1 << 20),
        entry("segment_map", base + (2 << 20), 2 << 20),
        entry("alloc", base + (2 << 20), 2 << 20),
        entry("free_completed", base + (2 << 20), 2 << 20),
        entry("segment_unmap", base + (2 << 20), 2 << 20),
    ];
    let snapshot = |entries: &[Value], bytes: u64| {
        let segments = [json!({ "address": base, "total_size": bytes, "blocks": [] })];
        json!({ "device_traces": [entries], "segments": segments })
    };
    let history = happened(&snapshot(&entries, 2 << 20));
    let told: Vec<u64> = (0..=history.last_moment())
        .map(|moment| reserved(&history, moment))
        .collect();
    assert_eq!(told, [0, 2 << 20, 4 << 20, 2 << 20]);
    let mut across = entries[..4].to_vec();
    across[3] = entry("alloc", base + (1 << 20), 2 << 20);
    let trace = read(&snapshot(&across, 4 << 20));
    assert!(
        trace.remarks()[0].contains("as in expandable segments"),
        "{:?}",
        trace.remarks()
    );
}

proptest! {
    #[test]
    fn whatever_addresses_and_sizes_a_snapshot_has_it_is_placed_without_overlaps_or_simulated(
        steps in prop::collection::vec((0..7_usize, 0..12_u64, 0..12_u64, 0..3_usize), 1..60),
        ends in prop::collection::vec((0..12_u64, 0..12_u64, 0..3_usize), 0..4),
    ) {
        // Small numbers, so that ranges touch and overlap, and the largest ones.
        let scaled = |number: u64, scale: usize| match scale {
            0 => number * 512,
            1 => number << 20,
            _ => (i64::MAX as u64) - number,
        };
        let actions = ["alloc", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap", "oom"];
        let entries: Vec<Value> = steps.iter().map(|(action, address, size, scale)| json!({
            "action": actions[*action], "addr": scaled(*address, 1), "size": scaled(*size, *scale), "stream": 0,
            "device_free": scaled(*size, *scale),
        })).collect();
        let segments: Vec<Value> = ends.iter().map(|(address, size, scale)| json!({
            "address": scaled(*address, 1), "total_size": scaled(*size, *scale),
            "blocks": [{ "size": scaled(*size, *scale), "state": "active_allocated" }],
        })).collect();
        let snapshot = json!({ "device_traces": [entries], "segments": segments });
        if let Ok(trace) = Trace::read("t", snapshot.to_string().as_bytes(), None) {
            let again = Trace::parse("t", trace.to_string().as_bytes()).unwrap();
            prop_assert_eq!(again.pool_steps(), trace.pool_steps());
            prop_assert_eq!(again.shortages(), trace.shortages());
            let history = History::happened(&trace);
            let is_remarked = trace.remarks().iter().any(|remark| remark.starts_with("where its blocks were"));
            prop_assert_eq!(history.is_none(), is_remarked);
            if let Some(history) = history {
                for moment in 0..=history.last_moment() {
                    assert_apart(&history, moment);
                }
                prop_assert_eq!(history.numbers().blocks, trace.allocations());
            }
        }
    }
}
