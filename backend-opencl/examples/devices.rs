//! Lists the OpenCL devices of this system, with what they can hold and do.
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
        devices.iter().for_each(show_one);
        return Ok(());
    };
    let Ok(selector) = selector.parse::<DeviceSelector>();
    // Opening it gives the error that lists what there is.
    OpenClBackend::open(&selector)?;
    selector.select(&devices).into_iter().for_each(show_one);
    Ok(())
}

fn show_one(device: &DeviceInfo) {
    let limits = device.limits();
    let (major, minor) = device.version();
    println!("{device}");
    println!("   OpenCL                {major}.{minor}");
    println!("   memory                {} bytes", limits.capacity_bytes);
    println!(
        "   largest block         {} bytes",
        limits.largest_block_bytes
    );
    println!("   alignment             {}", limits.alignment);
    println!("   largest SVM alignment {}", limits.largest_svm_alignment);
    println!("   SVM                   {:?}", limits.svm);
    println!("   out-of-order queues   {}", limits.out_of_order_queues);
}
