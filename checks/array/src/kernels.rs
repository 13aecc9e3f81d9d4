//! What a backend has to be able to compute.

use std::fmt;

use binpool::{AsMemory, Backend, Error};

use crate::{BinaryOperation, Reduction};

/// The kernels over one backend. A new backend implements this, and has arrays.
///
/// Operands and results are slices of arrays, of at least one element; their [`size`](AsMemory::size) says how many they are. A slice
/// starts at any element of its block, not only on the device's alignment, which on GPUs is one element in 32, 64 or 128:
/// so a kernel is given the whole block and the place of the slice in it ([`start`](AsMemory::start)). Results share no bytes with
/// anything else.
///
/// A kernel is enqueued by one thread, and does not order commands: its caller does that, and records the use of the
/// memory.
pub trait Kernels<B: Backend>: fmt::Debug + Send + Sync {
    /// Enqueues an element-wise operation of two slices that are as long as the result. They may share bytes with each other.
    ///
    /// # Errors
    ///
    /// A failure of the device.
    fn enqueue(
        &self,
        backend: &B,
        queue: &B::Queue,
        operation: BinaryOperation,
        operands: [&dyn AsMemory<B>; 2],
        result: &dyn AsMemory<B>,
    ) -> Result<(), Error>;

    /// How many partial results one step makes of this many elements: at least 1, and fewer than `elements` where those
    /// are more than 1. Steps follow one another until there is one result.
    fn partial_results(&self, elements: usize) -> usize;

    /// Enqueues one step of a reduction: each element of `operand` goes into one of the partial results, whose number
    /// [`partial_results`](Self::partial_results) returns.
    ///
    /// # Errors
    ///
    /// A failure of the device.
    fn enqueue_reduction(
        &self,
        backend: &B,
        queue: &B::Queue,
        reduction: Reduction,
        operand: &dyn AsMemory<B>,
        results: &dyn AsMemory<B>,
    ) -> Result<(), Error>;
}

/// Returns how many elements a slice has.
#[cfg(any(feature = "cuda", feature = "vulkan"))]
pub(crate) fn length<B: Backend>(memory: &dyn AsMemory<B>) -> usize {
    memory.size() / size_of::<f32>()
}
