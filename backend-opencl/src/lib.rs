//! The OpenCL backend of binpool, and the calls of OpenCL's memory runtime that an array crate needs.
//!
//! [`OpenClBackend`] implements the traits `Backend` and `SvmBackend` of `binpool_allocators` over the
//! crates `cl3` (the calls) and `opencl3` (at the edge: contexts, queues and events of a program that uses it
//! already). The version of `opencl3` is 0.12, part of the interface, and re-exported: [`opencl3`].
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
//! The calls of OpenCL's memory runtime are methods of [`OpenClBackend`], after `PyOpenCL`'s page on memory: buffers from
//! and over host memory, typed [slices](binpool_allocators::Slice), rectangular and scoped transfers, maps as slices ([`Map`], [`MapMut`]), shared
//! virtual memory in all its styles ([`SvmPointer`]), [images](ClImage), [samplers](ClSampler), [pipes](ClPipe),
//! [kernels](ClKernel). They take memory of this crate and blocks of a pool alike
//! ([`AsMemory`](binpool_allocators::AsMemory)). The README has a table of all of it by `PyOpenCL`'s names.
//!
//! # Arguments
//!
//! Every command first takes its queue, `&queue` or `queue.after(&events)` ([`ClOn`]), then memory of any kind: a
//! [`ClMemory`], a pooled block, a typed slice, whole or a part. Offsets and regions are in bytes, and the host's
//! side is a slice of any plain type; methods of a [`Slice`](binpool_allocators::Slice) count elements. (See `binpool_allocators`,
//! "Arguments of commands".)
//!
//! ```
//! use binpool::{ImmediateAllocator, MemoryPool};
//! use binpool_allocators::{Backend, MemoryFlags, Queue, QueueOrder};
//! use binpool_opencl::OpenClBackend;
//!
//! let backend = OpenClBackend::open(&"any".parse()?)?;
//! let [upload, compute] = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
//! let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &upload)?;
//! let block = pool.allocate(1000 * size_of::<f32>())?;
//! let written = backend.enqueue_fill(&upload, &block, .., &[0.5_f32])?; // All of it.
//!
//! let buffer = backend.create_buffer(4096, MemoryFlags::empty())?;
//! let floats = block.into_slice::<f32>()?;
//! let tail = floats.slice(990..)?; // Ten elements, from byte 3960 on.
//! backend.enqueue_copy(compute.after(&[written]), &tail, 8..16, &buffer, 100)?;
//! let mut seen = [0.0_f32; 2];
//! backend.read(&compute, &buffer, 100, &mut seen)?;
//! assert_eq!(seen, [0.5; 2]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Order
//!
//! Two commands conflict if both use the same byte and one of them writes it. They run in the order of the calls, whatever queues they are
//! on: the later one waits on the device. So no safe call makes a race. Commands that the program enqueues by bare handles are ordered,
//! too, while a guard of [`lend`](OpenClBackend::lend) lives; otherwise the program has to order them. A command that waits for another one
//! fails with it.
//!
//! While the host maps memory, conflicting commands are refused with
//! [`Mapped`](binpool_allocators::InvalidRequest::Mapped).
//!
//! # The OpenCL library
//!
//! Nothing is linked: the library is loaded when it is first needed, and a system without one gives
//! [`OpenClError::NoLibrary`]. `OPENCL_DYLIB_PATH` names other libraries to try first, separated by `;`.
//!
//! # Threads
//!
//! All values may be used from any thread. Threads share no global lock to enqueue a command; commands on shared virtual memory take a lock
//! of their queue, and launches one of their kernel. A call that enqueues a command waits for another thread that is just enqueueing a
//! conflicting one.
//!
//! # Kernels
//!
//! The program promises once which bytes a kernel uses, when it makes the kernel ([`ClProgram::kernel`]). From then on
//! every launch is safe: its arguments are checked against the promise before it is enqueued. Programs and kernels are
//! built once for each context with [`OpenClBackend::cached`].
//!
//! # Errors
//!
//! Opening a device, building and launching kernels, and images and samplers fail with [`OpenClError`]. Everything else
//! fails with the errors of `binpool_allocators`, whose source is a [`ClError`] with the runtime's call and code; see there for which
//! codes mean that memory is exhausted. All of them, and those of pools, become `binpool_allocators::Error` by `?`:
//!
//! ```
//! use binpool::{ImmediateAllocator, MemoryPool};
//! use binpool_allocators::{Backend, Error, QueueOrder};
//! use binpool_opencl::{ClProgram, Extent, OpenClBackend, Parameter};
//!
//! fn sevens() -> Result<Vec<u32>, Error> {
//!     let backend = OpenClBackend::open(&"any".parse()?)?; // OpenClError
//!     let queue = backend.create_queue(QueueOrder::InOrder)?; // Error
//!     let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?; // PoolError
//!     let source = "kernel void seven(global uint *words) { words[get_global_id(0)] = 7; }";
//!     let program = ClProgram::build(&backend, source, "")?; // OpenClError
//!     let words = Parameter::output::<u32>(Extent::PerItem(1));
//!     // SAFETY: each work item writes the word of its id, and touches nothing else.
//!     let seven = unsafe { program.kernel("seven", &[words]) }?;
//!     let block = pool.allocate(16)?;
//!     seven.launch(&queue, &[4]).memory(&block).enqueue()?;
//!     Ok(backend.map(&queue, &block, 0..16)?.to_vec())
//! }
//! assert_eq!(sevens()?, [7; 4]);
//! # Ok::<(), Error>(())
//! ```
//!
//! # Features
//!
//! - `images`: images, samplers and pipes.
//! - `ndarray`: maps as shaped views and, with `images`, images from arrays.
//!
//! Both are off by default. Element types are always those of `bytemuck`.
//!
//! # Implementation
//!
//! Unsafe code is confined to the module `sys`, which wraps each call of the runtime, and to the functions that take bare
//! handles or promises about kernels. Handles own one reference each; a release that fails is logged.
//!
//! # What this crate does not do
//!
//! It does not bound memory: OpenCL runtimes create more buffers than fit, so commit memory that must be there.

