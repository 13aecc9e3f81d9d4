//! Tests that run on every device.

use std::{
    cell::RefCell,
    process::{Command, Output},
};

use binpool_allocators::Backend;
use binpool_opencl::{
    list_devices,
    testing::{TEST_DEVICE, on_every_device},
};

/// Runs one test of this module, which is otherwise ignored, in a process with other surroundings.
fn run_elsewhere(test: &str, surroundings: &[(&str, &str)]) -> (Output, String) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "--exact",
            &format!("every_device::{test}"),
            "--ignored",
            "--nocapture",
        ])
        .env_remove(TEST_DEVICE)
        .envs(surroundings.iter().copied());
    let output = command.output().unwrap();
    let said = [&*output.stdout, &*output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(said.contains("running 1 test"), "{said}");
    (output, said)
}

#[test]
fn a_test_runs_on_every_device_there_is() {
    let (output, said) = run_elsewhere("on_all", &[]);
    assert!(output.status.success(), "{said}");
    // As if the variable were not set.
    let (output, said) = run_elsewhere("on_all", &[(TEST_DEVICE, "")]);
    assert!(output.status.success(), "{said}");
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn on_all() {
    let seen = RefCell::new(Vec::new());
    on_every_device(|backend| seen.borrow_mut().push(backend.limits().device_name.clone()));
    let devices = list_devices().unwrap();
    let all: Vec<_> = devices
        .iter()
        .map(|device| device.name().to_owned())
        .collect();
    assert_eq!(seen.into_inner(), all);
}

#[test]
fn the_variable_chooses_one_device() {
    let last = (list_devices().unwrap().len() - 1).to_string();
    let (output, said) = run_elsewhere("on_the_last", &[(TEST_DEVICE, &last)]);
    assert!(output.status.success(), "{said}");
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn on_the_last() {
    let seen = RefCell::new(Vec::new());
    on_every_device(|backend| seen.borrow_mut().push(backend.limits().clone()));
    let devices = list_devices().unwrap();
    assert_eq!(
        *seen.into_inner(),
        [devices.last().unwrap().limits().clone()]
    );
}

#[test]
fn a_failing_test_names_the_device() {
    let (output, said) = run_elsewhere("that_fails", &[]);
    assert!(!output.status.success(), "{said}");
    let devices = list_devices().unwrap();
    let all = devices.len();
    assert!(
        said.contains(&format!("failed on {all} of {all} devices")),
        "{said}"
    );
    for device in devices {
        let line = format!("on {device}: {} is not to my liking", device.name());
        assert!(said.contains(&line), "{said}");
    }
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn that_fails() {
    on_every_device(|backend| panic!("{} is not to my liking", backend.limits().device_name));
}

#[test]
fn no_device_is_a_failure_and_not_a_skip() {
    let none = [(TEST_DEVICE, "no such device")];
    let (output, said) = run_elsewhere("that_passes", &none);
    assert!(!output.status.success(), "{said}");
    assert!(
        said.contains("no device is called \"no such device\""),
        "{said}"
    );

    let folder = std::env::temp_dir().join(format!("binpool-no-device-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.to_str().unwrap();
    let surroundings = [
        ("OCL_ICD_VENDORS", path),
        ("OPENCL_VENDOR_PATH", path),
        ("OCL_ICD_FILENAMES", ""),
    ];
    let (output, said) = run_elsewhere("that_passes", &surroundings);
    std::fs::remove_dir(&folder).unwrap();
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("this test needs a device"), "{said}");
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn that_passes() {
    on_every_device(|_| {});
}
