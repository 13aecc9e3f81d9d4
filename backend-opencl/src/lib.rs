//! The OpenCL backend of binpool: devices, buffers, shared virtual memory, queues, events and kernels.
//!
//! [`OpenClBackend`] implements the traits `Backend` and `SvmBackend` of `binpool_allocators` over the
//! crates `cl3` (the calls) and `opencl3` (at the edge: contexts, queues and events of a program that uses it
//! already).
//!
//! ```no_run
//! use binpool_allocators::{Allocator, ImmediateAllocator};
//! use binpool_opencl::{DeviceSelector, OpenClBackend};
//!
//! let backend = OpenClBackend::open(&"gpu".parse().unwrap_or(DeviceSelector::Any))?;
//! let allocator = ImmediateAllocator::new(&backend)?;
//! let block = allocator.allocate(1 << 20)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The OpenCL library
//!
//! Nothing is linked: the library is loaded when it is first needed, and a system without one gives
//! [`OpenClError::NoLibrary`]. `OPENCL_DYLIB_PATH` names other libraries to try first, separated by `;`.
//!
//! # Threads
//!
//! All values may be used from any thread. No lock is held by all threads while a command is enqueued; commands
//! on shared virtual memory take a lock of their queue, and launches one of their kernel.
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

mod access;
mod access_log;
mod admission;
mod backend;
mod buffers;
mod cache;
mod cl_error;
mod commands;
mod context;
mod context_registry;
mod copy;
mod destruction;
mod device;
mod elements;
mod error;
mod event;
mod failures;
mod flags;
mod host_buffer;
mod image;
mod interop;
mod kept;
mod kernel;
mod lent_buffer;
mod limits;
mod logged;
mod map;
mod memory;
mod memory_info;
mod memory_interop;
mod memory_key;
mod pipe;
mod queue;
mod queue_registry;
mod refused;
mod retired;
mod root;
mod sampler;
mod selector;
mod stand_in;
mod svm;
mod svm_block;
#[allow(unsafe_code)]
mod sys;
mod transfer;

pub use backend::OpenClBackend;
pub use cl_error::ClError;
pub use device::{DeviceInfo, DeviceKind, list_devices};
pub use elements::{Elements, PendingElements, UninitElements};
pub use error::{AvailableDevices, OpenClError};
pub use event::ClEvent;
pub use host_buffer::HostBuffer;
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
pub use memory::ClMemory;
pub use memory_info::MemoryInfo;
pub use memory_key::MemoryKey;
pub use pipe::ClPipe;
pub use queue::ClQueue;
pub use refused::Refused;
pub use sampler::{Addressing, ClSampler, Filter, SamplerError, SamplerProperties};
pub use selector::DeviceSelector;
pub use transfer::{MigrationFlags, PendingTransfer, Rect, TransferScope};
