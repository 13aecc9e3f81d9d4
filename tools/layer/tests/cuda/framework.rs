//! What a framework says of its own allocator.

use std::ffi::{c_char, c_int};

use crate::{
    calls::{MIB, allocate, begin, cuMemCreate, cuMemRelease, free},
    child::in_child,
    recorded::{of, record},
};

#[repr(C)]
struct Event {
    what: u32,
    device: c_int,
    address: u64,
    bytes: u64,
    granted: u64,
    stream: u64,
    note: *const c_char,
    own_frames: u32,
}

unsafe extern "C" {
    fn binpool_run_attach(are_tensors: c_int, allocator: *const c_char) -> c_int;
    fn binpool_run_device(number: c_int, name: *const c_char, bytes: u64);
    fn binpool_run_event(event: *const Event);
    fn binpool_run_pool(served: u64, refused: u64, reserved: u64, held: u64);
}

const ALLOCATED: u32 = 0;
const WAITING: u32 = 1;
const FREED: u32 = 2;
const TAKEN: u32 = 3;
const GIVEN_BACK: u32 = 4;
const REFUSED: u32 = 7;
const ARRAY: u32 = 1 << 16;

/// Attaches a framework that tells of its segments, too.
fn attach() -> c_int {
    unsafe {
        binpool_run_device(0, c"a card".as_ptr(), 1 << 30);
        binpool_run_attach(1, c"its allocator".as_ptr())
    }
}

fn tell(what: u32, address: u64, bytes: u64, stream: u64) {
    tell_of(&Event {
        what,
        device: 0,
        address,
        bytes,
        granted: 0,
        stream,
        note: std::ptr::null(),
        own_frames: 0,
    });
}

fn tell_of(event: &Event) {
    unsafe { binpool_run_event(event) };
}

/// The lines, without times and call stacks.
fn lines_of(lines: &[String], letters: &[&str]) -> Vec<String> {
    let lines = lines.iter().filter_map(|line| {
        let mut words: Vec<&str> = line.split(' ').collect();
        let letter = words[0];
        if !letters.contains(&letter) {
            return None;
        }
        match letter {
            "a" => words.truncate(4),
            "o" => words.truncate(3),
            "p" => drop(words.remove(3)),
            _ => drop(words.pop()),
        }
        Some(words.join(" "))
    });
    lines.collect()
}

