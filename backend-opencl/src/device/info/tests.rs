use binpool_allocators::Align;
use cl3::device::{CL_DEVICE_TYPE_CPU, CL_DEVICE_TYPE_GPU};

use super::*;

impl DeviceInfo {
    /// Returns a device that no system has.
    pub(crate) fn imaginary(index: usize, platform: &str, name: &str, kind: DeviceKind) -> Self {
        Self {
            index,
            platform: platform.to_owned(),
            kind,
            version: (3, 0),
            limits: DeviceLimits::new(name, 1 << 30, 1 << 28, Align::ONE),
            id: DeviceId::none(),
        }
    }
}

#[test]
fn versions_are_read_from_the_text_that_the_specification_prescribes() {
    assert_eq!(parse_version("OpenCL 3.0 PoCL HSTR: pthread"), (3, 0));
    assert_eq!(parse_version("OpenCL 1.2"), (1, 2));
    for odd in ["", "OpenCL", "OpenCL x.y", "3.0", "OpenCL 3"] {
        assert_eq!(parse_version(odd), (0, 0), "{odd:?}");
    }
}

#[test]
fn devices_without_the_calls_that_are_made_are_refused() {
    let mut device = DeviceInfo::imaginary(0, "Old", "Older", DeviceKind::Gpu);
    for version in [(1, 2), (2, 0), (3, 1)] {
        device.version = version;
        assert!(device.check_version().is_ok(), "{version:?}");
    }
    device.version = (1, 1);
    let error = device.check_version().unwrap_err();
    assert_eq!(
        error.to_string(),
        "Older has OpenCL 1.1: OpenCL 1.2 or newer is needed"
    );
}

#[test]
fn types_are_bits_and_the_best_one_counts() {
    assert_eq!(DeviceKind::of_type(CL_DEVICE_TYPE_CPU), DeviceKind::Cpu);
    let both = CL_DEVICE_TYPE_CPU | CL_DEVICE_TYPE_GPU;
    assert_eq!(DeviceKind::of_type(both), DeviceKind::Gpu);
    assert_eq!(DeviceKind::of_type(0), DeviceKind::Other);
}

#[test]
fn the_error_lists_every_device_and_every_empty_platform() {
    let system = System {
        devices: vec![
            DeviceInfo::imaginary(0, "NVIDIA CUDA", "NVIDIA H200", DeviceKind::Gpu),
            DeviceInfo::imaginary(1, "PoCL", "pthread", DeviceKind::Cpu),
        ],
        empty_platforms: vec!["Clover".into()],
    };
    let error = OpenClError::NoDevice {
        selector: DeviceSelector::Name("radeon".into()),
        available: system.available(),
    };
    assert_eq!(
        error.to_string(),
        "no OpenCL device is called \"radeon\"; there are [0] NVIDIA H200 (gpu, NVIDIA CUDA); \
         [1] pthread (cpu, PoCL) (platforms without a device: Clover)"
    );
}

#[test]
fn the_error_of_a_system_without_devices_says_so() {
    let error = OpenClError::NoDevice {
        selector: DeviceSelector::Any,
        available: AvailableDevices::default(),
    };
    assert_eq!(
        error.to_string(),
        "no OpenCL device is available; there are no devices"
    );
}

fn system() -> Vec<DeviceInfo> {
    [
        (
            "Portable Computing Language",
            "pthread-EPYC",
            DeviceKind::Cpu,
        ),
        ("Intel(R) OpenCL", "AMD EPYC", DeviceKind::Cpu),
        ("NVIDIA CUDA", "NVIDIA H200", DeviceKind::Gpu),
        ("NVIDIA CUDA", "NVIDIA H100", DeviceKind::Gpu),
    ]
    .into_iter()
    .enumerate()
    .map(|(index, (platform, name, kind))| DeviceInfo::imaginary(index, platform, name, kind))
    .collect()
}

fn selected(text: &str) -> Option<usize> {
    let selector: DeviceSelector = text.parse().unwrap();
    selector.select(&system()).map(DeviceInfo::index)
}

#[test]
fn any_device_is_a_gpu_where_there_is_one() {
    assert_eq!(selected("any"), Some(2));
    assert_eq!(selected(""), Some(2));
    let processors = &system()[..2];
    let any = DeviceSelector::Any.select(processors);
    assert_eq!(any.map(DeviceInfo::index), Some(0));
    assert!(DeviceSelector::Any.select(&[]).is_none());
}

#[test]
fn numbers_count_over_all_platforms() {
    assert_eq!(selected("3"), Some(3));
    assert_eq!(selected("4"), None);
}

#[test]
fn kinds_give_the_first_of_the_kind() {
    assert_eq!(selected("CPU"), Some(0));
    assert_eq!(selected("gpu"), Some(2));
    assert_eq!(selected("accelerator"), None);
}

#[test]
fn names_are_parts_of_the_name_of_device_or_platform_in_any_case() {
    assert_eq!(selected("h100"), Some(3));
    assert_eq!(selected("nvidia"), Some(2));
    assert_eq!(selected("portable"), Some(0));
    assert_eq!(selected("  intel "), Some(1));
    assert_eq!(selected("radeon"), None);
}