// Says of each item on docs.rs which feature it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code)]
// The pages are written for all features.
#![cfg_attr(not(feature = "images"), allow(rustdoc::broken_intra_doc_links))]

mod after_use;
mod backend;
mod cache;
mod commands;
mod context;
mod device;
mod error;
mod event;
mod identity;
#[cfg(feature = "images")]
mod image;
#[allow(unsafe_code)]
mod interop;
mod kept_memory;
mod kernel;
mod map;
mod memory;
mod opencl3_objects;
mod order;
#[cfg(feature = "images")]
mod pipe;
mod queue;
mod quirks;
mod raw_memory;
mod registry;
mod submit;
mod svm;
#[allow(unsafe_code)]
mod sys;
pub mod testing;
mod transfer;

pub use backend::OpenClBackend;
pub use device::{
    Characterization, DeviceInfo, DeviceKind, DeviceSelector, ImageLimits, MemoryChoice,
    list_devices,
};
pub use error::{AvailableDevices, OpenClError, Refused};
pub use event::{ClEvent, ClOn};
#[cfg(all(feature = "images", feature = "ndarray"))]
pub use image::ChannelValue;
#[cfg(feature = "images")]
pub use image::{
    Addressing, ChannelOrder, ChannelType, ClImage, ClSampler, Filter, HostPitches, ImageColor,
    ImageFormat, ImageKind, ImagePart, ImageProblem, ImageRegion, ImageShape, SamplerProperties,
};
pub use kernel::{
    Argument, ClKernel, ClProgram, Extent, KernelProblem, Launch, LocalMemory, Parameter,
    ParameterAccess, ParameterKind,
};
pub use map::{HostMap, Map, MapMode, MapMut, PendingMap, Reads, Writes};
#[cfg(feature = "images")]
pub use map::{ImageMap, ImageMapMut};
pub use memory::{ClMemory, HostMemory, MemoryInfo, MemoryKey};
pub use opencl3;
#[cfg(feature = "images")]
pub use pipe::ClPipe;
pub use queue::ClQueue;
pub use raw_memory::{LentMemory, RawMemory};
pub use svm::{SvmInfo, SvmOptions, SvmPointer};
pub use sys::ClError;
pub use transfer::{MigrationFlags, PendingTransfer, Rect, RectPart, TransferPart, TransferScope};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
