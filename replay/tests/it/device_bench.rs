//! The command `binpool bench --device`, and what it measures. The figures mean nothing here: next to nothing is done.

use std::{env, time::Duration};

use binpool::SvmSupport;
use binpool_benches::Effort;
use binpool_mock::{CallKind, Fault, MockDevice, Persistence};
use binpool_opencl::{DeviceSelector, list_devices};
use binpool_replay::{DevicePair, device_pairs, device_table};
use serde_json::Value;

use crate::common::{Ran, binpool};

const SIZES: [u64; 4] = [4096, 1 << 20, 64 << 20, 512 << 20];
const QUICK: Effort = Effort {
    samples: 1,
    least: Duration::ZERO,
};

fn device() -> String {
    env::var("BINPOOL_TEST_DEVICE").unwrap_or_else(|_| "any".into())
}

fn bench(more: &[&str]) -> Ran {
    binpool(&[&["bench", "--quick", "--device", &device()], more].concat())
}

#[test]
fn json_has_an_object_for_each_subject_of_each_size_that_the_device_has_memory_for() {
    let selector: DeviceSelector = device().parse().unwrap();
    let devices = list_devices().unwrap();
    let limits = selector.select(&devices).unwrap().limits();
    let subjects: &[&str] = if limits.svm.coarse {
        &["pool", "immediate", "svm-pool", "svm"]
    } else {
        &["pool", "immediate"]
    };
    let sizes = SIZES
        .iter()
        .filter(|&&size| size <= limits.largest_block_bytes as u64);
    let expected: Vec<(u64, &str)> = sizes
        .flat_map(|&size| subjects.iter().map(move |subject| (size, *subject)))
        .collect();

    let ran = bench(&["--json"]);
    assert_eq!(ran.status, 0, "{}", ran.errors);
    let objects: Vec<Value> = serde_json::from_str(&ran.output).unwrap();
    let found: Vec<(u64, &str)> = objects
        .iter()
        .map(|object| {
            let size = object["size_bytes"].as_u64().unwrap();
            (size, object["subject"].as_str().unwrap())
        })
        .collect();
    assert_eq!(found, expected);
    for object in &objects {
        assert_eq!(object.as_object().unwrap().len(), 8);
        assert_eq!(
            (&object["backend"], &object["threads"]),
            (&"opencl".into(), &1.into())
        );
        assert_eq!(object["device"], limits.device_name);
        let figure = |key: &str| object[key].as_f64().unwrap();
        assert!(figure("ns_per_pair_min") > 0.0);
        assert!(figure("ns_per_pair_min") <= figure("ns_per_pair_median"));
        assert!(figure("times_pool") > 0.0);
        if object["subject"].as_str().unwrap().ends_with("pool") {
            assert_eq!(object["times_pool"], 1.0);
        }
    }
}

#[test]
fn without_json_there_is_a_table() {
    let ran = bench(&[]);
    assert_eq!(ran.status, 0, "{}", ran.errors);
    for text in ["opencl on ", "| 4.0 KiB", "| pool ", "median / pool"] {
        assert!(ran.output.contains(text), "{}", ran.output);
    }
}

#[test]
fn the_table_has_microseconds_and_the_ratio() {
    let table = device_table(
        "opencl",
        "a device",
        &[DevicePair {
            size_bytes: 64 << 20,
            threads: 4,
            subject: "immediate",
            ns_per_pair_min: 1234.5,
            ns_per_pair_median: 300e6,
            times_pool: 5000.04,
        }],
    );
    let row = table.lines().last().unwrap().trim_matches('|').split('|');
    let cells: Vec<&str> = row.map(str::trim).collect();
    assert_eq!(
        cells,
        [
            "64.0 MiB",
            "4",
            "immediate",
            "5000.0",
            "300000.000",
            "1.234"
        ]
    );
}

/// The rule that makes it a measurement of pools: they hold the block, and the allocator asks the device each time.
#[test]
fn a_pool_asks_the_device_once_and_gives_its_memory_back_at_the_end() {
    let device = MockDevice::new();
    let pairs = device_pairs(&device.backend(), 64 << 20, QUICK).unwrap();
    assert_eq!(pairs.len(), 4);
    // The first pair, one for how many make a sample, and five samples of one pair.
    let without_pool = 7;
    for kind in [CallKind::CreateBuffer, CallKind::AllocateSvm] {
        assert_eq!(device.call_count(kind), 1 + without_pool, "{kind:?}");
    }
    let most_at_once = device.statistics().peak_created_bytes;
    assert_eq!(most_at_once, 64 << 20);
}

#[test]
fn without_shared_virtual_memory_only_buffers_are_measured() {
    let device = MockDevice::builder().svm(SvmSupport::default()).build();
    let pairs = device_pairs(&device.backend(), 4096, QUICK).unwrap();
    let subjects: Vec<_> = pairs.iter().map(|pair| pair.subject).collect();
    assert_eq!(subjects, ["pool", "immediate"]);
}

#[test]
fn a_size_that_the_device_has_no_memory_for_is_left_out_and_other_failures_are_told_apart() {
    let small = MockDevice::builder().capacity_bytes(1 << 20);
    let narrow = MockDevice::builder().largest_block_bytes(1 << 20);
    for device in [small.build(), narrow.build()] {
        let left_out = device_pairs(&device.backend(), 64 << 20, QUICK).unwrap_err();
        assert!(left_out.is_too_large(), "{:?}", left_out.source);
        assert_eq!(left_out.to_string(), "blocks of 64.0 MiB are left out");
    }
    // The pool's block is there, and the allocator's is not.
    for (fault, is_too_large) in [(Fault::OutOfMemory, true), (Fault::DeviceLost, false)] {
        let device = MockDevice::new();
        device.fail_nth(CallKind::CreateBuffer, 2, fault, Persistence::Once);
        let left_out = device_pairs(&device.backend(), 4096, QUICK).unwrap_err();
        assert_eq!(left_out.is_too_large(), is_too_large, "{fault:?}");
    }
}

#[test]
fn a_device_that_is_not_there_is_an_error() {
    let ran = binpool(&["bench", "--quick", "--device", "no such device"]);
    assert_eq!((ran.status, &*ran.output), (1, ""));
    assert!(
        ran.errors.contains("no such device") || ran.errors.contains("OpenCL"),
        "{}",
        ran.errors
    );
}

#[test]
fn what_is_of_the_host_alone_is_refused() {
    for wrong in [
        &["--workload", "hot"][..],
        &["--subject", "binpool"],
        &["--threads", "2"],
        &["--tail"],
        &["--plot", "t.svg"],
    ] {
        let ran = bench(wrong);
        assert_eq!(ran.status, 2, "{wrong:?}");
        assert!(ran.errors.contains("cannot be used with"), "{}", ran.errors);
    }
}
