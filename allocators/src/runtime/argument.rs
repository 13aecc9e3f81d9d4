//! Arguments of kernels that take memory by its address.

use super::{CoreMemory, Objects, Part};
use crate::{Memory as _, Result};

/// An argument of a kernel that takes memory by its address, as those of CUDA and Vulkan do.
///
/// ```
/// use binpool_allocators::{Result, runtime::{Argument, CoreMemory, Runtime}};
///
/// // void scale(float *numbers, unsigned count, float factor)
/// fn arguments<R: Runtime>(numbers: &CoreMemory<R>) -> [Argument<'_, R>; 3] {
///     [Argument::Memory(numbers), Argument::U32(1000), Argument::F32(0.5)]
/// }
/// fn bytes<R: Runtime>(argument: Argument<'_, R>) -> Result<()> {
///     let (bytes, length) = argument.bytes()?;
///     println!("{:?}", &bytes[..length]);
///     Ok(())
/// }
/// fn count<R: Runtime>(arguments: &[Argument<'_, R>]) -> Result<usize> {
///     Ok(Argument::parts(arguments)?.len()) // Those of memory.
/// }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Argument<'a, R: Objects> {
    /// The address of the first byte.
    Memory(&'a CoreMemory<R>),
    /// A number of 32 bits.
    U32(u32),
    /// A number of 64 bits.
    U64(u64),
    /// A floating-point number of 32 bits.
    F32(f32),
}

impl<R: Objects> Clone for Argument<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R: Objects> Copy for Argument<'_, R> {}

impl<'a, R: Objects> Argument<'a, R> {
    /// Returns the bytes of the argument, and how many of them count: 4 or 8.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](crate::Error::Unsupported) for memory without an address.
    pub fn bytes(self) -> Result<([u8; 8], usize)> {
        let short = |[a, b, c, d]: [u8; 4]| ([a, b, c, d, 0, 0, 0, 0], 4);
        Ok(match self {
            Self::Memory(memory) => (memory.device_address()?.to_ne_bytes(), 8),
            Self::U32(number) => short(number.to_ne_bytes()),
            Self::U64(number) => (number.to_ne_bytes(), 8),
            Self::F32(number) => short(number.to_ne_bytes()),
        })
    }

    /// Returns the memory that a kernel with these arguments may read and write, for [`enqueue`](super::enqueue).
    ///
    /// # Errors
    ///
    /// As [`CoreMemory::part_of_kernel`].
    pub fn parts(arguments: &[Self]) -> Result<Vec<Part<'a, R>>> {
        let memory = arguments.iter().filter_map(|argument| match argument {
            Self::Memory(memory) => Some(*memory),
            _ => None,
        });
        memory.map(CoreMemory::part_of_kernel).collect()
    }
}
