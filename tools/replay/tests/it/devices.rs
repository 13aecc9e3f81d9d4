//! The command `binpool devices`, and the profiles that it writes.

use std::{
    env, fs,
    path::Path,
    process::{Command, Output},
};

use serde_json::{Value, json};

use crate::common::{Ran, binpool};

/// The device that the tests are for.
fn device() -> String {
    env::var("BINPOOL_TEST_DEVICE").unwrap_or_else(|_| "any".into())
}

fn objects(ran: &Ran) -> Vec<Value> {
    assert_eq!(ran.status, 0, "{}", ran.errors);
    serde_json::from_str(&ran.output).unwrap()
}

/// Runs `binpool` where no OpenCL platform and no Vulkan driver is found.
fn without_opencl(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_binpool"))
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces"))
        .env("OCL_ICD_VENDORS", "/no/such/folder")
        .env("OPENCL_DYLIB_PATH", "/no/such/library.so")
        .env("VK_DRIVER_FILES", "/no/such/driver.json")
        .env("VK_ICD_FILENAMES", "/no/such/driver.json")
        .args(arguments)
        .output()
        .unwrap()
}

#[test]
fn every_device_is_listed_with_what_it_can_do_and_what_suits_a_pool() {
    let ran = binpool(&["devices", "--backend", "opencl"]);
    assert_eq!(ran.status, 0, "{}", ran.errors);
    assert!(ran.output.starts_with("[0] "), "{}", ran.output);
    for row in ["largest block", "cache", "out-of-order", "for a pool"] {
        assert!(ran.output.contains(row), "{row}: {}", ran.output);
    }
    let long = ran.output.lines().find(|line| line.chars().count() > 100);
    assert_eq!(long, None);
    let objects = objects(&binpool(&["devices", "--backend", "opencl", "--json"]));
    for (place, object) in objects.iter().enumerate() {
        assert_eq!(object["index"], place);
        assert!(object["capacity_bytes"].as_u64().unwrap() > 0);
        assert!(object["svm"]["coarse"].is_boolean());
        let limitations = object["limitations"].as_array().unwrap();
        for (field, named) in [
            ("doubles", "no double precision"),
            ("images", "no images"),
            ("out_of_order_queues", "no out-of-order queues"),
        ] {
            let begins = |it: &Value| it.as_str().unwrap().starts_with(named);
            let is_named = limitations.iter().any(begins);
            assert_eq!(object[field], !is_named, "{field}");
        }
        let has_svm = ["coarse", "fine", "system"].map(|kind| object["svm"][kind] == true);
        let begins = |it: &Value| it.as_str().unwrap().starts_with("no shared virtual memory");
        assert_eq!(has_svm.contains(&true), !limitations.iter().any(begins));
        assert!(object.get("profile").is_none());
        let name = object["name"].as_str().unwrap();
        assert!(ran.output.contains(&format!("[{place}] {name} (")));
    }
}

#[test]
fn a_device_that_is_not_there_is_an_error_that_lists_what_is() {
    let ran = binpool(&["devices", "abacus"]);
    assert_eq!((ran.status, &*ran.output), (1, ""));
    assert!(ran.errors.contains("called \"abacus\""));
    assert!(ran.errors.contains("there is [0] "), "{}", ran.errors);
}

#[test]
fn without_opencl_the_error_says_what_to_install() {
    for arguments in [&["devices"][..], &["devices", "--measure", "--json"]] {
        let output = without_opencl(arguments);
        assert_eq!(output.status.code(), Some(1));
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(errors.contains("install"), "{errors}");
        assert!(errors.contains("pocl-opencl-icd"), "{errors}");
    }
}

