//! The CUDA or Vulkan device that a selector names.

use binpool::Error;
use binpool_cuda::{CudaBackend, CudaDevice};
use binpool_opencl::{DeviceKind, DeviceSelector};
use binpool_vulkan::{VulkanBackend, VulkanDevice};

/// A device that a selector may name.
pub trait Selectable {
    /// What it is a device of, as in "a CUDA device".
    const OF: &'static str;

    /// The name, for display.
    fn name(&self) -> &str;

    /// Returns whether it is a GPU.
    fn is_gpu(&self) -> bool;
}

impl Selectable for CudaDevice {
    const OF: &'static str = "CUDA";

    fn name(&self) -> &str {
        self.name()
    }

    fn is_gpu(&self) -> bool {
        true
    }
}

impl Selectable for VulkanDevice {
    const OF: &'static str = "Vulkan";

    fn name(&self) -> &str {
        self.name()
    }

    fn is_gpu(&self) -> bool {
        self.is_gpu()
    }
}

/// Opens the CUDA device that `selector` names.
///
/// # Errors
///
/// The device does not exist, and the error lists those that do, or there is no driver.
pub(crate) fn open_cuda(selector: &DeviceSelector) -> Result<CudaBackend, Error> {
    select_device(selector, &CudaDevice::all()?)?.backend()
}

/// Opens the Vulkan device that `selector` names.
///
/// # Errors
///
/// The device does not exist, and the error lists those that do, or there is no loader or driver.
pub(crate) fn open_vulkan(selector: &DeviceSelector) -> Result<VulkanBackend, Error> {
    select_device(selector, &VulkanDevice::all()?)?.open()
}

/// Returns the device of `devices` that `selector` names.
///
/// # Errors
///
/// It does not exist, and the error lists those that do.
pub fn select_device<'d, D: Selectable>(
    selector: &DeviceSelector,
    devices: &'d [D],
) -> Result<&'d D, Error> {
    let chosen = match selector {
        DeviceSelector::Any => devices.first(),
        DeviceSelector::Index(index) => devices.get(*index),
        DeviceSelector::Kind(kind) => {
            let is_gpu = *kind == DeviceKind::Gpu;
            devices.iter().find(|device| device.is_gpu() == is_gpu)
        }
        DeviceSelector::Name(part) => {
            let part = part.to_lowercase();
            let has_part = |device: &&D| device.name().to_lowercase().contains(&part);
            devices.iter().find(has_part)
        }
    };
    chosen.ok_or_else(|| {
        let there: Vec<_> = devices
            .iter()
            .enumerate()
            .map(|(number, device)| format!("[{number}] {}", device.name()))
            .collect();
        let there = if there.is_empty() {
            "there are no devices".to_owned()
        } else {
            format!("there is {}", there.join(", "))
        };
        Error::unsupported(format!("a {} device that is {selector}: {there}", D::OF))
    })
}
