//! A device-memory pool for array crates on GPUs.
//!
//! An array crate makes a fresh block of device memory for every intermediate of `a * b + c`. Asking the
//! device each time is ruinous; [`MemoryPool`] keeps what was freed in bins by size class, and hands it out
//! again. It sits on any [`Allocator`] over any [`Backend`]: OpenCL, the mock device, yours.
//!
//! ```
//! use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
//! use binpool_mock::MockDevice;
//!
//! let backend = MockDevice::new().backend();
//! let queue = backend.create_queue(QueueOrder::InOrder)?;
//! let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
//!
//! let block = pool.allocate(4096)?;
//! block.write(&queue, 0, &[7; 4096], &[])?;
//! drop(block); // Held by the pool from here on, not freed.
//!
//! let again = pool.allocate(4000)?; // The same block: no call to the device.
//! assert_eq!(again.size(), 4000);
//! assert_eq!(pool.statistics().hits, 1);
//! # Ok::<(), binpool::PoolError>(())
//! ```
//!
//! # Queues
//!
//! Every block is allocated for a queue, and knows the queues it was used on
//! ([`PooledBuffer::memory_on`]). A block that was used on one in-order queue goes back to that queue's
//! stock, and its next user on the same queue has it at once: the queue itself keeps the two apart. A block
//! that was used on an out-of-order queue, or on several, and one that another queue asks for, is handed out when the
//! commands of its former users have ended, or behind a wait for them: a [`ReusePolicy`] says which. So no block is
//! ever handed out while a command of its former owner may still run against a command of its new one.
//!
//! Blocks move between queues by [`order_before`](PooledBuffer::order_before) and
//! [`bind_to_queue`](PooledBuffer::bind_to_queue).
//!
//! # Out of memory
//!
//! When the device has no memory left, the pool looks for a larger held block, releases held blocks, calls
//! the program's hooks ([`MemoryPool::add_reclaim_hook`]), waits for queues that hold blocks back, and only
//! then gives up, with a [report](OutOfMemoryReport) that explains itself.
//!
//! # Threads
//!
//! A pool is a cheap handle: clone it, send it, share it. Blocks may be dropped on any thread. No lock is
//! held while the device or a hook is called.
//!
//! Each thread keeps a few blocks at hand, and takes no lock for them. They are as free as all others: another thread gets
//! them before the device is asked for memory, and a thread that ends gives them back. Pools with a
//! [release threshold](PoolOptions::release_threshold), [decay](PoolOptions::decay) or [scrubbing](PoolOptions::scrub) take a
//! short lock for each block instead.
//!
//! # More
//!
//! The [guide] has chapters on choosing an allocator, several queues, running out of memory, seeing what the pool does, tuning,
//! writing a backend, and testing an array crate without a GPU.
//!
//! # Seeing
//!
//! [`MemoryPool::watch`] and [`MemoryPool::live_blocks`] say who has which memory, by [`Tag`] and by line of the program, and what
//! is only cached. [`MemoryPool::record`] writes the program down as a trace, for the command `binpool` to replay, tune and
//! draw. The chapter [seeing](guide::seeing) has the rest: snapshots, events, metrics.
//!
//! # Features
//!
//! None is on by default.
//!
//! | feature | gives | takes |
//! |---|---|---|
//! | `snapshot` | `MemoryPool::snapshot`, `PoolOptions::snapshot_at_out_of_memory`: a pool as JSON | `serde`, `serde_json` |
//! | `metrics` | `MemoryPool::publish_metrics`: counters for Prometheus and others | `metrics` |
//! | `backtrace` | `WatchOptions::backtraces`: who asked for a block, frame by frame | `backtrace` |

#![deny(unsafe_code)]

mod at_hand;
mod binding;
mod buffer;
mod classes;
mod decay;
mod error;
#[cfg(any(doc, doctest))]
pub mod guide;
mod hooks;
#[cfg(test)]
mod mock_pool;
mod options;
mod place;
mod pool;
mod region;
mod report;
mod request;
mod reuse_policy;
mod scrub;
mod seeing;
mod serve;
mod shared;
mod size_classes;
mod state;
mod statistics;
mod svm;
mod sweeper;
mod sync;
mod transfers;
mod weak;
mod words;

pub use binpool_allocators::*;
pub use buffer::PooledBuffer;
pub use decay::Decay;
pub use error::PoolError;
pub use hooks::{HookId, Shortage};
pub use options::PoolOptions;
pub use place::Place;
pub use pool::MemoryPool;
pub use region::PooledRegion;
pub use report::{OutOfMemoryReport, Verdict};
pub use reuse_policy::ReusePolicy;
pub use scrub::ScrubPolicy;
pub use seeing::live_blocks::{LiveBlocks, LiveGroup};
pub use seeing::record::{PoolRecording, RecordError};
#[cfg(feature = "snapshot")]
pub use seeing::snapshot::{
    BlockState, Snapshot, SnapshotBlock, SnapshotError, SnapshotSegment, SnapshotSettings,
    SnapshotShortage,
};
pub use seeing::tag::{Tag, TagScope};
pub use seeing::trace_writer::RecordingSummary;
pub use seeing::watch::WatchOptions;
pub use size_classes::{LeadingBits, SizeClasses};
pub use statistics::PoolStatistics;
pub use svm::{PooledSvm, SvmPool};
pub use sweeper::Sweeper;
pub use weak::WeakPool;
