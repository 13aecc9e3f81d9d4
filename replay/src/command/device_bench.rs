//! `binpool bench --device`.

use std::error::Error;

use binpool::Backend;
use binpool_opencl::{DeviceSelector, OpenClBackend};
use binpool_replay::{
    DevicePair, LeftOut, cuda_pairs, device_json, device_pairs, device_table, open_cuda,
};

use crate::command::{
    bench::Bench,
    output::{print, print_report, report},
    progress_bar::bar,
};

/// The sizes of the blocks, in bytes.
const SIZES: [usize; 4] = [4 << 10, 1 << 20, 64 << 20, 512 << 20];

/// Measures pairs on an OpenCL device and prints the report. Returns whether all sizes that fit on the device could be measured.
pub(crate) fn bench_opencl(
    options: &Bench,
    selector: &DeviceSelector,
) -> Result<bool, Box<dyn Error>> {
    let backend = OpenClBackend::open(selector)?;
    let pairs = |size, _| device_pairs(&backend, size, options.effort());
    bench_sizes(options, "opencl", &backend, &[1], pairs)
}

/// The same on a CUDA device, on each number of threads.
pub(crate) fn bench_cuda(
    options: &Bench,
    selector: &DeviceSelector,
) -> Result<bool, Box<dyn Error>> {
    let backend = open_cuda(selector)?;
    let pairs = |size, threads| cuda_pairs(&backend, size, threads, options.effort());
    bench_sizes(options, "cuda", &backend, options.threads(), pairs)
}

fn bench_sizes<B: Backend>(
    options: &Bench,
    name: &str,
    backend: &B,
    threads: &[usize],
    measure: impl Fn(usize, usize) -> Result<Vec<DevicePair>, LeftOut>,
) -> Result<bool, Box<dyn Error>> {
    let device = &backend.limits().device_name;
    let bar = bar(SIZES.len() * threads.len(), device);
    let mut pairs = Vec::new();
    let mut has_failed = false;
    for size in SIZES {
        for threads in threads {
            match measure(size, *threads) {
                Ok(of_size) => pairs.extend(of_size),
                Err(left_out) => {
                    has_failed |= !left_out.is_too_large();
                    bar.suspend(|| report(&left_out));
                }
            }
            bar.inc(1);
        }
    }
    drop(bar);
    if options.json {
        print(&device_json(name, device, &pairs)?)?;
    } else if !pairs.is_empty() {
        print_report(&device_table(name, device, &pairs), &[])?;
    }
    Ok(!has_failed)
}
