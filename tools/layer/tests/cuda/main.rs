//! The `libcuda.so.1` in front of the driver's, over a stand-in for that. The functions of the driver that the tests call are those that the layer
//! exports.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    clippy::undocumented_unsafe_blocks,
    reason = "calls of the driver, with places for its results"
)]

mod calls;
mod captures;
mod child;
mod devices;
mod failures;
mod framework;
mod front;
mod injected;
mod kept;
mod pooled;
mod recorded;
#[path = "../../../../backend-cuda/tests/it/common/stand_in_build.rs"]
mod stand_in_build;
