//! The OpenCL backend of binpool, and what else an array crate needs of OpenCL's memory.
//!
//! [`OpenClBackend`] implements the traits `Backend` and `SvmBackend` of `binpool_allocators` over the
//! crates `cl3` (the calls) and `opencl3` (at the edge: contexts, queues and events of a program that uses it
//! already).
//!
//! ```
//! use binpool_allocators::{Allocator, ImmediateAllocator, Memory};
//! use binpool_opencl::OpenClBackend;
//!
//! let backend = OpenClBackend::open(&"any".parse()?)?; // Or "gpu", "0", a part of a name.
//! let allocator = ImmediateAllocator::new(&backend)?;
//! let block = allocator.allocate(1 << 20)?;
//! assert_eq!(block.bytes(), 1 << 20);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Beside that there are the calls of OpenCL's memory runtime, as methods of [`OpenClBackend`], after `PyOpenCL`'s page
//! on memory: buffers from and over host memory, typed [`Elements`], rectangular and scoped transfers, maps as slices
//! ([`Map`], [`MapMut`]), shared virtual memory in all its styles ([`SvmPointer`]), [images](ClImage), [samplers](ClSampler),
//! [pipes](ClPipe), [kernels](ClKernel). They take memory of this crate and blocks of a pool alike
//! ([`AsMemory`](binpool_allocators::AsMemory)). The README has a table of all of it by `PyOpenCL`'s names.
//!
//! # Order
//!
//! Commands that conflict, because both use some byte and one of them writes it, come one after another in the order of the
//! calls, whatever queues they are on: the later one waits on the device. So no safe call makes a race. Commands on bare
//! handles are not seen; they are the caller's to order. What waits for another command fails with it.
//!
//! What the host has mapped is the host's: conflicting commands are refused with
//! [`Mapped`](binpool_allocators::InvalidRequest::Mapped).
//!
//! # The OpenCL library
//!
//! Nothing is linked: the library is loaded when it is first needed, and a system without one gives
//! [`OpenClError::NoLibrary`]. `OPENCL_DYLIB_PATH` names other libraries to try first, separated by `;`.
//!
//! # Threads
//!
//! All values may be used from any thread. No lock is held by all threads while a command is enqueued; commands
//! on shared virtual memory take a lock of their queue, and launches one of their kernel. A command that conflicts with one
//! that another thread is just enqueueing waits for that call.
//!
//! # Kernels
//!
//! What a kernel touches is promised once, where it is made from its program ([`ClProgram::kernel`]). Every launch of it
//! is safe from then on: its arguments are checked against the promise before it is enqueued. Programs and kernels are
//! built once for each context with [`OpenClBackend::cached`].
//!
//! # Errors
//!
//! Opening a device fails with [`OpenClError`], and building and launching kernels with [`KernelError`]. Everything else
//! fails with the errors of `binpool_allocators`, whose source is a [`ClError`] with the runtime's call and code; see there for which
//! codes mean that memory is exhausted.
//!
//! # Features
//!
//! - `ndarray`: maps as shaped views, and images from arrays.
//! - `dlpack`: memory for other libraries, as tensors of `DLPack` (`OpenClBackend::export_dlpack`).
//!
//! Both are off by default. Types of elements are those of `bytemuck`, always.
//!
//! # Implementation
//!
//! Unsafe code is confined to the module `sys`, which wraps one call of the runtime at a time, and to the
//! doors that take bare handles. Handles own one reference each; a release that fails is logged.
//!
//! # What this crate does not do
//!
//! It does not bound memory: OpenCL runtimes create more buffers than fit, so commit what must be there. It does not know
//! of commands that a program enqueues with `opencl3` or the bare handles: tell the pool of such uses.

#![deny(unsafe_code)]

mod backend;
mod cache;
mod cl_error;
mod commands;
mod context;
mod context_registry;
mod device;
#[cfg(feature = "dlpack")]
mod dlpack;
mod error;
mod event;
mod failures;
mod image;
mod interop;
mod kept;
mod kernel;
mod map;
mod memory;
mod order;
mod pipe;
mod queue;
mod queue_registry;
mod refused;
mod retired;
mod same_by_handle;
mod sampler;
mod stand_in;
mod svm;
#[allow(unsafe_code)]
mod sys;
pub mod testing;
mod transfer;

pub use backend::OpenClBackend;
pub use cl_error::ClError;
pub use device::{
    Characterization, DeviceInfo, DeviceKind, DeviceSelector, MemoryChoice, list_devices,
};
#[cfg(feature = "dlpack")]
pub use dlpk;
pub use error::{AvailableDevices, OpenClError};
pub use event::ClEvent;
#[cfg(feature = "ndarray")]
pub use image::ChannelValue;
pub use image::{
    Axis, ChannelOrder, ChannelType, ClImage, HostPitches, ImageColor, ImageError, ImageFormat,
    ImageKind, ImageLimits, ImageRegion, ImageShape,
};
pub use kernel::{
    Argument, ClKernel, ClProgram, Extent, KernelError, Launch, LaunchMemory, LocalMemory,
    Parameter, ParameterAccess, ParameterKind, WorkSizeProblem,
};
pub use map::{ImageMap, ImageMapMut, Map, MapGuard, MapMut, PendingMap};
pub use memory::{
    ClMemory, Elements, HostBuffer, MemoryInfo, MemoryKey, PendingElements, UninitElements,
};
pub use pipe::ClPipe;
pub use queue::ClQueue;
pub use refused::Refused;
pub use sampler::{Addressing, ClSampler, Filter, SamplerError, SamplerProperties};
pub use svm::{Svm, SvmInfo, SvmOptions, SvmPointer, SystemSvm, UninitSvm};
pub use transfer::{MigrationFlags, PendingTransfer, Rect, TransferScope};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
