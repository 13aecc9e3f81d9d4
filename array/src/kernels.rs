//! What a backend has to be able to compute.

use std::fmt;

use binpool::{Backend, Error};

use crate::Reduction;

/// An element-wise operation of two arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BinaryOperation {
    /// `left + right`.
    Add,
    /// `left - right`.
    Subtract,
    /// `left * right`.
    Multiply,
}

impl BinaryOperation {
    /// All operations.
    pub const ALL: [Self; 3] = [Self::Add, Self::Subtract, Self::Multiply];

    /// The operation's name, which names its kernel too.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Subtract => "subtract",
            Self::Multiply => "multiply",
        }
    }
}

/// Where a kernel finds its elements: in a block, from any element on.
///
/// A kernel is given the whole block and adds `first` by itself. So slices start wherever they want: a
/// [sub-region](binpool::PooledBuffer::sub_region) would have to start where the device lets memory start, which on
/// GPUs is one element in 32, 64 or 128.
#[derive(Debug)]
pub struct Elements<'a, B: Backend> {
    /// The block.
    pub memory: &'a B::Memory,
    /// How many elements of the block come before the first one.
    pub first: usize,
}

/// The memory of an element-wise operation. Each block holds at least `elements` times 4 bytes, from the first on.
#[derive(Debug)]
pub struct Operands<'a, B: Backend> {
    /// The left operand.
    pub left: Elements<'a, B>,
    /// The right operand, which may share elements with the left one.
    pub right: Elements<'a, B>,
    /// Where the result goes, from its start on: memory of its own.
    pub result: &'a B::Memory,
    /// The number of elements, not 0.
    pub elements: usize,
}

/// The memory of one step of a reduction.
#[derive(Debug)]
pub struct Reduced<'a, B: Backend> {
    /// What is reduced.
    pub operand: Elements<'a, B>,
    /// How many elements that are, not 0.
    pub elements: usize,
    /// Where the partial results go, from its start on: memory of its own.
    pub result: &'a B::Memory,
    /// How many they are: what [`Kernels::partial_results`] says of the number of elements.
    pub results: usize,
}

/// The kernels over one backend. A new backend implements this, and has arrays.
///
/// A kernel is enqueued by one thread, and puts nothing in order: that is done when it is called, as is the recording of
/// the memory's use.
pub trait Kernels<B: Backend>: fmt::Debug + Send + Sync {
    /// Enqueues an element-wise operation.
    ///
    /// # Errors
    ///
    /// A failure of the device.
    fn enqueue(
        &self,
        backend: &B,
        queue: &B::Queue,
        operation: BinaryOperation,
        operands: &Operands<'_, B>,
    ) -> Result<(), Error>;

    /// How many partial results one step makes of so many elements: at least 1, and fewer than `elements` where those
    /// are more than 1. Steps follow one another until there is one result.
    fn partial_results(&self, elements: usize) -> usize;

    /// Enqueues one step of a reduction: each element goes into one of the partial results.
    ///
    /// # Errors
    ///
    /// A failure of the device.
    fn enqueue_reduction(
        &self,
        backend: &B,
        queue: &B::Queue,
        reduction: Reduction,
        reduced: &Reduced<'_, B>,
    ) -> Result<(), Error>;
}

impl<B: Backend, K: Kernels<B>> Kernels<B> for &K {
    fn enqueue(
        &self,
        backend: &B,
        queue: &B::Queue,
        operation: BinaryOperation,
        operands: &Operands<'_, B>,
    ) -> Result<(), Error> {
        (**self).enqueue(backend, queue, operation, operands)
    }

    fn partial_results(&self, elements: usize) -> usize {
        (**self).partial_results(elements)
    }

    fn enqueue_reduction(
        &self,
        backend: &B,
        queue: &B::Queue,
        reduction: Reduction,
        reduced: &Reduced<'_, B>,
    ) -> Result<(), Error> {
        (**self).enqueue_reduction(backend, queue, reduction, reduced)
    }
}
