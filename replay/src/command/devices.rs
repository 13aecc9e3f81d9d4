//! `binpool devices`.

use std::{error::Error, time::Instant};

use binpool_mock::DeviceProfile;
use binpool_opencl::{DeviceInfo, DeviceSelector, OpenClBackend, list_devices};
use binpool_replay::{COST_STEPS, DeviceEntry, device_costs, devices_json, devices_text};

use crate::command::{
    cli::Devices,
    output::{print, print_report},
    progress_bar::bar,
    whole_file::write_file,
};

/// Prints the requested devices, and measures one of them. Returns `true`: failures are errors.
pub(crate) fn show_devices(options: &Devices) -> Result<bool, Box<dyn Error>> {
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
            entry.profile = Some(measure(&backend, options, device.name())?);
        }
        entries.push(entry);
    }
    let mut profiles = entries.iter().filter_map(|entry| entry.profile.as_ref());
    if let Some((path, profile)) = options.output.as_ref().zip(profiles.next()) {
        write_file(path, serde_json::to_string_pretty(profile)? + "\n")?;
    }
    if options.json {
        print(&devices_json(&entries)?)?;
    } else {
        print_report(&devices_text(&entries), &[])?;
    }
    Ok(true)
}

fn measure(
    backend: &OpenClBackend,
    options: &Devices,
    name: &str,
) -> Result<DeviceProfile, binpool::Error> {
    let bar = bar(COST_STEPS, name);
    let start = Instant::now();
    device_costs(backend, options.effort(), &|| start.elapsed(), &|| {
        bar.inc(1);
    })
}
