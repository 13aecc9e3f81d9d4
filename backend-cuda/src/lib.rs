//! The CUDA backend of binpool.
//!
//! [`CudaBackend`] implements `Backend`, `Transfers` and `VirtualMemory` of `binpool_allocators` over the CUDA driver, which is loaded when
//! it is first needed: programs start without it, and get an error that says what to install.
//!
//! ```no_run
//! use binpool::{ImmediateAllocator, MemoryPool};
//! use binpool_allocators::{Backend, QueueOrder};
//! use binpool_cuda::CudaDevice;
//!
//! let backend = CudaDevice::open(0)?;
//! let stream = backend.create_queue(QueueOrder::InOrder)?;
//! let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &stream)?;
//! let block = pool.allocate(4096)?;
//! block.enqueue_fill(&stream, .., &[1])?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Memory
//!
//! | what | by |
//! |---|---|
//! | device memory | `create_buffer`, `ImmediateAllocator` |
//! | pinned memory of the host | `create_buffer` with `MemoryFlags::HOST_RESIDENT` |
//! | managed memory | [`CudaBackend::create_managed`] |
//! | pages and reservations | `create_pages`, `reserve`, `VirtualMemoryAllocator` |
//! | a pool of the driver | [`DriverPoolAllocator`] |
//!
//! A block is freed once the commands that were enqueued with it through this crate have ended. `cuMemFree` waits for all others, too, and is
//! not called while a user event is unresolved, since that wait might never end.
//!
//! # Errors
//!
//! Where memory runs out, the error is `OutOfMemory`. Where a kernel has ended the context, it is `DeviceLost`
//! ([`CudaError::is_sticky`]), and so is that of each later call; every event has failed then, so that nobody waits for ever.

#![deny(unsafe_code)]

mod backend;
mod device;
mod driver_pool;
mod event;
mod graveyard;
mod memory;
mod queue;
mod root;
mod shared;
mod submit;
mod sys;
mod transfers;
mod virtual_memory;

pub use backend::{CudaBackend, DeviceMemory};
pub use device::CudaDevice;
pub use driver_pool::{DriverPoolAllocator, DriverPoolPeaks};
pub use event::CudaEvent;
pub use memory::CudaMemory;
pub use queue::CudaQueue;
pub use sys::{CudaError, CudaLibrary};
