//! The loader, and an instance.

use std::ffi::CStr;

use ash::vk;
use binpool_allocators::{Error, Result};

use super::{Named as _, VulkanError};

/// An instance of Vulkan. One that this crate has made is destroyed with it.
pub(crate) struct Instance {
    raw: ash::Instance,
    /// The loader's library of an instance that this crate has made.
    own: Option<ash::Entry>,
}

impl Instance {
    /// Loads the loader, and makes an instance of version 1.2 or later.
    pub(crate) fn load() -> Result<Self> {
        // SAFETY: The loader of Vulkan does no harm when it is loaded, and the instance keeps it.
        let entry = unsafe { ash::Entry::load() }.map_err(|error| {
            Error::unsupported(format!(
                "Vulkan, whose loader is not installed ({error}): install libvulkan1 (Debian, Ubuntu) or the driver of the GPU"
            ))
        })?;
        let application = vk::ApplicationInfo::default()
            .engine_name(c"binpool")
            .api_version(vk::API_VERSION_1_3);
        let info = vk::InstanceCreateInfo::default().application_info(&application);
        // SAFETY: The structs live during the call.
        let made = unsafe { entry.create_instance(&info, None) };
        let raw = made.map_err(|result| match result {
            vk::Result::ERROR_INCOMPATIBLE_DRIVER => no_driver(),
            result => VulkanError::new("vkCreateInstance", result).into(),
        })?;
        Ok(Self {
            raw,
            own: Some(entry),
        })
    }

    /// Takes an instance that the program has made, and destroys.
    pub(crate) fn adopt(raw: ash::Instance) -> Self {
        Self { raw, own: None }
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
        "Vulkan, for which no driver is installed: install that of the GPU, or mesa-vulkan-drivers (Debian, Ubuntu), which also has one for the \
         processor",
    )
}

impl Drop for Instance {
    fn drop(&mut self) {
        if self.own.is_some() {
            // SAFETY: Its devices, which keep it, are gone.
            unsafe { self.raw.destroy_instance(None) };
        }
    }
}
