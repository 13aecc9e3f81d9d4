//! The guide, in chapters, with a glossary at its head. There is no code in here; the examples are run as tests.
#![doc = include_str!("../guide/glossary.md")]
//!
//! # Chapters
//!
//! - [A first array crate](first_array_crate): tensors, slices, kernels for two backends, two queues, tests; with every file.
//! - [Choosing an allocator](allocators): deferred, immediate or shared virtual memory, adaptors, segments or bins.
//! - [Several queues](queues): policies, and how a block goes from queue to queue.
//! - [Several devices and processes](several_devices): a pool for each, and copies between them.
//! - [Running out of memory](shortage): the ladder, the report, hooks, limits, and releasing memory.
//! - [Inspecting a pool](inspecting): recordings, snapshots, leaks, events, metrics.
//! - [Any program](any_program): recording and pooling programs that know nothing of this library.
//! - [Tuning](tuning): from a recorded trace to settings.
//! - [Writing a backend](backends): the traits, a skeleton, and the conformance suite.
//! - [Testing an array crate](testing) on the mock device.
//! - [Finding races in your own code](races): your program on the mock device's race detector.
//! - [Coming from PyOpenCL](from_pyopencl): names, and what behaves differently.
//! - [C and C++](c_and_cpp): pools as handles for programs in C: an example, errors, queues.
//! - [Python](python): PyOpenCL, PyTorch and CuPy over pools of this library.
//! - [Platforms, versions, async](compatibility): what is tested where, and what may change.
//!
//! Whole programs are in the folder `examples` of each crate. Start with `quick_start`.

#[doc = include_str!("../guide/first_array_crate.md")]
pub mod first_array_crate {}

#[doc = include_str!("../guide/allocators.md")]
pub mod allocators {}

#[doc = include_str!("../guide/backends.md")]
pub mod backends {}

#[doc = include_str!("../guide/queues.md")]
pub mod queues {}

#[doc = include_str!("../guide/several_devices.md")]
pub mod several_devices {}

#[doc = include_str!("../guide/inspecting.md")]
pub mod inspecting {}

#[doc = include_str!("../guide/any_program.md")]
pub mod any_program {}

#[doc = include_str!("../guide/shortage.md")]
pub mod shortage {}

#[doc = include_str!("../guide/testing.md")]
pub mod testing {}

#[doc = include_str!("../guide/races.md")]
pub mod races {}

#[doc = include_str!("../guide/from_pyopencl.md")]
pub mod from_pyopencl {}

#[doc = include_str!("../guide/c_and_cpp.md")]
pub mod c_and_cpp {}

#[doc = include_str!("../guide/compatibility.md")]
pub mod compatibility {}

#[doc = include_str!("../guide/tuning.md")]
pub mod tuning {}

#[doc = include_str!("../guide/python.md")]
pub mod python {}
