//! The devices of backends with pages, and the one that a selector names.

use binpool::Error;
use binpool_allocators::VirtualMemory;
use binpool_opencl::{DeviceKind, DeviceSelector};

use crate::Device;

/// A device of a backend with pages, as the command lists, measures and uses it. A new backend implements this in a file beside.
pub trait PageDevice: Sized {
    /// What opening it returns.
    type Backend: VirtualMemory;

    /// The name of the backend in options and in JSON, such as `cuda`.
    const BACKEND: &'static str;

    /// What it is a device of, as in "a CUDA device".
    const OF: &'static str;

    /// Returns all devices of the machine.
    ///
    /// # Errors
    ///
    /// There is no driver.
    fn all() -> Result<Vec<Self>, Error>;

    /// The name, for display.
    fn name(&self) -> &str;

    /// Returns whether it is a GPU.
    fn is_gpu(&self) -> bool;

    /// The memory, in bytes.
    fn total_bytes(&self) -> u64;

    /// Returns whether it has pages; `None` if all devices of the backend have them.
    fn has_pages(&self) -> Option<bool>;

    /// Opens it.
    ///
    /// # Errors
    ///
    /// A failure of the driver.
    fn open(&self) -> Result<Self::Backend, Error>;

    /// Returns the device that a replay uses.
    fn for_replays(backend: Self::Backend) -> Device;
}

/// Opens the device that `selector` names, for replays.
///
/// # Errors
///
/// The device does not exist, and the error lists those that do, or there is no driver.
pub fn open_for_replays<D: PageDevice>(selector: &DeviceSelector) -> Result<Device, Error> {
    let backend = select_device(selector, &D::all()?)?.open()?;
    Ok(D::for_replays(backend))
}

/// Returns the device of `devices` that `selector` names.
///
/// # Errors
///
/// It does not exist, and the error lists those that do.
pub fn select_device<'d, D: PageDevice>(
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
