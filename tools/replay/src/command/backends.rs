//! The backends that options name.

use std::error::Error;

use binpool_cuda::CudaDevice;
use binpool_opencl::DeviceSelector;
use binpool_replay::{Device, Profile, devices::open_for_replays};
use binpool_vulkan::VulkanDevice;
use clap::ValueEnum;

/// Where a replay takes its memory from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum BackendChoice {
    /// A simulated device in this process.
    #[default]
    Mock,
    /// An OpenCL device of this machine.
    Opencl,
    /// A CUDA device of this machine.
    Cuda,
    /// A Vulkan device of this machine.
    Vulkan,
}

impl BackendChoice {
    /// Opens the device that a replay uses.
    pub(crate) fn open(
        self,
        selector: &DeviceSelector,
        profile: Profile,
    ) -> Result<Device, Box<dyn Error>> {
        Ok(match self {
            Self::Mock => Device::Mock(profile),
            Self::Opencl => Device::opencl(selector)?,
            Self::Cuda => open_for_replays::<CudaDevice>(selector)?,
            Self::Vulkan => open_for_replays::<VulkanDevice>(selector)?,
        })
    }
}

/// The backends whose devices can be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DeviceBackend {
    /// OpenCL.
    Opencl,
    /// NVIDIA's driver.
    Cuda,
    /// Vulkan.
    Vulkan,
}

impl DeviceBackend {
    /// The backends besides OpenCL, in the order of the list.
    pub(crate) const OTHERS: [Self; 2] = [Self::Cuda, Self::Vulkan];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Opencl => "OpenCL",
            Self::Cuda => "CUDA",
            Self::Vulkan => "Vulkan",
        }
    }
}
