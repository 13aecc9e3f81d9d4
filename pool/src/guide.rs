//! The guide, in chapters, with a glossary at its head. There is no code in here; the examples are run as tests.
//!
//! # Glossary
//!
//! | word | what it means here |
//! |---|---|
//! | *block* | device memory that one request gets, and its user has until it is dropped |
//! | *backend* | one device and its runtime, by the trait [`Backend`](crate::Backend) |
//! | *allocator* | what the pool gets memory from, by the trait [`Allocator`](crate::Allocator) |
//! | *queue* | where commands are enqueued (CUDA: stream); in order if each command runs after the one before |
//! | *default queue* | the queue that the pool was made with; a request that names none is for it |
//! | *active* | in the program's hands |
//! | *held* | free, in the pool: cached, not leaked |
//! | *pending* | held, but commands of the former user may still run |
//! | *managed* | what the pool has from its allocator: active, held, and free ranges of segments |
//! | *reserved* | what the whole program has taken from the device |
//! | *hit*, *miss* | a request that the pool serves from what it has; one for which it asks the allocator for memory |
//! | *size class*, *bin* | the sizes that share one block size; the free blocks of one class, in a list by what may still use them |
//! | *thread cache* | free blocks that one thread keeps, and takes without a lock; other threads get them before the device is asked |
//! | *depot* | where a thread cache puts what it has too much of, 32 blocks at a time, for other threads |
//! | *segment* | a large piece of device memory from which blocks are carved, each a range of it |
//! | *view* | memory that is a part of other memory (OpenCL: sub-buffer) |
//! | *timestamp* | the pool's time at which a block came back, noted once for each queue that used it |
//! | *fence* | a marker on a queue; when it has completed, every command before it has ended |
//! | *reuse policy* | how far a free block may go for another queue than the one that used it |
//! | *ladder* | what the pool tries, step by step, when the device is full |
//! | *quarantine* | free memory that no request may have yet, because it could not be released or filled with zeros; tried again |
//! | *sweep*, *decay* | a release of what has been free since the last sweep; sweeps after a time or a number of requests |
//!
//! # Chapters
//!
//! - [Choosing an allocator](allocators): deferred, immediate or shared virtual memory, adaptors, segments or bins.
//! - [Several queues](queues): policies, and how a block goes from queue to queue.
//! - [Running out of memory](shortage): the ladder, the report, hooks, limits, and giving back.
//! - [Inspecting a pool](inspecting): recordings, snapshots, leaks, events, metrics.
//! - [Tuning](tuning): from a recorded trace to settings.
//! - [Writing a backend](backends): the traits, a skeleton, and the conformance suite.
//! - [Testing an array crate](testing) on the mock device.
//!
//! Whole programs are in the folder `examples` of each crate. Start with `quick_start`.

#[doc = include_str!("../guide/allocators.md")]
pub mod allocators {}

#[doc = include_str!("../guide/backends.md")]
pub mod backends {}

#[doc = include_str!("../guide/queues.md")]
pub mod queues {}

#[doc = include_str!("../guide/inspecting.md")]
pub mod inspecting {}

#[doc = include_str!("../guide/shortage.md")]
pub mod shortage {}

#[doc = include_str!("../guide/testing.md")]
pub mod testing {}

#[doc = include_str!("../guide/tuning.md")]
pub mod tuning {}
