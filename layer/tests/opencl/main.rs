//! The layer of OpenCL's loader in processes that do what few programs do, over a driver that has next to no functions.

#![cfg(target_os = "linux")]
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    clippy::undocumented_unsafe_blocks,
    clippy::unwrap_used,
    reason = "calls of the driver and of the system, as a program makes them, and a failing test panics"
)]

mod child;
mod driver;
mod files;
mod forks;
mod loaders;
mod pool_figures;
mod recording;
#[cfg(target_arch = "x86_64")]
mod stacks;
#[path = "../../../backend-cuda/tests/it/common/stand_in_build.rs"]
mod stand_in_build;
mod standard_error;
mod threads;
