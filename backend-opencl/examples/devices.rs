//! Lists the OpenCL devices of this system, with what they can hold and do, and which memory suits a pool there.
//!
//! ```text
//! cargo run -p binpool-opencl --example devices [SELECTOR]
//! ```
//!
//! With a selector (a number, a kind, a part of a name, or `any`) it shows that device only.

use std::process::ExitCode;

use binpool_opencl::{DeviceInfo, DeviceSelector, OpenClBackend, OpenClError, list_devices};

fn main() -> ExitCode {
    match show() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn show() -> Result<(), OpenClError> {
    let devices = list_devices()?;
    let Some(selector) = std::env::args().nth(1) else {
        return devices.iter().try_for_each(show_one);
    };
    let Ok(selector) = selector.parse::<DeviceSelector>();
    // Opening it gives the error that lists what there is.
    OpenClBackend::open(&selector)?;
    selector.select(&devices).into_iter().try_for_each(show_one)
}

fn show_one(device: &DeviceInfo) -> Result<(), OpenClError> {
    println!("{device}");
    for line in device.characterize()?.to_string().lines() {
        println!("   {line}");
    }
    let backend = OpenClBackend::open(&DeviceSelector::Index(device.index()))?;
    match backend.preferred_allocator() {
        Ok(choice) => println!("   {:<24}{choice}", "for a pool"),
        Err(error) => println!("   {:<24}{error}", "for a pool"),
    }
    Ok(())
}
