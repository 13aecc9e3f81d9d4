//! `binpool devices`.

use std::{
    error::Error,
    time::{Duration, Instant},
};

use binpool::Backend;
use binpool_cuda::CudaDevice;
use binpool_mock::DeviceProfile;
use binpool_opencl::{DeviceInfo, DeviceSelector, OpenClBackend, list_devices};
use binpool_replay::devices::{
    COST_STEPS, CostEffort, CudaEntry, DeviceEntry, device_costs, device_costs_with_pages,
    devices_json, devices_text, select_cuda,
};

use crate::command::{
    cli::{DeviceBackend, Devices},
    output::{print, print_report, remark},
    progress_bar::bar,
    whole_file::write_file,
};

/// Prints the requested devices, and measures one of them. Returns `true`: failures are errors.
pub(crate) fn show_devices(options: &Devices) -> Result<bool, Box<dyn Error>> {
    let is_one = options.device.is_some() || options.measure;
    let (mut opencl, mut cuda) = (Vec::new(), Vec::new());
    match options.backend {
        Some(DeviceBackend::Cuda) => cuda = cuda_devices(options)?,
        Some(DeviceBackend::Opencl) => opencl = opencl_devices(options)?,
        None if is_one => opencl = opencl_devices(options)?,
        None => {
            let found = (opencl_devices(options), cuda_devices(options));
            (opencl, cuda) = match found {
                (Ok(opencl), Ok(cuda)) => (opencl, cuda),
                (Ok(opencl), Err(error)) => {
                    remark(&format!("there are no CUDA devices: {error}"));
                    (opencl, Vec::new())
                }
                (Err(error), Ok(cuda)) => {
                    remark(&format!("there are no OpenCL devices: {error}"));
                    (Vec::new(), cuda)
                }
                (Err(error), Err(of_cuda)) => {
                    remark(&format!("there are no CUDA devices: {of_cuda}"));
                    return Err(error);
                }
            };
        }
    }
    let profiles = opencl.iter().map(|entry| entry.profile.as_ref());
    let mut profiles = profiles
        .chain(cuda.iter().map(|entry| entry.profile.as_ref()))
        .flatten();
    if let Some((path, profile)) = options.output.as_ref().zip(profiles.next()) {
        write_file(path, serde_json::to_string_pretty(profile)? + "\n")?;
    }
    if options.json {
        print(&devices_json(&opencl, &cuda)?)?;
    } else {
        print_report(&devices_text(&opencl, &cuda))?;
    }
    Ok(true)
}

/// Returns the requested OpenCL devices. There is at least one.
fn opencl_devices(options: &Devices) -> Result<Vec<DeviceEntry>, Box<dyn Error>> {
    let devices = list_devices()?;
    let selector = match &options.device {
        Some(selector) => Some(selector.clone()),
        None if options.measure || devices.is_empty() => Some(DeviceSelector::Any),
        None => None,
    };
    let chosen: Vec<&DeviceInfo> = match &selector {
        None => devices.iter().collect(),
        Some(selector) => {
            // Opening it fails with the error that lists the devices.
            OpenClBackend::open(selector)?;
            selector.select(&devices).into_iter().collect()
        }
    };
    let mut entries = Vec::new();
    for device in chosen {
        let mut entry = DeviceEntry::query(device)?;
        if options.measure {
            let backend = OpenClBackend::open(&DeviceSelector::Index(device.index()))?;
            entry.profile = Some(measure(&backend, options, device_costs)?);
        }
        entries.push(entry);
    }
    Ok(entries)
}

/// Returns the requested CUDA devices. There is at least one.
fn cuda_devices(options: &Devices) -> Result<Vec<CudaEntry>, Box<dyn Error>> {
    let devices = CudaDevice::all()?;
    let selector = options.device.as_ref().unwrap_or(&DeviceSelector::Any);
    // It fails with the error that lists the devices.
    let chosen = select_cuda(selector, &devices)?;
    if options.measure {
        let backend = chosen.backend()?;
        let profile = Some(measure(&backend, options, device_costs_with_pages)?);
        let device = chosen.clone();
        return Ok(vec![CudaEntry { device, profile }]);
    }
    let chosen = match &options.device {
        Some(_) => vec![chosen.clone()],
        None => devices,
    };
    let entry = |device| CudaEntry {
        device,
        profile: None,
    };
    Ok(chosen.into_iter().map(entry).collect())
}

/// Measures the costs of a device by one of the functions for that.
fn measure<B: Backend>(
    backend: &B,
    options: &Devices,
    costs: impl FnOnce(
        &B,
        CostEffort,
        &dyn Fn() -> Duration,
        &dyn Fn(),
    ) -> binpool::Result<DeviceProfile>,
) -> Result<DeviceProfile, binpool::Error> {
    let bar = bar(COST_STEPS, &backend.limits().device_name);
    let start = Instant::now();
    costs(backend, options.effort(), &|| start.elapsed(), &|| {
        bar.inc(1);
    })
}
