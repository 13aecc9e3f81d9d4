//! The CUDA backend of binpool.
//!
//! [`CudaBackend`] implements `Backend` and `VirtualMemory` of `binpool_allocators` over the CUDA driver, which is loaded when
//! it is first needed: programs start without a driver, and get an error that says what to install.
//!
//! ```no_run
//! use binpool::{MemoryPool, VirtualMemoryAllocator};
//! use binpool_allocators::{Backend, QueueOrder};
//! use binpool_cuda::CudaBackend;
//!
//! let backend = CudaBackend::open(0)?;
//! let stream = backend.create_queue(QueueOrder::InOrder)?;
//! let pool = MemoryPool::new(VirtualMemoryAllocator::new(&backend), &stream)?;
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
//! A block is freed once the commands that were enqueued with it through this crate have ended. `cuMemFree` waits for all others of its
//! device, too, and is not called while a stream of any device waits for a user event, since that wait might never end.
//!
//! # Several devices
//!
//! Backends of devices of one [library](CudaLibrary) take each other's queues and events, and `enqueue_copy` takes memory of two devices. A
//! command that uses memory of other devices only runs on a stream of theirs, between an event of its queue and one that its queue waits for;
//! so it works whether or not the devices can use each other's memory. [`CudaBackend::enable_peer_access`] makes copies direct, and lets
//! kernels, which run on the device of their module, use memory of another.
//!
//! # Kernels, and other libraries
//!
//! [`CudaModule`] loads PTX, and a [`CudaKernel`] is launched on memory of this crate. With the feature `cudarc`, a `PooledStream` gives pooled
//! memory to cudarc: its `PooledCudaSlice` goes into copies, fills, launches and cuBLAS, as a `CudaSlice` does.
//!
//! # Several processes
//!
//! Pages are created so that other processes, NCCL, UCX and network cards can share them, if the driver allows it. `CudaBackend::export` makes
//! file descriptors of a block, and `CudaBackend::import` memory of these in another process (on Unix).
//!
//! # Graphs
//!
//! Commands on a captured stream (`cuStreamBeginCapture`) become part of the CUDA graph. Their events count as ended, and nothing that they
//! use is kept for the graph: memory, kernels and the backend must outlive it. [`CudaBackend::keep_with_graph`] keeps a block, or any other
//! value, as long as the graph, and `MemoryPool::keep_addresses` the memory of blocks dropped before it ends. Reads, and whatever else waits for the queue, fail. Other
//! queues and memory can be used, allocated and freed as usual, in every capture mode.
//!
//! # Errors
//!
//! When memory runs out, the error is `OutOfMemory`. After a kernel has ended the context, it is `DeviceLost`
//! ([`CudaError::is_sticky`]), as for each later call; every event has failed then, so no thread waits forever.

// Says of each item on docs.rs which feature it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code)]

#[macro_use(debug_by)]
extern crate binpool_allocators;

mod backend;
mod block;
#[cfg(feature = "cudarc")]
mod cudarc_slice;
#[cfg(feature = "cudarc")]
mod cudarc_stream;
mod device;
mod driver_pool;
#[cfg(unix)]
mod exported;
mod graph;
mod kernel;
mod library;
mod mark;
mod module;
mod peers;
mod queue;
mod runtime;
mod sys;
mod thread_number;

pub use backend::{CudaBackend, CudaEvent, CudaMemory, CudaQueue, DeviceMemory};
pub use block::CudaBlock;
#[cfg(feature = "cudarc")]
pub use cudarc_slice::PooledCudaSlice;
#[cfg(feature = "cudarc")]
pub use cudarc_stream::PooledStream;
pub use device::CudaDevice;
pub use driver_pool::{DriverPoolAllocator, DriverPoolPeaks};
#[cfg(unix)]
pub use exported::ExportedMemory;
pub use kernel::{Argument, CudaKernel, Grid};
pub use library::CudaLibrary;
pub use mark::CudaMark;
pub use module::CudaModule;
pub use queue::QueueStream;
pub use sys::CudaError;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
