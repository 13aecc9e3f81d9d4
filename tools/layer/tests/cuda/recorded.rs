//! What the recording has of a program.

use crate::{
    calls::{
        MIB, ORDINARY, PER_THREAD, allocate, allocate_from, allocate_on, begin, begin_on, count,
        create_stream, cuCtxDestroy_v2, cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxReset_v2,
        cuMemAllocManaged, cuMemAllocPitch_v2, cuMemCreate, cuMemPoolSetAccess, cuMemRelease,
        cuMemRetainAllocationHandle, cuMemUnmap, cuStreamBeginCapture_v2, cuStreamEndCapture,
        fail_once, free, free_on, make_current, make_pool, map_pages, memory,
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
    assert_eq!(memory().1, 64 * MIB);
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
    let (calls, others): (Vec<&str>, Vec<&str>) =
        calls.partition(|line| line.contains(" cuMemAllocAsync "));
    assert!(!others.iter().any(|line| line.contains("cuMemGetInfo")));
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

/// The numbers of the streams that blocks were allocated for.
fn streams(lines: &[String]) -> Vec<&str> {
    let streams = of(lines, "a").filter_map(|line| line.split(' ').nth(2));
    streams.collect()
}

/// The texts of the notes of a kind.
fn notes<'a>(lines: &'a [String], kind: &str) -> Vec<&'a str> {
    let fields = of(lines, "p").map(|line| line.splitn(4, ' ').collect::<Vec<_>>());
    let of_kind = fields.filter(|fields| fields[0] == kind);
    of_kind.map(|fields| fields[3]).collect()
}

#[test]
fn why_memory_is_from_a_pool_of_the_driver_is_said() {
    let Some(lines) = record(&[("BINPOOL_POOL", "1")], || {
        begin(64 * MIB);
        let (stream, ordinary) = (create_stream(), make_pool(ORDINARY));
        // Handles, another device, security attributes, a maximum, and a use.
        for (word, value) in [(0, 1 << 32), (1, 1 << 32), (2, 8), (3, 8), (4, 1)] {
            let mut properties = ORDINARY;
            properties[word] |= value;
            free_on(
                stream,
                allocate_from(make_pool(properties), stream, 1000).unwrap(),
            );
        }
        free_on(stream, allocate_from(ordinary, stream, 1000).unwrap());
        assert_eq!(count("cuMemAllocFromPoolAsync"), 5);
        unsafe {
            assert_eq!(cuStreamBeginCapture_v2(stream, 2), 0);
            free_on(stream, allocate_from(ordinary, stream, 2000).unwrap());
            assert_eq!(cuStreamEndCapture(stream, &mut 0), 0);
            let itself = std::ptr::from_ref(&[1_i32, 0, 3]).cast();
            assert_eq!(cuMemPoolSetAccess(make_pool(ORDINARY), itself, 1), 0);
        }
        free_on(stream, allocate_from(ordinary, stream, 3000).unwrap());
    }) else {
        return;
    };
    let unlike = ["not from an ordinary pool of the device"; 5];
    let others = [
        "the stream is captured",
        "the program has changed the driver's pools",
    ];
    assert_eq!(notes(&lines, "passed"), [&unlike[..], &others].concat());
}

#[test]
fn contexts_and_streams_of_each_device_have_numbers_until_the_context_ends() {
    let Some(lines) = record(&[], || {
        let own = [0, 1].map(|device| {
            let context = begin_on(device, 64 * MIB);
            (context, create_stream())
        });
        let use_both = || {
            for (context, stream) in own {
                make_current(context);
                free_on(stream, allocate_on(stream, 1000).unwrap());
            }
        };
        use_both();
        use_both();
        assert_eq!(unsafe { cuDevicePrimaryCtxReset_v2(0) }, 0);
        use_both();
        assert_eq!(unsafe { cuCtxDestroy_v2(own[1].0) }, 0);
        use_both();
    }) else {
        return;
    };
    assert_eq!(streams(&lines), ["1", "2", "1", "2", "3", "2", "3", "4"]);
    let expected = [(1, 0), (2, 1), (3, 0), (4, 1)];
    let named =
        expected.map(|(number, device)| format!("{number}: stand-in, PCI 0000:00:{device:02}.0"));
    assert_eq!(notes(&lines, "context"), named);
    let named = [1, 2, 3, 4].map(|number| format!("{number}: a stream, context {number}"));
    assert_eq!(notes(&lines, "stream"), named);
}

