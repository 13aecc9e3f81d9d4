//! A device-memory pool for array crates on GPUs.
//!
//! An array crate needs a block of device memory for every intermediate of `a * b + c`. Asking the device for
//! each one is slow; [`MemoryPool`] keeps freed blocks and reuses them. It works over any
//! [`Allocator`] over any [`Backend`]: OpenCL, CUDA, Vulkan, the mock device, yours.
//!
//! ```
//! use binpool::prelude::*; // The traits for everyday calls.
//! use binpool::{ImmediateAllocator, MemoryPool, QueueOrder};
//! use binpool_mock::MockDevice;
//!
//! let backend = MockDevice::new().backend();
//! let queue = backend.create_queue(QueueOrder::InOrder)?;
//! let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
//!
//! let block = pool.allocate(4096)?;
//! block.write(&queue, 0, &[7_u8; 4096])?;
//! drop(block); // Kept by the pool for the next request.
//!
//! let again = pool.allocate(4000)?; // The same block: no call to the device.
//! assert_eq!(again.size(), 4000);
//! assert_eq!(pool.statistics().hits, 1);
//! # Ok::<(), binpool::PoolError>(())
//! ```
//!
//! # Start here
//!
//! An array crate needs nine methods:
//!
//! | method | what it does |
//! |---|---|
//! | [`MemoryPool::new`] | makes a pool over an allocator such as [`ImmediateAllocator`]; [`PoolOptions::build`] does so with settings |
//! | [`MemoryPool::allocate`] | returns a block of at least this many bytes, a [`PooledBuffer`], for the pool's own queue |
//! | [`MemoryPool::allocate_on`] | the same for another queue |
//! | [`MemoryPool::allocate_of`] | returns room for elements of a type, a [`Slice`] |
//! | [`PooledBuffer::write`], [`read`](PooledBuffer::read) | move bytes to the device and back |
//! | [`PooledBuffer::memory_on`] | returns the memory for a kernel on a queue, and remembers the use |
//! | [`PooledBuffer::order_before`] | makes a queue wait for what uses the block |
//! | [`MemoryPool::free_held`] | releases what the pool keeps |
//! | [`MemoryPool::statistics`] | says what is in use, kept and reused |
//!
//! A block returns to the pool when it is dropped. The [prelude] has the traits for the methods of blocks, queues and events. A program that writes
//! its own [`Allocator`] or [`Backend`] depends on the crate `binpool-allocators`, too.
//!
//! The [guide] has chapters: [a first array crate](guide::first_array_crate), [choosing an allocator](guide::allocators),
//! [several queues](guide::queues), [several devices](guide::several_devices), [running out of memory](guide::shortage),
//! [inspecting a pool](guide::inspecting), [tuning](guide::tuning), [any program](guide::any_program), [writing a backend](guide::backends),
//! [testing without a GPU](guide::testing), [finding races](guide::races), [coming from PyOpenCL](guide::from_pyopencl), [C and C++](guide::c_and_cpp), [Python](guide::python), and
//! [platforms, versions, async](guide::compatibility).
//!
//! # Queues
//!
//! Every block is allocated for a queue, and knows the queues it was used on ([`PooledBuffer::memory_on`]). A block
//! that was used on one in-order queue goes back to that queue's free list, and its next user on the same queue gets it
//! at once: the queue itself runs the old commands first. A block that was used on an out-of-order queue or on several
//! queues, or that another queue requests, is reused when the commands of its former users have ended, or after a
//! wait for them, as the [`ReusePolicy`] says. So a command of a block's former user never runs
//! at the same time as a command of its next user.
//!
//! To move a block between queues, use [`order_before`](PooledBuffer::order_before) or
//! [`bind_to_queue`](PooledBuffer::bind_to_queue).
//!
//! # Out of memory
//!
//! When the device has no memory left, the pool looks for a larger held block, releases held blocks, calls the
//! program's hooks ([`MemoryPool::add_reclaim_hook`]), waits for queues whose commands still use free blocks, and only
//! then gives up, with a [report](OutOfMemoryReport) of the cause.
//!
//! # Threads
//!
//! A pool is a cheap handle: clone it, send it, share it. Blocks may be dropped on any thread. No lock is
//! held while the device or a hook is called.
//!
//! Each thread caches a few blocks, and takes no lock for them. Another thread gets them before the device is asked for
//! memory, and a thread that ends gives its blocks back to the pool. Pools that release what is [unused for a
//! time](Retain::unused_for) or [scrub](PoolOptions::scrub) memory, and those above their [bound](Retain::at_most), take a short lock for
//! each block instead.
//!
//! # Inspecting
//!
//! [`MemoryPool::watch`] and [`MemoryPool::live_blocks`] show which part of the program uses which memory, by [`Tag`] and
//! by line, and how much is only cached. [`MemoryPool::record`] writes the program's requests as a trace, which the
//! command `binpool` replays, tunes and draws. The chapter [inspecting](guide::inspecting) covers snapshots, events and
//! metrics.
//!
//! # Features
//!
//! None is on by default.
//!
//! | feature | gives | takes |
//! |---|---|---|
//! | `snapshot` | `MemoryPool::snapshot`, `PoolOptions::snapshot_at_out_of_memory`: a pool as JSON | `serde`, `serde_json` |
//! | `metrics` | `MemoryPool::publish_metrics`: counters for Prometheus and similar systems | `metrics` |
//! | `backtrace` | `WatchOptions::backtraces`: the call stack of each request | `backtrace` |

