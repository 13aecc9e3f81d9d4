//! The library that the driver loads by itself: what the recording has of a program that calls the driver directly.

use std::ffi::{c_int, c_void};

use crate::{
    calls::{InitializeInjection, MIB, allocate, begin, control, free},
    child::{complaints, is_child, stand_in_path},
    recorded::{of, record},
};

type Allocate = extern "C" fn(*mut u64, usize) -> c_int;
type Free = extern "C" fn(u64) -> c_int;
type AllocateOn = extern "C" fn(*mut u64, usize, usize) -> c_int;
type Create = extern "C" fn(*mut u64, usize, *const c_void, u64) -> c_int;
type Subscribe = extern "C" fn(*mut usize, extern "C" fn(), usize) -> c_int;
type FreeOn = extern "C" fn(u64, usize) -> c_int;

/// A program whose calls go to the driver itself.
fn program() {
    assert_eq!(unsafe { InitializeInjection() }, 1);
    control::<extern "C" fn(c_int, usize)>("stand_in_capacity")(0, 64 * MIB);
    let (mut context, mut stream, mut address) = (0, 0, 0);
    assert_eq!(
        control::<extern "C" fn(*mut usize, c_int) -> c_int>("cuDevicePrimaryCtxRetain")(
            &raw mut context,
            0
        ),
        0
    );
    assert_eq!(
        control::<extern "C" fn(usize) -> c_int>("cuCtxSetCurrent")(context),
        0
    );
    assert_eq!(
        control::<extern "C" fn(*mut usize, u32) -> c_int>("cuStreamCreate")(&raw mut stream, 1),
        0
    );
    let allocate = control::<Allocate>("cuMemAlloc_v2");
    assert_eq!(allocate(&raw mut address, 1000), 0);
    assert_eq!(control::<Free>("cuMemFree_v2")(address), 0);
    assert_eq!(
        control::<AllocateOn>("cuMemAllocAsync")(&raw mut address, 2000, stream),
        0
    );
    assert_eq!(control::<FreeOn>("cuMemFreeAsync")(address, stream), 0);
    assert_eq!(allocate(&raw mut address, 100 * MIB), 2);
    // A free that fails changes nothing.
    assert_eq!(allocate(&raw mut address, 3000), 0);
    assert_ne!(control::<Free>("cuMemFree_v2")(address + 8), 0);
    let mut pages = 0;
    assert_eq!(
        control::<Create>("cuMemCreate")(&raw mut pages, 2 * MIB, std::ptr::null(), 0),
        0
    );
    assert_eq!(control::<Free>("cuMemRelease")(pages), 0);
}

#[test]
fn a_program_that_calls_the_driver_is_recorded_by_cupti() {
    let Some(lines) = record(&[("BINPOOL_CUPTI", stand_in_path())], program) else {
        return;
    };
    let bytes: Vec<&str> = of(&lines, "a")
        .filter_map(|line| line.split(' ').nth(1))
        .collect();
    assert_eq!(bytes, ["1000", "2000", "3000", "2097152"], "{lines:#?}");
    assert_eq!((of(&lines, "f").count(), of(&lines, "o").count()), (3, 1));
    let groups: Vec<&str> = of(&lines, "g")
        .filter_map(|line| Some(line.split_once(' ')?.1))
        .collect();
    assert_eq!(
        groups,
        [
            "device, context 1",
            "async pool, context 1",
            "mapped, context 1"
        ]
    );
    let mut calls = of(&lines, "p").filter(|line| line.starts_with("call"));
    assert!(
        calls.any(|line| line.starts_with("call 3 ") && line.contains(" cuMemAlloc_v2 ")),
        "{lines:#?}"
    );
}

#[test]
fn a_program_that_calls_the_layer_is_not_recorded_by_cupti_too() {
    let Some(lines) = record(&[("BINPOOL_CUPTI", stand_in_path())], || {
        begin(64 * MIB);
        assert_eq!(unsafe { InitializeInjection() }, 1);
        free(allocate(1000).unwrap());
    }) else {
        return;
    };
    assert_eq!(
        (of(&lines, "a").count(), of(&lines, "f").count()),
        (1, 1),
        "{lines:#?}"
    );
}

#[test]
fn cupti_is_found_beside_the_toolkit_and_where_the_program_has_loaded_it() {
    let folder = tempfile::tempdir().unwrap();
    let beside = folder.path().join("extras/CUPTI/lib64");
    let loaded = folder.path().join("libcupti.so.12");
    if !is_child() {
        std::fs::create_dir_all(&beside).unwrap();
        for path in [&beside.join("libcupti.so"), &loaded] {
            std::os::unix::fs::symlink(stand_in_path(), path).unwrap();
        }
    }
    for variables in [
        [("CUDA_HOME", folder.path().to_str().unwrap())],
        [("BINPOOL_LIBCUDA", loaded.to_str().unwrap())],
    ] {
        let Some(lines) = record(&variables, || {
            // The driver is loaded before it calls what it has loaded by itself.
            let _driver = control::<*const c_void>("cuInit");
            program();
        }) else {
            return;
        };
        assert_eq!(of(&lines, "a").count(), 4, "{variables:?}");
    }
}

#[test]
fn a_program_without_cupti_goes_on_and_is_told_what_to_install() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.trace");
    let variables = [
        ("BINPOOL_CUPTI", "/no/such/libcupti.so"),
        ("BINPOOL_RECORD", path.to_str().unwrap()),
    ];
    if let Some(complaints) = complaints(&variables, program) {
        assert!(
            complaints.len() == 1 && complaints[0].contains("pip install nvidia-cuda-cupti"),
            "{complaints:?}"
        );
        assert!(!path.exists());
    }
}

#[test]
fn a_program_with_another_profiler_goes_on_and_is_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.trace");
    let variables = [
        ("BINPOOL_CUPTI", stand_in_path()),
        ("BINPOOL_RECORD", path.to_str().unwrap()),
    ];
    let complaints = complaints(&variables, || {
        extern "C" fn nothing() {}
        let mut subscriber = 0;
        assert_eq!(
            control::<Subscribe>("cuptiSubscribe")(&raw mut subscriber, nothing, 0),
            0
        );
        program();
    });
    if let Some(complaints) = complaints {
        assert!(
            complaints.len() == 1 && complaints[0].contains("another profiler"),
            "{complaints:?}"
        );
    }
}

#[test]
fn without_a_recording_nothing_is_asked_of_cupti() {
    crate::child::in_child(&[("BINPOOL_CUPTI", "/no/such/libcupti.so")], program);
}