#[test]
fn the_legacy_default_stream_is_none_and_each_thread_has_its_own() {
    let Some(lines) = record(&[], || {
        let context = begin_on(0, 64 * MIB);
        let use_all = move || {
            make_current(context);
            for stream in [0, 1, PER_THREAD] {
                free_on(stream, allocate_on(stream, 1000).unwrap());
            }
        };
        use_all();
        use_all();
        std::thread::spawn(use_all).join().unwrap();
    }) else {
        return;
    };
    assert_eq!(
        streams(&lines),
        ["0", "0", "1", "0", "0", "1", "0", "0", "2"]
    );
    let named = [1, 2].map(|number| format!("{number}: the default stream of a thread, context 1"));
    assert_eq!(notes(&lines, "stream"), named);
}

#[test]
fn a_block_that_is_freed_on_another_stream_was_used_there() {
    let Some(lines) = record(&[], || {
        begin(64 * MIB);
        let [one, other] = [(); 2].map(|()| create_stream());
        let blocks = [(); 2].map(|()| allocate_on(one, 1000).unwrap());
        free_on(one, blocks[0]);
        free_on(other, blocks[1]);
    }) else {
        return;
    };
    let ids: Vec<&str> = of(&lines, "a")
        .filter_map(|line| line.split(' ').next())
        .collect();
    let uses: Vec<Vec<&str>> = of(&lines, "u")
        .map(|line| line.split(' ').take(2).collect())
        .collect();
    assert_eq!(uses, [[ids[1], "2"]], "{lines:#?}");
}

#[test]
fn blocks_end_with_a_context_that_is_destroyed() {
    let Some(lines) = record(&[], || {
        let [_, other] = [1, 0].map(|device| begin_on(device, 64 * MIB));
        let _left = (allocate(1000), allocate_on(create_stream(), 2000));
        let one = begin_on(1, 64 * MIB);
        let block = allocate(3000).unwrap();
        assert_eq!(unsafe { cuCtxDestroy_v2(other) }, 0);
        make_current(one);
        free(block);
    }) else {
        return;
    };
    let [mut allocated, mut freed] = ["a", "f"].map(|letter| {
        of(&lines, letter)
            .filter_map(|line| line.split(' ').next())
            .collect::<Vec<_>>()
    });
    let last = *allocated.last().unwrap();
    assert_eq!(freed.pop(), Some(last));
    allocated.pop();
    freed.sort_unstable();
    assert_eq!(freed, allocated, "{lines:#?}");
}

#[test]
fn memory_with_a_pitch_has_the_bytes_of_its_rows() {
    let Some(lines) = record(&[], || {
        begin(64 * MIB);
        let (mut address, mut pitch) = (0, 0);
        let code = unsafe { cuMemAllocPitch_v2(&raw mut address, &raw mut pitch, 500, 10, 4) };
        assert_eq!(code, 0);
    }) else {
        return;
    };
    let bytes: Vec<&str> = of(&lines, "a")
        .filter_map(|line| line.split(' ').nth(1))
        .collect();
    assert_eq!(bytes, ["5120"]);
}

#[test]
fn pages_that_a_program_retains_by_their_address_are_freed_with_that_handle() {
    let Some(lines) = record(&[], || {
        begin(64 * MIB);
        let mapped = map_pages(2 * MIB).unwrap();
        let mut pages = 0;
        unsafe {
            assert_eq!(cuMemRetainAllocationHandle(&raw mut pages, mapped), 0);
            assert_eq!(cuMemUnmap(mapped, 2 * MIB), 0);
            let _between = allocate(1000);
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
    assert_eq!(events, ["a", "a", "f"], "{lines:#?}");
}
