//! Kernels of a Vulkan device, as modules of SPIR-V. Its maps are copies.

#![expect(
    unsafe_code,
    reason = "the caller of a launch promises what it touches"
)]

use binpool::Error;
use binpool_vulkan::{Argument, VulkanBackend, VulkanKernel, VulkanQueue};

use crate::{
    CopiesMaps,
    by_address::{KernelsByAddress, Launch},
};

/// What `scripts/shaders` makes of `element_wise.comp` and `reduction.comp`.
const ELEMENT_WISE: &[u8] = include_bytes!("element_wise.spv");
const REDUCTION: &[u8] = include_bytes!("reduction.spv");

/// Each device has as many groups.
const MOST_GROUPS: usize = 65_535;

/// The kernels for Vulkan devices.
pub type VulkanKernels = KernelsByAddress<VulkanKernel>;

impl VulkanKernels {
    /// The kernels for a backend, which the driver compiles.
    ///
    /// # Errors
    ///
    /// A failure of the driver.
    pub fn new(backend: &VulkanBackend) -> Result<Self, Error> {
        let load = |module: &[u8], number: u32| {
            let (words, _) = module.as_chunks();
            let words: Vec<_> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
            // SAFETY: Both are modules for Vulkan 1.2 that need 64-bit integers, which the backend has where the device has them.
            unsafe { VulkanKernel::load(backend, &words, "main", &[number]) }
        };
        let [add, subtract, multiply] = [0, 1, 2].map(|number| load(ELEMENT_WISE, number));
        let [sum, minimum, maximum] = [0, 1, 2].map(|number| load(REDUCTION, number));
        Ok(Self {
            binary: [add?, subtract?, multiply?],
            reductions: [sum?, minimum?, maximum?],
        })
    }
}

/// A device by its number, and the kernels for it.
///
/// # Errors
///
/// No loader or driver (the error says how to install one); no such device; a failure of the driver.
pub fn open_vulkan(number: usize) -> Result<(VulkanBackend, VulkanKernels), Error> {
    let backend = VulkanBackend::open(number)?;
    let kernels = VulkanKernels::new(&backend)?;
    Ok((backend, kernels))
}

impl Launch for VulkanKernel {
    type Backend = VulkanBackend;

    // SAFETY: a contract of the trait: the arguments are the kernel's parameters, and it is in order with others.
    unsafe fn launch(
        &self,
        queue: &VulkanQueue,
        groups: usize,
        arguments: &[Argument<'_, VulkanBackend>],
    ) -> Result<(), Error> {
        // With fewer groups than there are elements for, each invocation computes more elements.
        let groups = u32::try_from(groups.min(MOST_GROUPS)).unwrap_or(1);
        // SAFETY: As the caller promises.
        unsafe { self.launch(queue, [groups, 1, 1], arguments, &[]) }?;
        Ok(())
    }
}

impl CopiesMaps for VulkanBackend {}
