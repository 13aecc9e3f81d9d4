//! What the recording has of a program.

use crate::{
    calls::{
        MIB, allocate, allocate_on, begin, create_stream, cuDevicePrimaryCtxRelease_v2,
        cuDevicePrimaryCtxReset_v2, cuMemAllocManaged, cuMemCreate, cuMemRelease, cuMemUnmap,
        fail_once, free, free_on, map_pages,
    },
    child::in_child,
};

/// Runs a program with some settings, and returns its recording.
pub(crate) fn record(variables: &[(&str, &str)], body: impl FnOnce()) -> Option<Vec<String>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.trace");
    let mut variables = variables.to_vec();
    let text = path.to_str().unwrap();
    variables.push(("BINPOOL_RECORD", text));
    in_child(&variables, body)?;
    let text = std::fs::read_to_string(&path).unwrap();
    Some(text.lines().map(str::to_owned).collect())
}

pub(crate) fn of<'a>(lines: &'a [String], letter: &'a str) -> impl Iterator<Item = &'a str> {
    let begin = format!("{letter} ");
    lines
        .iter()
        .filter_map(move |line| line.strip_prefix(&begin))
}

fn program() {
    begin(64 * MIB);
    let stream = create_stream();
    for _ in 0..3 {
        let block = allocate_on(stream, 1000).unwrap();
        free_on(stream, block);
    }
    let plain = allocate(2000).unwrap();
    free(plain);
    let _left = allocate_on(stream, 3000).unwrap();
    let mut managed = 0;
    assert_eq!(unsafe { cuMemAllocManaged(&raw mut managed, 4000, 1) }, 0);
    assert_eq!(allocate(100 * MIB), Err(2));
}

fn check(lines: &[String]) {
    let bytes: Vec<&str> = of(lines, "a")
        .filter_map(|line| line.split(' ').nth(1))
        .collect();
    assert_eq!(
        bytes,
        ["1000", "1000", "1000", "2000", "3000", "4000"],
        "{lines:#?}"
    );
    let streams: Vec<&str> = of(lines, "a")
        .filter_map(|line| line.split(' ').nth(2))
        .collect();
    assert_eq!(streams, ["1", "1", "1", "0", "1", "0"]);
    assert_eq!(of(lines, "f").count(), 4);
    assert_eq!(of(lines, "o").count(), 1);
    let header: Vec<&str> = of(lines, "h").collect();
    assert!(header.contains(&"capacity 67108864"), "{header:?}");
    let context = of(lines, "p").find(|line| line.starts_with("context "));
    let (_, device) = context.unwrap().split_once(": ").unwrap();
    assert!(header.contains(&&*format!("device {device}")), "{header:?}");
    let groups: Vec<&str> = of(lines, "g")
        .filter_map(|line| line.split_once(' '))
        .map(|(_, name)| name)
        .collect();
    assert_eq!(
        groups,
        [
            "async pool, context 1",
            "device, context 1",
            "managed, context 1"
        ]
    );
    let context = of(lines, "p")
        .find(|line| line.starts_with("context"))
        .unwrap();
    assert!(
        context.ends_with("1: stand-in, PCI 0000:00:00.0"),
        "{context}"
    );
    let calls = of(lines, "p").filter(|line| line.starts_with("call"));
    let calls: Vec<&str> = calls
        .filter(|line| line.contains(" cuMemAllocAsync "))
        .collect();
    assert!(
        calls.len() == 1 && calls[0].starts_with("call 4 "),
        "{calls:?}"
    );
}

#[test]
fn a_program_that_calls_the_layer_is_recorded_without_cupti() {
    if let Some(lines) = record(&[], program) {
        check(&lines);
    }
}

#[test]
fn over_pools_it_is_what_the_program_asked_for_that_is_recorded() {
    let Some(lines) = record(&[("BINPOOL_POOL", "1")], program) else {
        return;
    };
    check(&lines);
    let passed: Vec<&str> = of(&lines, "p")
        .filter(|line| line.starts_with("passed"))
        .collect();
    assert!(
        passed.len() == 1 && passed[0].ends_with("cuMemAllocManaged"),
        "{passed:?}"
    );
}

#[test]
fn blocks_end_with_their_context() {
    for pool in ["0", "1"] {
        let Some(lines) = record(&[("BINPOOL_POOL", pool)], || {
            begin(64 * MIB);
            let _left = (allocate(1000), allocate_on(create_stream(), 2000));
            fail_once("cuDevicePrimaryCtxReset");
            assert_eq!(unsafe { cuDevicePrimaryCtxReset_v2(0) }, 999);
            let _left = allocate(3000);
            // It stays retained by that.
            assert_eq!(unsafe { cuDevicePrimaryCtxReset_v2(0) }, 0);
            begin(64 * MIB);
            let _left = allocate(4000);
            assert_eq!(unsafe { cuDevicePrimaryCtxRelease_v2(0) }, 0);
            let _left = allocate(5000);
            assert_eq!(unsafe { cuDevicePrimaryCtxRelease_v2(0) }, 0);
            begin(64 * MIB);
            let _left = allocate(6000);
        }) else {
            return;
        };
        let events: Vec<&str> = lines
            .iter()
            .filter_map(|line| line.split(' ').next())
            .filter(|letter| ["a", "f"].contains(letter))
            .collect();
        let expected = ["a", "a", "a", "f", "f", "f", "a", "a", "f", "f", "a"];
        assert_eq!(events, expected, "{lines:#?}");
        let contexts = of(&lines, "p").filter(|line| line.starts_with("context"));
        assert_eq!(contexts.count(), 3, "{lines:#?}");
    }
}

#[test]
fn pages_are_freed_when_they_are_neither_held_nor_mapped() {
    let Some(lines) = record(&[], || {
        begin(64 * MIB);
        let mapped = map_pages(2 * MIB).unwrap();
        let mut pages = 0;
        unsafe {
            assert_eq!(cuMemCreate(&raw mut pages, 4 * MIB, std::ptr::null(), 0), 0);
            fail_once("cuMemUnmap");
            assert_eq!(cuMemUnmap(mapped, 2 * MIB), 999);
            fail_once("cuMemRelease");
            assert_eq!(cuMemRelease(pages), 999);
            let _between = allocate(1000);
            assert_eq!(cuMemUnmap(mapped, 2 * MIB), 0);
            assert_eq!(cuMemRelease(pages), 0);
        }
    }) else {
        return;
    };
    let events: Vec<&str> = lines
        .iter()
        .filter_map(|line| line.split(' ').next())
        .filter(|letter| ["a", "f"].contains(letter))
        .collect();
    assert_eq!(events, ["a", "a", "a", "f", "f"], "{lines:#?}");
}
