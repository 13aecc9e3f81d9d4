//! Kernels of a Vulkan device, as modules of SPIR-V. Its maps are copies.

#![expect(
    unsafe_code,
    reason = "the caller of a launch promises what it touches"
)]

use binpool::{AsMemory, Error, InvalidRequest};
use binpool_vulkan::{Argument, VulkanBackend, VulkanKernel, VulkanQueue};

use crate::{BinaryOperation, CopiesMaps, Kernels, Reduction, kernels::length};

/// What `scripts/shaders` makes of `element_wise.comp` and `reduction.comp`.
const ELEMENT_WISE: &[u8] = include_bytes!("element_wise.spv");
const REDUCTION: &[u8] = include_bytes!("reduction.spv");

/// The invocations of a group, as the sources have them.
const GROUP: usize = 128;

/// How many elements of a reduction have a group of their own, as long as there are no more groups than one group reduces
/// in the next step.
const REDUCED: usize = 8 * GROUP;

/// Each device has as many groups.
const MOST_GROUPS: usize = 65_535;

/// The kernels for Vulkan devices. Clones are the same kernels.
#[derive(Clone, Debug)]
pub struct VulkanKernels {
    /// In the order of [`BinaryOperation::ALL`].
    binary: [VulkanKernel; 3],
    /// In the order of [`Reduction::ALL`].
    reductions: [VulkanKernel; 3],
}

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

/// The address and the place of the first element, as two arguments.
fn slice<'m>(
    memory: &'m dyn AsMemory<VulkanBackend>,
    queue: &VulkanQueue,
) -> Result<[Argument<'m>; 2], Error> {
    let start = memory.start() / size_of::<f32>();
    let memory = memory.memory_on(queue).ok_or(InvalidRequest::ZeroSize)?;
    Ok([Argument::Memory(memory), Argument::U64(start as u64)])
}

/// Returns the groups of a launch, at most the number that every device allows. Each invocation computes more elements then.
fn groups(count: usize) -> [u32; 3] {
    [u32::try_from(count.min(MOST_GROUPS)).unwrap_or(1), 1, 1]
}

impl Kernels<VulkanBackend> for VulkanKernels {
    fn enqueue(
        &self,
        _backend: &VulkanBackend,
        queue: &VulkanQueue,
        operation: BinaryOperation,
        [left, right]: [&dyn AsMemory<VulkanBackend>; 2],
        result: &dyn AsMemory<VulkanBackend>,
    ) -> Result<(), Error> {
        let count = length(result);
        let mut arguments = [
            slice(left, queue)?,
            slice(right, queue)?,
            slice(result, queue)?,
        ]
        .concat();
        arguments.push(Argument::U64(count as u64));
        let kernel = &self.binary[operation as usize];
        // SAFETY: These are its push constants. It reads `count` floats of each operand, which are as long as the result, and writes those of
        // the result. The caller has put the command in order.
        unsafe { kernel.launch(queue, groups(count.div_ceil(GROUP)), &arguments, &[]) }?;
        Ok(())
    }

    fn partial_results(&self, elements: usize) -> usize {
        elements.div_ceil(REDUCED).min(REDUCED)
    }

    fn enqueue_reduction(
        &self,
        _backend: &VulkanBackend,
        queue: &VulkanQueue,
        reduction: Reduction,
        operand: &dyn AsMemory<VulkanBackend>,
        results: &dyn AsMemory<VulkanBackend>,
    ) -> Result<(), Error> {
        let [data, start] = slice(operand, queue)?;
        let count = Argument::U64(length(operand) as u64);
        let [partial, partial_start] = slice(results, queue)?;
        let arguments = [data, start, count, partial, partial_start];
        let kernel = &self.reductions[reduction as usize];
        // SAFETY: These are its push constants. It reads floats within the length. There are as many groups as results, and the first
        // invocation of each group writes the result of its number. The caller has put the command in order.
        unsafe { kernel.launch(queue, groups(length(results)), &arguments, &[]) }?;
        Ok(())
    }
}

impl CopiesMaps for VulkanBackend {}
