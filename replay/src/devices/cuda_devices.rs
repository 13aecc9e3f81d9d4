//! The CUDA device that a selector names.

use binpool::Error;
use binpool_cuda::{CudaBackend, CudaDevice};
use binpool_opencl::{DeviceKind, DeviceSelector};

/// Opens the CUDA device that `selector` names.
///
/// # Errors
///
/// The device does not exist, which the error says together with those that do, or there is no driver.
pub(crate) fn open_cuda(selector: &DeviceSelector) -> Result<CudaBackend, Error> {
    select_cuda(selector, &CudaDevice::all()?)?.backend()
}

/// Returns the device of `devices` that `selector` names.
///
/// # Errors
///
/// It does not exist, which the error says together with those that do.
pub fn select_cuda<'d>(
    selector: &DeviceSelector,
    devices: &'d [CudaDevice],
) -> Result<&'d CudaDevice, Error> {
    let chosen = match selector {
        DeviceSelector::Any | DeviceSelector::Kind(DeviceKind::Gpu) => devices.first(),
        DeviceSelector::Index(index) => devices.get(*index),
        DeviceSelector::Kind(_) => None,
        DeviceSelector::Name(part) => {
            let part = part.to_lowercase();
            let has_part = |device: &&CudaDevice| device.name().to_lowercase().contains(&part);
            devices.iter().find(has_part)
        }
    };
    chosen.ok_or_else(|| {
        let there: Vec<_> = devices
            .iter()
            .map(|device| format!("[{}] {}", device.ordinal(), device.name()))
            .collect();
        let there = if there.is_empty() {
            "there is none at all".to_owned()
        } else {
            format!("there is {}", there.join(", "))
        };
        Error::unsupported(format!("a CUDA device that is {selector}: {there}"))
    })
}