// Says of each item on docs.rs which feature it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code)]
// A link to what a feature adds is plain text where that feature is off.
#![cfg_attr(
    not(all(feature = "snapshot", feature = "metrics", feature = "backtrace")),
    allow(rustdoc::broken_intra_doc_links)
)]

// First, so that rustdoc shows their methods first.
mod buffer;
mod pool;

mod addressed;
mod binding;
mod block;
mod build;
mod central;
mod classes;
mod content;
mod error;
mod flow;
mod free;
mod growable;
mod growing;
#[cfg(any(doc, doctest))]
pub mod guide;
mod hooks;
mod inspect;
mod kept_addresses;
mod live_group;
#[cfg(test)]
mod mock_pool;
mod options;
mod order;
#[cfg(test)]
mod paper;
mod place;
pub mod prelude;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod rare;
#[cfg(not(fuzzing))]
mod rare;
mod report;
mod request;
mod retain;
mod reuse_policy;
mod scrub_policy;
mod scrubber;
mod shared;
mod size_classes;
mod slice;
mod statistics;
mod svm;
mod sweeper;
mod track;
mod transfers;
mod view;
mod weak;

pub use addressed::AddressedPool;
pub use binpool_allocators::{
    Allocator, AsMemory, Backend, DeferredAllocator, Error, Event, EventStatus, ImmediateAllocator,
    InvalidRequest, Memory, MemoryFlags, MemoryId, Outcome, PendingRead, Queue, QueueId,
    QueueOrder, Region, Result, Slice, SvmAllocator, SvmBackend, SvmGrain, VirtualMemoryAllocator,
    adaptors::{self, Budget},
};
pub use binpool_lock::per_thread::leave_pools;
pub use binpool_segments::GrowthPolicy;
#[cfg(feature = "snapshot")]
pub use binpool_trace::{
    BlockState, SnapshotBlock, SnapshotSegment, SnapshotSettings, SnapshotShortage,
};
pub use binpool_trace::{TraceError, TraceErrorKind};
pub use buffer::PooledBuffer;
pub use error::PoolError;
pub use growable::GrowableBuffer;
pub use hooks::{HookId, Shortage};
pub use inspect::held_back::HeldBack;
pub use inspect::live_blocks::LiveBlocks;
pub use inspect::record::PoolRecording;
#[cfg(feature = "snapshot")]
pub use inspect::snapshot::Snapshot;
pub use kept_addresses::KeptAddresses;
pub use live_group::LiveGroup;
pub use options::PoolOptions;
pub use place::Place;
pub use pool::MemoryPool;
pub use report::{OutOfMemoryReport, Verdict};
pub use retain::Retain;
pub use reuse_policy::ReusePolicy;
pub use scrub_policy::ScrubPolicy;
pub use size_classes::{LeadingBits, SizeClasses};
pub use statistics::PoolStatistics;
pub use sweeper::Sweeper;
pub use track::recording_summary::RecordingSummary;
pub use track::tag::{Tag, TagScope};
pub use track::watch::WatchOptions;
pub use view::PooledView;
pub use weak::WeakPool;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
