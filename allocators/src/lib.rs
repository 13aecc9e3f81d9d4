//! The vocabulary of binpool: what a device runtime offers, and the ways of getting memory from it.
//!
//! A **backend** ([`Backend`], [`SvmBackend`]) is a device runtime: OpenCL, the mock device, yours. An
//! **allocator** ([`Allocator`]) is a way of getting memory from one: [`DeferredAllocator`] promises it,
//! [`ImmediateAllocator`] commits it before it answers, [`SvmAllocator`] gives pointers that host and device
//! both understand. The pool of the crate `binpool` sits on top of any of them.
//!
//! Adaptors wrap any allocator, and each other: [`Limit`] bounds it, [`Statistics`] counts, [`Logging`] tells,
//! [`Recording`] writes a trace, [`Failing`] fails on purpose, [`Fallback`] asks a second one,
//! [`SegmentAllocator`] carves blocks from large segments.
//!
//! [`AnyBackend`] stands for a backend that is chosen at run time, and `Arc<dyn Allocator<Backend = B>>` for
//! such an allocator.
//!
//! # Sizes
//!
//! Every size and offset is in bytes, unless its name says otherwise. Sizes of single blocks are `usize`,
//! sums over a device `u64`.
//!
//! # Features
//!
//! - `conformance`: a suite that checks a backend or an allocator against every promise of the traits. Off by default, and
//!   for tests.
//!
//! # What this crate does not do
//!
//! It talks to no device and keeps no memory: that is for backends and for the pool. Kernels are launched
//! through the backend's own types, since every runtime has its own idea of them.

#![forbid(unsafe_code)]

mod adaptors;
mod align;
mod allocator;
mod any;
mod as_memory;
mod backend;
#[cfg(feature = "conformance")]
pub mod conformance;
mod deferred;
mod error;
mod event;
mod flags;
mod id;
mod immediate;
mod limits;
mod memory;
mod pending_read;
mod queue;
#[doc(hidden)]
pub mod random;
mod region;
mod segment_allocator;
pub mod segments;
mod svm;
mod svm_allocator;
mod sync;

pub use adaptors::budget::{Budget, BudgetUse};
pub use adaptors::failing::Failing;
pub use adaptors::fallback::Fallback;
pub use adaptors::fault::{AllocatorCall, AllocatorFault, FaultTrigger};
pub use adaptors::limit::Limit;
pub use adaptors::logging::Logging;
pub use adaptors::recording::Recording;
pub use adaptors::statistics::{AllocatorStatistics, Statistics};
pub use align::Align;
pub use allocator::{Allocator, EventOf, MemoryOf, QueueOf};
pub use any::{AnyBackend, AnyEvent, AnyMemory, AnyQueue};
pub use as_memory::AsMemory;
pub use backend::Backend;
pub use deferred::DeferredAllocator;
pub use error::{
    BackendFailure, Error, HostUse, InvalidRequest, ObjectKind, OutOfMemory, Result, Scope, Source,
};
pub use event::{Event, EventStatus, Outcome};
pub use flags::MemoryFlags;
pub use id::{EventId, MemoryId, QueueId};
pub use immediate::ImmediateAllocator;
pub use limits::{DeviceLimits, SvmSupport};
pub use memory::{Memory, MemoryKind};
pub use pending_read::PendingRead;
pub use queue::{Queue, QueueOrder};
pub use region::Region;
pub use segment_allocator::{SegmentAllocator, SegmentStatistics};
pub use svm::{SvmBackend, SvmGrain};
pub use svm_allocator::SvmAllocator;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