#[test]
fn vulkan_devices_are_listed_and_replayed_on() {
    let ran = binpool(&["devices", "--backend", "vulkan"]);
    assert_eq!(ran.status, 0, "{}", ran.errors);
    assert!(
        ran.output.starts_with("[0] ") && ran.output.contains("(Vulkan"),
        "{}",
        ran.output
    );
    let first = objects(&binpool(&["devices", "0", "--backend", "vulkan", "--json"]));
    assert_eq!((first.len(), &first[0]["index"]), (1, &json!(0)));
    let replay = ["replay", "--backend", "vulkan", "--json"];
    let replayed = objects(&binpool(
        &[&replay[..], &["--scale", "64", "eager_arrays.trace.gz"]].concat(),
    ));
    assert_eq!(replayed[0]["backend"], "vulkan");
    assert_eq!(replayed[0]["device"], first[0]["name"]);
    let output = without_opencl(&[&replay[..], &["eager_arrays.trace.gz"]].concat());
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("mesa-vulkan-drivers"), "{errors}");
    let ran = binpool(&["devices", "no such device", "--backend", "vulkan"]);
    assert!(ran.errors.contains("there is [0] "), "{}", ran.errors);
}

#[test]
fn what_is_measured_is_a_profile_to_replay_with_where_there_is_no_device() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("own.json");
    let file = file.to_str().unwrap();
    let device = device();
    let measure = ["devices", &device, "--measure", "--quick"];
    let ran = binpool(&[&measure[..], &["-o", file]].concat());
    assert_eq!(ran.status, 0, "{}", ran.errors);
    for title in [
        "us for blocks of",
        "us for a view of a block with",
        "marker",
    ] {
        assert!(ran.output.contains(title), "{}", ran.output);
    }
    let written: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!(written["format"], "binpool device profile");
    let name = written["limits"]["device_name"].as_str().unwrap();

    let replay = ["replay", "--json", "--scale", "64", "--profile", file];
    let output = without_opencl(&[&replay[..], &["eager_arrays.trace.gz"]].concat());
    let replayed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(replayed[0]["device"], name);
    assert_eq!(replayed[0]["backend"], "mock");
    let ran = binpool(&[
        "tune",
        "--scale",
        "64",
        "--profile",
        file,
        "eager_arrays.trace.gz",
    ]);
    assert!(
        ran.output.starts_with(&format!("mock on {name}")),
        "{}",
        ran.output
    );
    let measured = objects(&binpool(&[&measure[..], &["--json"]].concat()));
    assert_eq!(measured.len(), 1);
    assert_eq!(
        measured[0]["profile"]["limits"], written["limits"],
        "{measured:?}"
    );
}

/// The profile decides: where an allocation costs a second, the device takes seconds.
#[test]
fn the_costs_of_a_profile_are_what_a_replay_predicts() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("slow.json");
    let mut profile = serde_json::to_value(binpool_mock::DeviceProfile::h200()).unwrap();
    profile["costs"]["commit"] = json!([[1, 1e6]]);
    fs::write(&file, profile.to_string()).unwrap();
    let replay = ["replay", "--json", "eager_arrays.trace.gz", "--profile"];
    let of = |profile: &str| objects(&binpool(&[&replay[..], &[profile]].concat())).remove(0);
    let (slow, usual) = (of(file.to_str().unwrap()), of("h200"));
    let blocks = slow["device_allocations"].as_f64().unwrap();
    assert!(slow["device_time_us"].as_f64().unwrap() >= blocks * 1e6);
    assert!(usual["device_time_us"].as_f64().unwrap() < 1e6);
}

#[test]
fn a_profile_that_is_none_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wrong.json");
    let path = file.to_str().unwrap();
    let refusal = || {
        let ran = binpool(&["replay", "--profile", path, "eager_arrays.trace.gz"]);
        assert_eq!(ran.status, 2);
        ran.errors
    };
    assert!(refusal().contains("expected h200, pocl, none, or a file"));
    fs::write(&file, "{").unwrap();
    assert!(refusal().contains("is not a device profile"));
    let mut profile = serde_json::to_value(binpool_mock::DeviceProfile::h200()).unwrap();
    profile["version"] = json!(7);
    fs::write(&file, profile.to_string()).unwrap();
    assert!(refusal().contains("expected version 2, found 7"));
    assert_eq!(binpool(&["devices", "-o", path]).status, 2);
}
