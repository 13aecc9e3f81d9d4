//! Kernels that take each slice as an address and a first element, as those of CUDA and Vulkan do.

#![expect(
    unsafe_code,
    reason = "the caller of a launch promises what it touches"
)]

use std::fmt;

use binpool::{AsMemory, Error, InvalidRequest};
use binpool_allocators::runtime::{Argument, CoreQueue, Runtime};

use crate::{BinaryOperation, Kernels, Reduction, kernels::length};

/// The threads of a group.
pub(crate) const GROUP: u32 = 128;

/// How many elements of a reduction have a group of their own, as long as there are no more groups than one group reduces
/// in the next step.
const REDUCED: usize = 8 * GROUP as usize;

/// A compiled kernel.
pub trait Launch: fmt::Debug + Send + Sync {
    /// Its device.
    type Backend: Runtime;

    /// Enqueues the kernel in this many groups, or up to the most that the device has.
    ///
    /// # Safety
    ///
    /// The arguments are its parameters, it touches no bytes but those of its memory arguments, and is in order with others.
    ///
    /// # Errors
    ///
    /// A failure of the device.
    unsafe fn launch(
        &self,
        queue: &CoreQueue<Self::Backend>,
        groups: usize,
        arguments: &[Argument<'_, Self::Backend>],
    ) -> Result<(), Error>;
}

/// The kernels for one device. Clones are the same kernels.
#[derive(Clone, Debug)]
pub struct KernelsByAddress<K> {
    /// In the order of [`BinaryOperation::ALL`].
    pub(crate) binary: [K; 3],
    /// In the order of [`Reduction::ALL`].
    pub(crate) reductions: [K; 3],
}

/// The pointer and the place of the first element, as two arguments.
fn slice<'m, R: Runtime>(
    memory: &'m dyn AsMemory<R>,
    queue: &CoreQueue<R>,
) -> Result<[Argument<'m, R>; 2], Error> {
    let start = memory.start() / size_of::<f32>();
    let memory = memory.memory_on(queue).ok_or(InvalidRequest::ZeroSize)?;
    Ok([Argument::Memory(memory), Argument::U64(start as u64)])
}

impl<K: Launch> Kernels<K::Backend> for KernelsByAddress<K> {
    fn enqueue(
        &self,
        _backend: &K::Backend,
        queue: &CoreQueue<K::Backend>,
        operation: BinaryOperation,
        [left, right]: [&dyn AsMemory<K::Backend>; 2],
        result: &dyn AsMemory<K::Backend>,
    ) -> Result<(), Error> {
        let count = length(result);
        let [left, right] = [slice(left, queue)?, slice(right, queue)?];
        let mut arguments = [left, right, slice(result, queue)?].concat();
        arguments.push(Argument::U64(count as u64));
        let kernel = &self.binary[operation as usize];
        // SAFETY: These are its parameters. It reads `count` floats of each operand, which are as long as the result, and writes those of
        // the result. The caller has put the command in order.
        unsafe { kernel.launch(queue, count.div_ceil(GROUP as usize), &arguments) }
    }

    fn partial_results(&self, elements: usize) -> usize {
        elements.div_ceil(REDUCED).min(REDUCED)
    }

    fn enqueue_reduction(
        &self,
        _backend: &K::Backend,
        queue: &CoreQueue<K::Backend>,
        reduction: Reduction,
        operand: &dyn AsMemory<K::Backend>,
        results: &dyn AsMemory<K::Backend>,
    ) -> Result<(), Error> {
        let [data, start] = slice(operand, queue)?;
        let count = Argument::U64(length(operand) as u64);
        let [partial, partial_start] = slice(results, queue)?;
        let arguments = [data, start, count, partial, partial_start];
        let kernel = &self.reductions[reduction as usize];
        // SAFETY: These are its parameters. It reads floats within the length. There are as many groups as results, and the first thread of
        // each writes the result of its number. The caller has put the command in order.
        unsafe { kernel.launch(queue, length(results), &arguments) }
    }
}
