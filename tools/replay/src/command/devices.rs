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
    COST_STEPS, CostEffort, DeviceEntry, PageDevice, device_costs, device_costs_with_pages,
    devices_json, devices_text, select_device,
};
use binpool_vulkan::VulkanDevice;

use crate::command::{
    backends::DeviceBackend,
    cli::Devices,
    output::{print, print_report},
    progress_bar::bar,
    whole_file::write_file,
};

/// Prints the requested devices, and measures one of them. Returns `true`: failures are errors.
pub(crate) fn show_devices(options: &Devices) -> Result<bool, Box<dyn Error>> {
    let is_one = options.device.is_some() || options.measure;
    let mut absent = Vec::new();
    let devices = match options.backend {
        Some(backend) => devices_of(backend, options)?,
        None if is_one => opencl_devices(options)?,
        None => {
            let opencl = opencl_devices(options);
            let others: Vec<_> = DeviceBackend::OTHERS
                .into_iter()
                .flat_map(|backend| {
                    or_none(backend.name(), devices_of(backend, options), &mut absent)
                })
                .collect();
            let opencl = if others.is_empty() {
                opencl?
            } else {
                or_none("OpenCL", opencl, &mut absent)
            };
            [opencl, others].concat()
        }
    };
    let profile = devices.iter().find_map(|entry| entry.profile.as_ref());
    if let Some((path, profile)) = options.output.as_ref().zip(profile) {
        write_file(path, serde_json::to_string_pretty(profile)? + "\n")?;
    }
    if options.json {
        print(&devices_json(&devices))?;
    } else {
        print_report(&devices_text(&devices))?;
        for line in absent {
            print(&line)?;
        }
    }
    Ok(true)
}

/// Returns the requested devices of a backend. There is at least one.
fn devices_of(
    backend: DeviceBackend,
    options: &Devices,
) -> Result<Vec<DeviceEntry>, Box<dyn Error>> {
    match backend {
        DeviceBackend::Opencl => opencl_devices(options),
        DeviceBackend::Cuda => devices_with_pages::<CudaDevice>(options),
        DeviceBackend::Vulkan => devices_with_pages::<VulkanDevice>(options),
    }
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
        let mut entry = DeviceEntry::opencl(device)?;
        if options.measure {
            let backend = OpenClBackend::open(&DeviceSelector::Index(device.index()))?;
            entry.profile = Some(measure(&backend, options, device_costs)?);
        }
        entries.push(entry);
    }
    Ok(entries)
}

/// Returns the requested devices of a backend with pages. There is at least one.
fn devices_with_pages<D: PageDevice>(
    options: &Devices,
) -> Result<Vec<DeviceEntry>, Box<dyn Error>> {
    let devices = D::all()?;
    let entries = chosen(options, &devices)?.into_iter();
    let entries = entries.map(|(number, device)| {
        let mut entry = DeviceEntry::with_pages(number, device);
        if options.measure {
            let backend = device.open()?;
            entry.profile = Some(measure(&backend, options, device_costs_with_pages)?);
        }
        Ok(entry)
    });
    entries.collect()
}

/// Returns the requested ones of these devices, with their numbers: all, or one.
fn chosen<'d, D: PageDevice>(
    options: &Devices,
    devices: &'d [D],
) -> Result<Vec<(usize, &'d D)>, binpool::Error> {
    let selector = options.device.as_ref().unwrap_or(&DeviceSelector::Any);
    // It fails with the error that lists the devices.
    let one = select_device(selector, devices)?;
    let all = options.device.is_none() && !options.measure;
    let numbered = devices.iter().enumerate();
    let chosen = numbered.filter(|(_, device)| all || ptr::eq(*device, one));
    Ok(chosen.collect())
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
