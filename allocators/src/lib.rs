//! The vocabulary of binpool: the traits of device runtimes and allocators, and the allocators and adaptors over them.
//!
//! A **backend** ([`Backend`], [`SvmBackend`]) is a device runtime: OpenCL, the mock device, or one of your own. An
//! **allocator** ([`Allocator`]) is a way of getting memory from a backend: [`DeferredAllocator`] commits it on first use,
//! [`ImmediateAllocator`] commits it before it returns, [`SvmAllocator`] gives pointers that host and device
//! both understand. The pool of the crate `binpool` works over any of them.
//!
//! The [adaptors] wrap any allocator, and each other: they limit it, count calls, or try a second allocator.
//!
//! An allocator that is chosen at run time is an `Arc<dyn Allocator<Backend = B>>`.
//!
//! # Sizes
//!
//! Every size and offset is in bytes unless its name says otherwise. Sizes of single blocks are `usize`,
//! sums over a device `u64`.
//!
//! # Arguments of commands
//!
//! Calls that enqueue commands for a program (the transfers of a pooled block, all of `binpool_opencl`) take their
//! arguments by the same rules:
//!
//! - *The queue* comes first: `&queue`, or [`queue.after(&events)`](Queue::after) with events to wait for as well
//!   ([`On`]).
//! - *Memory* is anything that is [`AsMemory`]: a block of the backend or a view of one, a pooled block, typed elements. No
//!   command goes beyond its requested size.
//! - *Offsets and regions* count bytes from the start of the memory that is passed. A region is a range, whose ends may be left
//!   open, or a [`Region`] ([`IntoRegion`]). The methods of a [`Slice`] count elements.
//! - *The host's side* is a slice of any plain type, taken as bytes. So a literal needs its type: `&[1_u8]` is one byte, but
//!   `&[1]` is an `i32`, four bytes an element, and so is `vec![0; n]` unless something else gives it a type. Data that a command keeps (`Arc<[u8]>`) or returns
//!   ([`PendingRead`]) are bytes.
//!
//! The trait [`Backend`], which backends implement and generic code calls, takes its own memory type, a [`Region`], bytes and
//! a wait list. An implementation accesses any other memory through [`bytes_on`].
//!
//! # What this crate does not do
//!
//! It calls no device and keeps no memory: backends and the pool do that. Kernels are launched
//! through the backend's own types, since every runtime launches them differently.

#![deny(unsafe_code)]

pub mod adaptors;
mod align;
mod allocator;
mod backend;
mod checks;
#[doc(hidden)]
pub mod contained;
mod debug_by;
mod deferred;
mod error;
mod event;
mod failure_order;
mod flags;
mod id;
mod immediate;
mod limits;
mod memory;
mod pending_read;
mod queue;
mod region;
#[expect(
    unsafe_code,
    reason = "calls of a runtime, whose arguments the core has checked"
)]
pub mod runtime;
mod slice;
mod svm;
mod svm_allocator;
mod svm_grain;
mod view_count;
mod virtual_memory;
mod virtual_memory_allocator;
#[doc(hidden)]
pub mod words;
mod work;

pub use align::Align;
pub use allocator::{Allocator, EventOf, MemoryOf, QueueOf};
pub use backend::{AsMemory, Backend, bytes_on};
pub use deferred::DeferredAllocator;
pub use error::{
    BackendFailure, Error, HostUse, InvalidRequest, ObjectKind, OutOfMemory, Result, Scope, Source,
};
pub use event::{Event, EventStatus, Outcome};
pub use failure_order::FailureOrder;
pub use flags::MemoryFlags;
pub use id::{EventId, MemoryId, QueueId};
pub use immediate::ImmediateAllocator;
pub use limits::DeviceLimits;
pub use memory::{Memory, MemoryKind};
pub use pending_read::PendingRead;
pub use queue::{On, Queue, QueueOrder};
pub use region::{IntoRegion, Region};
pub use slice::{Slice, SliceMemory};
pub use svm::SvmBackend;
pub use svm_allocator::SvmAllocator;
pub use svm_grain::{SvmGrain, SvmSupport};
pub use view_count::{CountedView, ViewCount};
pub use virtual_memory::VirtualMemory;
pub use virtual_memory_allocator::VirtualMemoryAllocator;
pub use work::{Sink, Span, Work};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
