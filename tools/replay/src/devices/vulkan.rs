//! Vulkan's devices.

use binpool::Error;
use binpool_vulkan::{VulkanBackend, VulkanDevice};

use crate::{Device, devices::PageDevice};

impl PageDevice for VulkanDevice {
    type Backend = VulkanBackend;

    const BACKEND: &'static str = "vulkan";
    const OF: &'static str = "Vulkan";

    fn all() -> Result<Vec<Self>, Error> {
        Self::all()
    }

    fn name(&self) -> &str {
        self.name()
    }

    fn is_gpu(&self) -> bool {
        self.is_gpu()
    }

    fn total_bytes(&self) -> u64 {
        self.total_bytes()
    }

    fn has_pages(&self) -> Option<bool> {
        Some(self.has_virtual_memory())
    }

    fn open(&self) -> Result<VulkanBackend, Error> {
        self.open()
    }

    fn for_replays(backend: VulkanBackend) -> Device {
        Device::with_pages(Self::BACKEND, backend, |_| {
            Err(Error::unsupported(
                "a kernel that takes a given time, on Vulkan: use `--behind` on the mock, OpenCL or CUDA",
            ))
        })
    }
}
