//! `binpool bench --device`.

use std::error::Error;

use binpool::Backend;
use binpool_opencl::{DeviceSelector, OpenClBackend};
use binpool_replay::{device_json, device_pairs, device_table};

use crate::command::{
    bench::Bench,
    output::{print, print_report, report},
    progress_bar::bar,
};

/// The sizes of the blocks, in bytes.
const SIZES: [usize; 4] = [4 << 10, 1 << 20, 64 << 20, 512 << 20];

/// Measures pairs on the device and prints the report. Returns whether all sizes that fit on the device could be measured.
pub(crate) fn bench_device(
    options: &Bench,
    selector: &DeviceSelector,
) -> Result<bool, Box<dyn Error>> {
    let backend = OpenClBackend::open(selector)?;
    let device = &backend.limits().device_name;
    let bar = bar(SIZES.len(), device);
    let mut pairs = Vec::new();
    let mut has_failed = false;
    for size in SIZES {
        match device_pairs(&backend, size, options.effort()) {
            Ok(of_size) => pairs.extend(of_size),
            Err(left_out) => {
                has_failed |= !left_out.is_too_large();
                bar.suspend(|| report(&left_out));
            }
        }
        bar.inc(1);
    }
    drop(bar);
    if options.json {
        print(&device_json(device, &pairs)?)?;
    } else if !pairs.is_empty() {
        print_report(&device_table(device, &pairs), &[])?;
    }
    Ok(!has_failed)
}
