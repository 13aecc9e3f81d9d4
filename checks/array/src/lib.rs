//! A miniature array crate: what binpool's users look like.
//!
//! Arrays of `f32` over any backend, with element-wise arithmetic in which every intermediate of
//! `&a * &b + &c` is a block from the pool. It shows what an array crate has to do: launch its kernels on memory that it
//! gets through [`memory_on`](binpool::PooledBuffer::memory_on), keep inputs and outputs alive until they are enqueued,
//! put operands of other queues in order with [`order_before`](binpool::PooledBuffer::order_before), take the partial
//! results of a reduction from the pool, and say which [`Kernels`] and which [`HostMaps`] a backend has.
//!
//! ```
//! use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
//! use binpool_array::{Context, MockKernels};
//! use binpool_mock::MockDevice;
//!
//! let backend = MockDevice::new().backend();
//! let queue = backend.create_queue(QueueOrder::InOrder)?;
//! let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
//! let context = Context::new(pool, queue, MockKernels);
//!
//! let a = context.array(&[1.0, 2.0, 3.0])?;
//! let b = context.array(&[10.0, 10.0, 10.0])?;
//! let c = context.array(&[0.5, 0.5, 0.5])?;
//! let sum = &a * &b + &c;
//! assert_eq!(sum.to_vec()?, [10.5, 20.5, 30.5]);
//! # Ok::<(), binpool_array::ArrayError>(())
//! ```
//!
//! An array is read and written in parts, by the device and by the host:
//!
//! | | | |
//! |---|---|---|
//! | [`Slice`] | some of the elements, where they are | an operand; read, copied, reduced, mapped |
//! | [`SliceMut`] | the same, to write them | written by the host or with other arrays, mapped |
//! | [`HostMap`], [`HostMapMut`] | elements as slices of the host | OpenCL: the runtime's maps; the others: copies |
//! | [`Reduction`] | sum, minimum, maximum | as an array of one element, or as a number of the host |
//!
//! ```
//! # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
//! # use binpool_array::{Context, MockKernels};
//! # use binpool_mock::MockDevice;
//! # let backend = MockDevice::new().backend();
//! # let queue = backend.create_queue(QueueOrder::InOrder)?;
//! # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
//! # let context = Context::new(pool, queue, MockKernels);
//! let mut heights = context.array(&[2.0, 3.0, 5.0, 9.0])?;
//! let climbs = heights.slice(1..)? - heights.slice(..3)?;
//! assert_eq!((climbs.sum()?, climbs.max()?), (7.0, 4.0));
//! heights.slice_mut(1..=2)?.copy_from(&[0.0, 1.0])?;
//! heights.map_mut()?[3] = 4.0;
//! assert_eq!(heights.to_vec()?, [2.0, 0.0, 1.0, 4.0]);
//! # Ok::<(), binpool_array::ArrayError>(())
//! ```
//!
//! Arrays have one dimension and one type of elements, and no slices with steps.
//!
//! # Features
//!
//! `cuda`, `mock` and `vulkan`, all on by default, are the kernels of those backends. Without them the crate needs OpenCL's backend alone.

#![deny(unsafe_code)]

mod array;
#[cfg(any(feature = "cuda", feature = "vulkan"))]
mod by_address;
mod context;
mod copied_map;
#[cfg(feature = "cuda")]
mod cuda;
mod error;
mod kernels;
mod map;
#[cfg(feature = "mock")]
mod mock;
mod opencl;
mod operation;
mod operators;
mod reduction;
mod slice;
mod slice_mut;
#[cfg(feature = "vulkan")]
mod vulkan;

pub use array::Array;
pub use context::Context;
pub use copied_map::{CopiedMapMut, CopiesMaps};
#[cfg(feature = "cuda")]
pub use cuda::{CudaKernels, open_cuda};
pub use error::ArrayError;
pub use kernels::Kernels;
pub use map::{HostMap, HostMapMut, HostMaps};
#[cfg(feature = "mock")]
pub use mock::MockKernels;
pub use opencl::{OpenClKernels, open_opencl};
pub use operation::{BinaryOperation, Reduction};
pub use operators::Operand;
pub use slice::{AsSlice, Slice};
pub use slice_mut::SliceMut;
#[cfg(feature = "vulkan")]
pub use vulkan::{VulkanKernels, open_vulkan};

#[doc = include_str!("../../../README.md")]
#[cfg(doctest)]
struct Readme;
