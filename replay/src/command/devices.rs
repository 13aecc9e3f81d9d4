//! `binpool devices`: the devices of this machine, and what their calls cost.

use std::{
    error::Error,
    ptr,
    time::{Duration, Instant},
};

use binpool::Backend;
use binpool_cuda::CudaDevice;
use binpool_mock::DeviceProfile;
use binpool_opencl::{DeviceInfo, DeviceSelector, OpenClBackend, list_devices};
use binpool_replay::devices::{
    COST_STEPS, CostEffort, CudaEntry, DeviceEntry, VulkanEntry, device_costs,
    device_costs_with_pages, devices_json, devices_text, select_device,
};
use binpool_vulkan::VulkanDevice;

use crate::command::{
    cli::{DeviceBackend, Devices},
    output::{print, print_report},
    progress_bar::bar,
    whole_file::write_file,
};

/// Prints the requested devices, and measures one of them. Returns `true`: failures are errors.
pub(crate) fn show_devices(options: &Devices) -> Result<bool, Box<dyn Error>> {
    let is_one = options.device.is_some() || options.measure;
    let (mut opencl, mut cuda, mut vulkan) = (Vec::new(), Vec::new(), Vec::new());
    let mut absent = Vec::new();
    match options.backend {
        Some(DeviceBackend::Cuda) => cuda = cuda_devices(options)?,
        Some(DeviceBackend::Vulkan) => vulkan = vulkan_devices(options)?,
        Some(DeviceBackend::Opencl) => opencl = opencl_devices(options)?,
        None if is_one => opencl = opencl_devices(options)?,
        None => {
            let of_opencl = opencl_devices(options);
            cuda = or_none("CUDA", cuda_devices(options), &mut absent);
            vulkan = or_none("Vulkan", vulkan_devices(options), &mut absent);
            opencl = if cuda.is_empty() && vulkan.is_empty() {
                of_opencl?
            } else {
                or_none("OpenCL", of_opencl, &mut absent)
            };
        }
    }
    let profiles = opencl.iter().map(|entry| entry.profile.as_ref());
    let profiles = profiles.chain(cuda.iter().map(|entry| entry.profile.as_ref()));
    let profiles = profiles.chain(vulkan.iter().map(|entry| entry.profile.as_ref()));
    if let Some((path, profile)) = options.output.as_ref().zip(profiles.flatten().next()) {
        write_file(path, serde_json::to_string_pretty(profile)? + "\n")?;
    }
    if options.json {
        print(&devices_json(&opencl, &cuda, &vulkan))?;
    } else {
        print_report(&devices_text(&opencl, &cuda, &vulkan))?;
        for line in absent {
            print(&line)?;
        }
    }
    Ok(true)
}

/// Returns the devices that were found. Where that failed, adds to `absent` why.
fn or_none<T>(
    what: &str,
    found: Result<Vec<T>, Box<dyn Error>>,
    absent: &mut Vec<String>,
) -> Vec<T> {
    found.unwrap_or_else(|error| {
        absent.push(format!("no {what} devices: {error}"));
        Vec::new()
    })
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
    let chosen = select_device(selector, &devices)?;
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

/// Returns the requested Vulkan devices. There is at least one.
fn vulkan_devices(options: &Devices) -> Result<Vec<VulkanEntry>, Box<dyn Error>> {
    let devices = VulkanDevice::all()?;
    let selector = options.device.as_ref().unwrap_or(&DeviceSelector::Any);
    // It fails with the error that lists the devices.
    let chosen = select_device(selector, &devices)?;
    let all = options.device.is_none() && !options.measure;
    let is_chosen = |device: &VulkanDevice| all || ptr::eq(device, chosen);
    let entries = (0..).zip(&devices).filter(|(_, device)| is_chosen(device));
    let entries = entries.map(|(number, device)| {
        let profile = if options.measure {
            Some(measure(&device.open()?, options, device_costs_with_pages)?)
        } else {
            None
        };
        let device = device.clone();
        Ok(VulkanEntry {
            number,
            device,
            profile,
        })
    });
    entries.collect()
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
