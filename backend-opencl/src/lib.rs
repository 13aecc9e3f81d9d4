//! The OpenCL backend of binpool: devices, buffers, shared virtual memory, queues and events.
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
//! on shared virtual memory take a lock of their queue.
//!
//! # Errors
//!
//! Opening a device fails with [`OpenClError`]. Everything later fails with the errors of
//! `binpool_allocators`, whose source is a [`ClError`] with the runtime's call and code; see there for which
//! codes mean that memory is exhausted.
//!
//! # Implementation
//!
//! Unsafe code is confined to the module `sys`, which wraps one call of the runtime at a time, and to the
//! doors that take bare handles. Handles own one reference each; a release that fails is logged.
//!
//! # What this crate does not do
//!
//! It builds and launches no kernels: use `opencl3` or the bare handles, and tell the pool of such uses. It
//! does not bound memory: OpenCL runtimes create more buffers than fit, so commit what must be there.

#![deny(unsafe_code)]

mod access;
mod access_log;
mod admission;
mod backend;
mod characterize;
mod cl_error;
mod commands;
mod context;
mod copy;
mod device;
mod error;
mod event;
mod failures;
mod interop;
mod kept;
mod limits;
mod logged;
mod map;
mod memory;
mod memory_choice;
mod p2p;
mod queue;
mod queue_registry;
mod selector;
mod svm;
mod svm_block;
#[allow(unsafe_code)]
mod sys;
pub mod testing;
mod transfer;

pub use backend::OpenClBackend;
pub use characterize::Characterization;
pub use cl_error::ClError;
pub use device::{DeviceInfo, DeviceKind, list_devices};
pub use error::{AvailableDevices, OpenClError};
pub use event::ClEvent;
pub use map::{Map, MapGuard, MapMut, PendingMap};
pub use memory::ClMemory;
pub use memory_choice::MemoryChoice;
pub use queue::ClQueue;
pub use selector::DeviceSelector;
pub use svm::{Svm, SvmInfo, SvmOptions, SvmPointer, SystemSvm, SystemSvmInUse, UninitSvm};
pub use transfer::{HandedBack, MigrationFlags, PendingTransfer, Rect, TransferScope};
