//! The loader, and an instance.

use std::{ffi::CStr, sync::OnceLock};

use ash::vk;
use binpool_allocators::{Error, Result};

use super::{Named as _, VulkanError};

/// An instance of Vulkan. One that this crate has made is destroyed with it.
pub(crate) struct Instance {
    raw: ash::Instance,
    is_own: bool,
}

/// The loader, which stays loaded, and keeps the drivers: threads of theirs, and handlers for the end of the process, would run on in code that is gone.
fn loader() -> Result<&'static ash::Entry> {
    static LOADER: OnceLock<ash::Entry> = OnceLock::new();
    if let Some(loaded) = LOADER.get() {
        return Ok(loaded);
    }
    // SAFETY: The loader of Vulkan does no harm when it is loaded, and stays.
    let loaded = unsafe { ash::Entry::load() }.map_err(|error| {
        Error::unsupported(format!(
            "Vulkan, since its loader is not installed ({error}): install libvulkan1 (Debian, Ubuntu) or the driver of the GPU"
        ))
    })?;
    Ok(LOADER.get_or_init(|| loaded))
}

impl Instance {
    /// Loads the loader, and makes an instance of version 1.2 or later.
    pub(crate) fn load() -> Result<Self> {
        let application = vk::ApplicationInfo::default()
            .engine_name(c"binpool")
            .api_version(vk::API_VERSION_1_3);
        let info = vk::InstanceCreateInfo::default().application_info(&application);
        // SAFETY: The structs live during the call.
        let made = unsafe { loader()?.create_instance(&info, None) };
        let raw = made.map_err(|result| match result {
            vk::Result::ERROR_INCOMPATIBLE_DRIVER => no_driver(),
            result => VulkanError::new("vkCreateInstance", result).into(),
        })?;
        Ok(Self { raw, is_own: true })
    }

    /// Takes an instance that the program has made, and destroys.
    pub(crate) fn adopt(raw: ash::Instance) -> Self {
        Self { raw, is_own: false }
    }

    pub(crate) fn raw(&self) -> &ash::Instance {
        &self.raw
    }

    pub(crate) fn physical_devices(&self) -> Result<Vec<vk::PhysicalDevice>> {
        // SAFETY: The instance lives.
        let devices = unsafe { self.raw.enumerate_physical_devices() };
        match devices {
            Err(vk::Result::ERROR_INITIALIZATION_FAILED) => Err(no_driver()),
            devices => Ok(devices.of("vkEnumeratePhysicalDevices")?),
        }
    }

    /// Returns whether a device has an extension.
    pub(crate) fn has_extension(&self, device: vk::PhysicalDevice, name: &CStr) -> bool {
        // SAFETY: The device is of the instance, which lives.
        let extensions = unsafe { self.raw.enumerate_device_extension_properties(device) };
        extensions.is_ok_and(|all| {
            all.iter()
                .any(|one| one.extension_name_as_c_str() == Ok(name))
        })
    }
}

fn no_driver() -> Error {
    Error::unsupported(
        "Vulkan, since no driver is installed: install the GPU's, or mesa-vulkan-drivers (Debian, Ubuntu), which includes one for the processor",
    )
}

impl Drop for Instance {
    fn drop(&mut self) {
        if self.is_own {
            // SAFETY: Its devices, which keep it, are gone.
            unsafe { self.raw.destroy_instance(None) };
        }
    }
}