#[test]
fn its_blocks_are_recorded_with_their_addresses_in_the_place_of_its_segments() {
    let program = || {
        begin(64 * MIB);
        let before = allocate(100).unwrap();
        assert_eq!(attach(), 1);
        let segment = allocate(2 * MIB).unwrap();
        let address = segment;
        tell(TAKEN, address, 2 << 20, 0);
        tell(ALLOCATED, address, 1000, 0);
        tell(ALLOCATED, address + 1024, 10, 7);
        // Waits for a stream.
        tell(WAITING, address, 1000, 0);
        tell(FREED, address, 1000, 0);
        tell(REFUSED, 5000, 1 << 40, 0);
        // From before.
        tell(FREED, 77, 1, 0);
        tell(WAITING, 77, 1, 0);
        // Its free was not seen.
        tell(ALLOCATED, address + 1024, 20, 7);
        tell(FREED, address + 1024, 20, 7);
        free(segment);
        tell(GIVEN_BACK, address, 2 << 20, 0);
        free(before);
        // What a later version may say.
        tell(99, address, 1, 0);
    };
    let Some(lines) = record(&[], program) else {
        return;
    };
    let found = lines_of(&lines, &["a", "f", "s", "S", "w", "o", "p"]);
    let segment: u64 = of(&lines, "s")
        .next()
        .unwrap()
        .split(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    let second = segment + 1024;
    let found: Vec<&str> = found
        .iter()
        .map(String::as_str)
        .filter(|line| !line.starts_with("p call"))
        .collect();
    let expected = [
        "p context 0 1: stand-in, PCI 0000:00:00.0".to_owned(),
        "a 1 100 0".to_owned(),
        "p allocator 0 its allocator".to_owned(),
        format!("s {segment} 2097152"),
        "p context 0 1: a card".to_owned(),
        format!("a {segment} 1000 0"),
        format!("a {second} 10 1"),
        format!("w {}", segment >> 8),
        format!("f {segment}"),
        "p free 5000".to_owned(),
        "o 1099511627776 0".to_owned(),
        format!("f {second}"),
        format!("a {second} 20 1"),
        format!("f {second}"),
        format!("S {segment}"),
        "f 1".to_owned(),
    ];
    assert_eq!(found, expected, "{lines:#?}");
    assert!(
        lines.iter().any(|line| line == "g 1 tensor, context 1"),
        "{lines:#?}"
    );
}

#[test]
fn what_the_driver_gives_is_the_segments_of_one_that_does_not_tell_of_them() {
    let program = || {
        begin(64 * MIB);
        assert_eq!(
            unsafe { binpool_run_attach(0, c"its allocator".as_ptr()) },
            1
        );
        let segment = allocate(2 * MIB).unwrap();
        tell(ARRAY | ALLOCATED, segment, 1000, 0);
        tell(ARRAY | FREED, segment, 1000, 0);
        assert_eq!(allocate(100 * MIB), Err(2));
        free(segment);
    };
    let Some(lines) = record(&[], program) else {
        return;
    };
    let letters: Vec<String> = lines_of(&lines, &["a", "f", "s", "S", "o"]);
    let letters: String = letters.iter().map(|line| &line[..1]).collect();
    assert_eq!(letters, "safS", "{lines:#?}");
    assert!(
        lines.iter().any(|line| line == "g 0 array, context 1"),
        "{lines:#?}"
    );
}

#[test]
fn what_a_block_takes_is_said_where_it_changes() {
    let program = || {
        begin(64 * MIB);
        attach();
        for granted in [512, 512, 1024] {
            tell_of(&Event {
                what: ALLOCATED,
                device: 0,
                address: 4096,
                bytes: 100,
                granted,
                stream: 0,
                note: std::ptr::null(),
                own_frames: 0,
            });
            tell(FREED, 4096, 100, 0);
        }
    };
    let Some(lines) = record(&[], program) else {
        return;
    };
    assert_eq!(
        lines_of(&lines, &["b"]),
        ["b 16 0 4096 512", "b 16 0 4096 1024"]
    );
}

#[test]
fn without_a_recording_nothing_is_told() {
    in_child(&[], || {
        begin(64 * MIB);
        assert_eq!(attach(), 0);
        tell(ALLOCATED, 4096, 100, 0);
    });
}

#[test]
fn the_pages_of_a_pool_of_a_framework_are_not_counted_as_its_requests() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pooled");
    let text = path.to_str().unwrap();
    let variables = [("BINPOOL_POOL", "1"), ("BINPOOL_POOLED", text)];
    let ran = in_child(&variables, || {
        begin(64 * MIB);
        unsafe { binpool_run_pool(0, 0, 0, 0) };
        let mut handle = 0;
        let created = unsafe { cuMemCreate(&raw mut handle, 2 * MIB, std::ptr::null(), 0) };
        assert_eq!(created, 0);
        assert_eq!(unsafe { cuMemRelease(handle) }, 0);
        unsafe { binpool_run_pool(7, 1, 2 << 20, 1 << 20) };
    });
    if ran.is_none() {
        return;
    }
    assert!(path.exists());
    let figures = std::fs::read_dir(&folder).unwrap().find_map(|entry| {
        let path = entry.unwrap().path();
        (path.file_name()? != "pooled").then(|| binpool_layer::PoolFigures::read(&path).unwrap())
    });
    let figures = figures.unwrap();
    assert_eq!(
        (figures.requests, figures.served, figures.refused_by_limit),
        (8, 7, 1)
    );
    assert_eq!(
        (figures.most_reserved, figures.held_then),
        (2 << 20, 1 << 20)
    );
}
