//! Which device is opened, and what is said when there is none.

use std::{path::PathBuf, process::Command};

use binpool_allocators::Backend;
use binpool_opencl::{DeviceSelector, OpenClBackend, OpenClError, list_devices};

#[test]
fn every_device_that_is_listed_can_be_chosen_by_its_number_and_name() {
    for device in list_devices().unwrap() {
        let by_number = OpenClBackend::open(&DeviceSelector::Index(device.index())).unwrap();
        assert_eq!(by_number.limits(), device.limits());
        let name = DeviceSelector::Name(device.name().to_uppercase());
        assert_eq!(
            OpenClBackend::open(&name).unwrap().limits().device_name,
            device.name()
        );
    }
}

#[test]
fn limits_are_sane() {
    let backend = crate::common::open();
    let limits = backend.limits();
    assert!(!limits.device_name.is_empty());
    assert!(limits.largest_block_bytes > 0);
    assert!(limits.capacity_bytes >= limits.largest_block_bytes as u64);
    assert!(limits.alignment.bytes() >= 64);
    assert_eq!(limits.largest_svm_alignment.bytes(), 128);
}

#[test]
fn the_error_for_a_device_that_is_not_there_names_those_that_are() {
    let selector = DeviceSelector::Name("no such device".into());
    let error = OpenClBackend::open(&selector).unwrap_err();
    let OpenClError::NoDevice { available, .. } = &error else {
        panic!("another error: {error}");
    };
    let devices = list_devices().unwrap();
    assert_eq!(available.devices.len(), devices.len());
    for device in devices {
        assert!(error.to_string().contains(device.name()), "{error}");
        assert!(error.to_string().contains(device.platform()), "{error}");
    }
    let beyond = DeviceSelector::Index(usize::MAX);
    assert!(matches!(
        OpenClBackend::open(&beyond),
        Err(OpenClError::NoDevice { .. })
    ));
}

/// Runs one test of this module, which is otherwise ignored, in a process with other surroundings.
fn run_elsewhere(test: &str, surroundings: &[(&str, &str)]) {
    let this = std::env::current_exe().unwrap();
    let output = Command::new(this)
        .args([
            "--exact",
            &format!("selection::{test}"),
            "--ignored",
            "--nocapture",
        ])
        .envs(surroundings.iter().copied())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{output:?}");
    assert!(said.contains("1 passed"), "{said}");
}

/// A folder with nothing but these files in it, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let path = std::env::temp_dir().join(format!("binpool-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        for (file, text) in files {
            std::fs::write(path.join(file), text).unwrap();
        }
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

#[test]
fn a_system_without_an_opencl_library_is_told_what_to_install() {
    // The loader finds this file before the system's library, and cannot load it.
    let folder = Folder::new("no-library", &[("libOpenCL.so.1", "not a library")]);
    run_elsewhere("without_a_library", &[("LD_LIBRARY_PATH", folder.path())]);
    // This is a library, but not of OpenCL.
    run_elsewhere("without_a_library", &[("OPENCL_DYLIB_PATH", "libc.so.6")]);
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn without_a_library() {
    let error = list_devices().unwrap_err();
    assert!(matches!(error, OpenClError::NoLibrary { .. }), "{error:?}");
    assert_eq!(
        error.to_string(),
        "no OpenCL library found (libOpenCL.so.1): install an ICD loader and a driver, e.g. \
         pocl-opencl-icd, or name the library in OPENCL_DYLIB_PATH"
    );
    let opened = OpenClBackend::open(&DeviceSelector::Any).unwrap_err();
    assert_eq!(opened.to_string(), error.to_string());
}

#[test]
fn a_system_without_a_driver_is_told_what_to_install() {
    let empty = Folder::new("no-driver", &[]);
    run_elsewhere(
        "without_a_driver",
        &[
            ("OCL_ICD_VENDORS", empty.path()),
            ("OPENCL_VENDOR_PATH", empty.path()),
            ("OCL_ICD_FILENAMES", ""),
        ],
    );
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn without_a_driver() {
    assert!(matches!(list_devices(), Err(OpenClError::NoPlatform)));
    let error = OpenClBackend::open(&DeviceSelector::Any).unwrap_err();
    assert!(error.to_string().contains("pocl-opencl-icd"), "{error}");
}

#[test]
#[ignore = "run by another test, in a process of its own"]
#[cfg(target_os = "linux")]
fn the_library_is_not_mapped_before_it_is_asked_for() {
    let mapped = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.contains("libOpenCL")
    };
    assert!(!mapped());
    list_devices().unwrap();
    assert!(mapped());
}

#[test]
#[cfg(target_os = "linux")]
fn programs_start_without_the_opencl_library() {
    run_elsewhere("the_library_is_not_mapped_before_it_is_asked_for", &[]);
}
