//! The Vulkan devices of this machine, and how one is opened.

use std::sync::Arc;

use binpool_allocators::{Error, Result, debug_by};

use crate::{
    backend::VulkanBackend,
    sys::{Device, Facts, Instance},
};

/// A device that the installed drivers have.
///
/// ```no_run
/// use binpool_vulkan::VulkanDevice;
///
/// for device in VulkanDevice::all()? {
///     let kind = if device.is_gpu() { "GPU" } else { "processor" };
///     println!("{} ({kind}): {} MiB, pages: {}", device.name(), device.total_bytes() >> 20, device.has_virtual_memory());
/// }
/// let backend = VulkanDevice::all()?.first().ok_or("no device")?.open()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct VulkanDevice {
    instance: Arc<Instance>,
    facts: Facts,
}

impl VulkanDevice {
    /// Lists the devices, in the order of the loader.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](Error::Unsupported) if there is no loader or no driver; a failure of Vulkan.
    pub fn all() -> Result<Vec<Self>> {
        let instance = Arc::new(Instance::load()?);
        let devices = instance.physical_devices()?.into_iter();
        let devices = devices.map(|physical| Self {
            facts: Facts::of(&instance, physical),
            instance: Arc::clone(&instance),
        });
        Ok(devices.collect())
    }

    #[cfg(test)]
    pub(crate) fn of(instance: Instance, facts: Facts) -> Self {
        let instance = Arc::new(instance);
        Self { instance, facts }
    }

    /// The name, for display.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.facts.name
    }

    /// Returns whether it is a GPU: discrete, integrated or virtual, but not a processor.
    #[must_use]
    pub fn is_gpu(&self) -> bool {
        self.facts.is_gpu
    }

    /// The size of its own memory in bytes.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.facts.total_bytes
    }

    /// Returns whether it has sparse buffers, and so the pages that a `VirtualMemoryAllocator` moves.
    #[must_use]
    pub fn has_virtual_memory(&self) -> bool {
        self.facts.sparse_bytes > 0
    }

    /// Makes a logical device of its own.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](Error::Unsupported) for a device without Vulkan 1.2, timeline semaphores and addresses of buffers; a failure of Vulkan.
    pub fn open(&self) -> Result<VulkanBackend> {
        VulkanBackend::over(Device::create(&self.instance, self.facts.clone())?)
    }
}

impl VulkanBackend {
    /// Opens the device with this number, counted from 0 as in [`VulkanDevice::all`].
    ///
    /// # Errors
    ///
    /// Those of [`VulkanDevice::all`] and of [`VulkanDevice::open`]; [`Unsupported`](Error::Unsupported) if no device has this number.
    pub fn open(number: usize) -> Result<Self> {
        let all = VulkanDevice::all()?;
        let device = all.get(number).ok_or_else(|| {
            Error::unsupported(format!(
                "Vulkan device {number}: there are {}, counted from 0",
                all.len()
            ))
        })?;
        device.open()
    }
}

debug_by!(VulkanDevice, |this| name: this.facts.name);
