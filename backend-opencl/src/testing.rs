//! Tests on every device of the system.

#![expect(clippy::panic, reason = "a test fails by panicking")]

use std::{
    any::Any,
    env, fmt,
    panic::{AssertUnwindSafe, catch_unwind},
};

use crate::{
    backend::OpenClBackend,
    device::{
        info::{DeviceInfo, list_devices},
        selector::DeviceSelector,
    },
};
#[cfg(test)]
use crate::{context::Context, sys};

/// The variable that names the device for tests.
pub const TEST_DEVICE: &str = "BINPOOL_TEST_DEVICE";

/// Runs `test` on every OpenCL device of this system, each with a context of its own: `PyOpenCL`'s
/// `pytest_generate_tests_for_pyopencl`.
///
/// With the variable `BINPOOL_TEST_DEVICE` it runs on the device that this [selects](DeviceSelector) alone. A test that
/// fails on one device still runs on the others.
///
/// ```
/// use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
/// use binpool_opencl::testing::on_every_device;
///
/// # macro_rules! as_here { (#[test] $test:item) => { $test } }
/// # as_here! {
/// #[test]
/// fn what_was_written_is_read() {
///     on_every_device(|backend| {
///         let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
///         let memory = backend.create_buffer(3, MemoryFlags::empty()).unwrap();
///         backend.write(&queue, &memory, 0, &[1_u8, 2, 3]).unwrap();
///         let mut bytes = [0_u8; 3];
///         backend.read(&queue, &memory, 0, &mut bytes).unwrap();
///         assert_eq!(bytes, [1, 2, 3]);
///     });
/// }
/// # }
/// # what_was_written_is_read();
/// ```
///
/// # Panics
///
/// If the test panics on a device, or one cannot be opened: the message names each such device and the reason. Also if
/// no device exists, or none fits the variable: a skipped test proves nothing.
#[expect(
    clippy::test_attr_in_doctest,
    reason = "the example calls it by its name"
)]
pub fn on_every_device(test: impl Fn(OpenClBackend)) {
    let all = list_devices().unwrap_or_else(|error| panic!("this test needs a device: {error}"));
    let devices = match env::var(TEST_DEVICE) {
        Ok(text) if !text.trim().is_empty() => {
            let Ok(selector) = text.parse::<DeviceSelector>();
            match selector.select(&all) {
                Some(device) => vec![device.clone()],
                None => panic!(
                    "{TEST_DEVICE} is {text:?}, and no device is {selector}; there are: {}",
                    lines(&all)
                ),
            }
        }
        _ => all,
    };
    let run =
        |device: &DeviceInfo| match OpenClBackend::open(&DeviceSelector::Index(device.index())) {
            Ok(backend) => test(backend),
            Err(error) => panic!("it cannot be opened: {error}"),
        };
    if let Err(report) = on_each(&devices, run) {
        panic!("{report}");
    }
}

/// Opens the device that the variable names.
#[cfg(test)]
pub(crate) fn open() -> OpenClBackend {
    let device = env::var(TEST_DEVICE).unwrap_or_default();
    let Ok(selector) = device.parse();
    OpenClBackend::open(&selector).unwrap_or_else(|error| panic!("{error}"))
}

/// Opens the device that the variable names, as another runtime would have it: `change` says in what that differs.
#[cfg(test)]
pub(crate) fn open_as(change: impl FnOnce(&mut Context)) -> OpenClBackend {
    let device = env::var(TEST_DEVICE).unwrap_or_default();
    let Ok(selector) = device.parse::<DeviceSelector>();
    let all = list_devices().unwrap_or_else(|error| panic!("{error}"));
    let device = selector
        .select(&all)
        .unwrap_or_else(|| panic!("no device is {selector}"));
    let handle = sys::create_context(device.id()).unwrap_or_else(|error| panic!("{error}"));
    let mut context = Context::new(handle, device);
    change(&mut context);
    OpenClBackend::of_context(&context.registered())
}

/// Runs `test` on each device, and says on which ones it has failed.
fn on_each<D: fmt::Display>(devices: &[D], test: impl Fn(&D)) -> Result<(), String> {
    if devices.is_empty() {
        return Err(
            "this test needs a device, but found none: install a driver, e.g. pocl-opencl-icd"
                .into(),
        );
    }
    let mut failures = Vec::new();
    for device in devices {
        // Each device has a context of its own, so a panic on one leaves nothing behind for the next.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| test(device))) {
            failures.push(format!("on {device}: {}", said(&*panic)));
        }
    }
    if failures.is_empty() {
        return Ok(());
    }
    let (failed, all) = (failures.len(), devices.len());
    Err(format!(
        "failed on {failed} of {all} devices\n{}",
        lines(&failures)
    ))
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a message")
}

fn lines(items: &[impl fmt::Display]) -> String {
    let items: Vec<String> = items.iter().map(ToString::to_string).collect();
    items.join("\n")
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, panic::panic_any};

    use super::*;

    #[test]
    fn a_test_that_passes_everywhere_has_run_everywhere() {
        let seen = RefCell::new(Vec::new());
        let passed = on_each(&["one", "two"], |device| seen.borrow_mut().push(*device));
        assert_eq!(passed, Ok(()));
        assert_eq!(seen.into_inner(), ["one", "two"]);
    }

    #[test]
    fn a_failure_names_its_device_and_keeps_no_other_from_running() {
        let seen = RefCell::new(Vec::new());
        let report = on_each(&["one", "two", "three"], |device| {
            seen.borrow_mut().push(*device);
            match *device {
                "one" => panic!("lost {} bytes", 5),
                "three" => panic_any(7),
                _ => {}
            }
        });
        assert_eq!(seen.into_inner(), ["one", "two", "three"]);
        assert_eq!(
            report.unwrap_err(),
            "failed on 2 of 3 devices\non one: lost 5 bytes\non three: a panic without a message"
        );
    }

    #[test]
    fn no_device_is_a_failure() {
        let report = on_each::<&str>(&[], |_| {}).unwrap_err();
        assert!(report.contains("pocl-opencl-icd"), "{report}");
    }
}
