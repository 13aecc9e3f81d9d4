//! A miniature array crate: what binpool's users look like.
//!
//! Arrays of `f32` over any backend, with element-wise arithmetic in which every intermediate of
//! `&a * &b + &c` is a block from the pool. It shows the four things an array crate has to do: launch its
//! kernels on memory that it gets through [`memory_on`](binpool::PooledBuffer::memory_on), keep inputs and
//! outputs alive until they are enqueued, put operands of other queues in order with
//! [`order_before`](binpool::PooledBuffer::order_before), and say which [`Kernels`] a backend has.
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

mod array;
mod context;
mod error;
mod kernels;
mod mock;
mod opencl;

pub use array::Array;
pub use context::Context;
pub use error::ArrayError;
pub use kernels::{BinaryOperation, Kernels, Operands};
pub use mock::MockKernels;
pub use opencl::{OpenClKernels, open_opencl};

#[doc = include_str!("../../README.md")]
#[cfg(doctest)]
struct Readme;
