//! What a backend has to be able to compute.

use std::fmt;

use binpool::{Backend, Error};

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

/// The memory of an operation. Each block holds at least `elements` times 4 bytes.
#[derive(Debug)]
pub struct Operands<'a, B: Backend> {
    /// The left operand.
    pub left: &'a B::Memory,
    /// The right operand, which may be the left one again.
    pub right: &'a B::Memory,
    /// Where the result goes: memory of its own.
    pub result: &'a B::Memory,
    /// The number of elements, not 0.
    pub elements: usize,
}

/// Element-wise kernels over one backend. A new backend implements this, and has arrays.
pub trait Kernels<B: Backend>: fmt::Debug + Send + Sync {
    /// Enqueues an operation.
    fn enqueue(
        &self,
        backend: &B,
        queue: &B::Queue,
        operation: BinaryOperation,
        operands: &Operands<'_, B>,
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
}
