//! The library: a missing one is an error that says what to do.

use binpool_allocators::Error;
use binpool_cuda::{CudaDevice, CudaLibrary};

use crate::common::library;

#[test]
fn a_missing_library_is_a_clear_error() {
    // SAFETY: There is no such file.
    let error = unsafe { CudaLibrary::open("/no/such/libcuda.so.1") }.unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains("/no/such/libcuda.so.1") && text.contains("installed driver"),
        "{text}"
    );
}

#[test]
fn the_installed_library_is_loaded_or_its_lack_is_an_error() {
    if let Err(error) = CudaDevice::all() {
        let text = error.to_string();
        let is_clear = matches!(error, Error::Unsupported { .. } | Error::Backend(_));
        assert!(is_clear && !text.is_empty(), "{error:?}");
    }
}

#[test]
fn a_library_without_the_calls_is_a_clear_error() {
    let other = if cfg!(windows) {
        "kernel32.dll"
    } else {
        "libc.so.6"
    };
    // SAFETY: The library is loaded by every program, and none of its functions is called.
    let error = unsafe { CudaLibrary::open(other) }.unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
    assert!(error.to_string().contains(other), "{error}");
}

#[test]
fn devices_are_listed_and_those_that_are_not_there_refused() {
    let devices = CudaDevice::all_of(library()).unwrap();
    let ordinals: Vec<_> = devices.iter().map(CudaDevice::ordinal).collect();
    assert_eq!(ordinals, [0, 1]);
    assert_eq!(
        (devices[0].name(), devices[0].total_bytes()),
        ("stand-in", 1 << 30)
    );
    let error = CudaDevice::of(library(), u32::MAX).unwrap_err();
    assert!(error.to_string().contains("cuDeviceGet"), "{error}");
}
